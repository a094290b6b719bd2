"""The work of `plot`: the figures of a contest, or one of all contests below a folder, as PNG."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.ledger import table
from harness.loop import kept_captures
from harness.render import plots
from harness.render.series import Group, groups, opening
from harness.shell.arguments import directory
from harness.shell.verb import Outcome
from harness.units import quantity
from harness.verbs.parts import contests_page, stories
from harness.verbs.parts.context import recovered_ledger
from harness.workbench.profiles.places import PROFILE_DATA


def run(arguments: Namespace) -> Outcome:
    folder = directory(arguments.directory).resolve()
    target: Path = (arguments.out or folder / PROFILE_DATA / "plots").resolve()
    if arguments.all:
        return _plot_of_all(arguments, folder, target)
    ledger = recovered_ledger(arguments)
    scaled = table.scaled(ledger)
    if arguments.key is not None:
        # The user named a key, so the plot shows the times as recorded under it.
        scaled = replace(scaled, rows=scaled.recorded, scale=None)
    entries, champion = stories.entries_of(ledger, scaled, folder / "profile_data", target)
    group = _group_of(groups(entries), champion, arguments.key)
    written: list[str] = []
    for name, picture in plots.pictures(group, dark=arguments.dark):
        write_atomically(target / name, picture)
        written.append(f"wrote {target / name}")
    if arguments.out is None:
        kept_captures.make_folder(folder / PROFILE_DATA)
    return Outcome(text=lambda: "\n".join(written), messages=tuple(plots.left_out(group)))


def _plot_of_all(arguments: Namespace, folder: Path, target: Path) -> Outcome:
    if arguments.key is not None:
        raise UsageError("usage", "expected --all or --key, got both: the picture over all contests has every key")
    listed = contests_page.contests(folder, target, {})
    picture = plots.gallery(listed.rows, dark=arguments.dark)
    if picture is None:
        raise RatchetError(
            "no-limit", "expected a champion whose share of the chip's limit is known, found none in these contests"
        )
    write_atomically(target / plots.GALLERY, picture)
    if arguments.out is None:
        kept_captures.make_folder(folder / PROFILE_DATA)
    return Outcome(
        text=lambda: f"wrote {target / plots.GALLERY}: {quantity(len(listed.rows), 'contest')}", messages=listed.notes
    )


def _group_of(all_groups: Sequence[Group], champion: str | None, key: str | None) -> Group:
    """The group whose key begins with `key`; without a key, the champion's group. Raises UsageError `unknown-key`."""
    if key is None:
        group = opening(all_groups, champion)
        assert group is not None
        return group
    matching = [group for group in all_groups if group.digest.startswith(key)]
    if len(matching) != 1:
        described = "; ".join(
            f"{group.digest} ({group.label}, {quantity(len(group.entries), 'attempt')})" for group in all_groups
        )
        raise UsageError("unknown-key", f"expected --key to name one of {described}; got {key!r}")
    return matching[0]
