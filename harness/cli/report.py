"""What `report` and `plot` write: one HTML page of a ledger or of a table, the ledger's figures as PNG."""

import os
import webbrowser
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.cli import contests_page, table_page
from harness.cli.arguments import command, directory, say
from harness.cli.entries import entry_of
from harness.cli.ledger import settled
from harness.cli.verb import Outcome
from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.ledger import Ledger, git, table
from harness.ledger.bulk_read import read_all
from harness.loop.gain import gain
from harness.records import Recheck, Row, ScaledRow
from harness.records.titles import title_moves
from harness.render import plots
from harness.render.gallery import NAME, gallery
from harness.render.page import Story, page
from harness.render.results import recheck_words, unknown_words
from harness.render.series import Entry, Group, groups, opening
from harness.units import decimal, quantity
from harness.workbench.profiles import pruning
from harness.workbench.profiles.places import PROFILE_DATA


def report(given: Namespace) -> Outcome:
    if given.table is not None and (given.directory is not None or given.all):
        raise UsageError("usage", "a table has a page without a contest: expected -C DIR, --all or --table DIR alone")
    if given.peers is not None and not given.all:
        raise UsageError("usage", "--peers is for the page over all contests: expected --all with it")
    folder = directory(given.directory).resolve()
    usual = folder / PROFILE_DATA if given.table is None else given.table
    target: Path = (given.out or usual / ("contests/index.html" if given.all else "report.html")).resolve()
    if target.is_dir():
        raise UsageError("usage", f"expected --out to name a file, got the folder {target}")
    if given.all:
        written = f"{contests_page.write_pages(given, _story, target)}; they need no network and no server"
    else:
        data, what = _ledger_page(given, target) if given.table is None else table_page.page_of(given.table)
        write_atomically(target, data)
        written = f"wrote {target}: {what}, {decimal(len(data), 'B')}; it needs no network and no server"
    if given.out is None and given.table is None:
        # git passes over it, also where no contest says so.
        pruning.made(folder / PROFILE_DATA)
    if given.open and not webbrowser.open(target.as_uri()):
        raise RatchetError("no-browser", f"{written}; no browser could be started here, open it in one")
    return Outcome(text=lambda: written)


def _ledger_page(given: Namespace, target: Path) -> tuple[bytes, str]:
    """The page of the contest meant, and what it holds in words."""
    story = _story(settled(given), target.parent)
    return page(story), quantity(len(story.entries), "attempt")


def _story(ledger: Ledger, page_folder: Path) -> Story:
    """What the page of a contest tells that lies in `page_folder`. Raises RatchetError `no-attempts`."""
    scaled = table.scaled(ledger)
    found, champion = _entries(ledger, scaled, ledger.place.kernel_path.parent / "profile_data", page_folder)
    contest = ledger.place.kernel_path.parent
    # Who reads the page stands where it was made.
    again = command("rescale --all", None if contest.samefile(Path.cwd()) else Path(os.path.relpath(contest)))
    notes = (*scaled.skipped, *unknown_words(scaled.rows, again))
    return Story(
        contest=ledger.place.name,
        branch=(git.branch_or_none(ledger.place.repository) or "detached HEAD").removeprefix("refs/heads/"),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        entries=found,
        champion=champion,
        gain=gain(scaled),
        notes=notes,
    )


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
    found, champion = _entries(ledger, scaled, folder / "profile_data", target)
    group = _meant(groups(found), champion, given.key)
    written: list[str] = []
    for name, picture in plots.pictures(group, dark=given.dark):
        write_atomically(target / name, picture)
        written.append(f"wrote {target / name}")
    if given.out is None:
        pruning.made(folder / PROFILE_DATA)
    return Outcome(text=lambda: "\n".join(written), messages=tuple(plots.left_out(group)))


def _plot_of_all(given: Namespace, folder: Path, target: Path) -> Outcome:
    if given.key is not None:
        raise UsageError("usage", "expected --all or --key, got both: the picture over all contests has every key")
    found = contests_page.contests(folder, _story, target, {})
    picture = gallery(found.rows, dark=given.dark)
    if picture is None:
        raise RatchetError("no-limit", "no contest has a champion whose share of the chip's limit is known")
    write_atomically(target / NAME, picture)
    if given.out is None:
        pruning.made(folder / PROFILE_DATA)
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


def _entries(
    ledger: Ledger, scaled: table.ScaledTable, files: Path, page_folder: Path
) -> tuple[tuple[Entry, ...], str | None]:
    """Every attempt as it is shown, oldest first, and the id of the champion.

    `files` is where timelines lie, `page_folder` where links to them begin. Raises RatchetError
    `no-attempts` where there are none.
    """
    drawn, champion = scaled.drawn, scaled.champion
    rows = [one.then for one in drawn]
    for sentence in scaled.skipped:
        say(sentence)
    if not rows:
        raise RatchetError("no-attempts", 'no attempts yet: ./ratchet.sh "experiment: baseline" makes the first')
    words = _rechecks(scaled)
    found: list[Entry] = []
    for place, (name, held) in enumerate(zip(_ids(rows), read_all(ledger.place, rows), strict=True)):
        found.append(entry_of(name, drawn[place], held, found, files, page_folder, words[place]))
    for move in title_moves(rows):
        for took in move.took:
            found[took] = replace(found[took], is_undone=move.kind == "undo", is_revoked=move.kind == "revoke")
        if move.again is not None:
            found[move.place] = replace(found[move.place], again=found[move.again].id)
    standing = next(
        (
            entry.id
            for entry in reversed(found)
            if champion and (entry.row.number, entry.row.kernel_sha256) == (champion.number, champion.kernel_sha256)
        ),
        None,
    )
    return tuple(found), standing


def _rechecks(scaled: table.ScaledTable) -> tuple[str, ...]:
    """For each row the words of the run of checks that it belongs to; "" for others, and for a check alone."""
    found: list[str] = []
    for line in table.lines(scaled):
        if isinstance(line, ScaledRow):
            found.append("")
        elif isinstance(line, Recheck):
            words = recheck_words(line, scaled.number) if len(line.rows) > 1 else ""
            found += [words] * len(line.rows)
    return tuple(found)


def _ids(rows: Sequence[Row]) -> list[str]:
    """The number of each attempt; where two clones numbered apart, with some of the kernel's hash and a place."""
    counted = Counter(row.number for row in rows)
    return [
        str(row.number) if counted[row.number] == 1 else f"{row.number}-{row.kernel_sha256[:6]}-{place}"
        for place, row in enumerate(rows)
    ]
