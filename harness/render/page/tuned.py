"""One self-contained HTML page of a table of tuned constants: rows, cost of the fallback, the search of each row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from harness.records import Table
from harness.render.layout import clean
from harness.render.page.parts import CHUNK, Kind, Plain, assembled
from harness.render.page.search import Searched, search_plain
from harness.render.sections import cell
from harness.units import count, quantity

_KIND = Kind(
    body="tuned.html",
    scripts=("tuned.js",),
    listed="rows",
    commands="./ratchet.sh table, with the options that it was filled with",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedRow:
    """A row's content on the page, in addition to its cells in the table.

    - `ratio`: the fallback's time divided by the best setting's time.
    - `is_certain`: True if the fallback is the best, or slower by more than the uncertainty.
    - `facts`: names with their texts.
    - `searched`: the search, or None if the trials were not kept.
    """

    shape: str
    chip: str
    ratio: float | None
    is_certain: bool
    is_entry: bool
    facts: tuple[tuple[str, str], ...]
    searched: Searched | None


def tuned_page(table: Table, rows: Sequence[TunedRow], provenance: str, made: str) -> bytes:
    """The page of `table` as UTF-8, with the content of each of its rows, the source of the numbers, and the date.

    Texts by people and kernels are data in it, never markup or script.
    """
    numbered = list(enumerate(rows, 1))
    details: Iterator[Plain] = (
        {"details": [_detail(number, row) for number, row in numbered[start : start + CHUNK]], "lines": []}
        for start in range(0, len(rows), CHUNK)
    )
    columns: list[Plain] = [
        {"key": column.name, "title": column.title, "figure": column.unit != ""} for column in table.columns
    ]
    # The shape names the row and links to it.
    columns[0] |= {"opens": True, "look": "bare wide"}
    overview: Plain = {
        "title": clean(table.title),
        "about": f"{clean(provenance)}. Written {made}.",
        "words": _words(rows),
        "tiles": _tiles(rows),
        "columns": columns,
        "rows": [_row(number, row, table) for number, row in numbered],
        "shapes": list(dict.fromkeys(clean(row.shape) for row in rows)),
        "chips": list(dict.fromkeys(row.chip for row in rows)),
        "notes": [clean(note) for note in table.notes if note != provenance],
    }
    return assembled(_KIND, clean(table.title), overview, details)


def _row(number: int, row: TunedRow, table: Table) -> Plain:
    cells = {
        column.name: (value, clean(cell(value, column.unit)))
        for column, value in zip(table.columns, table.rows[number - 1], strict=True)
    }
    text = {name: None if value is None else words for name, (value, words) in cells.items()}
    return {
        "id": str(number),
        "n": number,
        "shape": clean(row.shape),
        "chip": row.chip,
        "ratio": row.ratio,
        "certain": row.is_certain,
        "best": text["settings"],
        "checks": text["checks"],
        "says": [f"{clean(row.shape)} on {row.chip}", f"fallback {text['fallback_seconds']}, best {text['seconds']}"],
        "values": {name: words if isinstance(value, str) else value for name, (value, words) in cells.items()},
        "texts": text,
    }


def _detail(number: int, row: TunedRow) -> Plain:
    return {
        "id": str(number),
        "facts": [(name, clean(words)) for name, words in row.facts],
        "search": None if row.searched is None else search_plain(row.searched),
    }


def _tiles(rows: Sequence[TunedRow]) -> list[tuple[str, str, str]]:
    shapes, chips = {row.shape for row in rows}, list(dict.fromkeys(row.chip for row in rows))
    entries = sum(row.is_entry for row in rows)
    tiles = [
        ("rows", count(len(rows)), f"{quantity(len(shapes), 'shape')} on {', '.join(chips)}"),
        (
            "passed every check",
            f"{entries} of {len(rows)}",
            "" if entries == len(rows) else "every other row states its reason",
        ),
    ]
    compared = [(row.ratio, row) for row in rows if row.ratio is not None]
    if compared:
        most, where = max(compared, key=lambda pair: pair[0])
        middle = median(ratio for ratio, _ in compared)
        tiles.append(
            ("fallback over best, median", f"{middle:.2f}x", f"simulated, of {quantity(len(compared), 'row')}")
        )
        tiles.append(
            ("fallback over best, largest", f"{most:.2f}x", f"simulated, {clean(where.shape)} on {where.chip}")
        )
    return tiles


def _words(rows: Sequence[TunedRow]) -> str:
    """The caption of the fallback's chart, and the number of rows that it leaves out."""
    compared = [row for row in rows if row.ratio is not None]
    of_all = f"for {len(compared)} of {quantity(len(rows), 'row')}"
    words = f"Simulated: the time of the kernel's fallback over that of the best setting, {of_all}."
    if any(not row.is_certain for row in compared):
        words += " Open marks are within the simulator's uncertainty."
    if len(compared) < len(rows):
        words += " The other rows lack at least one of the two times; the notes below say why."
    return words
