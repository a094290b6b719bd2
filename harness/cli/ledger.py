"""The verbs that read the ledger or move its kernels: results, show, status, checkout, undo, new."""

from pathlib import Path

from harness import contest as contests
from harness.advice import report as reporting
from harness.cli.arguments import BASELINE, attempt_number, colour, command, directory, say, verb_parser
from harness.cli.documents import ResultsDocument, json_text
from harness.errors import RatchetError, UsageError
from harness.hardware import chip
from harness.ledger import Ledger
from harness.ledger.codec import encode_attempt
from harness.loop import actions, scaffold, search_state
from harness.loop.calibration import calibration
from harness.loop.settings import parse
from harness.records import Policy
from harness.render import terminal


def results(words: list[str]) -> int:
    parser = verb_parser("results", "Prints the table of all attempts of the contest.", "ratchet.sh results --limit 20")
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="only the newest N")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    given = parser.parse_args(words)
    if given.limit is not None and given.limit < 1:
        raise UsageError("usage", f"expected --limit 1 or more, got {given.limit}")
    ledger = settled(given.directory)
    rows, skipped = ledger.rows(given.limit)
    for sentence in skipped:
        say(sentence)
    champion = ledger.champion()
    if given.json:
        number = champion.number if champion else None
        print(json_text("results", ResultsDocument(rows=rows, champion=number, skipped=skipped)))
    elif rows:
        met = calibration(rows)
        print(terminal.results_table(rows, champion.number if champion else None, calibration=met))
    else:
        print(f"no attempts yet: {command(BASELINE, given.directory)} makes the first")
    return 0


def show(words: list[str]) -> int:
    parser = verb_parser("show", "Prints the whole report and the diff of one attempt.", "ratchet.sh show 3")
    parser.add_argument("number", type=attempt_number, metavar="N", help="the attempt's number")
    parser.add_argument("--json", action="store_true", help="print the record")
    given = parser.parse_args(words)
    ledger = settled(given.directory)
    try:
        attempt = ledger.attempt(given.number)
    except RatchetError as error:
        if error.kind != "unknown-attempt":
            raise
        way, verb = ("all of them", "results") if ledger.rows(1)[0] else ("the first is made by", BASELINE)
        raise RatchetError(error.kind, f"{error}; {way}: {command(verb, given.directory)}") from error
    if given.json:
        print(encode_attempt(attempt).decode(), end="")
    else:
        report = reporting.report(attempt.evidence, chip(attempt.evidence.chip))
        rows, _ = ledger.rows()
        print(
            terminal.show_text(
                attempt,
                report,
                attempt.diff,
                colour(),
                kernel=kernel_text(ledger, given.number),
                revoked=search_state.revoked_by(rows, given.number),
            )
        )
    return 0


def settled(given: Path | None) -> Ledger:
    """The ledger of the contest meant; an attempt that was killed is finished or undone first, and that is said."""
    ledger = Ledger.open(directory(given))
    for sentence in actions.recovered(ledger) if ledger.is_unfinished() else ():
        say(sentence)
    return ledger


def status(words: list[str]) -> int:
    parser = verb_parser("status", "Says where you stand.", "ratchet.sh status --json")
    parser.add_argument("--json", action="store_true", help="print where you stand as JSON")
    given = parser.parse_args(words)
    found = actions.status(contests.load(directory(given.directory)))
    print(json_text("status", found) if given.json else terminal.status_text(found))
    return 0


def checkout(words: list[str]) -> int:
    parser = verb_parser("checkout", "Puts the kernel.py of an attempt into the working tree.", "ratchet.sh checkout 3")
    parser.add_argument("number", type=attempt_number, metavar="N", help="the attempt's number")
    parser.add_argument(
        "--force", action="store_true", help="overwrite a kernel.py that no attempt and no commit holds"
    )
    given = parser.parse_args(words)
    for sentence in actions.checkout(directory(given.directory), given.number, force=given.force):
        print(sentence)
    return 0


def undo(words: list[str]) -> int:
    given = verb_parser("undo", "Takes the last accept back, as a new commit.", "ratchet.sh undo").parse_args(words)
    for sentence in actions.undo(contests.load(directory(given.directory)), Policy()):
        print(sentence)
    return 0


def new(words: list[str]) -> int:
    parser = verb_parser(
        "new", "Makes another contest, with its own ledger, and commits it.", "ratchet.sh new mine --like attention"
    )
    parser.add_argument("folder", type=Path, help="a folder in a git repository")
    parser.add_argument("--like", default="attention", help=f"what to start from: {', '.join(scaffold.templates())}")
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


def kernel_text(ledger: Ledger, number: int) -> str:
    """The kernel.py of an attempt, or "" where only its record and diff are known here."""
    try:
        return ledger.kernel(number).decode("utf-8", "replace")
    except RatchetError:
        return ""
