"""The verb `revoke`: judge the champion again, and take its title if it fails."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.errors import UsageError
from harness.records import RejudgedAttempt
from harness.shell.arguments import BASELINE, command, say
from harness.shell.exit_codes import EXIT_OF_REVOKE
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeDocument:
    """The champion judged again. `attempt` is the attempt that records the revocation, None if nothing was recorded.

    `holder` is the attempt that has the title now, None if no revocation was recorded or no accepted attempt passes.
    `time_ratio` is the champion's time now over its recorded time.
    """

    outcome: Literal["passes", "undecided", "revoked", "no champion"]
    champion: int
    holder: int | None
    attempt: int | None
    reasons: tuple[str, ...]
    tried: tuple[RejudgedAttempt, ...]
    time_ratio: float | None


class Revoke(Verb):
    place = "loop", 100
    line = "judge the champion again, and take its title if it fails"
    example = 'revoke "fails on sinks"'
    description = (
        "Judges the champion again under the present judge. If it fails, its title goes to the latest accepted attempt "
        "that passes; this is recorded as an attempt and committed. If the champion passes, it keeps the title, and "
        "nothing is recorded."
    )
    examples = "ratchet.sh revoke"
    document = Document(2, RevokeDocument)
    effect = "overwrites"

    def configure(self, parser: Parser) -> None:
        parser.word("reason", "why, in your words; recorded", default="", metavar="REASON")
        parser.many(
            "--draw MODE:SHAPE:FAMILY:SEED",
            "check on these inputs too, copied from the message about a failing champion; may be given more than once",
            dest="draws",
        )
        parser.flag("--force", "revoke even if this machine may have caused the failure (timeout, crash, no memory)")
        parser.json("the result as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop import draw_text
        from harness.loop import revoke as revoking
        from harness.loop.bench import policy_here
        from harness.render.review import revoked_blocks
        from harness.render.sections import Block, Line
        from harness.verbs.parts.context import contest_of, progress_of, tidy

        reason = arguments.reason.strip()
        if reason.isdigit():
            raise UsageError(
                "usage",
                f"expected a reason in words, got the number {reason}: revoke judges only the champion; "
                f"`ratchet.sh replay {reason}` judges attempt {reason} again",
            )
        draws = tuple(draw_text.parse(words) for words in arguments.draws)
        contest = contest_of(arguments)
        with progress_of(arguments) as progress:
            result = revoking.revoke(contest, reason, policy_here(), progress, say, draws=draws, force=arguments.force)
        tidy(contest.directory)
        attempt = result.attempt
        document = RevokeDocument(
            outcome=result.outcome,
            champion=result.champion,
            holder=attempt.revocation.holder if attempt and attempt.revocation else None,
            attempt=attempt.number if attempt else None,
            reasons=result.reasons,
            tried=attempt.revocation.tried if attempt and attempt.revocation else (),
            time_ratio=result.time_ratio,
        )

        def blocks() -> Iterator[Block]:
            show = command(f"show {attempt.number}" if attempt else "show", arguments.directory)
            yield from revoked_blocks(result.reasons, attempt, show)
            if result.outcome == "no champion":
                baseline = command(BASELINE, arguments.directory)
                yield Line(f"correct kernel.py; the next attempt is a baseline: {baseline}", is_whole=True)

        code = EXIT_OF_REVOKE[result.outcome]
        return Outcome(document=document, text=blocks, exit_code=code, messages=result.messages)
