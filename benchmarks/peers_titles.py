"""The champions of our contests, with times and titles, read from the ledgers: a part of peers.py and its page."""

from dataclasses import dataclass
from pathlib import Path

import fidelity_rows

from harness.ledger import Ledger, history, table


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """`holds`: kernel.py is the champion's. `words` say how the last champion lost the title, if it did."""

    holds: bool
    words: str = ""


# The best peer of every contest; lines that begin with # are remarks.
KEPT = Path(__file__).parent / "data" / "peers.tsv"


def kept() -> dict[str, dict[str, str]]:
    """The rows of KEPT, by contest: peer, seconds, ratio (ours / theirs) and note."""
    return {row["contest"]: row for row in fidelity_rows.table(KEPT)}


def champion_seconds(folder: Path) -> float | None:
    """The newest simulated time (`rescale`) of the champion of the contest in `folder`; None without a champion."""
    champion = table.scaled(Ledger.open(folder)).champion_row
    return champion.row.seconds if champion else None


def title(kernel: Path) -> Title:
    """The title of the contest in whose folder this kernel.py lies, and how the last holder lost it."""
    ledger = Ledger.open(kernel.parent)
    champion = ledger.champion()
    words = ""
    revoking_rows = [row for row in history.rows(ledger.place)[0] if row.is_on_branch is not False and row.revokes]
    if revoking_rows:
        revocation = history.attempt(ledger.place, revoking_rows[-1].number).revocation
        failure = revocation.tried[0].failure if revocation else None
        why = f"{failure.kind}: {failure.message}" if failure else "it fails"
        holder = f"attempt {champion.number} holds the title" if champion else "no champion"
        words = f"revoked: attempt {revoking_rows[-1].revokes[0]} fails ({why[:160]}); {holder}"
    return Title(holds=champion is not None and kernel.read_bytes() == ledger.champion_candidate().text, words=words)
