"""How far a simulated time may be off, and how far the ratio of two: from the errors against 66 published times.

All numbers here are read off benchmarks/FIDELITY.md, which benchmarks/fidelity.py writes, and tests hold
the two together. What those times can tell about two programs, and what not, is said there too.
"""

# Nine of ten published times lie within this fraction of what is simulated for them, each predicted without itself.
RELATIVE_ERROR = 0.07
# Something that is not understood was executed: its time may be wrong, and how much is not known.
WIDER = 2

# Two in three (68.27 %, as many as within one standard deviation of a normal error) of the pairs of published times
# of one chip that share head width, operand layouts and scheduler have a ratio within this fraction of the simulated
# one; the chips with matrix units of 256 together, for each has too few pairs. The error does not shrink where the two
# times are near each other, so the number holds for any ratio.
_RATIO_ERROR = {"v5p": 0.011, "v6e": 0.033, "v7x": 0.033}
# The same over the pairs of all three chips: for chips of which no times of such kernels are published.
UNSEEN_RATIO_ERROR = 0.02


def plus_minus_seconds(seconds: float, border_seconds: float, *, is_understood: bool) -> float:
    """Half the width of the interval around a simulated time of `seconds`.

    `border_seconds` is what a profile shows for the module's arguments and results (profiled.py);
    what that is nobody knows, so all of it counts as doubt.
    """
    return (RELATIVE_ERROR * seconds + border_seconds) * (1 if is_understood else WIDER)


def relative_uncertainty(chip: str) -> float:
    """How far the time ratio of two programs on `chip` may be off, as a fraction of it, one standard deviation.

    For programs of the same kind. No published pair computes the same thing in two ways, as a
    champion and a candidate do: those share more, so that this is more likely too much than too little.
    """
    return _RATIO_ERROR.get(chip, UNSEEN_RATIO_ERROR)
