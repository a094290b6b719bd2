"""The verbs that look back: fsck checks the ledger against itself, replay judges an attempt again."""

from harness import contest as contests
from harness.cli.arguments import EXIT_OF_OUTCOME, attempt_number, colour, directory, verb_parser
from harness.cli.documents import json_text
from harness.ledger import Ledger
from harness.ledger import fsck as auditing
from harness.loop import replay as replaying
from harness.render import review, terminal
from harness.render.layout import terminal_width


def fsck(words: list[str]) -> int:
    parser = verb_parser(
        "fsck", "Checks log, branch and experiments/ against each other; changes nothing.", "ratchet.sh fsck"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    given = parser.parse_args(words)
    found = auditing.audit(Ledger.open(directory(given.directory)))
    if given.json:
        print(json_text("fsck", found))
    else:
        print(review.audit_text(found, terminal_width(), colour()))
    return 1 if found.findings else 0


def replay(words: list[str]) -> int:
    parser = verb_parser(
        "replay",
        "Judges an attempt again under the present judge; records nothing. The exit code is that of the verdict now: 1 "
        "for an attempt that is rejected again.",
        "ratchet.sh replay 3",
    )
    parser.add_argument("number", type=attempt_number, metavar="N", help="the attempt's number")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    given = parser.parse_args(words)
    contest = contests.load(directory(given.directory))
    with terminal.Progress(quiet=given.quiet or given.json) as progress:
        found = replaying.replay(contest, given.number, progress)
    if given.json:
        print(json_text("replay", found))
    else:
        print(review.replay_text(found, terminal_width(), colour()))
    return EXIT_OF_OUTCOME[found.now.outcome]
