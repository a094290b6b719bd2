"""Screens from data: paragraphs, lists and tables, with their widths, units, alignment, colours and line breaks."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

from rich.cells import cell_len

from harness import units
from harness.records.table import Cell
from harness.records.table import Unit as Measure
from harness.render.layout import Style, clean, cut, diff_text, flow, indented, joined, pad, paint, wrap

# Columns of the names before values, in a report and in a status.
FIELD, SHORT_FIELD = 23, 14
# A remark stands next to its row if at least this many columns are left for it, else below the row.
_LEAST_REMARK = 30
# Units in addition to those of tables:
# - `times`: a time, printed in the unit of the column's longest time; `+times`: the same with a sign.
# - `change`: a ratio new/old, printed as a change. `KiB`: a size on a chip. `error`: an error or a tolerance.
# - `ms`: milliseconds, printed without the unit, which is in the title. `short`: a count, printed in few characters.
Unit: TypeAlias = Measure | Literal["times", "+times", "change", "KiB", "error", "score", "ms", "short"]
_FORMATS: Mapping[str, Callable[[float], str]] = {
    "s": units.seconds,
    **{unit: partial(units.decimal, unit=unit) for unit in ("B", "FLOP", "FLOP/s", "B/s")},
    "FLOP/B": lambda value: f"{value:,.1f} FLOP/B",
    "fraction": units.percent,
    "ratio": lambda value: f"{value:.2f}x",
    "count": units.count,
    "change": units.change,
    "KiB": units.kibibytes,
    "error": lambda value: f"{value:.2e}",
    "score": lambda value: f"{value:.1f}",
    # Times below 0.1 ms get one more digit.
    "ms": lambda value: f"{1e3 * value:.{3 if value >= 1e-4 else 4}f}",
    "short": units.short,
}


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph: `lead` comes before its first line, `rest` (by default as many blanks) before the others.

    `style` paints its lines, or only the words `painted` in the first. Without `chops`, a word wider than a line (an
    address) stays whole. With `is_aligned`, blanks are kept if the paragraph fits into a line.
    """

    text: str
    _: KW_ONLY
    lead: str = ""
    rest: str | None = None
    style: Style | None = None
    painted: str = ""
    chops: bool = True
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """Items side by side, broken only between them, with `lead` as a hanging indent."""

    items: Sequence[str]
    _: KW_ONLY
    lead: str = ""
    separator: str = " · "


@dataclass(frozen=True, slots=True)
class Line:
    """One line with its indentation, cut to the page unless `is_whole`; `text` may be (text, style) pairs."""

    text: str | Sequence[tuple[str, Style | None]] = ""
    _: KW_ONLY
    style: Style | None = None
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff, uncut: cutting it would hide code, and people copy from it."""

    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Lines that make sense only together, with a legend; if they do not fit, a line says that `name` is too wide."""

    lines: Sequence[Line]
    _: KW_ONLY
    name: str
    legend: Line


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Words stand left and figures right, unless `side` says otherwise; `unknown` is printed for None.

    - `width`: the least width of the column, unless `least` is given: then the column may shrink to `least`.
    - `most`: the largest width of the column.
    - `room`, `rank`: as long as some column has less than its `room`, columns with a `rank` are left out, the lowest
      rank first. A ranked column that is empty in every row is always left out.
    - `note`: a sentence below the table, printed if a cell of this column contains the note's first character.
    """

    title: str
    unit: Unit = ""
    _: KW_ONLY
    side: Literal["l", "r", ""] = ""
    unknown: str = "-"
    width: int = 0
    least: int | None = None
    most: int | None = None
    room: int | None = None
    rank: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row, its colour, and a remark, which is wrapped next to the row or, without room, below it."""

    cells: Sequence[Cell]
    _: KW_ONLY
    style: Style | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: rows of cells, with words between them where needed.

    - `gap`: the number of blanks between columns. `title_room`: the number of blanks added to a title's width.
    - `is_ruled`: if False, there is no ruler below the titles.
    - `is_cut`: if False, a line that cannot be made to fit stays whole.
    - `of_lost_columns`: makes the blocks below the table, from the numbers of the rows whose end was cut off.
    """

    columns: Sequence[Column]
    rows: Sequence["Sequence[Cell] | Row | Words | Line"]
    _: KW_ONLY
    indent: str = ""
    gap: int = 2
    title_room: int = 2
    is_ruled: bool = True
    is_cut: bool = True
    of_lost_columns: "Callable[[Sequence[int]], Iterable[Block]]" = lambda _: ()


Block: TypeAlias = Words | Items | Line | Diff | Drawing | Grid
GAP = Line()


def screen(blocks: Iterable[Block], width: int, *, colour: bool = False) -> str:
    """The blocks as text of at most `width` columns."""
    return joined(line for block in blocks for line in lines_of(block, width, colour))


def named(name: str, text: str, room: int = FIELD) -> Words:
    """A value after its name; the name takes `room` columns."""
    return Words(text, lead=f"{name + ':':<{room}}")


def named_items(name: str, items: Sequence[str], separator: str = " · ", room: int = FIELD) -> Items:
    """Several values after their name; the name takes `room` columns."""
    return Items(items, lead=f"{name + ':':<{room}}", separator=separator)


def apart(*sections: Iterable[Block]) -> Iterator[Block]:
    """The sections that are not empty, each with an empty line after it."""
    for section in map(list, sections):
        yield from (*section, GAP) if section else ()


def lines_of(block: Block, width: int, colour: bool) -> list[str]:
    """The lines of one block."""
    match block:
        case Words():
            return _wrapped(block, width, colour)
        case Items():
            return flow(block.items, width, block.lead, block.separator)
        case Line():
            return [_line(block, width, colour)]
        case Diff():
            return [diff_text(block.text, colour)]
        case Drawing():
            whole = [replace(line, is_whole=True) for line in block.lines]
            if any(cell_len(_line(line, width, colour=False)) > width for line in whole):
                return [f"{block.name} is wider than {width} columns: --json has its figures"]
            return [_line(line, width, colour) for line in (*whole, block.legend)]
        case Grid():
            return _laid_out(block, width, colour)


def _wrapped(block: Words, width: int, colour: bool) -> list[str]:
    if block.is_aligned and cell_len(block.lead + block.text) <= width:
        return [block.lead + block.text]
    first, *others = wrap(clean(block.text), width, block.lead, block.rest, chops=block.chops)
    if block.style is None:
        return [first, *others]
    if block.painted:
        return [first.replace(block.painted, paint(block.painted, block.style, colour), 1), *others]
    return [paint(line, block.style, colour) for line in (first, *others)]


def _line(block: Line, width: int, colour: bool) -> str:
    if not isinstance(block.text, str):
        return "".join(paint(text, style, colour) if style else text for text, style in block.text)
    text = block.text if block.is_whole else cut(block.text, width)
    return paint(text, block.style, colour) if block.style else text


def cell(value: Cell, unit: Unit = "") -> str:
    """One value with its unit; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value.rstrip() if value.isprintable() else indented(value)
    if unit not in _FORMATS or not math.isfinite(value):
        return str(value)
    return _FORMATS[unit](value)


def markdown(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown; cells are Markdown already."""
    ruler = "|".join("--:" if _side(column) == "r" else "---" for column in columns)
    titles = [column.title for column in columns]
    return [_bars(titles), f"|{ruler}|", *map(_bars, rows)]


def _bars(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _side(column: Column) -> str:
    return column.side or ("r" if column.unit else "l")


def printed(grid: Grid) -> list[list[str]]:
    """The cells of the table's rows as printed."""
    rows = [_row(row).cells for row in grid.rows if not isinstance(row, Words | Line)]
    by_column = [
        [column.unknown if value is None else text for value, text in zip(values, _texts(values, column), strict=True)]
        for column, values in zip(grid.columns, zip(*rows, strict=True), strict=bool(rows))
    ]
    return [list(row) for row in zip(*by_column, strict=True)]


def _texts(values: Sequence[Cell], column: Column) -> list[str]:
    if column.unit not in ("times", "+times"):
        return [cell(value, column.unit) for value in values]
    times = [None if value is None or isinstance(value, str) else float(value) for value in values]
    texts = units.column([None if time is None else abs(time) for time in times])
    plus = "+" if column.unit == "+times" else ""
    return [f"{'' if not time else '-' if time < 0 else plus}{text}" for time, text in zip(times, texts, strict=True)]


def _laid_out(grid: Grid, width: int, colour: bool) -> list[str]:
    """Titles, a ruler, then a line for each row; hidden columns are named below."""
    room = width - cell_len(grid.indent)
    columns, body, hidden = _shown(grid, room)
    widths = _widths(grid, columns, body, room)
    titles = [column.title.split("\n") for column in columns]
    height = max(map(len, titles))
    head = [*zip(*([""] * (height - len(title)) + title for title in titles), strict=True)]
    head += [tuple("-" * wide for wide in widths)] if grid.is_ruled else []
    whole = [
        grid.indent + (" " * grid.gap).join(map(_placed, cells, widths, map(_side, columns))).rstrip()
        for cells in (*head, *body)
    ]
    lines = [cut(line, width) for line in whole] if grid.is_cut else whole
    out, rows, beside = lines[: len(head)], iter(lines[len(head) :]), max(map(cell_len, lines))
    for entry in grid.rows:
        if isinstance(entry, Words | Line):
            out += lines_of(entry, width, colour)
            continue
        row, line = _row(entry), next(rows)
        out += _remarked(paint(line, row.style, colour) if row.style else line, row.remark, beside, width)
    if hidden:
        names = ", ".join(column.title.partition("\n")[0] for column in hidden)
        out += wrap(f"hidden columns: {names}; they do not fit in {width} columns (--json has them)", width)
    out += [line for note in _notes(columns, body) for line in wrap(note, width)]
    gone = [number - len(head) for number, line in enumerate(whole) if line != lines[number] and number >= len(head)]
    return out + [line for block in grid.of_lost_columns(gone) for line in lines_of(block, width, colour)]


def _row(entry: Sequence[Cell] | Row) -> Row:
    return entry if isinstance(entry, Row) else Row(entry)


def _shown(grid: Grid, room: int) -> tuple[list[Column], list[list[str]], list[Column]]:
    """The columns that are not empty and fit, with their cells, then the columns that do not fit."""
    body = printed(grid)
    wanted = _widest(grid, grid.columns, body)
    least = [min(wide, column.room or wide) for column, wide in zip(grid.columns, wanted, strict=True)]
    says = [any(row[place] != column.unknown for row in body) for place, column in enumerate(grid.columns)]
    places = [place for place, column in enumerate(grid.columns) if says[place] or not column.rank]
    hidden: list[Column] = []
    while sum(least[place] for place in places) + grid.gap * (len(places) - 1) > room:
        spare = [place for place in places if grid.columns[place].rank]
        if not spare:
            break
        last = min(spare, key=lambda place: grid.columns[place].rank)
        places.remove(last)
        hidden.append(grid.columns[last])
    return [grid.columns[place] for place in places], [[row[place] for place in places] for row in body], hidden


def _widest(grid: Grid, columns: Sequence[Column], body: Sequence[Sequence[str]]) -> list[int]:
    """The width of the widest cell of each column, or of its title."""
    titles = [max(column.width, grid.title_room + max(map(_length, column.title.split("\n")))) for column in columns]
    return [max(widths) for widths in zip(titles, *(map(_length, row) for row in body), strict=True)]


def _widths(grid: Grid, columns: Sequence[Column], body: Sequence[Sequence[str]], room: int) -> list[int]:
    """The columns' widths; to save room, columns that may shrink do so, the widest first, down to `least`."""
    wanted = _widest(grid, columns, body)
    widths = [min(wide, column.most or wide) for column, wide in zip(columns, wanted, strict=True)]
    least = [wide if column.least is None else column.least for column, wide in zip(columns, widths, strict=True)]
    while sum(widths) + grid.gap * (len(widths) - 1) > room:
        free = [place for place, wide in enumerate(widths) if wide > least[place]]
        if not free:
            break
        widths[max(free, key=lambda place: widths[place])] -= 1
    return widths


def _notes(columns: Sequence[Column], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """The columns' notes, each once: a note is printed if a cell of its column contains its first character."""
    places: dict[str, list[int]] = {}
    for place, column in enumerate(columns):
        places.setdefault(column.note, []).append(place)
    return (note for note, where in places.items() if note and any(note[0] in row[at] for row in body for at in where))


def _placed(text: str, width: int, side: str) -> str:
    # tabulate is not used for this: it would look for numbers in every cell, and knows display widths only with a
    # package that may not be installed.
    if text.isascii() and len(text) <= width:
        return text.ljust(width) if side == "l" else text.rjust(width)
    shown = cut(text, width)
    return pad(shown, width) if side == "l" else " " * (width - cell_len(shown)) + shown


def _length(text: str) -> int:
    """The text's width on a terminal."""
    return len(text) if text.isascii() and text.isprintable() else cell_len(text)


def _remarked(line: str, remark: str, beside: int, width: int) -> list[str]:
    """The line of a row with its remark next to it or, without room, below it."""
    if not remark:
        return [line]
    if width - beside - 2 >= _LEAST_REMARK:
        return wrap(clean(remark), width, f"{pad(line, beside)}  ", " " * (beside + 2))
    return [line, *wrap(clean(remark), width, "    ")]
