"""What XLA's buffer assignment says about a module's memory, as XProf's memory_viewer reads it from a capture."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.workbench.profiles import conversion
from harness.workbench.profiles.remote import Source

# XLA's memory spaces that have buffers in captures of TPUs; everything else has only the first.
HBM, VMEM = 0, 1
SPACE_NAMES = {HBM: "HBM", VMEM: "VMEM"}
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One buffer that is alive at the peak, in bytes as stored and as its shape alone would need.

    `group` is Parameter, Output or Temporary; `op_name` is where in the traced program it comes from
    (`jit(step)/jvp(moe)/dot_general`, or an argument: `state['params']['wq']`). Small buffers come as one, without
    a name; `needed_bytes` is None for it.
    """

    name: str
    shape: str
    group: str
    opcode: str
    op_name: str
    source: str
    stored_bytes: float
    needed_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One temporary buffer, from the change of the heap that makes it to the one that gives it up."""

    name: str
    shape: str
    op_name: str
    stored_bytes: float
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """The memory of one module in one memory space, as the compiler planned it.

    `heap_bytes` is the memory in use at the start and after each buffer that is made or given up, in the order of the
    schedule, `instructions` whose buffer it is (none at the start); both are empty where everything lives from start
    to end. `peak_place` is the peak's index there.
    """

    module: str
    space: int
    peak_bytes: float
    argument_bytes: float
    alive: tuple[Buffer, ...]
    heap_bytes: tuple[float, ...]
    instructions: tuple[str, ...]
    peak_place: int | None
    lives: tuple[Life, ...]


def heaps(paths: Sequence[Source], modules: Iterable[str]) -> tuple[Heap, ...]:
    """The planned memory of each of `modules` (`jit_f(4)`) in each space where the capture has buffers of it.

    Raises RatchetError where the capture cannot be converted.
    """
    asked = [(module, space) for space in SPACE_NAMES for module in modules]
    options = [{"module_name": module, "memory_space": str(space)} for module, space in asked]
    said = conversion.answers(paths, "memory_viewer", options) if options else ()
    found = (_heap(answer, module, space) for answer, (module, space) in zip(said, asked, strict=True))
    return tuple(heap for heap in found if heap is not None)


def _heap(answer: bytes, module: str, space: int) -> Heap | None:
    viewed: dict[str, Any] = msgspec.json.decode(answer)
    if not viewed.get("maxHeap"):
        return None
    sizes = tuple(size * _MEBIBYTE for size in viewed.get("heapSizes", ()))
    return Heap(
        module=module,
        space=space,
        peak_bytes=viewed["peakHeapMib"] * _MEBIBYTE,
        argument_bytes=viewed.get("entryComputationParametersMib", 0.0) * _MEBIBYTE,
        alive=tuple(map(_buffer, viewed["maxHeapBySize"])),
        heap_bytes=sizes,
        # XProf names the change at `n`, counted from 0, and the size after it stands at `n + 1`; so with the peak's
        # place, and proto3's JSON leaves a zero out.
        instructions=("", *viewed.get("hloInstructionNames", ()))[: len(sizes)],
        peak_place=viewed.get("peakHeapSizePosition", 0) + 1 if sizes else None,
        lives=tuple(_life(block) for block in viewed.get("bufferBlocks", ()) if block.get("shapeString")),
    )


def _buffer(said: Mapping[str, Any]) -> Buffer:
    return Buffer(
        name=said.get("instructionName") or said.get("label", ""),
        shape=said.get("shapeString", ""),
        group=said.get("groupName", ""),
        opcode=said.get("opCode", ""),
        op_name=said.get("tfOpName", ""),
        source=_source(said),
        stored_bytes=said.get("logicalBufferSizeMib", 0.0) * _MEBIBYTE,
        needed_bytes=said["unpaddedShapeMib"] * _MEBIBYTE if "unpaddedShapeMib" in said else None,
    )


def _life(block: Mapping[str, Any]) -> Life:
    return Life(
        name=block.get("name", ""),
        shape=block["shapeString"],
        op_name=block.get("tfOpName", ""),
        stored_bytes=float(block.get("size", 0)),
        first=block.get("startStep", 0),
        last=block.get("endStep", 0),
    )


def _source(said: Mapping[str, Any]) -> str:
    place = said.get("sourceInfo", {})
    return f"{place['fileName']}:{place.get('lineNumber', 0)}" if place.get("fileName") else ""
