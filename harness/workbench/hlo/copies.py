"""The copies of a module: value, producer and consumers, cost, cause and remedy."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from harness.hlo import parse
from harness.hlo.module import Instruction
from harness.hlo.shapes import HOST, Array, Shape, arrays
from harness.records import Statement
from harness.units import decimal
from harness.workbench.hlo.graph import RENAMES, Graph

Kind = Literal["defensive", "relayout", "prefetch", "host", "scalar"]
# Copies up to this size (one tile of 8 x 128 words) are bookkeeping, such as loop counters.
_SMALL_BYTES = 4096
# Least and most bytes of a kernel's running value, an accumulator or row sums (protocol, section 2: f32[1024,128], 512
# KiB).
_RUNNING_BYTES = 64 << 10, 16 << 20
_ARGUMENT = re.compile(r"\(argument (\d+)\)$")
_FUSION_KIND = re.compile(r" \(k[A-Z]\w+\)")
_DONATE = "donate it: jax.jit(f, donate_argnums=...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy. `bytes_moved` are the bytes that one execution reads and writes; `runs` is None if unknown.

    - `defensive`: the same layout in the same memory, but another buffer.
    - `relayout`: another order of dimensions or tiles.
    - `prefetch`: from one memory to another, overlapped with other work by the compiler.
    - `host`: from or to the host's memory, over the host's link.
    - `scalar`: too small to matter.

    `cause` is "" if no rule fits.
    """

    name: str
    kind: Kind
    shape: str
    layouts: str
    producer: str
    consumers: tuple[str, ...]
    bytes_moved: int | None
    runs: int | None
    cause: str
    remedy: str
    source: str = ""

    @property
    def bytes_per_run(self) -> int | None:
        """The bytes that all executions of the copy move in one run of the module."""
        return None if self.bytes_moved is None or self.runs is None else self.bytes_moved * self.runs


def copies(graph: Graph) -> tuple[Copy, ...]:
    """The copies that run by themselves, the most expensive first, but prefetches and scalars last."""
    listed = [
        _copy(graph, instruction, moving, runs)
        for instruction, runs in graph.executions()
        if (moving := _moving_instruction(graph, instruction)) is not None
    ]

    def rank(copy: Copy) -> tuple[bool, float]:
        # A copy with an unknown cost comes first, because its cost may be the highest.
        return copy.kind in ("prefetch", "scalar"), -math.inf if copy.bytes_per_run is None else -copy.bytes_per_run

    return tuple(sorted(listed, key=rank))


def around_a_kernel(text: str) -> tuple[Copy, ...]:
    """The copies in the HLO text of a module around a kernel, except copies that are too small to matter."""
    return tuple(copy for copy in copies(Graph(module=parse.read(text))) if copy.kind != "scalar")


def copied_array(copy: Copy, problem: Statement) -> str:
    """A copied array in words: its name in the problem (else its producer), shape, bytes, and users of a new layout."""
    cost = "" if copy.bytes_per_run is None else f", {decimal(copy.bytes_per_run, 'B')} read and written in all"
    users = ", ".join(copy.consumers[:2])
    why = f", in another layout for {users}" if copy.kind == "relayout" and users else ""
    return _FUSION_KIND.sub("", f"{_array_in_problem(copy, problem)} ({copy.shape}{cost}{why})")


def _array_in_problem(copy: Copy, problem: Statement) -> str:
    """The name of a copied input or output in the problem; for any other array, its producer."""
    if (match := _ARGUMENT.search(copy.producer)) and int(match[1]) < len(problem.inputs):
        return problem.inputs[int(match[1])].name
    if "the result" in copy.consumers:
        sizes = copy.shape.partition("[")[2].rstrip("]")
        named = [output.name for output in problem.outputs if ",".join(map(str, output.shape)) == sizes]
        return named[0] if len(named) == 1 else "an output"
    return f"the result of {copy.producer}"


def _moving_instruction(graph: Graph, instruction: Instruction) -> Instruction | None:
    """The copy or transpose: the instruction itself, or the only work of its fusion; None for other instructions."""
    if instruction.opcode in ("copy", "copy-start", "transpose"):
        return instruction
    body = graph.inside(instruction) if instruction.opcode == "fusion" else None
    if body is None:
        return None
    real = [inner for inner in body.instructions if inner.opcode not in (*RENAMES, "parameter", "reshape")]
    return real[0] if len(real) == 1 and real[0].opcode in ("copy", "transpose") else None


def _copy(graph: Graph, instruction: Instruction, moving: Instruction, runs: int | None) -> Copy:
    source_shape = graph.operand_shape(instruction, 0)
    before = _first_array(source_shape)
    after = _first_array(instruction.shape)
    kind = _kind(before, after, moving)
    producer = producer_of(graph, instruction)
    consumers = consumers_of(graph, instruction)
    cause, remedy = _cause_and_remedy(graph, kind, producer, consumers, instruction)
    # Both sides of a copy count: the bytes read, and the bytes written, each padded to its own tiles.
    padded = [array.padded_bytes for array in (before, after) if array is not None]
    sizes = [size for size in padded if size is not None]
    return Copy(
        name=instruction.name,
        kind=kind,
        shape=after.plain if after else instruction.shape.plain,
        layouts=_layouts(before, after),
        producer=describe(producer),
        consumers=tuple(describe(consumer) for consumer in consumers),
        bytes_moved=sum(sizes) if len(sizes) == 2 else None,
        runs=runs,
        cause=cause,
        remedy=remedy,
        source=instruction.source or moving.source,
    )


def producer_of(graph: Graph, instruction: Instruction, place: int = 0) -> Instruction | None:
    """The instruction that made an operand; instructions that only rename it are skipped."""
    producer = graph.operand(instruction, place)
    while (
        producer is not None
        and (producer.opcode in RENAMES or producer.opcode.endswith("-done"))
        and producer.opcode != "tuple"
    ):
        behind = graph.operand(producer, 0)
        if behind is None:
            break
        producer = behind
    return producer


def consumers_of(graph: Graph, instruction: Instruction) -> tuple[Instruction, ...]:
    """The users of the result, beyond renaming instructions. A root counts as a user, because the caller uses it."""
    consumers: dict[str, Instruction] = {}
    waiting = [instruction]
    seen = {instruction.name}
    while waiting:
        value = waiting.pop()
        if value.is_root:
            consumers[value.name] = value
        for user in graph.using(value):
            if user.name in seen:
                continue
            seen.add(user.name)
            if user.opcode in RENAMES or user.opcode == "copy-done":
                waiting.append(user)
            else:
                consumers[user.name] = user
    return tuple(consumers.values())


def _is_running_value(instruction: Instruction) -> bool:
    """True if the result may be a running sum of a kernel or loop: float32, two dimensions, 64 KiB to 16 MiB."""
    array = _first_array(instruction.shape)
    size = array.padded_bytes if array is not None else None
    least, most = _RUNNING_BYTES
    return array is not None and array.dtype == "f32" and len(array.dimensions) == 2 and least <= (size or 0) <= most


def _kind(before: Array | None, after: Array | None, moving: Instruction) -> Kind:
    if after is None or before is None:
        return "relayout" if moving.opcode == "transpose" else "defensive"
    if max(after.padded_bytes or 0, before.padded_bytes or 0) <= _SMALL_BYTES and (after.elements or 0) <= 1024:
        return "scalar"
    if _order(before) != _order(after) or moving.opcode == "transpose":
        return "relayout"
    if before.memory_space == after.memory_space:
        return "defensive"
    return "host" if HOST in (before.memory_space, after.memory_space) else "prefetch"


def _order(array: Array) -> tuple[object, ...]:
    layout = array.layout
    return (layout.minor_to_major, layout.tiles, layout.element_bits) if layout else ()


def _cause_and_remedy(
    graph: Graph, kind: Kind, producer: Instruction | None, consumers: tuple[Instruction, ...], instruction: Instruction
) -> tuple[str, str]:
    """The usual cause of a copy, and its remedy; ("", "") if no rule fits."""
    is_in_entry = graph.home(instruction).is_entry
    opcodes = {consumer.opcode for consumer in consumers}
    feeds_kernel = "custom-call" in opcodes
    is_argument = producer is not None and producer.opcode == "parameter" and is_in_entry
    is_result = is_in_entry and any(consumer.is_root for consumer in (*consumers, instruction))
    in_loop = "while" in opcodes or not is_in_entry
    is_running = graph.module.is_pasted and _is_running_value(instruction)
    # Rules by kind of copy; the first rule with a true condition determines cause and remedy.
    rules = {
        "scalar": ((True, "a loop counter or similar: too small to matter", ""),),
        "prefetch": (
            (True, "the compiler moves the value between HBM and VMEM while other work runs",
             "if the copy-done waits, keep less in VMEM; otherwise do nothing"),
        ),
        "host": (
            (True, "the value is in the host's memory, so the copy crosses the host's link, which is slower than HBM",
             "start the copy earlier, so that more work runs meanwhile (prefetch), or offload less"),
        ),
        "relayout": (
            (is_argument, "the argument has the default layout, but its user needs another layout",
             "let XLA choose the layout: jax.jit(f, in_shardings=Format(Layout.AUTO))"),
            (feeds_kernel, "a kernel reads the default layout, but the operand's producer chose another layout",
             "produce the default layout, or read the transposed block with the kernel's BlockSpec"),
            (producer is not None and producer.opcode == "custom-call",
             "a kernel writes the default layout, but the user of its result needs another layout",
             "let the kernel write transposed blocks, or let the user read the default layout"),
            (is_result, "the program must return its result in the default layout",
             "let XLA choose the layout: jax.jit(f, out_shardings=Format(Layout.AUTO))"),
            (True, "the copy's producer and its consumer need different layouts",
             "change producer or consumer: the order of an einsum's dimensions, or the reduced axis"),
        ),
        "defensive": (
            (in_loop, "the loop carries a value whose old contents are read after its update",
            "use a scratch buffer instead of reading the updated value; a scan should carry or stack it, not both"),
            (is_running, "the value may be a running sum: an output that is read and written in each step",
             "keep it in a scratch buffer; read an output ref only after its last write"),
            (feeds_kernel and any(consumer.aliasing for consumer in consumers),
             "the kernel overwrites an operand that is used again, or reads its own output",
             "accumulate in a scratch buffer; read an output ref only after its last write; or donate the operand"),
            (is_argument and is_result, "an argument is returned or updated, but not donated", _DONATE),
            (is_result, "the result shares its buffer with another value",
             "return the value only once, or donate the argument"),
            (is_argument, "an argument is overwritten, but not donated", _DONATE),
        ),
    }  # fmt: skip
    return next(((cause, remedy) for holds, cause, remedy in rules[kind] if holds), ("", ""))


def describe(instruction: Instruction | None) -> str:
    """A readable name of an instruction, followed by its kind unless the name contains the kind."""
    if instruction is None:
        return "not given"
    if instruction.opcode == "parameter":
        return f"{instruction.name} (argument {instruction.number})"
    what = instruction.fusion_kind or instruction.target or instruction.opcode
    if instruction.is_root and instruction.opcode in ("tuple", "copy-done", "bitcast", "copy"):
        return "the result"
    return instruction.name if what in instruction.name else f"{instruction.name} ({what})"


def _layouts(before: Array | None, after: Array | None) -> str:
    if before is None or after is None or before.layout is None or after.layout is None:
        return ""
    if before.layout == after.layout:
        return str(after.layout)
    return f"{before.layout} -> {after.layout}"


def _first_array(shape: Shape | None) -> Array | None:
    """The array that a copy makes: its result, or the first member of a copy-start's result."""
    members = arrays(shape) if shape is not None else ()
    return members[0] if members else None
