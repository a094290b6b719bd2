"""What `revoke` does: it judges the champion again and takes its title where it fails."""

from argparse import Namespace

from harness import contest as contests
from harness.cli.arguments import BASELINE, command, directory, say
from harness.cli.documents import RevokeDocument
from harness.cli.ledger import tidy
from harness.cli.verb import Outcome
from harness.errors import UsageError
from harness.loop import draw_text
from harness.loop import revoke as revoking
from harness.records import Policy
from harness.render.layout import terminal_width
from harness.render.progress import Progress
from harness.render.review import revoked_text

_EXIT_OF = {"passes": 0, "revoked": 0, "no champion": 1, "undecided": 3}


def revoke(given: Namespace) -> Outcome:
    if given.reason.strip().isdigit():
        raise UsageError(
            "usage",
            f"revoke judges the champion alone; expected a reason in words, got the number {given.reason.strip()}. "
            f"`ratchet.sh replay {given.reason.strip()}` judges an attempt again",
        )
    drawn = tuple(draw_text.parsed(words) for words in given.draws)
    contest = contests.load(directory(given.directory))
    with Progress(quiet=given.quiet or given.json) as progress:
        found = revoking.revoke(contest, given.reason.strip(), Policy(), progress, say, draws=drawn, force=given.force)
    tidy(contest.directory)
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

    def text() -> str:
        show = command(f"show {attempt.number}" if attempt else "show", given.directory)
        printed = revoked_text(found.reasons, attempt, show, terminal_width())
        if found.outcome != "no champion":
            return printed
        return f"{printed}\nmend kernel.py; the next attempt is a baseline: {command(BASELINE, given.directory)}"

    return Outcome(document=document, text=text, exit_code=_EXIT_OF[found.outcome], messages=found.messages)
