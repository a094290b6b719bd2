"""What reports call a part of the simulated cycles: its kind, and the operand that is waited for in backquotes."""

from harness.records import Part

# Kinds whose name is an operand's, not words: `a_ref.1`, `naive.1 output`.
_OF_OPERANDS = ("operand wait", "fill and drain")


def part_words(part: Part) -> str:
    """The part in words, with an operand set apart: operand wait `k_ref.1`, unit stall MXU busy, launch."""
    name = f"`{part.name}`" if part.name and part.kind in _OF_OPERANDS else part.name
    return f"{part.kind} {name}".strip()
