"""The verb that judges the champion again and takes its title where it fails."""

from harness import contest as contests
from harness.cli.arguments import BASELINE, command, directory, say, verb_parser
from harness.cli.documents import RevokeDocument, json_text
from harness.errors import UsageError
from harness.loop import draws
from harness.loop import revoke as revoking
from harness.records import Policy
from harness.render import terminal
from harness.render.layout import terminal_width
from harness.render.revocation import revoked_text

_EXIT_OF = {"passes": 0, "revoked": 0, "no champion": 1, "undecided": 3}


def revoke(words: list[str]) -> int:
    parser = verb_parser(
        "revoke",
        "Judges the champion again under the present judge. One that fails loses its title: it goes to the latest "
        "accepted attempt that passes, recorded as an attempt and committed. A champion that passes keeps it, and "
        "nothing is recorded.",
        "ratchet.sh revoke",
    )
    parser.add_argument("reason", nargs="?", default="", metavar="REASON", help="why, in your words; recorded")
    parser.add_argument(
        "--draw",
        dest="draws",
        action="append",
        default=[],
        metavar="MODE:SHAPE:FAMILY:SEED",
        help="inputs to check on too, as the message on a champion that fails names them; may be given more than once",
    )
    parser.add_argument(
        "--force", action="store_true", help="believe a failure that may be this machine's (timeout, crash, no memory)"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    given = parser.parse_args(words)
    if given.reason.strip().isdigit():
        raise UsageError(
            "usage",
            f"revoke judges the champion alone; expected a reason in words, got the number {given.reason.strip()}. "
            f"`ratchet.sh replay {given.reason.strip()}` judges an attempt again",
        )
    drawn = tuple(draws.parsed(words) for words in given.draws)
    contest = contests.load(directory(given.directory))
    with terminal.Progress(quiet=given.quiet or given.json) as progress:
        found = revoking.revoke(contest, given.reason.strip(), Policy(), progress, say, draws=drawn, force=given.force)
    if given.json:
        attempt = found.attempt
        document = RevokeDocument(
            outcome=found.outcome,
            champion=found.champion,
            holder=attempt.revocation.holder if attempt and attempt.revocation else None,
            attempt=attempt.number if attempt else None,
            reasons=found.reasons,
            tried=attempt.revocation.tried if attempt and attempt.revocation else (),
            time_ratio=found.time_ratio,
        )
        print(json_text("revoke", document))
    else:
        print(revoked_text(found.outcome, found.reasons, found.attempt, terminal_width()))
        if found.outcome == "no champion":
            print(f"mend kernel.py; the next attempt is a baseline: {command(BASELINE, given.directory)}")
    for sentence in found.messages:
        say(sentence)
    return _EXIT_OF[found.outcome]
