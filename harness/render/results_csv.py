"""The attempts and the notes of a ledger as comma-separated values: every figure in SI units, nothing cut."""

import csv
import io
from collections.abc import Sequence
from dataclasses import fields

from harness.records import Note, Row, ScaledRow

# The figures of a kernel under a key; the names of the recorded figures begin with `then_`.
_FIGURES = ("key_digest", "score", "seconds", "time_ratio", "util", "regime", "gap_fraction", "copies", "spills")
# Fields that a line has in another form than the record.
_OTHERWISE = ("key", "members")
_ROW = tuple(field.name for field in fields(Row) if field.name not in (*_FIGURES, *_OTHERWISE))
_NOTE = tuple(field.name for field in fields(Note) if field.name not in (*_FIGURES, *_OTHERWISE, *_ROW, "attempt"))


def results_csv(rows: Sequence[ScaledRow], notes: Sequence[Note], champion: int | None) -> str:
    """A line of names, then a line for each attempt and each note; `record` says which of the two it is.

    An empty cell means unknown or not applicable. Each member of a suite has columns with its name.
    """
    every = [*(row.then.members for row in rows), *(note.members for note in notes)]
    members = dict.fromkeys(name for times in every for name, _ in times)
    names = [
        "record",
        *_ROW,
        "is_champion",
        *_FIGURES,
        *(f"then_{name}" for name in _FIGURES),
        "why_unknown",
        "taken_back",
        *_NOTE,
        *(f"seconds {name}" for name in members),
        *(f"then_seconds {name}" for name in members),
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        line = {"record": "attempt"} | {name: getattr(row.row, name) for name in (*_ROW, *_FIGURES)}
        line |= {f"then_{name}": getattr(row.then, name) for name in _FIGURES}
        line |= {"is_champion": row.row.number == champion}
        line |= {"why_unknown": row.why_unknown, "taken_back": row.taken_back}
        line |= {f"seconds {name}": seconds for name, seconds in row.row.members}
        line |= {f"then_seconds {name}": seconds for name, seconds in row.then.members}
        writer.writerow(_plain(line))
    for note in notes:
        line = {"record": "note", "number": note.attempt, "source": note.key.source, "chip": note.key.chip}
        line |= {name: getattr(note, name) for name in (*_NOTE, *_FIGURES, *_ROW) if hasattr(note, name)}
        line |= {f"seconds {name}": seconds for name, seconds in note.members}
        writer.writerow(_plain(line))
    return out.getvalue().rstrip("\n")


def _plain(line: dict[str, object]) -> dict[str, object]:
    """Values in a spreadsheet's form: no line breaks within a cell, numbers of attempts separated by blanks."""
    return {name: _cell(value) for name, value in line.items()}


def _cell(value: object) -> object:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value.split()) if isinstance(value, str) else value
