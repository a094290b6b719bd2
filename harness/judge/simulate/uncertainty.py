"""How far a simulated time, and the ratio of two, may be off: from the errors against published device times.

All numbers here are read off benchmarks/FIDELITY.md, which benchmarks/fidelity.py writes, and tests hold
the two together. What those times can tell about two programs, and what not, is said there too.
"""

# Something that is not understood was executed: its time may be wrong, and how much is not known.
WIDER = 2
# A kernel that waits for transfers for more of its time than this leans on memory, any other on the units.
_MEMORY_SHARE = 0.25

# Within this fraction one more row lies with 68.27 % (as many as within one standard deviation of a normal error), as
# the rows that constants were fitted to let one expect: of kernels that lean on the units, and of those that lean on
# memory. Fewer than eight rows of a kind are taken together with the chip's others: v5e has six in all.
_ERROR = {"v5e": (0.021, 0.021), "v5p": (0.078, 0.120), "v6e": (0.060, 0.060), "v7x": (0.049, 0.081)}
# The same over the rows of all chips: for chips of which no such times are published.
UNSEEN_ERROR = 0.057


def leans_on_memory(waits_for_transfers: float) -> bool:
    """Whether a kernel that waits for transfers for this share of its time leans on memory."""
    return waits_for_transfers > _MEMORY_SHARE


def plus_minus_seconds(seconds: float, relative: float, *, is_understood: bool) -> float:
    """Half the width of the interval around a simulated time that is off by the fraction `relative`."""
    return relative * seconds * (1 if is_understood else WIDER)


def relative_uncertainty(chip: str, waits_for_transfers: float = 0.0) -> float:
    """How far the time of a program on `chip` may be off, as a fraction of it, one standard deviation.

    `waits_for_transfers` is the share of its time that it waits for transfers.

    The judge compares two times with it: their ratio is off by less than the times are, for two
    programs that compute the same thing share most errors; but no published pair shows by how much less.
    """
    error = _ERROR.get(chip)
    return error[leans_on_memory(waits_for_transfers)] if error is not None else UNSEEN_ERROR
