"""The problem's names for a simulated run's operands, in place of the compiler's."""

import re
from collections.abc import Collection
from dataclasses import replace

from harness.records import Statement, Timeline

# The judge exports a kernel with the problem's inputs as `args`, in their order: parameter `args_0_.3` of the module
# that is compiled is the first of them, whatever number the compiler puts behind it.
_PARAMETER = re.compile(r"(?<![\w.])args_(\d+)_(?:\.\d+)?(?![\w.])")

# The kinds of spans whose names may hold an operand's.
_NAMED = ("transfer", "link", "wait")


def problem_names(text: str, problem: Statement, ops: Collection[str]) -> str:
    """`text` with the problem's names of its inputs and output, if they are known.

    `ops` are the HLO ops that ran: the result of the only one is the problem's output, if there is one.
    """

    def name_of(match: re.Match[str]) -> str:
        place = int(match[1])
        return problem.inputs[place].name if place < len(problem.inputs) else match[0]

    text = _PARAMETER.sub(name_of, text)
    if len(ops) == len(problem.outputs) == 1:
        (op,), (output,) = ops, problem.outputs
        text = re.sub(rf"(?<![\w.]){re.escape(op)} output(?=`?$|,| to chip )", lambda _: output.name, text)
    return text


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
