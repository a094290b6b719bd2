"""What the ledger stores: the version of the form of attempts, and what packing them came to."""

from dataclasses import dataclass

# harness/ledger/codec.py has its history.
SCHEMA = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """What was moved into attempts.jsonl, what it holds now, and what was left where it is, in sentences.

    `bytes_before` are those of attempts.jsonl and of the moved files, `bytes_after` those of attempts.jsonl now.
    """

    moved: int
    notes: int
    attempts: int
    bytes_before: int
    bytes_after: int
    left: tuple[str, ...]
