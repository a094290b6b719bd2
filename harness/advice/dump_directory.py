"""A directory of compiler dumps, read and compared with the chip that the caller names."""

from contextlib import suppress
from pathlib import Path

from harness import reading_limits
from harness.dumps import executable
from harness.dumps.llo import ModuleDump, read_module
from harness.errors import RatchetError, UsageError
from harness.hardware import TPUS, Chip
from harness.records import Evidence


def of(evidence: Evidence, contest: Path) -> Path | None:
    """The folder with the schedules of `evidence`, or None if they are not on this machine.

    The path in a record is not trusted, so only folders in the contest's profile_data are opened.
    """
    allowed = (contest / "profile_data").resolve()
    # A path that cannot be the name of a file, or that is a loop of links, names no folder.
    with suppress(OSError, ValueError, RuntimeError):
        folder = (contest / (evidence.dump_directory or "")).resolve()
        return folder if folder.is_relative_to(allowed) and folder.is_dir() else None
    return None


# Suffixes of the files that are read.
_SUFFIXES = (".txt", ".json", executable.SUFFIX)
# A simulation may take this many times as long as reading the files.
_TIMES = 3
_OUT_OF_TIME = "the time limit of the simulation"


def read(directory: Path, chip: Chip, runs: int = 1) -> ModuleDump:
    """The module dumped in `directory`, which will be simulated `runs` times.

    Raises RatchetError `no-dump`, `too-large` or `not-a-file`, and UsageError `other-chip`. A schedule does not name
    its chip. The number of matrix units in its tables only distinguishes v4, v5e and v5p from v6e and v7x.
    """
    reading_limits.note(_size(directory))
    reading_limits.allow(runs * _TIMES + 1)
    try:
        dump = read_module(directory)
    except RatchetError as error:
        below = next(directory.glob("*/*-final_bundles.txt"), None) if error.kind == "no-dump" else None
        if below is None:
            raise
        raise RatchetError(
            "no-dump", f"expected the folder with the schedules, got {directory}; use {below.parent}"
        ) from error
    for table in dump.utilisations:
        slots = dict(zip(table.units, table.slots, strict=True)).get("MXU") if table else None
        if slots is not None and slots != chip.mxus_per_core:
            fitting = " or ".join(other.name for other in TPUS if other.mxus_per_core == slots)
            raise UsageError(
                "other-chip",
                f"expected a schedule for {chip.name} ({chip.mxus_per_core} matrix units per core), got a schedule for "
                f"{slots} per core in {directory}; name the chip it was compiled for"
                f"{f', {fitting}' if fitting else ''}",
            )
    return dump


def deadline_seconds(directory: Path) -> float:
    """The time limit of a simulation of the module in `directory`, in seconds."""
    return float(_TIMES * reading_limits.seconds(_size(directory)))


def explain_no_end(reason: str) -> str:
    """The reason why a simulation did not end; if it is the time limit, with the variable that raises the limit."""
    return f"{reason}; raise it with {reading_limits.SECONDS.variable}" if _OUT_OF_TIME in reason else reason


def _size(directory: Path) -> int:
    """The total size in bytes of the files that `read` may read. Raises RatchetError `too-large` or `not-a-file`."""
    if not directory.is_dir():
        return 0
    total = sum(reading_limits.check_file(path) for path in directory.iterdir() if path.suffix in _SUFFIXES)
    reading_limits.FILE.check(total, str(directory))
    return total
