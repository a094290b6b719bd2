"""The work of `results`: the lines of the table that the options choose, at most a screen of them."""

import shlex
from argparse import Namespace
from dataclasses import replace

from harness.errors import UsageError
from harness.ledger import Ledger, bulk_read, history, table
from harness.loop.gain import calibration, gain
from harness.render.results import TableView, results_table, rows_of
from harness.render.results_csv import results_csv
from harness.shell.arguments import BASELINE, command, say
from harness.shell.verb import Outcome
from harness.units import quantity
from harness.verbs.parts.context import recovered_ledger
from harness.verbs.results import ResultsDocument

# Lines on a screen, including the table's head and the sentences below the table.
_SCREEN = 30


def run(arguments: Namespace) -> Outcome:
    if arguments.json and arguments.csv:
        raise UsageError("usage", "expected --json or --csv, got both")
    ledger = recovered_ledger(arguments)
    scaled = table.scaled(ledger)
    for sentence in scaled.skipped:
        say(sentence)
    wanted = table.Filter(
        is_accepted=arguments.accepted,
        is_best=arguments.best,
        since=_since(arguments.since, ledger, scaled),
        text=arguments.grep,
    )
    lines = table.newest(table.chosen(scaled, table.lines(scaled, unfolded=arguments.all), wanted), arguments.limit)
    progress = gain(scaled)
    rows = tuple(row for row in scaled.rows if any(row is other for line in lines for other in rows_of(line)))
    document = ResultsDocument(
        scale=scaled.scale,
        rows=rows[-arguments.limit :] if arguments.limit else rows,
        champion=scaled.number,
        gain=progress,
        notes=scaled.notes,
        skipped=scaled.skipped,
    )

    def text() -> str:
        if arguments.csv:
            return results_csv(document.rows, scaled.notes, scaled.number)
        if not scaled.rows:
            return f"no attempts yet: {command(BASELINE, arguments.directory)} makes the first"
        last = scaled.champion or history.attempt(ledger.place, scaled.rows[-1].row.number)
        shown = TableView(
            rows=scaled.rows,
            lines=lines,
            champion=scaled.number,
            gain=progress,
            calibration=calibration([row.then for row in scaled.rows]),
            has_products=last.evidence.problem.work.matmul_flops > 0,
            has_then=arguments.then or (scaled.scale is not None and scaled.scale.timed < scaled.scale.accepted),
            has_all=arguments.all,
            again=command("rescale --all", arguments.directory),
        )
        no_match = "" if lines else f"none of {quantity(len(scaled.rows), 'attempt')} matches {_filters(arguments)}\n"
        return no_match + (
            results_table(shown) if wanted.is_narrow or arguments.all or arguments.limit else _on_a_screen(shown)
        )

    return Outcome(document=document, text=text)


def _on_a_screen(shown: TableView) -> str:
    """The table; if it is too long, runs of attempts that were not accepted become one line each."""
    printed, most = results_table(shown), len(shown.lines)
    while (surplus := len(printed.splitlines()) - _SCREEN) > 0 and most > 0:
        most -= surplus
        printed = results_table(replace(shown, lines=table.shortened(shown.lines, most)))
    return printed


def _since(text: str | None, ledger: Ledger, scaled: table.ScaledTable) -> int | None:
    """The number of the first attempt to show (for a day: the first since that day); None: show all.

    Raises UsageError.
    """
    if text is None or not scaled.rows:
        return None
    numbers = [scaled_row.row.number for scaled_row in scaled.rows]
    if text.isdecimal():
        if int(text) not in numbers:
            numbers_in_words = f"one of the attempts {min(numbers)} to {max(numbers)}"
            raise UsageError("unknown-attempt", f"expected --since to name {numbers_in_words}, got {text}")
        return int(text)
    begun = bulk_read.read_all(ledger.place, [scaled_row.then for scaled_row in scaled.rows])
    days = [(stored.attempt.started[:10], stored.row.number) for stored in begun if stored.attempt is not None]
    # If no attempt matches, the number after the last attempt.
    return next((number for day, number in days if day >= text), max(numbers) + 1)


def _filters(arguments: Namespace) -> str:
    """The filters as they were typed, for a sentence."""
    options = ["--accepted"] * arguments.accepted + ["--best"] * arguments.best
    options += [f"--since {arguments.since}"] if arguments.since else []
    options += [f"--grep {shlex.quote(arguments.grep)}"] if arguments.grep else []
    return " and ".join(options)
