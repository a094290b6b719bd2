"""A directory of compiler dumps, read for the chip that it is said to be compiled for."""

from pathlib import Path

from harness.dumps.llo import ModuleDump, read_module
from harness.errors import UsageError
from harness.hardware import TPUS, Chip


def read(directory: Path, chip: Chip) -> ModuleDump:
    """The module dumped in `directory`. Raises RatchetError `no-dump`, UsageError `other-chip`.

    A schedule does not name its chip. Its tables say how many matrix units there are, which tells
    v4, v5e and v5p from v6e and v7x, but not from each other.
    """
    dump = read_module(directory)
    for table in dump.utilisations:
        slots = dict(zip(table.units, table.slots, strict=True)).get("MXU") if table else None
        if slots is not None and slots != chip.mxus_per_core:
            fitting = " or ".join(other.name for other in TPUS if other.mxus_per_core == slots)
            raise UsageError(
                "other-chip",
                f"expected a schedule for {chip.name}, whose cores have {chip.mxus_per_core} matrix units; the one in "
                f"{directory} is for {slots}: name the chip it was compiled for{f', {fitting}' if fitting else ''}",
            )
    return dump
