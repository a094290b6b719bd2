"""What the page and the pictures of a contest tell: its attempts as they are shown, and what it says beside them."""

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import RatchetError
from harness.ledger import Ledger, git, table
from harness.ledger.bulk_read import read_all
from harness.loop.gain import gain
from harness.records import Recheck, Row, ScaledRow
from harness.records.titles import title_moves
from harness.render.page import Story, page
from harness.render.results import recheck_words, unknown_words
from harness.render.series import Entry
from harness.shell.arguments import command, say
from harness.units import quantity
from harness.verbs.parts.entries import entry_of
from harness.verbs.parts.given import settled


def page_of(given: Namespace, target: Path) -> tuple[bytes, str]:
    """The page of the contest meant, and what it holds in words."""
    told = story(settled(given), target.parent)
    return page(told), quantity(len(told.entries), "attempt")


def story(ledger: Ledger, page_folder: Path) -> Story:
    """What the page of a contest tells that lies in `page_folder`. Raises RatchetError `no-attempts`."""
    scaled = table.scaled(ledger)
    found, champion = entries_of(ledger, scaled, ledger.place.kernel_path.parent / "profile_data", page_folder)
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


def entries_of(
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
