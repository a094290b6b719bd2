"""The table of all attempts, grouped by comparability key."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from harness.hardware import chip
from harness.records import Calibration, Row
from harness.render.grid import grid, widths_of
from harness.render.layout import clean, hidden_columns, table_width, terminal_width, wrap
from harness.render.review import calibration_line
from harness.render.series import changed_fields
from harness.units import change, count, percent

# One blank between columns: two would cost the hypothesis a third of its room at 100 columns.
_GAP = 1
_NARROWEST_HYPOTHESIS, _WIDEST_HYPOTHESIS = 18, 60
_WIDE = 140
_NOTHING = "-"
_REGIMES = {"compute-bound": "compute", "memory-bound": "memory", "latency-bound": "latency"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One column; `rank` orders which go first when the terminal is narrow (0: never)."""

    title: str
    text: Callable[[Row], str | None]
    rank: int = 0
    side: str = "r"


def results_table(
    rows: Sequence[Row], champion_number: int | None, width: int | None = None, calibration: Calibration | None = None
) -> str:
    """The table of `rows` in their order, `*` at the champion, a line between groups saying what changed.

    An accepted attempt that lost its title because it fails is `revoked`.

    Fits `width` columns (by default the terminal's, any number in a file or a pipe) by cutting hypotheses, then by
    leaving out the columns that matter least, which the last line names. `-` stands for what is not known or does not
    apply.
    """
    if not rows:
        return "no attempts yet"
    # In a file or a pipe no column has to give way.
    whole = table_width() if width is None else width
    width = terminal_width(_WIDE) if width is None else width
    revoked = {number for row in rows if row.is_on_branch is not False for number in row.revokes}
    lost = {row.number: _lost(rows, place) for place, row in enumerate(rows)}
    hypothesis = _Column(title="hypothesis", text=_hypothesis, side="l")
    columns = [
        _Column(title="#", text=lambda row: f"{row.number}{'*' if row.number == champion_number else ''}"),
        _Column(title="commit", text=lambda row: row.commit[:7] or None, rank=4, side="l"),
        _Column(title="verdict", text=lambda row: _verdict(row, revoked), side="l"),
        hypothesis,
        _Column(title="score", text=lambda row: None if row.score is None else f"{row.score:.1f}"),
        _Column(title="time\nms", text=lambda row: None if row.seconds is None else _milliseconds(row.seconds)),
        *(_of_member(name, lost) for name in dict.fromkeys(name for row in rows for name, _ in row.members)),
        _Column(title="change\nof time", text=lambda row: _change(row.time_ratio)),
        _Column(title="expec-\nted", text=lambda row: _change(row.expected_time_ratio), rank=6),
        _Column(title="util", text=lambda row: _share(row.util), rank=7),
        _Column(title="bound\nby", text=lambda row: _REGIMES.get(row.regime or ""), rank=5, side="l"),
        _Column(title="gap", text=lambda row: _share(row.gap_fraction), rank=3),
        _Column(title="copies", text=lambda row: None if row.copies is None else count(row.copies), rank=1),
        _Column(title="spills", text=lambda row: None if row.spills is None else _short(row.spills), rank=2),
    ]
    # A column in which no row has anything says nothing; the expectation of old attempts, for instance.
    used = [column for column in columns if not column.rank or any(column.text(row) for row in rows)]
    # Titles of one line stand in the lower one.
    titles = [column.title if "\n" in column.title else f"\n{column.title}" for column in used]
    texts = [[column.text(row) or _NOTHING for column in used] for row in rows]
    widths = dict(zip(used, widths_of(titles, texts, 0), strict=True))
    wanted = widths.pop(hypothesis)
    left_out: list[str] = []
    while (room := whole - sum(widths.values()) - _GAP * len(widths)) < _NARROWEST_HYPOTHESIS and any(
        column.rank for column in widths
    ):
        least = min((column for column in widths if column.rank), key=lambda column: column.rank)
        del widths[least]
        left_out.append(" ".join(least.title.replace("-\n", "").split()))
    widths[hypothesis] = max(len(hypothesis.title), min(wanted, room, _WIDEST_HYPOTHESIS))
    shown = [place for place, column in enumerate(used) if column in widths]
    lines = grid(
        [titles[place] for place in shown],
        [[row[place] for place in shown] for row in texts],
        "".join(used[place].side for place in shown),
        [widths[used[place]] for place in shown],
        _GAP,
    )
    out = _with_groups(lines, rows, width)
    out += hidden_columns(left_out, width)
    if any(lost.values()):
        out += wrap("! more time at this member than the champion of then, though less in the mean", width)
    if calibration and (said := calibration_line(calibration)):
        out += wrap(said, width)
    return "\n".join(line.rstrip() for line in out)


def _lost(rows: Sequence[Row], place: int) -> tuple[str, ...]:
    """The members at which a rejected suite takes more time than the champion of then, though less in the mean."""
    row = rows[place]
    if not row.members or row.outcome != "reject" or row.time_ratio is None or row.time_ratio >= 1:
        return ()
    comparable = (rows[before] for before in reversed(range(place)) if rows[before].is_title)
    champion = next((dict(before.members) for before in comparable if before.key_digest == row.key_digest), {})
    times = [(name, seconds, champion.get(name)) for name, seconds in row.members]
    return tuple(name for name, now, then in times if now is not None and then is not None and now > then)


def _of_member(name: str, lost: Mapping[int, Sequence[str]]) -> _Column:
    """The times at one member of a suite; `lost` names those that an attempt lost."""

    def text(row: Row) -> str | None:
        seconds = dict(row.members).get(name)
        mark = "!" if name in lost[row.number] else ""
        return None if seconds is None else f"{_milliseconds(seconds)}{mark}"

    return _Column(title=f"{name}\nms", text=text, rank=8)


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
    told = []
    for name, old, new in changed_fields(before.key, after.key):
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
