"""A number with its noun, as a sentence has it: `1 attempt`, `2 attempts`."""


def quantity(number: int, noun: str, many: str | None = None) -> str:
    """`1, "attempt"` -> `1 attempt`; `1200, "attempt"` -> `1,200 attempts`; `many` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"
