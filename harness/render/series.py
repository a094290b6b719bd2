"""A ledger as series: comparable attempts with points, steps and roofs, for both the page and the pictures."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from harness.advice.operands import problem_names
from harness.hardware import chip
from harness.records import Attempt, Hint, Key, Report, Row, Simulation, Source
from harness.records.report_words import source_label
from harness.render.layout import clean
from harness.render.traces.lanes import Lane

# Kinds of parts of a run's time: bundles that issue, and kinds of waiting.
PieceKind = Literal["work", "bubble", "stall", "dma", "edge", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least time that the chip needs for the useful work, the resource that sets it, and the score at that time."""

    name: str
    seconds: float
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """The champion that an attempt was judged against: its number, and its report under the same key if known.

    `why_unknown` is a sentence if the report is None.
    """

    number: int
    report: Report | None
    simulation: Simulation | None = None
    why_unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An attempt with all data that pages and pictures show; None or empty: not known in this clone.

    - `row` has the times on the scale, `then` the recorded times (None: the times are equal). `why_unknown` is the
      reason why there is no time on the scale. `recheck` describes the run of checks of an unchanged champion to which
      the attempt belongs, if any.
    - `id` identifies the attempt in links: its number, with an addition if two clones used the number.
    - `score_range` is the score at the two ends of the latency's uncertainty. `complaint` says why there is no record.
    - `timeline` is the address of its trace, relative to the page, and `lanes` is the trace's content.
    - `deviations` is the number of the simulator's standard deviations by which the best of its search must be faster.
    - `is_undone`: a later undo took this accept back. `is_revoked`: it lost its title because it fails. `again` is, for
      an undo or a revoke, the id of the champion that holds the title again.
    - `compared` are the figures by which two attempts are compared, each with name, unit and value. Every entry with
      figures has the same figures.
    """

    id: str
    row: Row
    then: Row | None = None
    why_unknown: str = ""
    recheck: str = ""
    attempt: Attempt | None = None
    report: Report | None = None
    advice: tuple[Hint, ...] = ()
    against: Against | None = None
    bound: Bound | None = None
    score_range: tuple[float, float] | None = None
    kernel: str | None = None
    complaint: str = ""
    timeline: str = ""
    deviations: float | None = None
    is_undone: bool = False
    is_revoked: bool = False
    again: str | None = None
    compared: tuple[tuple[str, str, float | None], ...] = ()
    lanes: tuple[Lane, ...] = ()

    @property
    def has_time(self) -> bool:
        """True if the attempt has a latency; the time of a wrong kernel does not count as a latency."""
        return self.row.seconds is not None

    @property
    def is_accepted(self) -> bool:
        """True if the attempt became the champion and, as far as is known here, kept its title."""
        return self.row.is_title and self.row.is_on_branch is not False and not self.is_undone and not self.is_revoked

    @property
    def plus_minus_seconds(self) -> float | None:
        """The uncertainty of the latency; None if unknown, or if the time of `row` is not the report's."""
        is_recorded = self.report is not None and self.has_time and self.report.seconds == self.row.seconds
        return self.report.plus_minus_seconds if self.report is not None and is_recorded else None

    @property
    def flops_per_second(self) -> float | None:
        """The useful FLOP/s in the time of `row`."""
        return None if self.report is None else on_scale(self.report.flops_per_second, self.report, self.row.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The champion's latency and score from attempt `number` on; `entry` is the champion's id.

    `report` is the champion's report under this key, None if unknown. `was_before` is True for a champion that won its
    title earlier and is evaluated again, under another key or because a revoke gave it the title.
    """

    number: int
    entry: str
    seconds: float
    score: float | None
    report: Report | None
    was_before: bool

    @property
    def plus_minus_seconds(self) -> float | None:
        """The uncertainty of the latency; None if unknown, or if the latency is not the report's."""
        return self.report.plus_minus_seconds if self.report and self.report.seconds == self.seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A chip's peaks: operations and bytes per second."""

    flops_per_second: float
    bytes_per_second: float

    @property
    def ridge(self) -> float:
        """The intensity, in FLOP/B, at which both peaks bind."""
        return self.flops_per_second / self.bytes_per_second

    def at(self, intensity: float) -> float:
        """The highest FLOP/s at that intensity."""
        return min(self.flops_per_second, self.bytes_per_second * intensity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The attempts under one timing key; only they may share an axis.

    `difference` states what changed since the group before this one; "" for the first group. `minimum_intensity` is the
    intensity of perfect reuse, in FLOP/B.
    """

    digest: str
    source: Source
    chip: str
    title: str
    difference: str
    entries: tuple[Entry, ...]
    steps: tuple[Step, ...]
    bound: Bound | None
    roof: Roof
    minimum_intensity: float | None

    @property
    def label(self) -> str:
        """The source of every figure of the group, such as `simulated v5e`."""
        return source_label(self.source, self.chip)

    @property
    def timed(self) -> int:
        """The number of its attempts with a time, without checks of an unchanged champion."""
        return sum(entry.has_time for entry in self.shown)

    @property
    def shown(self) -> tuple[Entry, ...]:
        """The attempts that charts show: all but checks of an unchanged champion, unless there are no others."""
        return tuple(entry for entry in self.entries if not entry.recheck) or self.entries

    @property
    def standing(self) -> Step | None:
        """The last step: the champion after the last attempt."""
        return self.steps[-1] if self.steps else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a run's time; the pieces of a run add up to its whole time."""

    kind: PieceKind
    name: str
    seconds: float
    fraction: float


def on_scale(rate: float | None, report: Report, seconds: float | None) -> float | None:
    """A rate or a share of a peak in a report, converted to another time for the same work."""
    return None if rate is None or not seconds or report.seconds is None else rate * report.seconds / seconds


def groups(entries: Sequence[Entry]) -> tuple[Group, ...]:
    """`entries` by timing key, in the order in which the keys first appear."""
    by_key: dict[str, list[Entry]] = {}
    revoked = {entry.row.number for entry in entries if entry.is_revoked}
    for entry in entries:
        by_key.setdefault(entry.row.key_digest, []).append(entry)
    in_order: list[Group] = []
    before: Row | None = None
    for digest, members in by_key.items():
        row, difference = members[0].row, ""
        if before is not None:
            difference = "what changed is not recorded"
            if before.key is not None and row.key is not None:
                difference = changed_words(before.key, row.key, "to") or "the key changed"
        reports = [entry.report for entry in members if entry.report is not None]
        hardware = chip(row.chip)
        in_order.append(
            Group(
                digest=digest,
                source=row.source,
                chip=row.chip,
                title=key_words(row),
                difference=difference,
                entries=tuple(members),
                steps=_steps(members, revoked),
                bound=next((entry.bound for entry in members if entry.bound is not None), None),
                roof=Roof(
                    flops_per_second=hardware.peak_bf16_flops_per_second, bytes_per_second=hardware.hbm_bytes_per_second
                ),
                minimum_intensity=reports[0].minimum_intensity if reports else None,
            )
        )
        before = row
    return tuple(in_order)


def opening(all_groups: Sequence[Group], champion: str | None) -> Group | None:
    """The group that charts show first: the champion's (without a champion, the last) if it has several times.

    Otherwise the group with the most times among those with the same source and chip. None if there are no groups.
    """
    of_champion = (group for group in all_groups if any(entry.id == champion for entry in group.entries))
    home = next(of_champion, all_groups[-1] if all_groups else None)
    if home is None or home.timed > 1:
        return home
    alike = (group for group in all_groups if (group.source, group.chip) == (home.source, home.chip))
    return max(alike, key=lambda group: (group.timed, group is home))


def pieces(report: Report | None, run: Simulation | None, attempt: Attempt | None) -> tuple[Piece, ...]:
    """A simulated run's time by part, the largest first; () if it was not simulated to its end.

    A record from before cycles were counted by part has four sums.
    """
    if run is None or run.seconds is None or not run.cycles or report is None:
        return ()
    shares = report.cycle_shares
    if shares is None:
        sums: tuple[tuple[PieceKind, str, float], ...] = (
            ("work", "issuing bundles", run.bundle_cycles),
            ("stall", "unit stalls", run.unit_stall_cycles),
            ("dma", "DMA waits", run.dma_wait_cycles),
            ("other", "launch", run.launch_cycles),
        )
        made = [_piece(kind, name, cycles / run.cycles, run.seconds) for kind, name, cycles in sums if cycles]
        return tuple(sorted(made, key=lambda piece: piece.fraction, reverse=True))
    seconds = shares.cycles / shares.clock_hz
    ops = [op.name for op in run.ops]
    made = []
    for part in shares.parts:
        name = clean(problem_names(part.name, attempt.evidence.problem, ops) if attempt else part.name)
        kind: PieceKind = next((kind for start, kind in _KINDS if part.name.startswith(start)), "other")
        made.append(_piece(kind, name, part.fraction, seconds))
    return tuple(sorted(made, key=lambda piece: piece.fraction, reverse=True))


def _piece(kind: PieceKind, name: str, fraction: float, seconds: float) -> Piece:
    return Piece(kind=kind, name=name, seconds=fraction * seconds, fraction=fraction)


_KINDS: tuple[tuple[str, PieceKind], ...] = (
    ("issuing", "work"),
    ("empty bundles", "bubble"),
    ("operand wait", "dma"),
    ("unit stall", "stall"),
    ("fill and drain", "edge"),
)


def _steps(entries: Sequence[Entry], revoked: Container[int]) -> tuple[Step, ...]:
    """The champion's latency over time, beginning with the previous champion's, evaluated again under this key.

    Undone and revoked attempts are not steps. A revoke is a step: from there on the latency of the new holder counts.
    """
    steps: list[Step] = []
    for entry in entries:
        row, champion = entry.row, entry.attempt.champion if entry.attempt else None
        is_known = champion is not None and champion.seconds is not None and champion.attempt not in revoked
        is_recorded = entry.then is None or entry.then.key_digest == row.key_digest
        if not steps and is_recorded and is_known and champion is not None and champion.seconds is not None:
            steps.append(
                Step(
                    number=row.number,
                    entry=str(champion.attempt),
                    seconds=champion.seconds,
                    score=champion.score,
                    report=entry.against.report if entry.against else None,
                    was_before=True,
                )
            )
        gives_title = row.kind == "revoke" and entry.again is not None and row.is_on_branch is not False
        if (entry.is_accepted or gives_title) and row.seconds is not None:
            steps.append(
                Step(
                    number=row.number,
                    entry=entry.again if gives_title and entry.again is not None else entry.id,
                    seconds=row.seconds,
                    score=row.score,
                    report=entry.report,
                    was_before=gives_title,
                )
            )
    return tuple(steps)


def key_words(row: Row) -> str:
    """The source of the numbers under a row's key: source and chip, versions and, for measured numbers, the machine."""
    parts = [source_label(row.source, row.chip)]
    if row.key is not None:
        parts.append(f"jax {row.key.jax}")
        parts += [f"libtpu {row.key.libtpu}"] if row.key.libtpu else []
        parts += [row.key.machine] if row.key.machine else []
    return clean(", ".join(parts))


def changed_words(before: Key, after: Key, to: str) -> str:
    """Each field in which two keys differ, with both values unless they are hashes."""
    words = []
    for name in (field.name for field in fields(Key) if field.name not in ("timing", "checks")):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            # `judge` stands for all hashes of the judge's code.
            is_hash = name in ("judge", "problem")
            words.append(f"{name} changed" if is_hash else f"{name} {old or 'none'} {to} {new or 'none'}")
    return clean(", ".join(words))
