"""The table of all attempts, grouped by comparability key."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, fields

from rich.cells import cell_len
from tabulate import DataRow, TableFormat, tabulate

from harness.hardware import chip
from harness.records import Calibration, Key, Row
from harness.render.layout import clean, cut, pad, terminal_width, wrap
from harness.render.review import calibration_line
from harness.units import change, count, percent

# One blank between columns: two would cost the hypothesis a third of its room at 100 columns.
_FORMAT = TableFormat(
    lineabove=None,
    linebelowheader=None,
    linebetweenrows=None,
    linebelow=None,
    headerrow=DataRow("", " ", ""),
    datarow=DataRow("", " ", ""),
    padding=0,
    with_header_hide=None,
)
_NARROWEST_HYPOTHESIS, _WIDEST_HYPOTHESIS = 18, 60
_WIDE = 140
# tabulate knows display widths only with a package that may be absent. So the hypotheses are laid
# out here: it sees a run of this private character, one column wide, and the text goes in after.
_STAND_IN = "\ue000"
_NOTHING = "-"
_REGIMES = {"compute-bound": "compute", "memory-bound": "memory", "latency-bound": "latency"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One column; `rank` orders which go first when the terminal is narrow (0: never)."""

    title: str
    text: Callable[[Row], str | None]
    rank: int = 0
    align: str = "right"


def results_table(
    rows: Sequence[Row], champion_number: int | None, width: int | None = None, calibration: Calibration | None = None
) -> str:
    """The table of `rows` in their order, `*` at the champion, a line between groups saying what changed.

    An accepted attempt that lost its title because it fails is `revoked`.

    Fits `width` columns (the terminal's by default) by cutting hypotheses, then by leaving out
    the columns that matter least, which the last line names. `-` stands for what is not known or does not apply.
    """
    if not rows:
        return "no attempts yet"
    # In a file or a pipe no column has to give way.
    width = terminal_width(_WIDE) if width is None else width
    revoked = {number for row in rows if row.is_on_branch is not False for number in row.revokes}
    columns = [
        _Column(title="#", text=lambda row: f"{row.number}{'*' if row.number == champion_number else ' '}"),
        _Column(title="commit", text=lambda row: row.commit[:7] or None, rank=4, align="left"),
        _Column(title="verdict", text=lambda row: _verdict(row, revoked), align="left"),
        _Column(title="hypothesis", text=_hypothesis, align="left"),
        _Column(title="score", text=lambda row: None if row.score is None else f"{row.score:.1f}"),
        _Column(title="time\nms", text=lambda row: None if row.seconds is None else _milliseconds(row.seconds)),
        _Column(title="change\nof time", text=lambda row: _change(row.time_ratio)),
        _Column(title="expec-\nted", text=lambda row: _change(row.expected_time_ratio), rank=6),
        _Column(title="util", text=lambda row: _share(row.util), rank=7),
        _Column(title="bound\nby", text=lambda row: _REGIMES.get(row.regime or ""), rank=5, align="left"),
        _Column(title="gap", text=lambda row: _share(row.gap_fraction), rank=3),
        _Column(title="copies", text=lambda row: None if row.copies is None else count(row.copies), rank=1),
        _Column(title="spills", text=lambda row: None if row.spills is None else _short(row.spills), rank=2),
    ]
    # A column in which no row has anything says nothing; the expectation of old attempts, for instance.
    used = [column for column in columns if not column.rank or any(column.text(row) for row in rows)]
    cells = {column.title: [column.text(row) or _NOTHING for row in rows] for column in used}
    left_out: list[str] = []
    while (room := _room(used, cells, width)) < _NARROWEST_HYPOTHESIS and any(column.rank for column in used):
        least = min((column for column in used if column.rank), key=lambda column: column.rank)
        used.remove(least)
        left_out.append(" ".join(least.title.replace("-\n", "").split()))
    lines = _body(used, cells, min(max(room, 4), _WIDEST_HYPOTHESIS))
    out = _with_groups(lines, rows, width)
    if left_out:
        out += wrap(f"left out for want of width: {', '.join(left_out)} (--json has them)", width)
    if calibration and (said := calibration_line(calibration)):
        out += wrap(said, width)
    return "\n".join(line.rstrip() for line in out)


def _body(columns: list[_Column], cells: dict[str, list[str]], room: int) -> list[str]:
    """Two lines of titles, a ruler, then one line per row."""
    texts = [cut(text, room) for text in cells["hypothesis"]]
    room = max(len("hypothesis"), *(cell_len(text) for text in texts))
    shown = {**cells, "hypothesis": [_STAND_IN * room for _ in texts]}
    # Titles are rows like the others: tabulate would widen every column by two for its own header.
    titles = [column.title.rpartition("\n") for column in columns]
    rulers = ["-" * max(map(len, (*cells[column.title], *column.title.split("\n")))) for column in columns]
    rulers = [
        "-" * room if column.title == "hypothesis" else ruler for column, ruler in zip(columns, rulers, strict=True)
    ]
    lines = tabulate(
        [
            [upper for upper, _, _ in titles],
            [lower for _, _, lower in titles],
            rulers,
            *zip(*(shown[column.title] for column in columns), strict=True),
        ],
        tablefmt=_FORMAT,
        colalign=[column.align for column in columns],
        disable_numparse=True,
    ).splitlines()
    body = lines[-len(texts) :]
    filled = [line.replace(_STAND_IN * room, pad(text, room)) for line, text in zip(body, texts, strict=True)]
    return lines[: -len(texts)] + filled


def _room(columns: list[_Column], cells: dict[str, list[str]], width: int) -> int:
    """The columns of the terminal that are left for the hypothesis."""
    others = [column for column in columns if column.title != "hypothesis"]
    taken = sum(
        max(*(cell_len(cell) for cell in cells[column.title]), *(len(part) for part in column.title.split("\n")))
        for column in others
    )
    return width - taken - len(others)


def _with_groups(lines: list[str], rows: Sequence[Row], width: int) -> list[str]:
    head, body = lines[: -len(rows)], lines[-len(rows) :]
    out = [*wrap(_origin(rows[0]), width), *head]
    for number, (row, line) in enumerate(zip(rows, body, strict=True)):
        before = rows[number - 1] if number else row
        if row.key_digest != before.key_digest:
            told = _difference(before, row)
            named = told if row.key_digest in told else f"{told}, key {row.key_digest}"
            out += wrap(f"-- {named}: not comparable with the rows above --", width)
        out.append(line)
    return out


def _origin(row: Row) -> str:
    """What the first group's numbers are, in words."""
    says_nothing = f"measured cpu (says nothing about a {chip(row.chip).kind})"
    parts = [says_nothing if row.source == "measured cpu" else f"{row.source} {row.chip}"]
    if row.key:
        parts.append(f"jax {row.key.jax}")
        parts += [f"libtpu {row.key.libtpu}"] if row.key.libtpu else []
        parts += [clean(row.key.machine)] if row.key.machine else []
    return f"{', '.join(parts)}, key {row.key_digest}"


def _difference(before: Row, after: Row) -> str:
    """Which fields of the key differ, with both values where they say something to a person."""
    if before.key is None or after.key is None:
        old, new = f"{before.source} {before.chip}", f"{after.source} {after.chip}"
        return f"key {after.key_digest}" if old == new else f"{old} -> {new}"
    names = [field.name for field in fields(Key) if getattr(before.key, field.name) != getattr(after.key, field.name)]
    told = []
    for name in names:
        old, new = getattr(before.key, name), getattr(after.key, name)
        told.append(f"{name} changed" if name in ("judge", "problem") else f"{name} {old or 'none'} -> {new or 'none'}")
    return clean(", ".join(told)) or f"key {after.key_digest}"


def _verdict(row: Row, revoked: Container[int]) -> str:
    if row.is_on_branch is False:
        return "accept, not on branch"
    if row.kind == "revoke":
        return row.kind
    if row.number in revoked and row.is_title:
        return "revoked"
    if row.outcome == "accept" and row.kind != "experiment":
        return row.kind
    return {"inconclusive": "unclear"}.get(row.outcome, row.outcome)


def _hypothesis(row: Row) -> str:
    text = clean(row.hypothesis)
    return f"{row.failure_kind}: {text}" if row.failure_kind else text or _NOTHING


def _milliseconds(value: float) -> str:
    return f"{1e3 * value:.{3 if value >= 1e-4 else 4}f}"


def _change(ratio: float | None) -> str | None:
    return None if ratio is None else change(ratio)


def _share(fraction: float | None) -> str | None:
    return None if fraction is None else percent(fraction)


def _short(value: int) -> str:
    """Large counts in four or five characters: 1048576 -> 1.05M."""
    for scale, suffix in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= scale:
            return f"{value / (scale if suffix != 'k' else 1000):.3g}{suffix}"
    return str(value)
