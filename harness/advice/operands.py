"""The problem's names for operands, in place of the compiler's names and the names of the kernel's references."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from harness.records import Array, Evidence, Statement, Timeline, Window

# The judge exports a kernel with the problem's inputs as `args`, in their order: parameter `args_0_.3` of the compiled
# module is the first input. The compiler chooses the number at the end.
_PARAMETER = re.compile(r"(?<![\w.])args_(\d+)_(?:\.\d+)?(?![\w.])")

# XLA's name for a Pallas kernel that has no name of its own.
UNNAMED_KERNEL = "jaxpr_as_fun"

# The kinds of spans whose names may contain the name of an operand.
_NAMED = ("transfer", "link", "wait")


def with_callers_names(evidence: Evidence) -> Evidence:
    """`evidence` with the windows of its only Pallas call named after the problem's arrays, if the match is unique.

    A kernel may use another name for an array (`s_ref` for `scale`), and may get the array in another shape. A window
    with the name of an array stands for this array. Any other window is matched with the array that has the same dtype
    and number of elements, if no other window and no other array has this dtype and number.
    """
    trace, problem = evidence.trace, evidence.problem
    if trace is None or len(trace.pallas_calls) != 1:
        return evidence
    (call,) = trace.pallas_calls
    names = {
        **_array_names([window for window in call.windows if window.role == "input"], problem.inputs),
        **_array_names([window for window in call.windows if window.role == "output"], problem.outputs),
    }
    windows = tuple(replace(window, name=names.get(window, window.name)) for window in call.windows)
    return replace(evidence, trace=replace(trace, pallas_calls=(replace(call, windows=windows),)))


def _array_names(windows: Sequence[Window], arrays: Sequence[Array]) -> dict[Window, str]:
    """The name of the matching array by window, for windows and arrays that match only each other."""
    named = {window.name for window in windows} & {array.name for array in arrays}
    windows = [window for window in windows if window.name not in named]
    arrays = [array for array in arrays if array.name not in named]
    names = {}
    for window in windows:
        fitting = [array.name for array in arrays if _kind(array) == _kind(window.array)]
        if len(fitting) == sum(_kind(other.array) == _kind(window.array) for other in windows) == 1:
            names[window] = fitting[0]
    return names


def _kind(array: Array) -> tuple[str, int]:
    return array.dtype, math.prod(array.shape)


def problem_names(text: str, problem: Statement, ops: Collection[str]) -> str:
    """`text` with the problem's names of its inputs and outputs, if they are known.

    `ops` are the HLO ops that ran. If only one ran, its result is named after the problem's outputs. If several ran,
    the result of the only kernel without a name becomes "the kernel's output".
    """

    def name_of(match: re.Match[str]) -> str:
        place = int(match[1])
        return problem.inputs[place].name if place < len(problem.inputs) else match[0]

    text = _PARAMETER.sub(name_of, text)
    unnamed = [op for op in ops if op.startswith(UNNAMED_KERNEL)]
    if len(ops) == 1:
        (op,), name = ops, " or ".join(output.name for output in problem.outputs)
    elif len(unnamed) == 1:
        (op,), name = unnamed, "the kernel's output"
    else:
        return text
    return re.sub(rf"(?<![\w.]){re.escape(op)} output(?=`?$|,| to chip )", lambda _: name, text)


def in_problem_names(timeline: Timeline, problem: Statement) -> Timeline:
    """The timeline with the problem's names in transfers and waits, parts of its cycles, and operands of its ops."""
    ops = {span.name for span in timeline.spans if span.kind == "op"}
    spans = (
        replace(span, name=problem_names(span.name, problem, ops)) if span.kind in _NAMED else span
        for span in timeline.spans
    )
    cores = (
        replace(core, parts=tuple(replace(part, name=problem_names(part.name, problem, ops)) for part in core.parts))
        for core in timeline.parts
    )
    texts = {op: problem_names(text, problem, ()) for op, text in timeline.instructions.items()}
    return replace(timeline, spans=tuple(spans), parts=tuple(cores), instructions=texts)
