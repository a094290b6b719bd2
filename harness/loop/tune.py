"""What a search over kernel.py's constants begins with: which study it belongs to, and the settings as they stand."""

import hashlib
import time

from harness.candidate import Candidate
from harness.contest import Contest
from harness.judge.key import key_digest
from harness.loop.search import Settings
from harness.loop.search_space import Grid


def study_name(contest: Contest, grid: Grid) -> str:
    """One for each space of one kernel.py, whatever its constants in it are, under one judge, problem, chip, compiler.

    Where a device is timed it is a new one each time: times of different hours say nothing about each other. Raises
    RatchetError `unknown-constant` where kernel.py does not have one of the constants.
    """
    candidate = contest.candidate().set(tuple((name, values[0]) for name, values in grid))
    key = key_digest(contest.key("simulated"))
    once = "" if contest.chip.platform == "tpu" else str(time.time_ns())
    parts = (candidate.text, key.encode(), repr(grid).encode(), once.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def as_it_stands(candidate: Candidate, grid: Grid) -> Settings | None:
    """The constants as kernel.py has them, None where one of them is not in the grid."""
    known = dict(candidate.constants)
    settings = tuple((name, known.get(name, "")) for name, _ in grid)
    return settings if all(value in values for (_, value), (_, values) in zip(settings, grid, strict=True)) else None
