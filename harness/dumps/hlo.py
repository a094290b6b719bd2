"""Instruction counts and custom calls of a compiled HLO module, read from its serialized HloModuleProto."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import message  # type: ignore[import-untyped]

from harness.dumps.schema import Schema, message_class
from harness.errors import RatchetError
from harness.records import HloCounts

TPU_CALL = "tpu_custom_call"

# The fields of XLA's public hlo.proto that are read.
_SCHEMA: Schema = {
    "HloProto": (("hlo_module", 1, "HloModuleProto"),),
    "HloModuleProto": (
        ("name", 1, "string"),
        ("computations", 3, "HloComputationProto*"),
        ("device_assignment", 15, "DeviceAssignment"),
        ("stack_frame_index", 17, "Frames"),
    ),
    "HloComputationProto": (("name", 1, "string"), ("instructions", 2, "HloInstructionProto*")),
    "HloInstructionProto": (
        ("name", 1, "string"),
        ("opcode", 2, "string"),
        ("metadata", 7, "OpMetadata"),
        ("custom_call_target", 28, "string"),
        ("backend_config", 43, "bytes"),
    ),
    "OpMetadata": (
        ("op_name", 2, "string"),
        ("source_file", 3, "string"),
        ("source_line", 4, "int32"),
        ("stack_frame_id", 15, "int32"),
    ),
    "DeviceAssignment": (("replica_count", 1, "int32"), ("computation_count", 2, "int32")),
    "Frames": (
        ("file_names", 1, "string*"),
        ("file_locations", 3, "FileLocation*"),
        ("stack_frames", 4, "StackFrame*"),
    ),
    "FileLocation": (("file_name_id", 1, "int32"), ("line", 3, "int32")),
    "StackFrame": (("file_location_id", 1, "int32"),),
}

# The opcodes in each count. An asynchronous copy is counted by its start. XLA also writes matmuls as convolutions.
_OPCODES = {
    "copy": ("copy", "copy-start"),
    "transpose": ("transpose",),
    "fusion": ("fusion",),
    "dot": ("dot", "convolution"),
    "exponential": ("exponential", "exponential-minus-one"),
    "reduce": ("reduce", "reduce-window"),
    "custom_call": ("custom-call",),
}
# Opcodes that move data between chips; an asynchronous operation is counted by its start.
_COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomCall:
    """One custom-call instruction; `op_name` is its place in the traced program."""

    name: str
    target: str
    op_name: str
    backend_config: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBody:
    """One Pallas kernel of the module: the Mosaic bytecode that `dumps.mosaic` reads.

    `vmem_bytes` is the scoped VMEM (memory space 1) that the compiler gave the kernel, None if not stated.
    """

    name: str
    op_name: str
    body: bytes
    vmem_bytes: int | None


def counts(module_proto: bytes, text: str) -> HloCounts:
    """Counts of the module's instructions by kind (including bodies of fusions), and of the lines in `text`.

    Raises RatchetError `bad-hlo` if `module_proto` is not an HloModuleProto.
    """
    opcodes = Counter(instruction.opcode for instruction in _instructions(module_proto))
    named = {field: sum(opcodes[opcode] for opcode in alternatives) for field, alternatives in _OPCODES.items()}
    return HloCounts(**named, instructions=opcodes.total(), text_lines=len(text.splitlines()))


def collectives(module_proto: bytes) -> tuple[str, ...]:
    """The opcodes of XLA's collectives in the module, each once. Raises RatchetError `bad-hlo`."""
    opcodes = {instruction.opcode.removesuffix("-start") for instruction in _instructions(module_proto)}
    return tuple(sorted(opcodes.intersection(_COLLECTIVES)))


def custom_calls(module_proto: bytes) -> tuple[CustomCall, ...]:
    """Every custom call of the module, including host callbacks. Raises RatchetError `bad-hlo`."""
    return tuple(
        CustomCall(
            name=instruction.name,
            target=instruction.custom_call_target,
            op_name=instruction.metadata.op_name,
            backend_config=instruction.backend_config,
        )
        for instruction in _instructions(module_proto)
        if instruction.opcode == "custom-call"
    )


def kernel_bodies(module_proto: bytes) -> tuple[KernelBody, ...]:
    """Every Pallas TPU kernel of the module, in its order.

    Raises RatchetError `bad-hlo`, also if a kernel's backend_config is not JSON with custom_call_config.body in base64.
    """
    return tuple(_kernel_body(call) for call in custom_calls(module_proto) if call.target == TPU_CALL)


def _kernel_body(call: CustomCall) -> KernelBody:
    try:
        config = json.loads(call.backend_config)
        body = base64.b64decode(config["custom_call_config"]["body"], validate=True)
        sizes = [
            int(memory["size"])
            for memory in config.get("used_scoped_memory_configs", ())
            if int(memory["memory_space"]) == 1
        ]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise RatchetError(
            "bad-hlo",
            f"custom call {call.name}: expected JSON with custom_call_config.body in base64 as its backend_config, "
            f"got {call.backend_config[:80]!r} ({type(error).__name__}: {error})",
        ) from error
    return KernelBody(name=call.name, op_name=call.op_name, body=body, vmem_bytes=sum(sizes) if sizes else None)


def _instructions(module_proto: bytes) -> Iterator[Any]:
    module = message_of("HloModuleProto")()
    try:
        module.ParseFromString(module_proto)
    except message.DecodeError as error:
        raise RatchetError("bad-hlo", f"expected a serialized HloModuleProto, got other bytes: {error}") from error
    if not module.computations or not all(computation.instructions for computation in module.computations):
        raise RatchetError(
            "bad-hlo", f"expected a serialized HloModuleProto, got {len(module_proto)} bytes without instructions"
        )
    for computation in module.computations:
        yield from computation.instructions


@cache
def message_of(name: str) -> Any:
    """The message class called `name` (`HloModuleProto`, or the `HloProto` around it), without unused fields."""
    return message_class("hlo_subset", _SCHEMA, name)
