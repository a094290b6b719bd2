"""The chips by name and by what a device calls itself; the facts of each stand in its file in harness/chips."""

from harness import chips
from harness.chips.row import Chip as Chip
from harness.errors import UsageError

# Those that kernels are judged for: a row of figures alone is for predictions.
CHIPS = tuple(one for one in (chips.row(name).chip for name in chips.names()) if isinstance(one, Chip))
TPUS = tuple(one for one in CHIPS if one.platform == "tpu")
GPUS = tuple(one for one in CHIPS if one.platform == "cuda")
# What is judged and predicted for where nothing names another.
DEFAULT_CHIP = "v5e"


def chip(name: str) -> Chip:
    """The chip called `name` (`v5e`, any case). Raises UsageError `unknown-chip` naming those that exist."""
    for candidate in CHIPS:
        if candidate.name == name.strip().lower():
            return candidate
    known = ", ".join(candidate.name for candidate in CHIPS)
    raise UsageError("unknown-chip", f"unknown chip {name!r}: expected one of {known}")


def chip_of_device(device_kind: str) -> Chip | None:
    """The chip that a device reports as `device_kind` (`TPU v5 lite`, any case), or None if it is not in the table."""
    kind = device_kind.strip().lower()
    for candidate in CHIPS:
        if kind in (known.lower() for known in candidate.device_kinds):
            return candidate
    return None
