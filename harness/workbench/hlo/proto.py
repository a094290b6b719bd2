"""Serialized HLO modules (HloModuleProto, or an HloProto around it): XLA prints a module, and the text is parsed."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf import message  # type: ignore[import-untyped]

import harness
from harness import reading_limits
from harness.dumps.hlo import message_of
from harness.dumps.schema import Schema, message_class
from harness.errors import RatchetError
from harness.hlo import parse
from harness.hlo.module import Module

# xla's hlo.proto and xla_data.proto: collective_device_list with its iota_replica_group_list, and its replacement,
# iota_collective_device_list. Both contain the same message, which is copied unchanged.
_GROUPS: Schema = {
    "HloModuleProto": (("computations", 3, "Computation*"),),
    "Computation": (("instructions", 2, "Instruction*"),),
    "Instruction": (("collective_device_list", 87, "DeviceList"), ("counted", 92, "bytes")),
    "DeviceList": (("counted", 2, "bytes"),),
}
# The key of field 87 in a serialized module.
_FIELD_87 = b"\xba\x05"
_HARNESS = str(Path(harness.__file__).parents[1])
# The child process limits its processor time; this factor allows for other programs that use the processor.
_PATIENCE = 10
_SENTENCE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Opcode, framework's name (`jit(f)/dot_general`) and source (`file:line`) of an instruction; "" if not stated."""

    opcode: str
    framework_name: str
    source: str


def module(data: bytes, name: str = "the file") -> Module:
    """The module in `data`.

    Raises RatchetError `bad-hlo` if `data` is not a serialized HloProto or HloModuleProto, or if the installed XLA
    cannot read the module.
    """
    parsed = _module_proto(data, name)
    text = _print_module(_with_groups(parsed.SerializeToString()), name)
    # The text does not state the number of devices.
    devices = parsed.device_assignment.replica_count * parsed.device_assignment.computation_count
    return replace(parse.module(text, name), devices=max(1, devices))


def _with_groups(module: bytes) -> bytes:
    """The serialized module, with the groups of its collectives in the field that the installed XLA reads.

    Releases of 2025 wrote iota groups into field 87, later releases write them into a separate field.
    """
    if _FIELD_87 not in module:
        return module
    parsed = message_class("replica_groups", _GROUPS, "HloModuleProto").FromString(module)
    for computation in parsed.computations:
        for instruction in computation.instructions:
            if counted := instruction.collective_device_list.counted:
                instruction.counted = counted
                instruction.ClearField("collective_device_list")
    return bytes(parsed.SerializeToString())


def _print_module(module: bytes, name: str) -> str:
    """The module's text, printed by the installed XLA in a child process, because a broken module may crash XLA."""
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", "harness.workbench.hlo.printer"],
            input=module,
            capture_output=True,
            timeout=_PATIENCE * reading_limits.seconds(len(module)),
            check=False,
            env={**os.environ, "PYTHONPATH": _HARNESS},
        )
    except subprocess.TimeoutExpired as error:
        reading_limits.SECONDS.refuse(f"XLA reading the module in {name}", f"{error.timeout:g} s")
    if process.returncode:
        how = f"ended by signal {-process.returncode}" if process.returncode < 0 else "refused"
        last = process.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:_SENTENCE]
        raise RatchetError("bad-hlo", f"the installed XLA cannot read the module in {name}: XLA {how}: {last}")
    return process.stdout.decode("utf-8", "replace")


def origins(data: bytes, name: str = "the file") -> dict[str, Origin]:
    """The origins of all instructions of the module in `data`, by name, even if the installed XLA cannot read it.

    Raises RatchetError `bad-hlo` if `data` is not a serialized HloProto or HloModuleProto.
    """
    parsed = _module_proto(data, name)
    return {
        instruction.name: Origin(
            opcode=instruction.opcode,
            framework_name=instruction.metadata.op_name,
            source=_source(instruction.metadata, parsed.stack_frame_index),
        )
        for computation in parsed.computations
        for instruction in computation.instructions
    }


def _module_proto(data: bytes, name: str) -> Any:
    for kind in ("HloModuleProto", "HloProto"):
        parsed = message_of(kind)()
        try:
            parsed.ParseFromString(data)
        except message.DecodeError:
            continue
        parsed = parsed if kind == "HloModuleProto" else parsed.hlo_module
        # Most bytes parse as some message. In a module, every computation has instructions, and every instruction an
        # opcode.
        every = [list(computation.instructions) for computation in parsed.computations]
        if every and all(part and all(instruction.opcode for instruction in part) for part in every):
            return parsed
    raise RatchetError("bad-hlo", f"expected a serialized HloModuleProto or HloProto, got {name}, which is neither")


def _source(metadata: Any, frames: Any) -> str:
    """The source as `file:line`.

    Older releases store the source with the instruction, newer releases as a frame of the module's index.
    """
    if metadata.source_file:
        return f"{metadata.source_file}:{metadata.source_line}"
    # Numbers of the index begin with 1; 0 means none.
    if metadata.stack_frame_id <= 0:
        return ""
    try:
        frame = frames.stack_frames[metadata.stack_frame_id - 1]
        location = frames.file_locations[frame.file_location_id - 1] if frame.file_location_id > 0 else None
        return f"{frames.file_names[location.file_name_id - 1]}:{location.line}" if location else ""
    except IndexError:
        return ""
