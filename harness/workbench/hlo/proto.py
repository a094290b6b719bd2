"""Serialized HLO modules (HloModuleProto, or the HloProto around it): XLA writes them as text, which is read."""

from dataclasses import dataclass, replace
from typing import Any

from google.protobuf import message  # type: ignore[import-untyped]

from harness.dumps.hlo import message_of
from harness.errors import RatchetError
from harness.workbench.hlo import parse
from harness.workbench.hlo.module import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Opcode, framework's name (`jit(f)/dot_general`) and `file:line` of an instruction; "" where unsaid."""

    opcode: str
    framework_name: str
    source: str


def module(data: bytes, name: str = "the file") -> Module:
    """The module in `data`.

    Raises RatchetError `bad-hlo` if it is no serialized HloProto or HloModuleProto, or one that the installed XLA
    cannot read.
    """
    # Half a second that only a proto is worth.
    from jaxlib import _hlo

    found = _module_proto(data, name)
    try:
        text = _hlo.HloModule.from_serialized_hlo_module_proto(found.SerializeToString()).to_string()
    except RuntimeError as error:
        raise RatchetError("bad-hlo", f"the installed XLA cannot read the module in {name}: {error}") from error
    # The text does not say how many devices it is for.
    devices = found.device_assignment.replica_count * found.device_assignment.computation_count
    return replace(parse.module(text, name), devices=max(1, devices))


def origins(data: bytes, name: str = "the file") -> dict[str, Origin]:
    """Every instruction of the module in `data` by name, also of one that the installed XLA cannot read.

    Raises RatchetError `bad-hlo` if it is no serialized HloProto or HloModuleProto.
    """
    found = _module_proto(data, name)
    return {
        instruction.name: Origin(
            opcode=instruction.opcode,
            framework_name=instruction.metadata.op_name,
            source=_source(instruction.metadata, found.stack_frame_index),
        )
        for computation in found.computations
        for instruction in computation.instructions
    }


def _module_proto(data: bytes, name: str) -> Any:
    for kind in ("HloModuleProto", "HloProto"):
        found = message_of(kind)()
        try:
            found.ParseFromString(data)
        except message.DecodeError:
            continue
        found = found if kind == "HloModuleProto" else found.hlo_module
        if _is_module(found):
            return found
    raise RatchetError("bad-hlo", f"expected a serialized HloModuleProto or HloProto, {name} is neither")


def _is_module(found: Any) -> bool:
    """Whether there are computations with instructions of known operations in it: bytes fit many messages."""
    computations = found.computations
    return bool(computations) and all(
        computation.instructions and all(instruction.opcode for instruction in computation.instructions)
        for computation in computations
    )


def _source(metadata: Any, frames: Any) -> str:
    """`file:line`: beside the instruction in older releases, by a frame of the module's index in newer ones."""
    if metadata.source_file:
        return f"{metadata.source_file}:{metadata.source_line}"
    # Numbers of the index begin with 1; 0 is none.
    if metadata.stack_frame_id <= 0:
        return ""
    try:
        frame = frames.stack_frames[metadata.stack_frame_id - 1]
        location = frames.file_locations[frame.file_location_id - 1] if frame.file_location_id > 0 else None
        return f"{frames.file_names[location.file_name_id - 1]}:{location.line}" if location else ""
    except IndexError:
        return ""
