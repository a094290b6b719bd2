"""The table of attempts on one scale, its folded lines, and the sentences below it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from harness.hardware import chip
from harness.records import NOT_YET, Calibration, Gain, Losses, Note, Recheck, Row, Scale, ScaledRow
from harness.records.report_words import source_label
from harness.records.table import Cell
from harness.render.layout import UNBOUNDED, clean, terminal_width
from harness.render.review import calibration_line
from harness.render.sections import Block, Column, Grid, Line, Words, cell, screen
from harness.render.series import changed_words, key_words
from harness.units import change, milliseconds, percent, quantity

_NARROWEST_HYPOTHESIS, _WIDEST_HYPOTHESIS = 20, 60
_LOST = "! at this member the attempt took longer than the champion at that time, although it gained in the mean"
_VERDICT_WORDS = {"reject": "rejected"}
_FAILURE_WORDS = {"timeout": "timed out"}
_REGIMES = {"compute-bound": "compute", "memory-bound": "memory", "link-bound": "links", "latency-bound": "latency"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """The input of a table: all rows of the ledger, the lines chosen from them, and the figures below.

    - `champion`: the champion's number.
    - `gain`, `calibration`: figures of the whole ledger.
    - `has_products`: False for a problem without matrix products, whose utilisation says nothing.
    - `has_then`: adds the recorded times. `has_all`: adds the columns of counters and commits.
    - `again`: the command that times every attempt on the scale.
    """

    rows: Sequence[ScaledRow]
    lines: Sequence[ScaledRow | Recheck | Losses | Note]
    champion: int | None = None
    gain: Gain | None = None
    calibration: Calibration | None = None
    has_products: bool = True
    has_then: bool = False
    has_all: bool = False
    again: str = "./ratchet.sh rescale --all"


def results_table(shown: TableView, width: int | None = None) -> str:
    """The table with `*` at the champion and a line before rows under another key, then sentences.

    An accepted attempt that an undo took back is `undone`. An accepted attempt that lost its title because it fails is
    `revoked`. `-` means unknown or not applicable.

    To fit the table into `width` columns (by default the terminal's), hypotheses are cut, then the least important
    columns are left out, and a line names these columns. In a file or a pipe, only long hypotheses are cut. With
    `has_all`, nothing is cut.
    """
    if not shown.rows:
        return "no attempts yet"
    width = terminal_width() if width is None else width
    return screen(_blocks(shown, width), width)


def _blocks(shown: TableView, width: int) -> Iterator[Block]:
    if shown.lines:
        # The first group's origin stands above the titles.
        first = next((row for line in shown.lines for row in rows_of(line)), shown.rows[0]).row
        yield Words("; ".join((f"{key_words(first)}, key {first.key_digest}", *_legend(shown, width))))
        lines = list(_lines(shown, first))
        if any(isinstance(line, ScaledRow) for line in lines):
            yield _grid(shown, lines)
        else:
            yield from (line for line in lines if not isinstance(line, ScaledRow))
    yield from map(Words, _sentences(shown))


def _legend(shown: TableView, width: int) -> Iterator[str]:
    rows = [row.row for line in shown.lines for row in rows_of(line)]
    if any(row.number == shown.champion for row in rows):
        yield "* the champion"
    if width >= UNBOUNDED and not shown.has_all and any(len(_hypothesis(row)) > _WIDEST_HYPOTHESIS for row in rows):
        yield "… cut: --csv and --json have all of it"


def _grid(shown: TableView, lines: Sequence[ScaledRow | Words | Line]) -> Grid:
    columns = [(column, value) for column, value, is_extra in _columns(shown) if shown.has_all or not is_extra]
    rows = [[value(line) for _, value in columns] if isinstance(line, ScaledRow) else line for line in lines]
    # One blank separates columns. With two, the hypothesis would lose a third of its width on a screen of 100 columns.
    return Grid([column for column, _ in columns], rows, gap=1, title_room=0, is_cut=False)


def _columns(shown: TableView) -> Iterator[tuple[Column, Callable[[ScaledRow], Cell], bool]]:
    """Every column, its value in a row, and True if only `has_all` shows it."""
    every = [scaled_row.row for scaled_row in shown.rows]
    losses = {row.number: _members_lost(every, place) for place, row in enumerate(every)}
    members = dict.fromkeys(name for row in every for name, _ in row.members)
    yield Column("#", side="r"), lambda row: f"{row.row.number}{'*' * (row.row.number == shown.champion)}", False
    yield Column("commit", rank=4), lambda row: row.row.commit[:7] or None, True
    yield Column("verdict"), _verdict, False
    most = None if shown.has_all else _WIDEST_HYPOTHESIS
    wide = Column("hypothesis", least=len("hypothesis"), most=most, room=_NARROWEST_HYPOTHESIS)
    yield wide, lambda row: _hypothesis(row.row), False
    yield Column("score", "score", rank=8), lambda row: row.row.score, False
    yield Column("time ms", "ms"), lambda row: row.row.seconds, False
    for name in members:
        yield Column(f"{name}\nms", side="r", rank=9, note=_LOST), partial(_of_member, name, losses), False
    # Without a time on the scale, the recorded change is shown, unless it has a column of its own.
    yield (
        Column("change", "change"),
        lambda row: None if shown.has_then and row.why_unknown else row.row.time_ratio,
        False,
    )
    if shown.has_then:
        yield Column("ms, % then", side="r", rank=10), _then, False
    yield Column("expected", "change", rank=6), lambda row: row.row.expected_time_ratio, False
    yield Column("util", "fraction", rank=7), lambda row: row.row.util if shown.has_products else None, False
    yield Column("bound", rank=5), lambda row: _REGIMES.get(row.row.regime or ""), False
    yield Column("gap", "fraction", rank=3), lambda row: row.row.gap_fraction, True
    yield Column("copies", "count", rank=1), lambda row: row.row.copies, True
    yield Column("spills", "short", rank=2), lambda row: row.row.spills, True


def _then(scaled_row: ScaledRow) -> str | None:
    """The recorded time, and its change against the champion at that time."""
    row = scaled_row.then
    return None if row.seconds is None else f"{cell(row.seconds, 'ms')} {cell(row.time_ratio, 'change'):>6}"


def _members_lost(rows: Sequence[Row], place: int) -> tuple[str, ...]:
    """The members at which a rejected suite takes more time than the champion at that time, but less in the mean."""
    row = rows[place]
    if not row.members or row.outcome != "reject" or row.time_ratio is None or row.time_ratio >= 1:
        return ()
    comparable = (rows[before] for before in reversed(range(place)) if rows[before].is_title)
    champion = next((dict(before.members) for before in comparable if before.key_digest == row.key_digest), {})
    times = [(name, seconds, champion.get(name)) for name, seconds in row.members]
    return tuple(name for name, now, then in times if now is not None and then is not None and now > then)


def _of_member(name: str, losses: Mapping[int, Sequence[str]], scaled_row: ScaledRow) -> str | None:
    """The time at one member of a suite, with a mark if `losses` lists the member for this attempt."""
    seconds = dict(scaled_row.row.members).get(name)
    mark = "!" if name in losses[scaled_row.row.number] else ""
    return None if seconds is None else f"{cell(seconds, 'ms')}{mark}"


def _lines(shown: TableView, first: Row) -> Iterator[ScaledRow | Words | Line]:
    """The lines in order, with a separator between rows under different keys, which are not comparable."""
    before = first
    for line in shown.lines:
        rows = [row.row for row in rows_of(line)]
        if rows and rows[0].key_digest != before.key_digest:
            yield Words(f"-- {_difference(before, rows[0])}: not comparable with the rows above --")
        before = rows[-1] if rows else before
        if isinstance(line, ScaledRow):
            yield line
        elif isinstance(line, Recheck):
            yield Words(recheck_words(line, shown.champion), rest="  ")
        else:
            yield Line(losses_words(line) if isinstance(line, Losses) else _note_words(line))


def rows_of(line: ScaledRow | Recheck | Losses | Note) -> tuple[ScaledRow, ...]:
    """The attempts of the line."""
    if isinstance(line, ScaledRow):
        return (line,)
    return () if isinstance(line, Note) else line.rows


def losses_words(run: Losses) -> str:
    """The attempts that were not accepted, by verdict, the change nearest to a gain, and the number of checks."""
    verdicts = Counter(map(_verdict, run.attempts))
    counts = [f"{number} {_VERDICT_WORDS.get(verdict, verdict)}" for verdict, number in verdicts.items()]
    ratios = [attempt.row.time_ratio for attempt in run.attempts if attempt.row.time_ratio is not None]
    nearest = f", best change {change(min(ratios))}" if ratios else ""
    checks = sum(len(recheck.rows) for recheck in run.rechecks)
    checked = f"; champion checked again {quantity(checks, 'time')}" if checks else ""
    numbers = f"{run.attempts[0].row.number}-{run.attempts[-1].row.number}"
    return f"{numbers} {', '.join(counts)}{nearest}{checked} (--all lists them)"


def recheck_words(run: Recheck, champion: int | None) -> str:
    """Words on a run of checks of the champion's unchanged program: number, reasons, failures, recorded times."""
    star = "*" if champion is not None and any(row.row.number == champion for row in run.rows) else ""
    numbers = f"{run.first}" if run.first == run.last else f"{run.first}-{run.last}"
    place, often = (f"{numbers}{star}", len(run.rows)) if run.rows else (f"after {run.last}:", len(run.notes))
    program = "champion" if run.champion is None else f"attempt {run.champion}"
    why = f"{' and '.join(run.changed)} changed" if run.changed else "same key"
    failed = Counter(row.then.failure_kind or row.then.outcome for row in run.rows if row.then.outcome != "accept")
    failed.update(note.failure_kind for note in run.notes if note.failure_kind)
    kinds = [f"{number} {_FAILURE_WORDS.get(kind, clean(kind))}" for kind, number in failed.items()]
    vain = f" ({', '.join(kinds)})" if kinds else ""
    times = "once" if often == 1 else quantity(often, "time")
    return f"{place} {why}: {program} checked again {times}{vain}{_recorded_times(run)}"


def _recorded_times(run: Recheck) -> str:
    times = [row.then.seconds for row in run.rows if row.then.seconds is not None and row.then.outcome == "accept"]
    if run.before_seconds is not None:
        times.insert(0, run.before_seconds)
    words = [cell(seconds, "ms") for seconds in times]
    if len(words) < 2:
        return ""
    if len(set(words)) == 1:
        return ", time unchanged"
    if words[0] != words[-1]:
        return f", {words[0]} -> {words[-1]} ms as recorded"
    return f", {min(words, key=float)} to {max(words, key=float)} ms as recorded"


def _note_words(note: Note) -> str:
    if note.failure_kind:
        came = f"{note.failure_kind}: {note.reason}"
    else:
        came = f"passes, {note.checks_passed} of {quantity(note.checks, 'check')}"
    return clean(f"after {note.after}: champion (attempt {note.attempt}) checked again: {came}")


def _sentences(shown: TableView) -> Iterator[str]:
    yield from unknown_words(shown.rows, shown.again, has_then=shown.has_then)
    if shown.calibration and (sentence := calibration_line(shown.calibration)):
        yield sentence
    if shown.gain:
        yield gain_words(shown.gain)


def unknown_words(rows: Sequence[ScaledRow], again: str, *, has_then: bool = True) -> Iterator[str]:
    """A sentence for each reason why attempts have no time on the scale; `again` is the command that times them."""
    reasons: dict[str, list[int]] = {}
    for row in rows:
        if row.why_unknown:
            reasons.setdefault(row.why_unknown, []).append(row.row.number)
    for why, numbers in sorted(reasons.items(), key=lambda pair: pair[0] != NOT_YET):
        if why != NOT_YET:
            yield clean(f"attempt{'s' if len(numbers) > 1 else ''} {_listed(numbers)}: {why}")
            continue
        are = "attempt is" if len(numbers) == 1 else "attempts are"
        changes = "" if has_then else " (change: as recorded)"
        yield f"{len(numbers)} {are} {NOT_YET}{changes}: {again} times {'it' if len(numbers) == 1 else 'them'}"


def _listed(parts: Sequence[object]) -> str:
    *most, last = map(str, parts)
    return f"{', '.join(most)} and {last}" if most else last


def gain_words(gain: Gain) -> str:
    """The gain in one sentence: times and their source, the number of attempts, the share of the peak."""
    counts = f"{quantity(gain.attempts, 'attempt')}, {gain.accepted} accepted"
    label = f"[{source_label(gain.source, gain.chip)}]"
    if gain.champion is None:
        return f"no champion here; {counts}"
    if gain.champion_seconds is None:
        return f"the champion, attempt {gain.champion}, has no time on this scale; {counts}"
    last = cell(gain.champion_seconds, "ms")
    peak = f"; {peak_words(gain)}" if gain.peak_share is not None else ""
    if gain.factor is None or gain.first_seconds is None:
        alone = "" if gain.is_whole else "; earlier accepted kernels have no time on this scale"
        return f"{last} ms {label}, {counts}{peak}{alone}"
    way = f"{cell(gain.first_seconds, 'ms')} -> {last} ms {label}, {gain.factor:.2f} times as fast, in {counts}{peak}"
    if gain.is_whole:
        return way
    return f"{way}; from attempt {gain.first}, the oldest accepted one with a time on this scale"


def scaled_words(scaled_row: ScaledRow, scale: Scale | None) -> str:
    """The attempt's time on the scale, or why it has none, and its recorded time; "" if both are the same."""
    row, then = scaled_row.row, scaled_row.then
    if scale is None or row.key_digest != scale.key_digest or then.key_digest == scale.key_digest:
        return ""
    recorded = "" if then.seconds is None else f"; {milliseconds(then.seconds, ' ')} recorded then"
    if row.seconds is None:
        return f"{scaled_row.why_unknown}{recorded}" if scaled_row.why_unknown else ""
    return f"{milliseconds(row.seconds, ' ')} [{source_label(row.source, row.chip)}], key {row.key_digest}{recorded}"


def peak_words(gain: Gain) -> str:
    """The share of the peak, `92.8% of the MXU's peak`, or of HBM bandwidth; "" if the share is not known."""
    if gain.peak_share is None:
        return ""
    unit = "MXU's" if chip(gain.chip).kind == "TPU" else "tensor cores'"
    return f"{percent(gain.peak_share)} of {'HBM bandwidth' if gain.bound_by == 'memory' else f'the {unit} peak'}"


def _difference(before: Row, after: Row) -> str:
    """The difference between two keys, followed by the later key unless the words contain it."""
    key = f"key {after.key_digest}"
    if before.key is None or after.key is None:
        old, new = f"{before.source} {before.chip}", f"{after.source} {after.chip}"
        return key if old == new else f"{old} -> {new}, {key}"
    words = changed_words(before.key, after.key, "->")
    return words if after.key_digest in words else f"{words}, {key}" if words else key


def _verdict(scaled_row: ScaledRow) -> str:
    row = scaled_row.row
    if row.is_on_branch is False:
        return "accept, not on branch"
    if row.kind == "revoke":
        return row.kind
    if scaled_row.taken_back:
        return scaled_row.taken_back
    if row.outcome == "accept" and row.kind != "experiment":
        return row.kind
    return {"inconclusive": "unclear"}.get(row.outcome, row.outcome)


def _hypothesis(row: Row) -> str:
    text = clean(row.hypothesis)
    return f"{row.failure_kind}: {text}" if row.failure_kind else text or "-"
