"""Words of reports for a part of the simulated cycles, for a time's source and its change, and for the champion.

Examples are the part "operand wait `k_ref.1`"; the sources "simulated v5e", "simulated v4, not calibrated" and
"measured cpu, says nothing about a TPU"; the change "1.5% less time"; the champion "attempt 3 (attempt 5 checked it
again)"; the threshold "at least 4.03% less time". The words of an early rejection ("slower, so only 36 of 40 checks
were run") are in judge/verdict/early_rejection.py.
"""

from harness import chips
from harness.hardware import chip
from harness.records import Part, Source
from harness.units import percent

# Kinds of parts whose name is the name of an operand (`a_ref.1`, `naive.1 output`) instead of words.
_OF_OPERANDS = ("operand wait", "fill and drain")


def part_words(part: Part) -> str:
    """A part of the simulated cycles in words, operands in backquotes: operand wait `k_ref.1`, unit stall MXU busy."""
    name = f"`{part.name}`" if part.name and part.kind in _OF_OPERANDS else part.name
    return f"{part.kind} {name}".strip()


def threshold_words(least: float | None) -> str:
    """The least gain that counts, in the words that every screen uses; None: unknown."""
    return f"threshold: {'unknown' if least is None else f'at least {percent(least, 2)} less time'}"


def with_chip(source: Source, chip_name: str) -> str:
    """Words such as `simulated v5e`, or `simulated v4, not calibrated` for a chip without published times."""
    is_default = chip_name in chips.names() and chips.row(chip_name).calibrated is None
    return f"{source} {chip_name}{', not calibrated' if is_default and source == 'simulated' else ''}"


def simulated(chip_name: str) -> str:
    """`with_chip` for a simulated time."""
    return with_chip("simulated", chip_name)


def source_label(source: Source, chip_name: str) -> str:
    """Words such as `simulated v5e`; a time measured on a CPU gets the remark that it says nothing about the chip."""
    if source == "measured cpu":
        return f"measured cpu, says nothing about a {chip(chip_name).kind}"
    return with_chip(source, chip_name)


def less_time(time_ratio: float) -> str:
    """A ratio new/old in words: `1.5% less time` or `345.2% more time`."""
    return f"{percent(abs(1 - time_ratio))} {'more' if time_ratio > 1 else 'less'} time"


def champion_words(won_by: int, newest: int) -> str:
    """The champion, named by the attempt that won the title and the newest attempt that only checked it again."""
    return f"attempt {won_by}" if won_by == newest else f"attempt {won_by} (attempt {newest} checked it again)"
