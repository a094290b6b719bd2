"""What `table` does: it fills a table of tuned constants for shapes and chips, and writes it for whoever reads it."""

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
from harness.loop.tuning_table.fill import Tuned
from harness.loop.tuning_table.row import Row, rows_in
from harness.loop.tuning_table.shapes import Shape
from harness.records import Cell, Table
from harness.shell.arguments import say
from harness.shell.tables import outcome_of
from harness.shell.verb import Outcome
from harness.units import quantity
from harness.verbs.parts.given import progress_of
from harness.verbs.parts.searches import places_of
from harness.workbench import tables


def table(given: Namespace) -> Outcome:
    # What a table lacks follows from its shapes alone.
    grid = search_space.space(given.settings) if given.settings else () if given.list else None
    kernel = fill.tuned(given.kernel, grid, tuple(given.where))
    chips = _chips(given.chip)
    if given.out.exists() and not given.out.is_dir():
        raise UsageError("usage", f"expected --out DIR, a folder, got the file {given.out}")
    names = {chip: formats.file_name(kernel.name, chip, given.format) for chip in chips}
    wanted = shapes.read(given.shapes, kernel.operation, kernel.names)
    messages: list[str] = []
    if given.missing is not None:
        if len(chips) > 1:
            raise UsageError("usage", f"--missing reads the table of one chip, got --chip {given.chip}")
        asked = len(wanted)
        wanted = _missing(kernel, wanted, chips[0], given.missing)
        names_of = "; ".join(shape.name for shape in wanted)
        told = f"not in {given.missing}: {len(wanted)} of {quantity(asked, 'shape')}" + f": {names_of}" * bool(wanted)
        if given.list:
            listed = outcome_of("table", (_listed(wanted, given.missing),), exit_code=1 if wanted else 0)
            return replace(listed, text=lambda: told)
        say(told)
    elif given.list:
        raise UsageError("usage", "--list says which shapes a table lacks: give the table with --missing")
    found: list[Row] = []
    with places_of(given) as places, progress_of(given) as progress:
        how = fill.Filling(folder=given.out, trials=given.trials, places=places, seed=given.seed)
        for row in fill.rows(kernel, wanted, chips, how, progress):
            found.append(row)
            # After each row: a table is there as far as it goes, with the rows that it had.
            messages += _write(found, kernel, names[row.chip], given.out, given.format)
    messages.append(f"its page: ./ratchet.sh report --table {shlex.quote(str(given.out))}")
    filled = outcome_of("table", (overview(found),), exit_code=0 if all(row.is_entry for row in found) else 1)
    return replace(filled, messages=tuple(dict.fromkeys(messages)))


def _chips(text: str) -> tuple[str, ...]:
    known = [chip.name for chip in CHIPS if chip.topology is not None]
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in found:
        if name not in known:
            raise UsageError(
                "unknown-chip",
                f"expected --chip with one or more of {', '.join(known)}, separated by commas; got {name!r}",
            )
    return found


def _missing(kernel: Tuned, wanted: tuple[Shape, ...], chip: str, path: Path) -> tuple[Shape, ...]:
    """The shapes that the table at `path` has no entry for."""
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


def _write(found: list[Row], kernel: Tuned, name: str, folder: Path, form: formats.Format) -> list[str]:
    """Writes the table of the last row: the rows found, and the newest of other shapes.

    Those are of the same compiler, judge and kernel: what another one passed says nothing about this one.
    """
    path = folder / name
    mine = (found[-1].kernel, found[-1].chip, found[-1].compiler)
    others = [one for one in rows_in(folder) if one.kernel_digest == kernel.digest]
    rows = [one for one in (*others, *found) if (one.kernel, one.chip, one.compiler) == mine]
    # The rows found are what was printed, though another of the shape may be newer.
    newest = {one.parameters: one for one in rows}
    files.write_atomically(path, formats.written(tuple(newest.values()), form).encode())
    return [f"wrote {path}"]


def overview(rows: Sequence[Row]) -> Table:
    """The rows as they are printed and shown."""
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
        if row.fallback_seconds is None and row.settings is not None
    ]
    notes += [f"{row.shape} on {row.chip} is unchecked: {row.unchecked}" for row in rows if row.unchecked]
    notes += [
        f"{row.shape} on {row.chip}: {search_space.words(one.settings)} is faster and fails: {one.failure.kind}: "
        f"{one.failure.message}"
        for row in rows
        if row.is_entry
        for one in row.refused
    ]
    if any(row.settings is not None and row.fallback_ratio is not None and not row.is_certain for row in rows):
        notes.append("uncertain: the gain over the fallback is within the simulator's uncertainty.")
    kernel = ", ".join(dict.fromkeys(row.kernel for row in rows))
    title = f"Tuned constants of {kernel}" if kernel else "Tuned constants"
    return tables.table("tuned", title, "simulated", named, cells, notes, "every shape has an entry")


def checks(row: Row) -> str:
    """What came of judging the best one."""
    if row.settings is None:
        return "-"
    said = "unchecked" if row.unchecked else f"{row.checks} passed"
    return said + ", uncertain" * (row.fallback_ratio is not None and not row.is_certain)
