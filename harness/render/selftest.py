"""The table of the selftest: what was planted, what became of it, which guard caught it."""

from collections.abc import Sequence

from harness.records.selftest import Tried
from harness.render.grid import grid
from harness.render.layout import clean, terminal_width, wrap


def selftest_text(tried: Sequence[Tried], seconds: float) -> str:
    """One line for each, then those that came out wrong with what was expected, then how many did not.

    `seconds` is the wall clock of all of them together.
    """
    rows = [
        (
            " " if one.is_right else "!",
            one.planted.name,
            one.planted.row,
            "good" if one.planted.is_good else "bad",
            one.judgement.outcome,
            str(one.caught_by or "-"),
            f"{one.seconds:.1f}",
        )
        for one in tried
    ]
    lines = grid(("", "candidate", "row", "is", "verdict", "caught by", "s"), rows, "llrlllr")
    width = terminal_width()
    for one in tried:
        if not one.is_right:
            lines += ["", *wrap(_wrong(one), width, "! ", "    ")]
    lines += ["", f"{len(tried)} judged in {seconds:.0f} s", _rates(tried)]
    return "\n".join(line.rstrip() for line in lines)


def _wrong(one: Tried) -> str:
    planted = one.planted
    expected = " or ".join(str(refusal) for refusal in planted.expected) or "accept"
    got = str(one.caught_by or one.judgement.outcome)
    return clean(f"{planted.name}: {planted.what} Expected {expected}, got {got}: {one.judgement.message}")


def _rates(tried: Sequence[Tried]) -> str:
    bad = [one.is_right for one in tried if not one.planted.is_good]
    good = [one.is_right for one in tried if one.planted.is_good]
    return f"kill rate {sum(bad)} of {len(bad)}, passes {sum(good)} of {len(good)}"
