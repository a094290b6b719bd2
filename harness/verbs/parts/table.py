"""The work of `table`: tuned constants for shapes and chips, searched, judged and written in the requested form."""

import shlex
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness import files, reading_limits
from harness.errors import UsageError
from harness.hardware import CHIPS
from harness.loop import search_space
from harness.loop.tuning_table import fill, formats, shapes
from harness.loop.tuning_table.fill import TunedKernel
from harness.loop.tuning_table.row import Row, rows_in
from harness.loop.tuning_table.shapes import Shape
from harness.records import Cell, Table
from harness.shell.arguments import say
from harness.shell.tables import outcome_of
from harness.shell.verb import Outcome
from harness.units import quantity
from harness.verbs.parts.context import progress_of
from harness.verbs.parts.searches import places_of
from harness.workbench import tables


def run(arguments: Namespace) -> Outcome:
    # Listing the shapes that a table lacks needs no settings.
    grid = search_space.space(arguments.settings) if arguments.settings else () if arguments.list else None
    kernel = fill.tuned(arguments.kernel, grid, tuple(arguments.where))
    chips = _chips(arguments.chip)
    if arguments.out.exists() and not arguments.out.is_dir():
        raise UsageError("usage", f"expected --out DIR, a folder, got the file {arguments.out}")
    names = {chip: formats.file_name(kernel.name, chip, arguments.format) for chip in chips}
    wanted = shapes.read(arguments.shapes, kernel.operation, kernel.names)
    messages: list[str] = []
    if arguments.missing is not None:
        if len(chips) > 1:
            raise UsageError("usage", f"--missing reads the table of one chip, got --chip {arguments.chip}")
        asked = len(wanted)
        wanted = _missing(kernel, wanted, chips[0], arguments.missing)
        names_of = "; ".join(shape.name for shape in wanted)
        summary = f"not in {arguments.missing}: {len(wanted)} of {quantity(asked, 'shape')}" + f": {names_of}" * bool(
            wanted
        )
        if arguments.list:
            listed = outcome_of("table", (_listed(wanted, arguments.missing),), exit_code=1 if wanted else 0)
            return replace(listed, text=lambda: summary)
        say(summary)
    elif arguments.list:
        raise UsageError("usage", "--list says which shapes a table lacks: give the table with --missing")
    rows: list[Row] = []
    with places_of(arguments) as places, progress_of(arguments) as progress:
        how = fill.Filling(folder=arguments.out, trials=arguments.trials, places=places, seed=arguments.seed)
        for row in fill.rows(kernel, wanted, chips, how, progress):
            rows.append(row)
            # The table is written after each row, so that an interrupted run leaves the finished rows.
            messages += _write(rows, kernel, names[row.chip], arguments.out, arguments.format)
    messages.append(f"the page of the table: ./ratchet.sh report --table {shlex.quote(str(arguments.out))}")
    filled = outcome_of("table", (overview(rows),), exit_code=0 if all(row.is_entry for row in rows) else 1)
    return replace(filled, messages=tuple(dict.fromkeys(messages)))


def _chips(text: str) -> tuple[str, ...]:
    names = [chip.name for chip in CHIPS if chip.topology is not None]
    chips = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in chips:
        if name not in names:
            raise UsageError(
                "unknown-chip",
                f"expected --chip with one or more of {', '.join(names)}, separated by commas; got {name!r}",
            )
    return chips


def _missing(kernel: TunedKernel, wanted: tuple[Shape, ...], chip: str, path: Path) -> tuple[Shape, ...]:
    """The shapes without an entry in the table at `path`."""
    try:
        text = reading_limits.read(path, reading_limits.RECORD).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError("bad-table", f"expected a table for --missing, got {path}: {error.strerror}") from error
    holds = formats.holds(text, str(path), kernel.name, chip)
    with tempfile.TemporaryDirectory(prefix="ratchet-") as scratch:
        return tuple(shape for shape in wanted if not holds(fill.parameters(kernel, shape, chip, Path(scratch))))


def _listed(missing: tuple[Shape, ...], path: Path) -> Table:
    rows = [(shape.name,) for shape in missing]
    return tables.table(
        "missing", f"Shapes that {path} lacks", "static", "shape!", rows, (), "every shape has an entry"
    )


def _write(finished: list[Row], kernel: TunedKernel, name: str, folder: Path, form: formats.Format) -> list[str]:
    """Writes the table of the last row's kernel and chip: the finished rows, and the newest row of each other shape.

    Only rows of the same compiler, judge and kernel are used, because a pass under another compiler, judge or kernel
    proves nothing here.
    """
    path = folder / name
    mine = (finished[-1].kernel, finished[-1].chip, finished[-1].compiler)
    others = [row for row in rows_in(folder) if row.kernel_digest == kernel.digest]
    rows = [row for row in (*others, *finished) if (row.kernel, row.chip, row.compiler) == mine]
    # The finished rows come last, so that they replace other rows of the same shape even if those are newer.
    newest = {row.parameters: row for row in rows}
    files.write_atomically(path, formats.written(tuple(newest.values()), form).encode())
    return [f"wrote {path}"]


def overview(rows: Sequence[Row]) -> Table:
    """The rows as a table to print and show."""
    named = (
        "shape!;chip!;settings=best!;seconds=time;plus_minus_seconds=+/-;fallback_seconds=fallback;"
        "fallback_ratio=over best;tried!;checks!"
    )
    cells: list[tuple[Cell, ...]] = [
        (
            row.shape,
            row.chip,
            search_space.words(row.settings or ()) or "-",
            row.seconds,
            row.plus_minus_seconds,
            row.fallback_seconds,
            row.fallback_ratio,
            f"{row.tried} of {row.possible}",
            checks(row),
        )
        for row in rows
    ]
    notes = [formats.provenance(rows)] if rows else []
    notes += [f"{row.shape} on {row.chip} has no entry: {row.failure}" for row in rows if row.settings is None]
    notes += [
        f"{row.shape} on {row.chip}: the fallback has no time: {row.fallback_failure}"
        for row in rows
        if row.fallback_ends is None and row.settings is not None
    ]
    notes += [_range_note(row) for row in rows if row.range_seconds is not None]
    notes += [f"{row.shape} on {row.chip} is unchecked: {row.unchecked}" for row in rows if row.unchecked]
    notes += [
        f"{row.shape} on {row.chip}: {search_space.words(refusal.settings)} is faster and fails: "
        f"{refusal.failure.kind}: {refusal.failure.message}"
        for row in rows
        if row.is_entry
        for refusal in row.refused
    ]
    if any(row.seconds is not None and row.fallback_ratio is not None and not row.is_certain for row in rows):
        notes.append("uncertain: the gain over the fallback is within the simulator's uncertainty.")
    kernel = ", ".join(dict.fromkeys(row.kernel for row in rows))
    title = f"Tuned constants of {kernel}" if kernel else "Tuned constants"
    return tables.table("tuned", title, "simulated", named, cells, notes, "every shape has an entry")


def _range_note(row: Row) -> str:
    """A sentence on the reason for the row's range, and on whether the best setting is best at both ends."""
    how_sure = (
        "no other setting takes less time at either end"
        if row.is_best_at_both_ends
        else "settings are ranked by the middle of the range, and another setting takes less time at one end"
    )
    return (
        f"{row.shape} on {row.chip} has {formats.in_words(row.range_seconds)}. The SparseCore does a part of the "
        f"work, nearly the same part in every setting; {how_sure}. `simulate MODULE.py:FUNCTION --on-tensorcore` "
        "prints the time of the program without the SparseCore."
    )


def checks(row: Row) -> str:
    """The checks of the best setting, in words."""
    if row.settings is None:
        return "-"
    words = "unchecked" if row.unchecked else f"{row.checks} passed"
    if row.range_seconds is not None:
        return words + ", range" + ", uncertain" * (not row.is_best_at_both_ends)
    return words + ", uncertain" * (row.fallback_ratio is not None and not row.is_certain)
