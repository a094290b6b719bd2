"""The table of the selftest: each planted candidate, its verdict, and the guard that caught it."""

from collections.abc import Iterator, Sequence

from harness.records.selftest import PlantedResult
from harness.render.layout import clean
from harness.render.sections import GAP, Block, Column, Grid, Line, Words

_COLUMNS = (
    Column(""),
    Column("candidate"),
    Column("row", side="r"),
    Column("is"),
    Column("verdict"),
    Column("caught by"),
    Column("s", side="r"),
)


def selftest_blocks(results: Sequence[PlantedResult], seconds: float, classes: Sequence[str] = ()) -> Iterator[Block]:
    """One line for each candidate, then the wrong verdicts with the expected ones, then the rates.

    `seconds` is the wall clock of all candidates together; `classes` are named if one candidate of each was run.
    """
    yield Grid(_COLUMNS, list(map(_cells, results)), is_cut=False)
    for result in results:
        if not result.is_right:
            yield from (GAP, Words(_wrong(result), lead="! ", rest="    "))
    if classes:
        yield from (GAP, Words(f"one candidate of each of {len(classes)} classes: {', '.join(classes)}"))
    yield from (GAP, Line(f"{len(results)} judged in {seconds:.0f} s"), Line(_rates(results)))


def _cells(result: PlantedResult) -> tuple[str, ...]:
    return (
        " " if result.is_right else "!",
        result.planted.name,
        result.planted.row,
        "good" if result.planted.is_good else "bad",
        result.judgement.outcome,
        str(result.caught_by or "-"),
        f"{result.seconds:.1f}",
    )


def _wrong(result: PlantedResult) -> str:
    planted = result.planted
    expected = " or ".join(str(refusal) for refusal in planted.expected) or "accept"
    got = str(result.caught_by or result.judgement.outcome)
    return clean(f"{planted.name}: {planted.what} Expected {expected}, got {got}: {result.judgement.message}")


def _rates(results: Sequence[PlantedResult]) -> str:
    bad = [result.is_right for result in results if not result.planted.is_good]
    good = [result.is_right for result in results if result.planted.is_good]
    return f"kill rate {sum(bad)} of {len(bad)}, passes {sum(good)} of {len(good)}"
