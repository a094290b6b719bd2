"""Where each instruction of a compiled module comes from, read from the HloProto that a profile carries."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import message  # type: ignore[import-untyped]

from harness.dumps.schema import message_class
from harness.errors import RatchetError

# The part of XLA's public hlo.proto that is needed. Newer releases say a source line by a frame of the module's
# index, older ones beside the instruction.
_SCHEMA = {
    "HloProto": (("hlo_module", 1, "HloModuleProto"),),
    "HloModuleProto": (
        ("name", 1, "bytes"),
        ("computations", 3, "HloComputationProto*"),
        ("stack_frame_index", 17, "StackFrameIndexProto"),
    ),
    "HloComputationProto": (("instructions", 2, "HloInstructionProto*"),),
    "HloInstructionProto": (("name", 1, "bytes"), ("opcode", 2, "bytes"), ("metadata", 7, "OpMetadata")),
    "OpMetadata": (
        ("op_name", 2, "bytes"),
        ("source_file", 3, "bytes"),
        ("source_line", 4, "int32"),
        ("stack_frame_id", 15, "int32"),
    ),
    "StackFrameIndexProto": (
        ("file_names", 1, "bytes*"),
        ("file_locations", 3, "FileLocation*"),
        ("stack_frames", 4, "StackFrame*"),
    ),
    "FileLocation": (("file_name_id", 1, "int32"), ("line", 3, "int32")),
    "StackFrame": (("file_location_id", 1, "int32"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """One instruction: its opcode, the framework's name (`jit(f)/dot_general`), and `file:line`; "" where unsaid."""

    opcode: str
    framework_name: str
    source: str


def origins(hlo_proto: bytes) -> dict[str, Origin]:
    """Every instruction of the module by name. Raises RatchetError `bad-hlo` where the bytes are no HloProto."""
    parsed = _message_class()()
    try:
        parsed.ParseFromString(hlo_proto)
    except message.DecodeError as error:
        raise RatchetError("bad-hlo", f"expected a serialized HloProto: {error}") from error
    module = parsed.hlo_module
    return {
        _text(instruction.name): Origin(
            opcode=_text(instruction.opcode),
            framework_name=_text(instruction.metadata.op_name),
            source=_source(instruction.metadata, module.stack_frame_index),
        )
        for computation in module.computations
        for instruction in computation.instructions
    }


def _source(metadata: Any, index: Any) -> str:
    if metadata.source_file:
        return f"{_text(metadata.source_file)}:{metadata.source_line}"
    # Numbers of the index begin with 1; 0 is none.
    try:
        frame = index.stack_frames[metadata.stack_frame_id - 1] if metadata.stack_frame_id > 0 else None
        location = index.file_locations[frame.file_location_id - 1] if frame and frame.file_location_id > 0 else None
        return f"{_text(index.file_names[location.file_name_id - 1])}:{location.line}" if location else ""
    except IndexError:
        return ""


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


@cache
def _message_class() -> Any:
    return message_class("origins_subset", _SCHEMA, "HloProto")
