"""Explanation of one instruction or shape: meaning, place in memory, cost, participants."""

from collections import Counter

from harness.chips.row import Figures
from harness.hlo.module import Computation, Instruction
from harness.hlo.shapes import Shape, arrays
from harness.records import Cell, Table
from harness.workbench.hlo.collectives import Traffic, named_kind, named_traffic, traffic
from harness.workbench.hlo.copies import consumers_of, copies, describe, producer_of
from harness.workbench.hlo.global_shapes import true_shapes
from harness.workbench.hlo.graph import FREE, Graph
from harness.workbench.hlo.interconnect import COLLECTIVES
from harness.workbench.hlo.mesh import axes_of_groups, axes_of_sharding, specification
from harness.workbench.hlo.prediction import operation_time, peak
from harness.workbench.hlo.tables import copy_tables, memory_table, placement_table, rests_on, true_shape_table
from harness.workbench.hlo.work import compiler_cycles, matmul_dtype, matmuls, work
from harness.workbench.tables import Field, Fields, columns, table, table_of

_OPERATIONS = {
    "fusion": "several operations in one pass over the data, with at most one matmul",
    "dot": "a matmul",
    "convolution": "a convolution; XLA writes matmuls as convolutions too",
    "custom-call": "code that XLA did not generate: a kernel or a call of the runtime",
    "copy": "a copy into another buffer, layout or memory",
    "copy-start": "the start of a copy that runs while other work runs",
    "copy-done": "the wait for a copy that was started before",
    "transpose": "a change of the order of the dimensions",
    "bitcast": "the same bytes under another shape: costs nothing",
    "get-tuple-element": "one value out of several: costs nothing",
    "tuple": "several values put together: costs nothing",
    "parameter": "an argument",
    "constant": "a value known at compile time",
    "while": "a loop",
    "broadcast": "a value repeated along new dimensions",
    "reduce": "a reduction along some dimensions",
    "dynamic-slice": "a part of an array, from a place known only at run time",
    "dynamic-update-slice": "a part of an array overwritten in place",
    "all-reduce": "every device of a group gets the sum over the group",
    "reduce-scatter": "every device of a group gets its part of the sum over the group",
    "all-gather": "every device of a group gets the parts of all devices of the group",
    "all-to-all": "every device of a group sends a different part to each of the others",
    "collective-permute": "the first device of each pair sends its value to the second",
}
# The most operands and the most operations of a fusion that are listed; there may be dozens.
_SHOWN, _HELD = 8, 40
_FUSIONS = {
    "kLoop": "element-wise work in one loop over the result",
    "kInput": "ends in a reduction",
    "kOutput": "a matmul or similar, followed by element-wise work",
    "kCustom": "made by the backend itself, such as a collective with its slices",
}


def operation_tables(graph: Graph, instruction: Instruction, target: Figures) -> tuple[Table, ...]:
    """Tables of all facts in the module's text about one instruction, and its predicted time on `target`."""
    shown = [_facts(graph, instruction), _memory(graph, instruction)]
    if (body := graph.inside(instruction)) is not None and instruction.opcode == "fusion":
        shown.append(_inside(body))
    collective = collective_of(graph, instruction, target)
    if instruction.opcode not in FREE and (collective is None or collective.seconds is None):
        shown.append(_cost(graph, instruction, target))
    if collective is not None:
        shown.append(_collective_table(collective, target))
    computation = graph.home(instruction)
    made = [copy for copy in copies(graph) if copy.name == instruction.name and computation.name in graph.runs]
    shown += copy_tables(made) if made else ()
    names = {instruction.name, *(operand.name for operand in instruction.operands)}
    split = [shape for shape in true_shapes(graph) if shape.name in names]
    if split:
        shown.append(true_shape_table(split, graph.module.mesh))
    return tuple(shown)


def shape_tables(shape: Shape) -> tuple[Table, ...]:
    """The layout of a shape in memory; for a small array also the place of each element."""
    drawn = [table for array in arrays(shape) if (table := placement_table(array)) is not None]
    return (memory_table("shape", "layout in memory", [("shape", "", array) for array in arrays(shape)]), *drawn)


def collective_of(graph: Graph, instruction: Instruction, target: Figures) -> Traffic | None:
    """The collective that an instruction is, or that its fusion holds or is named after; None if there is none."""
    direct = traffic(graph, instruction, target)
    body = graph.inside(instruction) if instruction.opcode == "fusion" else None
    if direct is not None:
        return direct
    if body is None:
        return named_traffic(graph, instruction, target)
    return next(
        (inner_traffic for inner in body.instructions if (inner_traffic := traffic(graph, inner, target))), None
    )


def _facts(graph: Graph, instruction: Instruction) -> Table:
    rows: list[tuple[str, str]] = []

    def add(what: str, text: str) -> None:
        # Names and paths come from a file; control characters in them must not reach the terminal.
        if text:
            rows.append((what, "".join(letter for letter in text if letter.isprintable())))

    opcode, computation = instruction.opcode, graph.home(instruction)
    base = opcode.removesuffix("-start") if opcode.removesuffix("-start") in COLLECTIVES else opcode
    add("operation", f"{opcode}: {_OPERATIONS[base]}" if base in _OPERATIONS else opcode)
    if instruction.fusion_kind:
        add("fusion", f"{instruction.fusion_kind}: {_FUSIONS.get(instruction.fusion_kind, 'an unknown kind')}")
    add("calls", instruction.target)
    for role, name in instruction.called:
        # The name of a computation whose body is missing may tell what it is.
        kind, body = named_kind(name), graph.module.by_name.get(name)
        unseen = f"not given here; by its name a {kind}" if kind else "not given here: its FLOPs are unknown"
        add("runs" if role == "calls" else role, f"{name}, {_holds(body) if body else unseen}")
    for matmul in matmuls(graph, instruction):
        add("matmul", _matmul_words(graph, matmul))
    for place, operand in enumerate(instruction.operands[:_SHOWN]):
        add(f"operand {place}", _operand_words(graph, instruction, place, operand.name))
    if len(instruction.operands) > _SHOWN:
        add("operands", f"{len(instruction.operands) - _SHOWN} more")
    users = [user.name for user in consumers_of(graph, instruction) if user is not instruction]
    add("used by", ", ".join(users[:6]) + (", ..." if len(users) > 6 else ""))
    add("result of", (computation.name or "the text") if instruction.is_root else "")
    add("dimensions", ", ".join(map(str, instruction.dimensions)))
    if opcode == "while":
        trips = graph.trips.get((computation.name, instruction.name))
        add("times", "unknown" if trips is None else f"{trips}")
    elif computation.name in graph.runs and not graph.module.is_pasted:
        runs = graph.runs[computation.name]
        times = "an unknown number of times" if runs is None else f"{runs} times in one run"
        add("executed", "once" if runs == 1 else times)
    along = ", ".join(axes_of_groups(instruction.groups, graph.module.mesh))
    add("groups", f"{instruction.groups.text}{f', along {along}' if along else ''}" if instruction.groups else "")
    add("pairs", ", ".join(f"{source}->{target}" for source, target in instruction.pairs))
    add("channel", str(instruction.channel or ""))
    if (sharding := instruction.sharding) is not None:
        split = specification(axes_of_sharding(sharding, graph.module.mesh)) if graph.module.mesh else ""
        add("sharding", f"{sharding.text}{f', that is {split}' if split else ''}")
    add("aliases", instruction.aliasing)
    add("precision", ", ".join(instruction.precision))
    add("value", instruction.literal)
    add("comes from", instruction.op_name)
    add("source", instruction.source)
    add("passed over", ", ".join(instruction.other_attributes))
    return table("operation", instruction.name or "the operation", "static", "fact=what;reading=says", rows)


def _holds(body: Computation) -> str:
    counts = Counter(inner.opcode for inner in body.instructions if inner.opcode not in ("parameter", "constant"))
    shown = ", ".join(f"{count} {opcode}" for opcode, count in counts.most_common(8))
    return f"which holds {shown}" if shown else "which is empty"


def _inside(body: Computation) -> Table:
    """The operations that a fusion runs in one pass, in their order."""
    fields: Fields[Instruction] = (
        Field("name", "operation", lambda inner: inner.name),
        Field("opcode", "what", lambda inner: inner.opcode),
        Field("shape", "result", lambda inner: inner.shape.plain),
        Field("operands", "of", lambda inner: ", ".join(operand.name for operand in inner.operands) or None),
        Field("operation", "comes from", lambda inner: inner.op_name or None),
        Field("source", "source", lambda inner: inner.source or None),
    )
    listed = [inner for inner in body.instructions if inner.opcode not in ("parameter", "constant")]
    notes = ["Only the fusion's results are written to memory; operands that are not listed are constants or inputs."]
    if len(listed) > _HELD:
        notes.append(f"Operations left out: {len(listed) - _HELD}.")
    root = body.root
    if root is not None and len(listed) > _HELD:
        listed = [*listed[: _HELD - 1], root]
    return table_of(
        "inside", f"what {body.name} holds", "static", fields, listed, notes, "the fusion only returns its operands"
    )


def _matmul_words(graph: Graph, matmul: Instruction) -> str:
    shapes = [shape.plain if shape else "?" for shape in graph.operand_shapes(matmul)[:2]]
    how = ""
    if matmul.contraction is not None:
        left, right = (",".join(map(str, places)) for places in (matmul.contraction.left, matmul.contraction.right))
        how = f", summed over dimension {left} of the left and {right} of the right"
    elif matmul.convolution is not None:
        how = f", dimensions {matmul.convolution.text}"
    return f"{' x '.join(shapes)} -> {matmul.shape.plain}{how}"


def _operand_words(graph: Graph, instruction: Instruction, place: int, name: str) -> str:
    behind = graph.operand(instruction, place)
    if behind is None:
        return f"{name}, made outside of this text" if name else "not named"
    made = producer_of(graph, instruction, place)
    return describe(behind) if made is None or made is behind else f"{name}, from {describe(made)}"


def _memory(graph: Graph, instruction: Instruction) -> Table:
    values = [("result", "", array) for array in arrays(instruction.shape)]
    for place, operand in enumerate(instruction.operands):
        shape = graph.operand_shape(instruction, place)
        values += [(f"{place}:", operand.name, array) for array in (arrays(shape) if shape is not None else ())]
    return memory_table("values", "layout of the values in memory", values)


def _cost(graph: Graph, instruction: Instruction, target: Figures) -> Table:
    """The predicted time of one operation on `target`, and the floor of each resource."""
    amount = work(graph, instruction)
    within = matmuls(graph, instruction)
    dtype = matmul_dtype(graph, instruction)
    took = operation_time(amount, dtype, target)
    notes = []
    if amount.unknown:
        notes.append(
            f"FLOPs unknown: {', '.join(amount.unknown)}; the time counts only the bytes, so it is a lower bound."
        )
    if amount.claimed:
        notes.append("FLOPs and bytes are those that the kernel states in its cost estimate.")
    elif instruction.opcode == "custom-call":
        notes.append("Each operand and result counts once; bytes that a kernel reads again are not counted.")
    if amount.flops and not within:
        notes.append("All FLOPs are the vector unit's, but the time uses the MXU's peak, so it is too short.")
    remark = peak(target, dtype)[1]
    if remark and within:
        notes.append(f"{remark}.")
    cycles = compiler_cycles(instruction)
    if cycles is not None:
        at = f", {cycles / target.clock_hz * 1e6:.1f} us at {target.clock_hz / 1e9:g} GHz" if target.clock_hz else ""
        notes.append(f"The compiler's own estimate: {cycles:,} cycles{at}.")
    row: tuple[Cell, ...] = (took.seconds, took.bound, took.compute_seconds, took.memory_seconds)
    named = "seconds=time;bound=bound by;compute_seconds=by FLOPs;memory_seconds=by bytes"
    if took.host_seconds:
        row = (*row, took.host_seconds, amount.host_bytes)
        named += ";host_seconds=by the host's link;host_bytes=host"
    row = (*row, amount.flops, amount.hbm_bytes, amount.other_bytes, instruction.opcode)
    named += ";flops=FLOPs;hbm_bytes=HBM;other_bytes=other memories;what"
    title = f"predicted on {target.name}: max(FLOPs/peak, bytes/bandwidth)"
    return table("time", title, "predicted", named, [row], (rests_on(target, took), *notes))


_SENT = columns(
    "kind=collective;devices_per_group=devices a group:count;groups:count;stride:count;axes;array_bytes=V;seconds=time"
)


def _collective_table(sent: Traffic, target: Figures) -> Table:
    notes = [f"{sent.operand} becomes {sent.result}."]
    if sent.seconds is None:
        notes.append(
            f"The time is unknown: the size of the whole array or the bandwidth of {target.name}'s links is not known."
        )
    else:
        notes.append(f"The time is as in `predict collective`, on one ring of {target.name}. V: bytes of the array.")
    if sent.within:
        notes.append(f"The collective runs inside {sent.within}.")
    row = (sent.kind, sent.size, sent.count, sent.stride, ", ".join(sent.axes) or None, sent.array_bytes, sent.seconds)
    return table("collective", "what is sent", "predicted", _SENT, [row], notes)
