"""What `bisect` found, as text."""

from harness.records.bisection import Bisection, Judgment
from harness.records.report_words import simulated
from harness.render.comparison import comparison_text
from harness.render.grid import grid, shrunk, widths_of
from harness.render.layout import clean, cut, wrap
from harness.units import count, percent, seconds

_LEAST = 12


def bisection_text(found: Bisection, width: int, *, full: bool, colour: bool = False) -> str:
    """Which change it is, each kernel that was judged, and what the change does."""
    names = ", ".join(map(clean, found.suspects))
    since = names if len(found.suspects) == 1 else f"one of {names}"
    first = clean(found.judged[0].name)
    what = {
        "time": f"takes over {percent(found.threshold)} more time than {first}",
        "spills": f"spills over {percent(found.threshold)} more than {first}",
        "correctness": "is wrong",
    }[found.metric]
    judged = f"{len(found.judged)} of {found.kernels} kernels judged [{simulated(found.chip)}]"
    lines = wrap(f"from {since} on, the kernel {what}: {judged}", width)
    heads = ["kernel", "time", "spills", "", "what was changed"]
    body = [[clean(one.name), *_figures(one), _word(one), clean(one.failure or one.title)] for one in found.judged]
    widths = shrunk(widths_of(heads, body), {4: _LEAST}, width)
    lines += ["", *(cut(line, width) for line in grid(heads, body, "lrrll", widths))]
    if found.comparison is not None:
        lines += ["", comparison_text(found.comparison, width, full=full, colour=colour)]
    return "\n".join(line.rstrip() for line in lines)


def _figures(one: Judgment) -> tuple[str, str]:
    time = "-" if one.seconds is None else seconds(one.seconds)
    return time, "-" if one.spills is None else count(one.spills)


def _word(one: Judgment) -> str:
    return {True: "bad", False: "good", None: "unknown"}[one.is_bad]
