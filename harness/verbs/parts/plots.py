"""What `plot` writes: the figures of a contest, or of all below a folder, as PNG."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.ledger import table
from harness.loop import kept_captures
from harness.render import plots
from harness.render.plots import GALLERY as NAME
from harness.render.plots import gallery
from harness.render.series import Group, groups, opening
from harness.shell.arguments import directory
from harness.shell.verb import Outcome
from harness.units import quantity
from harness.verbs.parts import contests_page, stories
from harness.verbs.parts.given import settled
from harness.workbench.profiles.places import PROFILE_DATA


def plot(given: Namespace) -> Outcome:
    folder = directory(given.directory).resolve()
    target: Path = (given.out or folder / PROFILE_DATA / "plots").resolve()
    if given.all:
        return _plot_of_all(given, folder, target)
    ledger = settled(given)
    scaled = table.scaled(ledger)
    if given.key is not None:
        # A key of then is asked for by name: its times are those that were recorded.
        scaled = replace(scaled, rows=scaled.recorded, scale=None)
    found, champion = stories.entries_of(ledger, scaled, folder / "profile_data", target)
    group = _meant(groups(found), champion, given.key)
    written: list[str] = []
    for name, picture in plots.pictures(group, dark=given.dark):
        write_atomically(target / name, picture)
        written.append(f"wrote {target / name}")
    if given.out is None:
        kept_captures.made(folder / PROFILE_DATA)
    return Outcome(text=lambda: "\n".join(written), messages=tuple(plots.left_out(group)))


def _plot_of_all(given: Namespace, folder: Path, target: Path) -> Outcome:
    if given.key is not None:
        raise UsageError("usage", "expected --all or --key, got both: the picture over all contests has every key")
    found = contests_page.contests(folder, target, {})
    picture = gallery(found.rows, dark=given.dark)
    if picture is None:
        raise RatchetError("no-limit", "no contest has a champion whose share of the chip's limit is known")
    write_atomically(target / NAME, picture)
    if given.out is None:
        kept_captures.made(folder / PROFILE_DATA)
    return Outcome(text=lambda: f"wrote {target / NAME}: {quantity(len(found.rows), 'contest')}", messages=found.notes)


def _meant(found: Sequence[Group], champion: str | None, key: str | None) -> Group:
    """The group with that key, or a key that begins so; without one the champion's. Raises UsageError `unknown-key`."""
    if key is None:
        group = opening(found, champion)
        assert group is not None
        return group
    matching = [group for group in found if group.digest.startswith(key)]
    if len(matching) != 1:
        known = "; ".join(
            f"{group.digest} ({group.label}, {quantity(len(group.entries), 'attempt')})" for group in found
        )
        raise UsageError("unknown-key", f"expected --key to name one of {known}; got {key!r}")
    return matching[0]
