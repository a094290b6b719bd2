"""The verb `results`: the table of all attempts, their times on one scale."""

from dataclasses import dataclass

from harness.records import Gain, Note, Scale, ScaledRow
from harness.shell.arguments import at_least, since
from harness.shell.parser import Parser
from harness.shell.verb import Document, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsDocument:
    """The attempts, newest last, each with its time on the `scale` and as it was recorded.

    - `champion`: the champion's number.
    - `gain`: the gain from the first accepted kernel to the champion.
    - `notes`: later findings about recorded kernels.
    - `skipped`: sentences on unreadable attempts.

    Filters choose the `rows`. `gain` and `notes` are of the whole ledger.
    """

    scale: Scale | None
    rows: tuple[ScaledRow, ...]
    champion: int | None
    gain: Gain | None
    notes: tuple[Note, ...]
    skipped: tuple[str, ...]


class Results(Verb):
    place = "look", 10
    line = "the table of all attempts, their times on one scale"
    example = "results --accepted"
    description = (
        "Prints the attempts of the contest, one line for each. All times are under the champion's newest timing "
        "key, so that they are comparable. Consecutive checks of the champion's unchanged program share one "
        "line. Sentences below the table give the attempts without a time, the reasons, and the gain from the first "
        "accepted kernel to the champion. Filters apply to the lines only."
    )
    examples = "ratchet.sh results --accepted; ratchet.sh results --since 12 --grep 'VMEM'; ratchet.sh results --csv"
    is_watched = True
    document = Document(8, ResultsDocument)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.flag("--all", "print a line for every attempt and every check, and the columns of counters and commits")
        parser.flag(
            "--then", "add the times as they were recorded (added anyway if an accepted kernel has no comparable time)"
        )
        parser.flag("--accepted", "only accepted attempts")
        parser.flag("--best", "only accepted attempts that set a new best time")
        parser.option("--since N", "only attempts from number N on, or from a day such as 2026-03-31 on", type=since)
        parser.option("--grep TEXT", "only hypotheses that contain this text, in any case", default="")
        parser.option(
            "--limit N", "only the newest N lines; with --json and --csv the newest N attempts", type=at_least(1)
        )
        parser.json("the attempts, their times (comparable and as recorded), and the notes as JSON")
        parser.flag("--csv", "print attempts and notes as CSV, one line for each")
