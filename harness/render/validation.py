"""The record of `validate`: as text, and as a Markdown page to send."""

from collections.abc import Iterator
from statistics import median

from harness.records.validation import MeasuredKernel, Validation
from harness.render.layout import clean
from harness.render.sections import GAP, Block, Column, Grid, Line, Words, markdown, printed
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


def validation_blocks(validation: Validation) -> Iterator[Block]:
    """A line for each step, then measured and simulated time of each kernel side by side."""
    steps = [(step.name, step.outcome, f"{step.seconds:.0f}", step.found) for step in validation.steps]
    yield from (Words(_headline(validation)), GAP, Grid(_STEPS, steps), GAP, _kernels(validation), GAP)
    yield Words(_errors(validation))
    yield Line(f"written: {clean(validation.archive)}, and the same name with .md", is_whole=True)


def page(validation: Validation) -> str:
    """The record as Markdown, with every command."""
    return "\n".join(_page(validation)) + "\n"


def _page(validation: Validation) -> Iterator[str]:
    where = f"a {validation.chip}" if validation.source == "measured" else f"a CPU in the place of a {validation.chip}"
    yield from (
        f"# The ratchet on {where}",
        "",
        _headline(validation),
        "",
        f"{validation.versions}; {validation.started}",
        "",
    )
    steps = (
        (step.name, step.shows, step.outcome, f"{step.seconds:.0f}", f"{step.limit_seconds:.0f}", step.found)
        for step in validation.steps
    )
    yield from markdown(_PAGE_STEPS, (list(map(_cell, step)) for step in steps))
    kernels = _kernels(validation)
    yield from ("", "## Measured and simulated", "")
    yield from markdown(kernels.columns, (list(map(_cell, row)) for row in printed(kernels)))
    yield from ("", _errors(validation), "", "## Commands, in the archive's folder", "")
    yield from (f"- {_cell(step.name)}: `{step.command.replace('`', '')}`" for step in validation.steps)


def _headline(validation: Validation) -> str:
    counts = {outcome: sum(step.outcome == outcome for step in validation.steps) for outcome in _ORDER}
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    minutes = f"{validation.seconds / 60:.1f} min of {validation.minutes:g}"
    return f"{clean(validation.device)}, kernels for {validation.chip}: {words}, in {minutes}"


_ORDER = ("held", "not held", "timed out", "not run")


def _kernels(validation: Validation) -> Grid:
    columns = (
        Column("kernel"),
        Column(validation.source, "times"),
        Column("+/-", "times"),
        Column(f"simulated {validation.chip}", "times"),
        Column("simulated over measured", side="r"),
    )
    rows = [
        (
            kernel.name,
            kernel.measured_seconds,
            kernel.plus_minus_seconds,
            kernel.simulated_seconds,
            _error(kernel) if validation.source == "measured" else None,
        )
        for kernel in validation.kernels
    ]
    return Grid(columns, rows)


def _error(kernel: MeasuredKernel) -> str | None:
    error = kernel.simulators_error
    return None if error is None else f"{'+' if error > 0 else ''}{percent(error)}"


def _errors(validation: Validation) -> str:
    if validation.source != "measured":
        return "The times of a CPU say nothing about the chip: the simulator's error is unknown."
    errors = [abs(kernel.simulators_error) for kernel in validation.kernels if kernel.simulators_error is not None]
    if not errors:
        return "No kernel has both times: the simulator's error is unknown."
    middle, worst = percent(median(errors)), percent(max(errors))
    return f"The simulator's error: median {middle}, worst {worst}, of {quantity(len(errors), 'kernel')}."


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
