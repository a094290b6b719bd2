"""The verb `next`: where the search stands, and whether to go on."""

from harness.records.search_state import SearchState
from harness.shell.arguments import at_least
from harness.shell.parser import Parser
from harness.shell.verb import Document, Verb

# Only the newest attempts are read: reading a kernel.py takes milliseconds, and older ones do not change the advice.
_LIMIT = 50


class Next(Verb):
    place = "loop", 10
    line = "where the search stands, and whether to go on"
    example = "next --json"
    description = (
        "Says where the search stands: champion, distance to the chip's floor, what was tried, hints, and whether to "
        "go on. Judges nothing; an interrupted attempt is finished or undone first."
    )
    is_watched = True
    document = Document(7, SearchState)
    effect = "repairs"

    def configure(self, parser: Parser) -> None:
        from harness.loop.stop_advice import PLATEAU_ATTEMPTS

        parser.option(
            "--plateau N",
            f"advise to stop after this many attempts without a win ({PLATEAU_ATTEMPTS})",
            type=at_least(1),
            default=PLATEAU_ATTEMPTS,
        )
        parser.option("--limit N", f"look into the newest N attempts only ({_LIMIT})", type=at_least(1), default=_LIMIT)
        parser.json("the state as JSON")
