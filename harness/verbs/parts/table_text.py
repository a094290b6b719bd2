"""Lines of the table of attempts: those that are asked for, and no more than fit a screen."""

import shlex
from argparse import Namespace
from dataclasses import replace

from harness.errors import UsageError
from harness.ledger import Ledger, bulk_read, table
from harness.records import Note, ScaledRow
from harness.render.results import Shown, results_table

# So many lines has a screen, with the table's head and the sentences below it.
_SCREEN = 30


def on_a_screen(shown: Shown) -> str:
    """The table with attempts in a row that were not accepted as one line each, where it would be too long."""
    printed, most = results_table(shown), len(shown.lines)
    while (surplus := len(printed.splitlines()) - _SCREEN) > 0 and most > 0:
        most -= surplus
        printed = results_table(replace(shown, lines=table.shortened(shown.lines, most)))
    return printed


def since(text: str | None, ledger: Ledger, found: table.ScaledTable) -> int | None:
    """The attempt that is meant by a number, or by a day: the first that began then or later. Raises UsageError."""
    if text is None or not found.rows:
        return None
    numbers = [one.row.number for one in found.rows]
    if text.isdecimal():
        if int(text) not in numbers:
            known = f"one of the attempts {min(numbers)} to {max(numbers)}"
            raise UsageError("unknown-attempt", f"expected --since to name {known}, got {text}")
        return int(text)
    begun = bulk_read.read_all(ledger.place, [one.then for one in found.rows])
    days = [(held.attempt.started[:10], held.row.number) for held in begun if held.attempt is not None]
    # After the last attempt: none matches.
    return next((number for day, number in days if day >= text), max(numbers) + 1)


def rows_of_line(line: table.Line) -> tuple[ScaledRow, ...]:
    """The attempts that the line is about."""
    if isinstance(line, ScaledRow):
        return (line,)
    return () if isinstance(line, Note) else line.rows


def filters(given: Namespace) -> str:
    """The filters as they were typed, for a sentence."""
    told = ["--accepted"] * given.accepted + ["--best"] * given.best
    told += [f"--since {given.since}"] if given.since else []
    told += [f"--grep {shlex.quote(given.grep)}"] if given.grep else []
    return " and ".join(told)
