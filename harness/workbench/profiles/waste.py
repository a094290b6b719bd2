"""What a capture's operations did for nothing: moved, rearranged and cast values, and padding, with time and lines."""

from collections.abc import Iterator, Mapping

from harness.errors import RatchetError
from harness.records import Capture, Operation, Table
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.waste import (
    COPY_WAIT,
    HOST_WAIT,
    OTHER,
    PADDING,
    Waste,
    of_instruction,
    prefetches,
    waste_tables,
)
from harness.workbench.hlo.work import work
from harness.workbench.profiles.classes import DATA_FORMATTING, TRANSFER, category, half, is_host_transfer, op_class
from harness.workbench.profiles.graph import graphs_of
from harness.workbench.profiles.op_times import (
    OperationTime,
    devices,
    is_container,
    op_times,
    origin,
    total_seconds,
    why_nothing_ran,
)

# Categories of operations whose HLO the capture does not have; XProf's for a copy or a transpose is one.
_BY_CATEGORY = {
    "copy": "copy",
    "transpose": "transpose",
    "convert": "cast",
    "dynamic-update-slice": "dynamic-update-slice",
}


def waste(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """One total by kind and the `top` lines that cause it, from the HLO of the modules where the capture has it."""
    found = devices(capture)
    every = op_times(found)
    known, is_whole, left_out = dict[str, Graph](), False, ""
    if every:
        try:
            known, is_whole = graphs_of(capture)
        except RatchetError as error:
            left_out = f"The HLO could not be read, so that only categories speak: {error}"
    beside = {name: prefetches(graph) for name, graph in known.items()}
    wasted = [one for operation in every for one in _waste_of(operation, known, beside)]
    notes = [
        "Time is self time, summed over devices. Of an operation that does something useful with padded values it is "
        "the padding's share of the bytes: what it takes at most.",
    ]
    if every and not is_whole:
        notes.append("The capture holds no modules: what is inside a fusion, and a cast in it, is not known.")
    notes += [left_out] if left_out else []
    if any(one.kind == HOST_WAIT for one in wasted):
        notes.append("Waits for host memory: start the transfers earlier, beside more work, or offload less.")
    if any(beside.values()):
        notes.append("Of copies between memories that run beside other work only the waiting for their end counts.")
    why = "" if every else why_nothing_ran(capture)
    return waste_tables(wasted, total_seconds(every), origin(capture), notes, top, why)


def _waste_of(took: OperationTime, known: Mapping[str, Graph], beside: Mapping[str, frozenset[str]]) -> Iterator[Waste]:
    operation = took.operation
    if is_container(operation):
        return
    if op_class(operation) == TRANSFER and half(operation) == "done":
        # It does nothing but wait; what is moved is the start half's.
        if took.self_seconds > 0:
            waited = HOST_WAIT if is_host_transfer(operation) else COPY_WAIT
            moved = operation.bytes_accessed
            yield _waste(took, waited, None if moved is None else int(moved) * took.count, took.self_seconds)
        return
    graph = known.get(operation.module)
    place = _place(graph, operation.name) if graph is not None else None
    if graph is None or place is None:
        kind = _kind_by_category(operation)
        if kind is not None:
            moved = operation.bytes_accessed
            size = None if moved is None else int(moved) * took.count
            yield _waste(took, kind, size, took.self_seconds)
        return
    computation, instruction = graph.computations[place], graph.instructions[place, operation.name]
    found = of_instruction(graph, computation, instruction, beside[operation.module])
    if found is None:
        return
    kind, each = found
    size = None if each is None else each * took.count
    seconds = took.self_seconds
    if kind == PADDING:
        whole = work(graph, computation, instruction).hbm_bytes
        seconds *= min(1.0, (each or 0) / whole) if whole else 0.0
    yield _waste(took, kind, size, seconds)


def _waste(took: OperationTime, kind: str, size: int | None, seconds: float) -> Waste:
    return Waste(kind=kind, name=took.operation.name, source=took.operation.source, hbm_bytes=size, seconds=seconds)


def _kind_by_category(operation: Operation) -> str | None:
    if half(operation):
        return None
    found = _BY_CATEGORY.get(category(operation))
    return found or (OTHER if op_class(operation) == DATA_FORMATTING else None)


def _place(graph: Graph, name: str) -> str | None:
    """The computation that runs by itself and has an instruction of that name."""
    return next((run for run in graph.runs if (run, name) in graph.instructions), None)
