"""Arguments in, exit code out; the only caller of render/."""

import difflib
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from harness import __version__
from harness.cli import attempts, audit, insight, ledger, selftest, tools, whatif
from harness.errors import RatchetError, UsageError

BUG, INTERRUPTED = 5, 130
VALUED = ("-C", "--chip", "--set", "--expect", "--on", "--limit", "--like", "--only", "--steps", *whatif.VALUED)

OVERVIEW = f"""\
usage: ratchet.sh "experiment: HYPOTHESIS" [options]     test one change of kernel.py, keep it if it is faster
       ratchet.sh VERB [options]

  judge            judge kernel.py as it stands, record nothing          ratchet.sh judge
  results          the table of all attempts                             ratchet.sh results --limit 20
  show N           the whole report and the diff of attempt N            ratchet.sh show 3
  status           where you stand                                       ratchet.sh status
  checkout N       put the kernel.py of attempt N into the working tree  ratchet.sh checkout 3
  undo             take the last accept back, as a new commit            ratchet.sh undo
  fsck             check log, branch and experiments/ against each other ratchet.sh fsck
  replay N         judge attempt N again under the present judge         ratchet.sh replay 3
  lines [N]        kernel.py with the simulated cycles of each line      ratchet.sh lines 3
  timeline [N]     what happens when, for ui.perfetto.dev and XProf      ratchet.sh timeline 3
  whatif [N]       which of the chip's resources would make it faster  ratchet.sh whatif --mxu x2
  new DIR          make another contest, with its own ledger             ratchet.sh new mine --like attention
  simulate DIR     execute the schedules in a directory of compiler dumps  ratchet.sh simulate dumps --chip v6e
  test             run the project's tests                               ratchet.sh test
  selftest         plant bad kernels, see each of them refused           ratchet.sh selftest

  -C DIR           the contest's folder (default: this one)
  --python X       first of all: the Python to set the environment up with (3.12, or a path)
  ratchet.sh VERB --help says more; ratchet.sh experiment --help lists the options of an attempt.
exit codes: 0 accepted or fine, 1 rejected or failed, 2 usage, 3 inconclusive, 4 known error, 5 bug, 130 interrupted
kernel-ratchet {__version__}
"""


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
        rest = words[place + 1 :]
        end = next((at for at, word in enumerate(rest) if word.startswith("--")), len(rest))
        quoted = " ".join([f'"experiment: {" ".join(rest[:end])}"', *rest[end:]])
        raise UsageError("no-message", f"put the message in quotes: {quoted}")
    if words[place] in _COMMANDS:
        return _COMMANDS[words[place]](words[:place] + words[place + 1 :])
    return attempts.experiment(words)


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


def _fail(kind: str, message: str, code: int, as_json: bool) -> int:
    if as_json:
        print(msgspec.json.encode({"error": {"kind": kind, "message": message}}).decode())
    print(f"ratchet: {message} [{kind}]" if kind != "bug" else f"ratchet: {message}", file=sys.stderr)
    return code


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "experiment": attempts.experiment,
    "judge": attempts.judge,
    "results": ledger.results,
    "show": ledger.show,
    "status": ledger.status,
    "checkout": ledger.checkout,
    "undo": ledger.undo,
    "fsck": audit.fsck,
    "replay": audit.replay,
    "lines": insight.lines,
    "timeline": insight.timeline,
    "whatif": whatif.whatif,
    "new": ledger.new,
    "simulate": tools.simulate,
    "test": tools.test,
    "selftest": selftest.selftest,
}
VERBS = tuple(verb for verb in _COMMANDS if verb != "experiment")
