"""The content of a contest's page and pictures: its attempts as they are shown, and remarks."""

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger, git, table
from harness.ledger.bulk_read import read_all
from harness.loop.gain import gain
from harness.loop.ledger_advice import advice_here
from harness.records import Recheck, Row, ScaledRow
from harness.records.titles import title_moves
from harness.render.page import Story, page
from harness.render.results import recheck_words, unknown_words
from harness.render.series import Entry
from harness.shell.arguments import command, say
from harness.units import quantity
from harness.verbs.parts.context import recovered_ledger
from harness.verbs.parts.entries import entry_of


def page_of(arguments: Namespace, target: Path) -> tuple[bytes, str]:
    """The page of the contest that `-C` names, and its content in words."""
    content = story(recovered_ledger(arguments), target.parent)
    return page(content), quantity(len(content.entries), "attempt")


def story(ledger: Ledger, page_folder: Path) -> Story:
    """The content of a contest's page in the folder `page_folder`. Raises RatchetError `no-attempts`."""
    scaled = table.scaled(ledger)
    entries, champion = entries_of(ledger, scaled, ledger.place.kernel_path.parent / "profile_data", page_folder)
    contest = ledger.place.kernel_path.parent
    # The command is for readers in the folder where the page was made.
    again = command("rescale --all", None if contest.samefile(Path.cwd()) else Path(os.path.relpath(contest)))
    notes = (*scaled.skipped, *unknown_words(scaled.rows, again))
    return Story(
        contest=ledger.place.name,
        branch=(git.branch_or_none(ledger.place.repository) or "detached HEAD").removeprefix("refs/heads/"),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        entries=entries,
        champion=champion,
        gain=gain(scaled),
        notes=notes,
    )


def entries_of(
    ledger: Ledger, scaled: table.ScaledTable, files: Path, page_folder: Path
) -> tuple[tuple[Entry, ...], str | None]:
    """Every attempt as it is shown, oldest first, and the id of the champion.

    `files` is the folder of timelines; links to them are relative to `page_folder`. Raises RatchetError `no-attempts`.
    """
    drawn, champion = scaled.drawn, scaled.champion
    rows = [scaled_row.then for scaled_row in drawn]
    for sentence in scaled.skipped:
        say(sentence)
    if not rows:
        raise RatchetError("no-attempts", 'no attempts yet: ./ratchet.sh "experiment: baseline" makes the first')
    words = _rechecks(scaled)
    entries: list[Entry] = []
    for place, (name, stored) in enumerate(zip(_ids(rows), read_all(ledger.place, rows), strict=True)):
        entries.append(entry_of(name, drawn[place], stored, entries, files, page_folder, words[place]))
    for move in title_moves(rows):
        for took in move.took:
            entries[took] = replace(entries[took], is_undone=move.kind == "undo", is_revoked=move.kind == "revoke")
        if move.again is not None:
            entries[move.place] = replace(entries[move.place], again=entries[move.again].id)
    champion_id = next(
        (
            entry.id
            for entry in reversed(entries)
            if champion and (entry.row.number, entry.row.kernel_sha256) == (champion.number, champion.kernel_sha256)
        ),
        None,
    )
    return tuple(
        _with_untried(entry, files.parent) if entry.id == champion_id else entry for entry in entries
    ), champion_id


def _with_untried(entry: Entry, contest: Path) -> Entry:
    """The champion's entry with advice that names constants to set; advice that was tried is marked or left out."""
    if entry.attempt is None or entry.kernel is None:
        return entry
    candidate = Candidate(text=entry.kernel.encode("utf-8", "surrogateescape"))
    return replace(entry, advice=advice_here(entry.advice, entry.attempt.evidence, candidate, contest))


def _rechecks(scaled: table.ScaledTable) -> tuple[str, ...]:
    """For each row, words on the series of checks that it belongs to; "" if it belongs to none."""
    rechecks: list[str] = []
    for line in table.lines(scaled):
        if isinstance(line, ScaledRow):
            rechecks.append("")
        elif isinstance(line, Recheck):
            words = recheck_words(line, scaled.number) if len(line.rows) > 1 else ""
            rechecks += [words] * len(line.rows)
    return tuple(rechecks)


def _ids(rows: Sequence[Row]) -> list[str]:
    """An id of each attempt: its number; if two clones used it, also part of the kernel's hash and the row's index."""
    counted = Counter(row.number for row in rows)
    return [
        str(row.number) if counted[row.number] == 1 else f"{row.number}-{row.kernel_sha256[:6]}-{place}"
        for place, row in enumerate(rows)
    ]
