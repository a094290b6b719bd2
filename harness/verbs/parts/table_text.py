"""The table of attempts: the lines that the options choose, at most a screen of them."""

import shlex
from argparse import Namespace
from dataclasses import replace

from harness.errors import UsageError
from harness.ledger import Ledger, bulk_read, table
from harness.render.results import TableView, results_table

# Lines on a screen, including the table's head and the sentences below the table.
_SCREEN = 30


def on_a_screen(shown: TableView) -> str:
    """The table; if it is too long, runs of attempts that were not accepted become one line each."""
    printed, most = results_table(shown), len(shown.lines)
    while (surplus := len(printed.splitlines()) - _SCREEN) > 0 and most > 0:
        most -= surplus
        printed = results_table(replace(shown, lines=table.shortened(shown.lines, most)))
    return printed


def since(text: str | None, ledger: Ledger, scaled: table.ScaledTable) -> int | None:
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


def filters(arguments: Namespace) -> str:
    """The filters as they were typed, for a sentence."""
    options = ["--accepted"] * arguments.accepted + ["--best"] * arguments.best
    options += [f"--since {arguments.since}"] if arguments.since else []
    options += [f"--grep {shlex.quote(arguments.grep)}"] if arguments.grep else []
    return " and ".join(options)
