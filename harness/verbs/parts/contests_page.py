"""Contests below a folder, read from their ledgers, for `report --all` and `plot --all`."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from git import Repo

from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.ledger import Ledger, git, history
from harness.loop.scaffold import OPERATORS
from harness.render.contests import ContestRow, Peer, contest_row
from harness.render.page import Story, page
from harness.render.page.contests import contests_page
from harness.units import decimal, quantity
from harness.verbs.parts.stories import story

_PEER_COLUMNS = ("contest", "peer", "seconds", "ratio", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestList:
    """The contests with attempts, in the order of their folders.

    `untried` are the folders of contests without attempts; `notes` are sentences on contests that are left out, and on
    contests in `rows`.
    """

    rows: tuple[ContestRow, ...]
    untried: tuple[str, ...]
    notes: tuple[str, ...]


def write_pages(folder: Path, file_of_peers: Path | None, target: Path) -> str:
    """Writes the page over all contests to `target` and each contest's page next to it; returns a sentence."""

    def keep(story: Story, name: str) -> None:
        write_atomically(target.parent / name, page(story))

    listed = contests(folder, target.parent, peers(file_of_peers), keep, target.name)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    untried = (f"no attempts yet: {', '.join(listed.untried)}",) if listed.untried else ()
    data = contests_page(f"Contests of {folder.name}", made, listed.rows, (*untried, *listed.notes))
    write_atomically(target, data)
    wrote = f"wrote {target}: {quantity(len(listed.rows), 'contest')}, {decimal(len(data), 'B')}"
    return "; ".join([wrote, *untried, "the pages of the contests lie in the same folder"])


def contests(
    folder: Path,
    page_folder: Path,
    peer_of: dict[str, Peer],
    keep: Callable[[Story, str], None] = lambda story, name: None,
    reserved: str = "",
) -> ContestList:
    """Every contest in `folder` and below it; `keep` gets each story with the name of its page in `page_folder`.

    None of the pages is called `reserved`. Raises RatchetError `no-attempts` if no contest has attempts, and the errors
    of opening the repository.
    """
    repository = git.open_repository(folder)
    rows, untried, notes = [], [], []
    for place in contest_folders(repository, folder):
        try:
            ledger = Ledger.open(git.root(repository) / place)
            if not history.rows(ledger.place, 1)[0]:
                if _is_contest(ledger.place.kernel_path.parent):
                    untried.append(place or ".")
                continue
            shown = story(ledger, page_folder)
        except RatchetError as error:
            notes.append(f"{place or '.'} is left out: {error}")
            continue
        # No contest's name ends with a plus.
        name = f"{ledger.place.name}.html" if f"{ledger.place.name}.html" != reserved else f"{ledger.place.name}+.html"
        keep(shown, name)
        peer = peer_of.get(place or ".")
        rows.append(contest_row(ledger.place.name, place, quote(name), shown.entries, shown.champion, peer))
        notes += [f"{place or '.'}: {note}" for note in shown.notes]
    if not rows:
        raise RatchetError("no-attempts", f"expected contests with attempts in {folder} or below it, found none")
    return ContestList(rows=tuple(rows), untried=tuple(untried), notes=tuple(notes))


def _is_contest(folder: Path) -> bool:
    """True if the folder has a kernel.py and does not lie among the templates of `new`."""
    return (folder / "kernel.py").is_file() and not folder.resolve().is_relative_to(OPERATORS)


def contest_folders(repository: Repo, folder: Path) -> Iterator[str]:
    """The folders in `folder` and below that hold a contest, relative to the repository's top; "" is the top itself."""
    below = git.relative_path(repository, folder)
    paths = git.tracked_paths(repository, [] if below == "." else [below])
    for path in sorted(map(PurePosixPath, paths), key=lambda path: path.parent):
        if path.name == "prepare.py":
            yield "" if str(path.parent) == "." else str(path.parent)


def peers(file: Path | None) -> dict[str, Peer]:
    """The best peer of each contest by its folder ("." for the top), from tab-separated lines below a header line.

    Raises UsageError `bad-peers`.
    """
    if file is None:
        return {}
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        rows = csv.DictReader(lines, delimiter="\t")
        return {
            line["contest"]: Peer(
                name=line["peer"],
                seconds=float(line["seconds"]),
                ratio=float(line["ratio"]) if line["ratio"] else None,
                note=line["note"],
            )
            for line in rows
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        columns = ", ".join(_PEER_COLUMNS)
        raise UsageError(
            "bad-peers", f"expected tab-separated lines in {file}, below a header of {columns}: {error!r}"
        ) from error
