"""The uncertainty of simulated times and of their ratios, derived from the errors against published device times.

Each chip's file, such as harness/chips/v6e.py, has the uncertainty of that chip (`relative_uncertainty`). The numbers
in this file hold for all chips. All these numbers come from benchmarks/FIDELITY.md, which benchmarks/fidelity.py
writes. Tests check that the numbers equal those of that page, which also states how reliably the simulator names the
faster of two programs.
"""

from math import hypot, inf

from harness import chips
from harness.errors import UsageError

# The factor by which the uncertainty grows if an operation of unknown time was executed.
WIDER = 2

# Predictions for 148 published times were sealed before the comparison. 61 % of these times were within an interval
# that should have covered 68 %. If errors follow Student's distribution, this factor corrects the width.
_ON_SEALED_ROWS = 1.2
# The uncertainty that each called HLO operation adds by its first fetch and its last store.
_OPERATION_SECONDS = 0.28e-6
# The relative uncertainty of the time that chips wait for each other. Published transfers reach 86 to 95 % of the
# bandwidth of their links. No source states how far the transfers of kernels differ from these fractions.
LINK_WAITS = 0.1
# Errors are not normally distributed: 95 % of them are within this many standard deviations.
DEVIATIONS_OF_95_PERCENT = 3.1


def plus_minus_seconds(
    seconds: float, relative: float, *, is_understood: bool, link_wait_seconds: float = 0.0
) -> float:
    """Half the width of the 68 % interval around a simulated time; `relative` is the uncertainty of time ratios.

    Times of programs for one problem share errors. These errors cancel in the ratio of two times, but not in a single
    time, so this interval is wider. `link_wait_seconds` is the part of the time in which the chip waits for other
    chips.
    """
    off = hypot(_ON_SEALED_ROWS * relative * seconds, LINK_WAITS * link_wait_seconds)
    return off * (1 if is_understood else WIDER)


def relative_uncertainty(chip: str, operation_seconds: float = inf) -> float:
    """The uncertainty of the ratio of two programs' times on `chip`: one standard deviation, as a fraction.

    The judge compares two times with this uncertainty. Times of programs for one problem share errors. So the error of
    the ratio should not exceed the error of either time (benchmarks/FIDELITY.md has the figures). Among fifteen
    variants of one kernel, all pairs that differ by 2 % or more were ordered correctly.

    `operation_seconds` is the mean time of one HLO operation of the program. Raises UsageError `no-machine` for a chip
    whose times are not simulated.
    """
    relative = chips.row(chip).relative_uncertainty if chip in chips.names() else None
    if relative is None:
        simulated = ", ".join(name for name in chips.names() if chips.row(name).relative_uncertainty is not None)
        raise UsageError("no-machine", f"expected a chip whose times are simulated, got {chip}; use one of {simulated}")
    return hypot(relative, _OPERATION_SECONDS / operation_seconds)
