"""How far a simulated time, and the ratio of two, may be off: from the errors against published device times.

All numbers here are read off benchmarks/FIDELITY.md, which benchmarks/fidelity.py writes, and tests hold
the two together. What those times can tell about two programs, and what not, is said there too.
"""

from math import hypot, inf

# Something that is not understood was executed: its time may be wrong, and how much is not known.
WIDER = 2

# One standard deviation: of one more row's errors 68.27 % are smaller, by what the rows that no constant was fitted to
# show when each is left out. Of v5e, where there are three, all rows, and not less than 2 %: all compute one operation.
# The error of a chip's long operations, as a fraction of their time. A chip without published times gets the largest.
_CHIP = {"v5e": 0.020, "v5p": 0.033, "v6e": 0.058, "v7x": 0.045}
# Added for each HLO operation that a program calls: its first fetch and its last store.
_OPERATION_SECONDS = 0.08e-6
# Errors are not normal: 95 % of them are within this many standard deviations.
DEVIATIONS_OF_95_PERCENT = 3.0


def plus_minus_seconds(seconds: float, relative: float, *, is_understood: bool) -> float:
    """Half the width of the interval around a simulated time that is off by the fraction `relative`."""
    return relative * seconds * (1 if is_understood else WIDER)


def relative_uncertainty(chip: str, operation_seconds: float = inf) -> float:
    """How far the time of a program on `chip` may be off, as a fraction of it, one standard deviation.

    `operation_seconds` is what one of its HLO operations takes, on average.

    The judge compares two times with it: two programs that compute the same thing share errors, so that
    their ratio should be off by no more than either (benchmarks/FIDELITY.md shows by how much).
    """
    return hypot(_CHIP.get(chip, max(_CHIP.values())), _OPERATION_SECONDS / operation_seconds)
