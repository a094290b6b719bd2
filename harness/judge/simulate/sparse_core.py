"""An upper bound on the time that the SparseCore takes for its part of a module, from the transfers in the HLO text."""

import math
import re
from collections.abc import Iterator

from harness.hlo.module import Computation, Instruction, Module
from harness.hlo.shapes import Array, padded_bytes, product
from harness.judge.simulate.machine import Machine

_OFFLOADED = 'async_execution_thread="sparsecore"'
_NUMBERS = r"=\{([\d,]*)\}"
# Compiler flags that keep XLA from offloading operations to the SparseCore.
ON_TENSORCORE = tuple(
    f"--xla_tpu_enable_offloading_{what}_to_sparsecore=false"
    for what in ("copy", "gather", "scatter", "reduce", "reshape")
)
# An array moves tile by tile; a tile is 8 x 128 words.
_TILE_BYTES = 4096
# Opcodes that cause no transfer.
_NO_TRANSFER = ("bitcast", "call-done", "constant", "get-tuple-element", "parameter", "tuple")
_OPENED = ("call", "call-start")
# Opcodes that move slices, and the attribute that lists the dimensions within a slice.
_SLICES = {"gather": "offset_dims", "scatter": "update_window_dims"}


def most_seconds(module: Module, machine: Machine) -> float | None:
    """The seconds of all calls of the SparseCore if each piece is moved only after the previous piece has arrived.

    Pieces are the slices of a gather or scatter and the tiles of its arrays. Each piece is read and written with the
    whole latency of a transfer. The times of starting the SparseCore and of its arithmetic are unknown and left out.

    There is no bound, and the result is None, in each of these cases:
    - The module does not call the SparseCore.
    - A call is in a loop or branch.
    - A call contains operations other than gathers, scatters and copies.
    """
    entry = module.entry
    calls = list(_calls(entry)) if entry is not None else []
    inside = {name for call in calls for name in _reached(module, call)}
    others = (
        computation
        for computation in module.computations
        if computation is not entry and computation.name not in inside
    )
    if not calls or any(True for computation in others for _ in _calls(computation)):
        return None
    sizes = [_pieces(module, call) for call in calls]
    return math.fsum(_seconds(pieces, machine) for pieces in sizes if pieces is not None) if None not in sizes else None


def _calls(computation: Computation) -> Iterator[Instruction]:
    return (
        instruction
        for instruction in computation.instructions
        if instruction.opcode == "call-start" and _OFFLOADED in instruction.attributes
    )


def _reached(module: Module, instruction: Instruction) -> Iterator[str]:
    """The names of all computations that the instruction calls, directly or indirectly."""
    for _, name in instruction.called:
        yield name
        if (called := module.by_name.get(name)) is not None:
            for called_instruction in called.instructions:
                yield from _reached(module, called_instruction)


def _pieces(module: Module, call: Instruction) -> list[tuple[int, int]] | None:
    """The pieces that a call moves, as (number, bytes of each); None if the call contains other kinds of operations."""
    pieces: list[tuple[int, int]] = []
    for name in call.computations("calls", "to_apply"):
        computation = module.by_name.get(name)
        if computation is None:
            return None
        for instruction in computation.instructions:
            if instruction.opcode in _NO_TRANSFER:
                continue
            moved = _pieces(module, instruction) if instruction.opcode in _OPENED else _moved(module, instruction)
            if moved is None:
                return None
            pieces += moved
    return pieces


def _moved(module: Module, instruction: Instruction) -> list[tuple[int, int]] | None:
    """The pieces that one operation of the SparseCore moves: its arrays' tiles and its slices. None if not known."""
    opcodes, root = {instruction.opcode}, instruction
    if instruction.opcode == "fusion":
        body = next((module.by_name.get(name) for name in instruction.computations("calls")), None)
        if body is None or body.root is None:
            return None
        root = body.root
        opcodes = {fused.opcode for fused in body.instructions} - {*_NO_TRANSFER, "reshape", "transpose", "broadcast"}
    if not opcodes <= {"copy", *_SLICES}:
        return None
    shapes = [instruction.shape, *(module.instructions[operand.name].shape for operand in instruction.operands)]
    pieces = []
    for shape in shapes:
        size = padded_bytes(shape)
        if size is None:
            return None
        pieces.append((math.ceil(size / _TILE_BYTES), min(size, _TILE_BYTES)))
    if root.opcode not in _SLICES:
        return pieces
    # The operands of a scatter of one array are the array, the places of the slices, and the slices.
    slices = root.shape if root.opcode == "gather" else module.instructions[root.operands[-1].name].shape
    size = padded_bytes(slices)
    within = re.search(_SLICES[root.opcode] + _NUMBERS, root.attributes)
    operands = 2 if root.opcode == "gather" else 3
    if len(root.operands) != operands or not isinstance(slices, Array) or size is None or within is None:
        return None
    dimensions = [int(number) for number in within[1].split(",") if number]
    number = product([size for place, size in enumerate(slices.dimensions) if place not in dimensions])
    return None if number is None else [*pieces, (number, math.ceil(size / max(1, number)))]


def _seconds(pieces: list[tuple[int, int]], machine: Machine) -> float:
    """The seconds in which pieces are read and written one after the other."""
    latency = machine.dma_latency_cycles + machine.dma_write_latency_cycles + 2 * machine.transfer_cycles
    share = 1 / machine.hbm_read_share + 1 / machine.hbm_write_share
    cycles = sum(number * (latency + size * share / machine.hbm_bytes_per_cycle) for number, size in pieces)
    return cycles / machine.clock_hz
