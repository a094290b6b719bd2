"""The verb `results`: the table of all attempts, their times on one scale."""

from argparse import Namespace
from dataclasses import dataclass

from harness.errors import UsageError
from harness.records import Gain, Note, Scale, ScaledRow
from harness.shell.arguments import BASELINE, at_least, command, say, since
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsDocument:
    """The attempts, newest last, each with its time on the `scale` and as it was recorded.

    `champion` is the number of the present one, `gain` the way to it, `notes` are later findings about recorded
    kernels, `skipped` says what is unreadable. `gain` and `notes` are of the whole ledger, however few rows are asked
    for.
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
        "Prints the attempts of the contest, a line each, with the time of each kernel under the champion's newest "
        "key, so that all times can be compared. Consecutive checks of the champion's unchanged program are one line. "
        "Below the table: which attempts have no time and why, and the way from the first accepted kernel to the "
        "champion. The filters choose lines; the sentences below are about all attempts."
    )
    examples = "ratchet.sh results --accepted; ratchet.sh results --since 12 --grep 'VMEM'; ratchet.sh results --csv"
    is_watched = True
    document = Document(8, ResultsDocument)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.flag("--all", "fold nothing, and show counters and commits too")
        parser.flag(
            "--then",
            "add the times as they were recorded (shown anyway where an accepted kernel has no time on the scale)",
        )
        parser.flag("--accepted", "only accepted attempts")
        parser.flag("--best", "only accepted attempts that set a new best time")
        parser.option("--since N", "only attempt N and later ones, or from a day on", type=since)
        parser.option("--grep TEXT", "only hypotheses with this text, in any case", default="")
        parser.option(
            "--limit N", "only the newest N lines; with --json and --csv the newest N attempts", type=at_least(1)
        )
        parser.json("the attempts, their times on the scale and as recorded, and the notes as JSON")
        parser.flag("--csv", "print the same as lines of comma-separated values")

    def run(self, given: Namespace) -> Outcome:
        from harness.ledger import table
        from harness.loop.expectations import calibration
        from harness.loop.gain import gain
        from harness.render.results import Shown, results_table
        from harness.render.results_csv import results_csv
        from harness.units import quantity
        from harness.verbs.parts import table_text
        from harness.verbs.parts.given import settled

        if given.json and given.csv:
            raise UsageError("usage", "expected --json or --csv, got both")
        ledger = settled(given)
        found = table.scaled(ledger)
        for sentence in found.skipped:
            say(sentence)
        wanted = table.Wanted(
            is_accepted=given.accepted,
            is_best=given.best,
            since=table_text.since(given.since, ledger, found),
            text=given.grep,
        )
        lines = table.newest(table.chosen(found, table.lines(found, unfolded=given.all), wanted), given.limit)
        progress = gain(found)
        rows = tuple(
            one for one in found.rows if any(one is other for line in lines for other in table_text.rows_of_line(line))
        )
        document = ResultsDocument(
            scale=found.scale,
            rows=rows[-given.limit :] if given.limit else rows,
            champion=found.number,
            gain=progress,
            notes=found.notes,
            skipped=found.skipped,
        )

        def text() -> str:
            if given.csv:
                return results_csv(document.rows, found.notes, found.number)
            if not found.rows:
                return f"no attempts yet: {command(BASELINE, given.directory)} makes the first"
            shown = Shown(
                rows=found.rows,
                lines=lines,
                champion=found.number,
                gain=progress,
                calibration=calibration([one.then for one in found.rows]),
                has_then=given.then or (found.scale is not None and found.scale.timed < found.scale.accepted),
                has_all=given.all,
                again=command("rescale --all", given.directory),
            )
            none = (
                "" if lines else f"none of {quantity(len(found.rows), 'attempt')} matches {table_text.filters(given)}\n"
            )
            return none + (
                results_table(shown) if wanted.is_narrow or given.all or given.limit else table_text.on_a_screen(shown)
            )

        return Outcome(document=document, text=text)
