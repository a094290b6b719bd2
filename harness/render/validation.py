"""What `validate` found on a machine with a device: as text, and as a Markdown page to hand on."""

from collections.abc import Iterator
from statistics import median

from harness.records.validation import MeasuredKernel, Validation
from harness.render.layout import clean
from harness.render.sections import GAP, Column, Grid, Line, Words, markdown, printed, screen
from harness.units import percent, quantity

_STEPS = (Column("step"), Column("outcome"), Column("s", side="r"), Column("found", least=16))
_PAGE_STEPS = (
    Column("step"),
    Column("shows"),
    Column("outcome"),
    Column("s", side="r"),
    Column("limit, s", side="r"),
    Column("found"),
)


def validation_text(found: Validation, width: int) -> str:
    """A line for each step, then each kernel's times beside each other."""
    steps = [(one.name, one.outcome, f"{one.seconds:.0f}", one.found) for one in found.steps]
    blocks = (
        Words(_headline(found)),
        GAP,
        Grid(_STEPS, steps),
        GAP,
        _kernels(found),
        GAP,
        Words(_errors(found)),
        Line(f"written: {clean(found.archive)}, and the same name with .md", is_whole=True),
    )
    return screen(blocks, width)


def page(found: Validation) -> str:
    """The same as Markdown, with every command."""
    return "\n".join(_page(found)) + "\n"


def _page(found: Validation) -> Iterator[str]:
    where = f"a {found.chip}" if found.source == "measured" else f"a CPU in the place of a {found.chip}"
    yield from (f"# The ratchet on {where}", "", _headline(found), "", f"{found.versions}; {found.started}", "")
    steps = (
        (one.name, one.shows, one.outcome, f"{one.seconds:.0f}", f"{one.limit_seconds:.0f}", one.found)
        for one in found.steps
    )
    yield from markdown(_PAGE_STEPS, (list(map(_cell, step)) for step in steps))
    kernels = _kernels(found)
    yield from ("", "## Measured and simulated", "")
    yield from markdown(kernels.columns, (list(map(_cell, row)) for row in printed(kernels)))
    yield from ("", _errors(found), "", "## Commands, in the archive's folder", "")
    yield from (f"- {_cell(one.name)}: `{one.command.replace('`', '')}`" for one in found.steps)


def _headline(found: Validation) -> str:
    counts = {outcome: sum(one.outcome == outcome for one in found.steps) for outcome in _ORDER}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return (
        f"{clean(found.device)}, kernels for {found.chip}: {told}, in {found.seconds / 60:.1f} min of {found.minutes:g}"
    )


_ORDER = ("held", "not held", "timed out", "not run")


def _kernels(found: Validation) -> Grid:
    columns = (
        Column("kernel"),
        Column(found.source, "times"),
        Column("+/-", "times"),
        Column(f"simulated {found.chip}", "times"),
        Column("simulated over measured", side="r"),
    )
    rows = [
        (
            one.name,
            one.measured_seconds,
            one.plus_minus_seconds,
            one.simulated_seconds,
            _error(one) if found.source == "measured" else None,
        )
        for one in found.kernels
    ]
    return Grid(columns, rows)


def _error(kernel: MeasuredKernel) -> str | None:
    error = kernel.simulators_error
    return None if error is None else f"{'+' if error > 0 else ''}{percent(error)}"


def _errors(found: Validation) -> str:
    if found.source != "measured":
        return "The times of a CPU say nothing about the chip: the simulator's error is unknown."
    errors = [abs(kernel.simulators_error) for kernel in found.kernels if kernel.simulators_error is not None]
    if not errors:
        return "No kernel has both times: the simulator's error is unknown."
    middle, worst = percent(median(errors)), percent(max(errors))
    return f"The simulator's error: median {middle}, worst {worst}, of {quantity(len(errors), 'kernel')}."


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
