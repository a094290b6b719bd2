"""The table of the selftest: what was planted, what became of it, which guard caught it."""

from collections.abc import Iterator, Sequence

from harness.records.selftest import PlantedResult
from harness.render.layout import clean, terminal_width
from harness.render.sections import GAP, Block, Column, Grid, Line, Words, screen

_COLUMNS = (
    Column(""),
    Column("candidate"),
    Column("row", side="r"),
    Column("is"),
    Column("verdict"),
    Column("caught by"),
    Column("s", side="r"),
)


def selftest_text(tried: Sequence[PlantedResult], seconds: float, classes: Sequence[str] = ()) -> str:
    """One line for each, then those that came out wrong with what was expected, then how many did not.

    `seconds` is the wall clock of all of them together; `classes` are named where one of each was tried.
    """
    return screen(_blocks(tried, seconds, classes), terminal_width())


def _blocks(tried: Sequence[PlantedResult], seconds: float, classes: Sequence[str]) -> Iterator[Block]:
    yield Grid(_COLUMNS, list(map(_cells, tried)), is_cut=False)
    for one in tried:
        if not one.is_right:
            yield from (GAP, Words(_wrong(one), lead="! ", rest="    "))
    if classes:
        yield from (GAP, Words(f"one of each of {len(classes)} classes: {', '.join(classes)}"))
    yield from (GAP, Line(f"{len(tried)} judged in {seconds:.0f} s"), Line(_rates(tried)))


def _cells(one: PlantedResult) -> tuple[str, ...]:
    return (
        " " if one.is_right else "!",
        one.planted.name,
        one.planted.row,
        "good" if one.planted.is_good else "bad",
        one.judgement.outcome,
        str(one.caught_by or "-"),
        f"{one.seconds:.1f}",
    )


def _wrong(one: PlantedResult) -> str:
    planted = one.planted
    expected = " or ".join(str(refusal) for refusal in planted.expected) or "accept"
    got = str(one.caught_by or one.judgement.outcome)
    return clean(f"{planted.name}: {planted.what} Expected {expected}, got {got}: {one.judgement.message}")


def _rates(tried: Sequence[PlantedResult]) -> str:
    bad = [one.is_right for one in tried if not one.planted.is_good]
    good = [one.is_right for one in tried if one.planted.is_good]
    return f"kill rate {sum(bad)} of {len(bad)}, passes {sum(good)} of {len(good)}"
