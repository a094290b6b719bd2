"""A contest as one row of a table: problem, first and present champion, gain, the chip's limit, a peer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from harness.render.layout import clean
from harness.render.series import Entry, Group, groups, opening


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
class ContestRow:
    """A contest as its ledger records it.

    - `folder`: the contest's folder in the repository ("" for the top).
    - `page`: the address of the contest's own page.
    - `group`: the attempts under the timing key that charts show first.
    """

    name: str
    folder: str
    page: str
    problem: str
    attempts: int
    last_number: int
    group: Group
    peer: Peer | None

    @property
    def short_name(self) -> str:
        """The folder's own name."""
        return PurePosixPath(self.folder).name or self.name

    @property
    def gain(self) -> float | None:
        """The first champion's time divided by the present champion's time, on one scale."""
        steps = self.group.steps
        return steps[0].seconds / steps[-1].seconds if steps else None

    def limit_share(self, step: int) -> float | None:
        """The least time that the chip needs for the useful work, divided by a step's time (-1: the champion's)."""
        group = self.group
        return group.bound.seconds / group.steps[step].seconds if group.bound and group.steps else None


def contest_row(
    name: str, folder: str, page: str, entries: Sequence[Entry], champion: str | None, peer: Peer | None
) -> ContestRow:
    """The row of a contest: its `entries`, oldest first and at least one, and the id of its champion."""
    group = opening(groups(entries), champion)
    assert group is not None
    titles = [entry.attempt.evidence.problem.title for entry in entries if entry.attempt]
    return ContestRow(
        name=clean(name),
        folder=clean(folder),
        page=page,
        problem=clean(titles[-1]) if titles else "",
        attempts=len(entries),
        last_number=max(entry.row.number for entry in entries),
        group=group,
        peer=peer,
    )
