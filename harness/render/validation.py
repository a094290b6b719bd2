"""What `validate` found on a machine with a device: as text, and as a Markdown page to hand on."""

from collections.abc import Iterator
from statistics import median

from harness.records.validation import MeasuredKernel, Validation
from harness.render.grid import grid, shrunk, widths_of
from harness.render.layout import clean, cut, wrap
from harness.units import column, percent, quantity

_LEAST = 16


def validation_text(found: Validation, width: int) -> str:
    """A line for each step, then each kernel's times beside each other."""
    lines = [*wrap(_headline(found), width), ""]
    heads = ["step", "outcome", "s", "found"]
    body = [[clean(one.name), one.outcome, f"{one.seconds:.0f}", clean(one.found)] for one in found.steps]
    lines += [
        cut(line, width) for line in grid(heads, body, "llrl", shrunk(widths_of(heads, body), {3: _LEAST}, width))
    ]
    heads, body = _kernels(found)
    lines += ["", *(cut(line, width) for line in grid(heads, body, "lrrrr", widths_of(heads, body)))]
    lines += ["", *wrap(_errors(found), width), f"written: {clean(found.archive)}, and the same name with .md"]
    return "\n".join(line.rstrip() for line in lines)


def page(found: Validation) -> str:
    """The same as Markdown, with every command."""
    return "\n".join(_page(found)) + "\n"


def _page(found: Validation) -> Iterator[str]:
    where = f"a {found.chip}" if found.source == "measured" else f"a CPU in the place of a {found.chip}"
    yield from (f"# The ratchet on {where}", "", _headline(found), "", f"{found.versions}; {found.started}", "")
    yield from ("| step | shows | outcome | s | limit, s | found |", "|---|---|---|--:|--:|---|")
    for one in found.steps:
        cells = (one.name, one.shows, one.outcome, f"{one.seconds:.0f}", f"{one.limit_seconds:.0f}", one.found)
        yield f"| {' | '.join(map(_cell, cells))} |"
    heads, body = _kernels(found)
    yield from ("", "## Measured and simulated", "", f"| {' | '.join(heads)} |", "|---|--:|--:|--:|--:|")
    yield from (f"| {' | '.join(map(_cell, row))} |" for row in body)
    yield from ("", _errors(found), "", "## Commands, in the archive's folder", "")
    yield from (f"- {_cell(one.name)}: `{one.command.replace('`', '')}`" for one in found.steps)


def _headline(found: Validation) -> str:
    counts = {outcome: sum(one.outcome == outcome for one in found.steps) for outcome in _ORDER}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return (
        f"{clean(found.device)}, kernels for {found.chip}: {told}, in {found.seconds / 60:.1f} min of {found.minutes:g}"
    )


_ORDER = ("held", "not held", "timed out", "not run")


def _kernels(found: Validation) -> tuple[list[str], list[list[str]]]:
    measured = column([kernel.measured_seconds for kernel in found.kernels])
    around = column([kernel.plus_minus_seconds for kernel in found.kernels])
    simulated = column([kernel.simulated_seconds for kernel in found.kernels])
    errors = [_error(kernel) if found.source == "measured" else "-" for kernel in found.kernels]
    heads = ["kernel", found.source, "+/-", f"simulated {found.chip}", "simulated over measured"]
    names = [clean(kernel.name) for kernel in found.kernels]
    return heads, [list(row) for row in zip(names, measured, around, simulated, errors, strict=True)]


def _error(kernel: MeasuredKernel) -> str:
    error = kernel.simulators_error
    return "-" if error is None else f"{'+' if error > 0 else ''}{percent(error)}"


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
