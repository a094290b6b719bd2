"""The version of the form of stored attempts, and the record of packing them."""

from dataclasses import dataclass

# harness/ledger/codec.py has its history, and says how to add a field.
SCHEMA = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Counts of records moved into attempts.jsonl, and of its present contents.

    `left` has sentences on files left in place. `bytes_before` are those of attempts.jsonl and of the moved files,
    `bytes_after` those of attempts.jsonl now.
    """

    moved: int
    notes: int
    attempts: int
    bytes_before: int
    bytes_after: int
    left: tuple[str, ...]
