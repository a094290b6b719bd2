"""The verbs that judge kernel.py: an experiment, and `judge`, which records nothing."""

import msgspec

from harness import contest as contests
from harness import last_judged, ratchet
from harness.cli.arguments import EXIT_OF_OUTCOME, colour, directory, evaluation_options, say, verb_parser
from harness.codec import SCHEMA, encode_attempt
from harness.errors import UsageError
from harness.judge import report as reporting
from harness.judge import verdict as judging
from harness.ledger import Ledger
from harness.records import Policy
from harness.render import terminal
from harness.settings import parse


def experiment(words: list[str]) -> int:
    parser = verb_parser(
        "experiment",
        "Judges kernel.py against the champion and keeps it only if it is really faster.",
        'ratchet.sh "experiment: raise BQ to 2048" --set BQ=2048 --expect 30%',
    )
    parser.add_argument("message", help="the hypothesis; begins with `experiment:`")
    evaluation_options(parser)
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
    contest = contests.load(directory(given.directory), given.chip)
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
        judged = ratchet.attempt(contest, hypothesis, options, Policy(), progress, say)
    attempt, report = judged.attempt, judged.report
    if given.json:
        row = reporting.row(attempt, report, judging.key_digest(attempt.key))
        print(encode_attempt(attempt, row).decode(), end="")
    elif judged.recorded:
        kernel = Ledger.open(contest.directory).kernel(attempt.number).decode("utf-8", "replace")
        print(
            terminal.report_text(
                attempt, report, judged.champion_report, kernel=kernel, full=given.full, colour=colour()
            )
        )
    else:
        kernel = contest.kernel_path.read_text(encoding="utf-8", errors="replace")
        print(
            terminal.judge_text(
                attempt.evidence, report, attempt.verdict, kernel=kernel, full=given.full, colour=colour()
            )
        )
        print("\nThe kernel is the champion's, so nothing was recorded; --record records it.")
    for message in judged.messages:
        say(message)
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


def judge(words: list[str]) -> int:
    parser = verb_parser("judge", "Judges kernel.py as it stands and records nothing.", "ratchet.sh judge --full")
    evaluation_options(parser)
    given = parser.parse_args(words)
    contest = contests.load(directory(given.directory), given.chip)
    policy = Policy()
    options = ratchet.Options(on=given.on, deep=given.deep)
    with terminal.Progress(quiet=given.quiet or given.json) as progress:
        evidence = last_judged.judge(contest, options, policy, progress)
    verdict = judging.decide(evidence, None, None, policy, contest.chip)
    if given.json:
        print(msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, "evidence": evidence}), indent=1).decode())
    else:
        report = reporting.report(evidence, contest.chip)
        kernel = contest.kernel_path.read_text(encoding="utf-8", errors="replace")
        print(terminal.judge_text(evidence, report, verdict, kernel=kernel, full=given.full, colour=colour()))
    return EXIT_OF_OUTCOME[verdict.outcome]
