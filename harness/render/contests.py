"""A contest as one row of a table: problem, first and present champion, gain, the chip's limit, a peer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from harness.render.layout import clean
from harness.render.series import Entry, Step, groups, opening


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The best kernel by other authors for the same problem: its time, and the ratio of the champion's time to it.

    `ratio` is None if the two times are not from the same simulator and compiler. `note` explains `seconds`.
    """

    name: str
    seconds: float
    ratio: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """An attempt's time in seconds on the contest's scale; only a recorded time has an uncertainty."""

    seconds: float
    plus_minus_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestRow:
    """A contest as its ledger records it; None: not recorded.

    `folder` is its place in the repository ("" for the top), `page` the address of its own page.
    """

    name: str
    folder: str
    page: str
    problem: str
    label: str
    attempts: int
    last_number: int
    steps: tuple[Step, ...]
    baseline: Timed | None
    champion: Timed | None
    limit_name: str
    limit_seconds: float | None
    peer: Peer | None

    @property
    def short_name(self) -> str:
        """The folder's own name."""
        return PurePosixPath(self.folder).name or self.name

    @property
    def gain(self) -> float | None:
        """The first champion's time over the present one's, on one scale."""
        return self.baseline.seconds / self.champion.seconds if self.baseline and self.champion else None

    @property
    def limit_share(self) -> float | None:
        """The least time that the chip needs for the useful work, over the champion's time."""
        return self.limit_seconds / self.champion.seconds if self.limit_seconds and self.champion else None

    @property
    def first_limit_share(self) -> float | None:
        """The least time that the chip needs for the useful work, over the first champion's time."""
        return self.limit_seconds / self.baseline.seconds if self.limit_seconds and self.baseline else None


def contest_row(
    name: str, folder: str, page: str, entries: Sequence[Entry], champion: str | None, peer: Peer | None
) -> ContestRow:
    """The row of a contest: its `entries`, oldest first and at least one, and the id of its champion."""
    group = opening(groups(entries), champion)
    assert group is not None
    champion_time = None if group.standing is None else _of_step(group.standing)
    titles = [entry.attempt.evidence.problem.title for entry in entries if entry.attempt]
    return ContestRow(
        name=clean(name),
        folder=clean(folder),
        page=page,
        problem=clean(titles[-1]) if titles else "",
        label=group.label,
        attempts=len(entries),
        last_number=max(entry.row.number for entry in entries),
        steps=group.steps,
        baseline=_of_step(group.steps[0]) if group.steps else None,
        champion=champion_time,
        limit_name=group.bound.name if group.bound else "",
        limit_seconds=group.bound.seconds if group.bound else None,
        peer=peer,
    )


def _of_step(step: Step) -> Timed:
    is_recorded = step.report is not None and step.report.seconds == step.seconds
    return Timed(
        seconds=step.seconds, plus_minus_seconds=step.report.plus_minus_seconds if step.report and is_recorded else None
    )
