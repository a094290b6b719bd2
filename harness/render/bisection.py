"""What `bisect` found, as text."""

from collections.abc import Iterator

from harness.records.bisection import Bisection
from harness.records.report_words import simulated
from harness.render.comparison import comparison_blocks
from harness.render.layout import clean
from harness.render.sections import GAP, Block, Column, Grid, Words, screen
from harness.units import percent

_COLUMNS = (
    Column("kernel"), Column("time", "s"), Column("spills", "count"), Column(""), Column("what was changed", least=12),
)  # fmt: skip
_WORDS = {True: "bad", False: "good", None: "unknown"}


def bisection_text(found: Bisection, width: int, *, full: bool, colour: bool = False) -> str:
    """Which change it is, each kernel that was judged, and what the change does."""
    return screen(_blocks(found, full=full), width, colour=colour)


def _blocks(found: Bisection, *, full: bool) -> Iterator[Block]:
    names = ", ".join(map(clean, found.suspects))
    since = names if len(found.suspects) == 1 else f"one of {names}"
    first = clean(found.judged[0].name)
    what = {
        "time": f"takes over {percent(found.threshold)} more time than {first}",
        "spills": f"spills over {percent(found.threshold)} more than {first}",
        "correctness": "is wrong",
    }[found.metric]
    judged = f"{len(found.judged)} of {found.kernels} kernels judged [{simulated(found.chip)}]"
    yield from (Words(f"from {since} on, the kernel {what}: {judged}"), GAP)
    yield Grid(
        _COLUMNS,
        [(one.name, one.seconds, one.spills, _WORDS[one.is_bad], one.failure or one.title) for one in found.judged],
    )
    if found.comparison is not None:
        yield from (GAP, *comparison_blocks(found.comparison, full=full))
