"""Arguments in, exit code out; the only caller of render/."""

import argparse
import difflib
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from harness import __version__, actions, ratchet
from harness import contest as contests
from harness import lock as locking
from harness.codec import SCHEMA, encode_attempt
from harness.errors import RatchetError, UsageError
from harness.hardware import CHIPS, chip
from harness.judge import report as reporting
from harness.judge import verdict as judging
from harness.ledger import Ledger
from harness.records import Policy
from harness.render import terminal
from harness.settings import parse
from harness.simulate.__main__ import main as simulate

EXIT_OF_OUTCOME = {"accept": 0, "reject": 1, "failed": 1, "inconclusive": 3}
BUG, INTERRUPTED = 5, 130
VERBS = ("judge", "results", "show", "status", "checkout", "undo", "new", "simulate", "test")
VALUED = ("-C", "--chip", "--set", "--expect", "--on", "--limit", "--like")

OVERVIEW = f"""\
usage: ratchet.sh "experiment: HYPOTHESIS" [options]     test one change of kernel.py, keep it if it is faster
       ratchet.sh VERB [options]

  judge            judge kernel.py as it stands, record nothing          ratchet.sh judge
  results          the table of all attempts                             ratchet.sh results --limit 20
  show N           the whole report and the diff of attempt N            ratchet.sh show 3
  status           where you stand                                       ratchet.sh status
  checkout N       put the kernel.py of attempt N into the working tree  ratchet.sh checkout 3
  undo             take the last accept back, as a new commit            ratchet.sh undo
  new DIR          make another contest, with its own ledger             ratchet.sh new mine --like attention
  simulate DIR     execute the schedules in a directory of compiler dumps  ratchet.sh simulate dumps --chip v6e
  test             run the project's tests                               ratchet.sh test

  -C DIR           the contest's folder (default: this one)
  --python X       first of all: the Python to set the environment up with (3.12, or a path)
  ratchet.sh VERB --help says more; ratchet.sh experiment --help lists the options of an attempt.
exit codes: 0 accepted or fine, 1 rejected or failed, 2 usage, 3 inconclusive, 4 known error, 5 bug, 130 interrupted
kernel-ratchet {__version__}
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError("usage", f"{message}\n{self.format_usage().strip()}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; errors are printed to stderr, with their kind."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    try:
        return _run(words)
    except RatchetError as error:
        return _fail(error.kind, str(error), error.exit_code, as_json)
    except KeyboardInterrupt:
        return _fail("interrupted", "interrupted: your files are as they were", INTERRUPTED, as_json)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        return _fail("os-error", f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 4, as_json)
    # Python's own exit code for an exception is 1, which says "rejected" to a program that drives the loop.
    except Exception:  # noqa: BLE001
        return _fail("bug", f"a bug in the ratchet, not in your kernel:\n{traceback.format_exc()}", BUG, as_json)


def judge_contest(prepare_path: str) -> int:
    """What `python prepare.py` does: judges the kernel.py beside `prepare_path` and records nothing."""
    return main(["judge", "-C", str(Path(prepare_path).resolve().parent), *sys.argv[1:]])


def _run(words: list[str]) -> int:
    place = _place_of_verb(words)
    if place is None:
        if any(word in ("-h", "--help") for word in words):
            print(OVERVIEW, end="")
            return 0
        raise UsageError(
            "no-message", f"expected a verb or a message that begins with `experiment:`, got nothing\n{OVERVIEW}"
        )
    if words[place] == "experiment:" and words[place + 1 :]:
        raise UsageError("no-message", f'put the message in quotes: "experiment: {" ".join(words[place + 1 :])}"')
    if words[place] in _COMMANDS:
        return _COMMANDS[words[place]](words[:place] + words[place + 1 :])
    return _experiment(words)


def _place_of_verb(words: Sequence[str]) -> int | None:
    """Where the verb or the message stands: the first word that is no option's. Raises UsageError `unknown-verb`."""
    skip = False
    for place, word in enumerate(words):
        if skip:
            skip = False
        elif word in VALUED:
            skip = True
        elif word.startswith("-"):
            continue
        elif word.startswith("experiment:") or word in _COMMANDS:
            return place
        else:
            near = difflib.get_close_matches(word, VERBS, 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise UsageError(
                "unknown-verb",
                f"expected a verb ({', '.join(VERBS)}) or a message that begins with `experiment:`, got {word!r}{hint}",
            )
    return None


def _parser(verb: str, description: str, example: str) -> _Parser:
    parser = _Parser(
        prog=f"ratchet.sh {verb}", description=description, epilog=f"example: {example}", allow_abbrev=False
    )
    parser.add_argument("-C", dest="directory", type=Path, default=None, metavar="DIR", help="the contest's folder")
    return parser


def _directory(given: Path | None) -> Path:
    """The contest meant: the one named, else this folder."""
    return given or Path.cwd()


# --- attempts ----------------------------------------------------------------------------------


def _evaluation_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chip", default=None, help=f"judge for this chip: {', '.join(c.name for c in CHIPS)}")
    parser.add_argument(
        "--on",
        choices=["cpu", "tpu", "simulated"],
        default=None,
        help="where the latency comes from; without it the TPU if there is one, else the simulator. "
        "cpu is for development and says nothing about a TPU",
    )
    parser.add_argument("--deep", action="store_true", help="profile with TRACE_COMPUTE_AND_SYNC (on a device)")
    parser.add_argument("--full", action="store_true", help="print the whole report, not one screen")
    parser.add_argument("--json", action="store_true", help="print the record instead of the report")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _experiment(words: list[str]) -> int:
    parser = _parser(
        "experiment",
        "Judges kernel.py against the champion and keeps it only if it is really faster.",
        'ratchet.sh "experiment: raise BQ to 2048" --set BQ=2048 --expect 30%',
    )
    parser.add_argument("message", help="the hypothesis; begins with `experiment:`")
    _evaluation_options(parser)
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="rewrite this constant of kernel.py",
    )
    parser.add_argument("--expect", default=None, metavar="5%", help="how much less time you expect; recorded")
    parser.add_argument("--again", action="store_true", help="judge a program that was judged before once more")
    parser.add_argument("--record", action="store_true", help="record an unchanged kernel's evaluation too")
    parser.add_argument(
        "--rebaseline", action="store_true", help="make kernel.py the champion as it stands, if it is right"
    )
    given = parser.parse_args(words)
    hypothesis = given.message.removeprefix("experiment:").strip()
    if not given.message.startswith("experiment:"):
        raise UsageError("no-message", f"expected a message that begins with `experiment:`, got {given.message!r}")
    deep = given.deep
    if hypothesis.split()[-1:] == ["--deep"]:
        deep, hypothesis = True, hypothesis[: -len("--deep")].strip()
    if not hypothesis:
        raise UsageError(
            "no-message", "expected a hypothesis after `experiment:`, got nothing; say what you changed and why"
        )
    contest = contests.load(_directory(given.directory), given.chip)
    options = ratchet.Options(
        settings=tuple(parse(text) for text in given.settings),
        expected_time_ratio=_expectation(given.expect),
        on=given.on,
        deep=deep,
        again=given.again,
        record=given.record,
        rebaseline=given.rebaseline,
    )
    with terminal.Progress(quiet=given.quiet or given.json) as progress:
        judged = ratchet.attempt(contest, hypothesis, options, Policy(), progress, _say)
    attempt, report = judged.attempt, judged.report
    if given.json:
        row = reporting.row(attempt, report, judging.key_digest(attempt.key))
        print(encode_attempt(attempt, row).decode(), end="")
    elif judged.recorded:
        print(terminal.report_text(attempt, report, judged.champion_report, full=given.full, colour=_colour()))
    else:
        print(terminal.judge_text(attempt.evidence, report, attempt.verdict, full=given.full, colour=_colour()))
        print("\nThe kernel is the champion's, so nothing was recorded; --record records it.")
    for message in judged.messages:
        _say(message)
    return EXIT_OF_OUTCOME[judged.attempt.verdict.outcome]


def _expectation(text: str | None) -> float | None:
    """`5%` (less time) -> 0.95."""
    if text is None:
        return None
    try:
        fraction = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        fraction = float("nan")
    if not -10 < fraction < 1:
        raise UsageError("bad-expectation", f"expected --expect 5% (less time, below 100 %), got {text!r}")
    return 1 - fraction


def _judge(words: list[str]) -> int:
    parser = _parser("judge", "Judges kernel.py as it stands and records nothing.", "ratchet.sh judge --full")
    _evaluation_options(parser)
    given = parser.parse_args(words)
    contest = contests.load(_directory(given.directory), given.chip)
    policy = Policy()
    options = ratchet.Options(on=given.on, deep=given.deep)
    lock = contest.directory / "profile_data" / "judge.lock"
    with locking.held(lock, "judge"), terminal.Progress(quiet=given.quiet or given.json) as progress:
        evidence = ratchet.evaluate(contest, contest.kernel_path.read_bytes(), options, policy, progress, work="judge")
    verdict = judging.decide(evidence, None, None, policy, contest.chip)
    if given.json:
        print(msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, "evidence": evidence}), indent=1).decode())
    else:
        report = reporting.report(evidence, contest.chip)
        print(terminal.judge_text(evidence, report, verdict, full=given.full, colour=_colour()))
    return EXIT_OF_OUTCOME[verdict.outcome]


# --- the ledger --------------------------------------------------------------------------------


def _results(words: list[str]) -> int:
    parser = _parser("results", "Prints the table of all attempts of the contest.", "ratchet.sh results --limit 20")
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="only the newest N")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    given = parser.parse_args(words)
    if given.limit is not None and given.limit < 1:
        raise UsageError("usage", f"expected --limit 1 or more, got {given.limit}")
    ledger = Ledger.open(_directory(given.directory))
    rows, skipped = ledger.rows(given.limit)
    for sentence in skipped:
        _say(sentence)
    if given.json:
        print(msgspec.json.format(msgspec.json.encode(rows), indent=1).decode())
    elif rows:
        champion = ledger.champion()
        print(terminal.results_table(rows, champion.number if champion else None))
    else:
        print('no attempts yet: ./ratchet.sh "experiment: baseline" makes the first')
    return 0


def _show(words: list[str]) -> int:
    parser = _parser("show", "Prints the whole report and the diff of one attempt.", "ratchet.sh show 3")
    parser.add_argument("number", type=int, help="the attempt")
    parser.add_argument("--json", action="store_true", help="print the record")
    given = parser.parse_args(words)
    attempt = Ledger.open(_directory(given.directory)).attempt(given.number)
    if given.json:
        print(encode_attempt(attempt).decode(), end="")
    else:
        report = reporting.report(attempt.evidence, chip(attempt.evidence.chip))
        print(terminal.show_text(attempt, report, attempt.diff, _colour()))
    return 0


def _status(words: list[str]) -> int:
    given = _parser("status", "Says where you stand.", "ratchet.sh status").parse_args(words)
    contest = contests.load(_directory(given.directory))
    print(terminal.status_text(actions.status(contest)))
    return 0


def _checkout(words: list[str]) -> int:
    parser = _parser("checkout", "Puts the kernel.py of an attempt into the working tree.", "ratchet.sh checkout 3")
    parser.add_argument("number", type=int, help="the attempt")
    parser.add_argument(
        "--force", action="store_true", help="overwrite a kernel.py that no attempt and no commit holds"
    )
    given = parser.parse_args(words)
    for sentence in actions.checkout(_directory(given.directory), given.number, force=given.force):
        print(sentence)
    return 0


def _undo(words: list[str]) -> int:
    given = _parser("undo", "Takes the last accept back, as a new commit.", "ratchet.sh undo").parse_args(words)
    for sentence in actions.undo(contests.load(_directory(given.directory)), Policy()):
        print(sentence)
    return 0


def _new(words: list[str]) -> int:
    parser = _parser(
        "new", "Makes another contest, with its own ledger, and commits it.", "ratchet.sh new mine --like attention"
    )
    parser.add_argument("folder", type=Path, help="a folder in a git repository")
    parser.add_argument("--like", default="attention", help=f"what to start from: {', '.join(contests.templates())}")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="rewrite this constant of prepare.py",
    )
    given = parser.parse_args(words)
    base = given.directory or Path.cwd()
    for sentence in actions.new(base / given.folder, given.like, tuple(parse(text) for text in given.settings)):
        print(sentence)
    return 0


# --- tools -------------------------------------------------------------------------------------


def _simulate(words: list[str]) -> int:
    return simulate(words)


def _test(words: list[str]) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *words], cwd=contests.PACKAGE.parent)


# --- output ------------------------------------------------------------------------------------


def _say(sentence: str) -> None:
    print(f"ratchet: {sentence}", file=sys.stderr)


def _fail(kind: str, message: str, code: int, as_json: bool) -> int:
    if as_json:
        print(msgspec.json.encode({"error": {"kind": kind, "message": message}}).decode())
    print(f"ratchet: {message} [{kind}]" if kind != "bug" else f"ratchet: {message}", file=sys.stderr)
    return code


def _colour() -> bool:
    return terminal.wants_colour(sys.stdout)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "experiment": _experiment,
    "judge": _judge,
    "results": _results,
    "show": _show,
    "status": _status,
    "checkout": _checkout,
    "undo": _undo,
    "new": _new,
    "simulate": _simulate,
    "test": _test,
}
