"""The uncertainty of a simulated time, and of the ratio of two times, from the errors against published device times.

The uncertainty of a chip is `relative_uncertainty` in its file, such as harness/chips/v6e.py; the numbers here hold for
all chips. All of them come from benchmarks/FIDELITY.md, which benchmarks/fidelity.py writes; tests keep them equal.
The same page states how well published times can show that one program is faster than another.
"""

from math import hypot, inf

from harness import chips
from harness.errors import UsageError

# The factor by which the uncertainty grows if an operation of unknown time was executed.
WIDER = 2

# Predictions of 148 published times were sealed before the simulator was compared with the times: 61 % of the times lay
# within the interval that was claimed for 68 %. With errors that follow Student's distribution, this factor corrects
# the interval.
_ON_SEALED_ROWS = 1.2
# The uncertainty that the first fetch and the last store of each called HLO operation add.
_OPERATION_SECONDS = 0.28e-6
# The uncertain share of the time that chips wait for each other. Published transfers reach 86 to 95 % of their links'
# bandwidth; nothing is published on the difference of kernels' transfers from these.
LINK_WAITS = 0.1
# Errors are not normally distributed: 95 % of them are within this many standard deviations.
DEVIATIONS_OF_95_PERCENT = 3.1


def plus_minus_seconds(
    seconds: float, relative: float, *, is_understood: bool, link_wait_seconds: float = 0.0
) -> float:
    """Half the width of the 68 % interval around a simulated time; `relative` is the uncertainty of time ratios.

    The interval is wider than that of a ratio: errors that two programs for one problem share cancel in their ratio,
    but not in a time. `link_wait_seconds` is the part of the time that is spent waiting for other chips.
    """
    off = hypot(_ON_SEALED_ROWS * relative * seconds, LINK_WAITS * link_wait_seconds)
    return off * (1 if is_understood else WIDER)


def relative_uncertainty(chip: str, operation_seconds: float = inf) -> float:
    """The uncertainty of the ratio of two programs' times on `chip`: one standard deviation, as a fraction.

    `operation_seconds` is the time that one HLO operation of the program takes, on average. Raises UsageError
    `no-machine` for a chip whose times are not simulated.

    The judge compares two times with this uncertainty. Two programs for one problem share errors, so the error of their
    ratio should not exceed the error of either time (benchmarks/FIDELITY.md has the figures). Among fifteen variants of
    one kernel, all pairs that differ by 2 % or more were ordered correctly.
    """
    relative = chips.row(chip).relative_uncertainty if chip in chips.names() else None
    if relative is None:
        raise UsageError("no-machine", f"expected a chip whose times are simulated, got {chip}: its errors are unknown")
    return hypot(relative, _OPERATION_SECONDS / operation_seconds)
