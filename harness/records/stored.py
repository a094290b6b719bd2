"""The version of the schema of stored attempts, and the record of packing attempts into attempts.jsonl."""

from dataclasses import dataclass

# harness/ledger/codec.py has the history of the versions, and says how to add a field.
SCHEMA = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Counts of records moved into attempts.jsonl, and of its present contents.

    `left` has a sentence on each file left in place. `bytes_before` is the size of attempts.jsonl and the moved files
    before, `bytes_after` the size of attempts.jsonl now.
    """

    moved: int
    notes: int
    attempts: int
    bytes_before: int
    bytes_after: int
    left: tuple[str, ...]
