"""Serialized HLO modules (HloModuleProto, or the HloProto around it) into the same records as the text."""

import math
import struct
from dataclasses import dataclass
from typing import Any

from google.protobuf import message  # type: ignore[import-untyped]

from harness.errors import RatchetError
from harness.workbench.hlo import groups as grouping
from harness.workbench.hlo.attributes import trip_count
from harness.workbench.hlo.groups import Groups, Sharding
from harness.workbench.hlo.module import CallRole, Computation, Contraction, Convolution, Instruction, Module, Operand
from harness.workbench.hlo.module import WindowDimension as Window
from harness.workbench.hlo.proto_schema import hlo_message
from harness.workbench.hlo.shapes import JOINED, Array, Layout, Shape, Tuple

_TUPLE = 13
# PrimitiveType of xla_data.proto.
_TYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
    12: "f64", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4",
    22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4",
    30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip
_KINDS = {0: "replicated", 1: "maximal", 2: "tuple", 4: "manual", 5: "unknown", 6: "unreduced"}
_PRECISIONS = {0: "default", 1: "high", 2: "highest"}
# A tile's dimension that is joined with the next one (xla/layout.h, Tile::kCombineDimension).
_COMBINE = -(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Opcode, framework's name (`jit(f)/dot_general`) and `file:line` of an instruction; "" where unsaid."""

    opcode: str
    framework_name: str
    source: str


def module(data: bytes, name: str = "the file") -> Module:
    """The module in `data`. Raises RatchetError `bad-hlo` if it is no serialized HloProto or HloModuleProto."""
    return _Reader(_module_proto(data, name)).read()


def origins(data: bytes, name: str = "the file") -> dict[str, Origin]:
    """Every instruction of the module in `data` by name, also those of unknown types. Raises like `module`."""
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
    found = _parsed("HloModuleProto", data)
    if found is None:
        outer = _parsed("HloProto", data)
        found = outer.hlo_module if outer is not None and _is_module(outer.hlo_module) else None
    if found is None:
        raise RatchetError("bad-hlo", f"expected a serialized HloModuleProto or HloProto, {name} is neither")
    return found


def _parsed(kind: str, data: bytes) -> Any:
    """The message, None where the bytes are none of this kind."""
    found = hlo_message(kind)()
    try:
        found.ParseFromString(data)
    except message.DecodeError:
        return None
    return found if kind == "HloProto" or _is_module(found) else None


def _is_module(found: Any) -> bool:
    """Whether there are computations with instructions of known operations in it: bytes fit many messages."""
    computations = found.computations
    return bool(computations) and all(
        computation.instructions and all(instruction.opcode for instruction in computation.instructions)
        for computation in computations
    )


class _Reader:
    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self._computations = {computation.id: computation.name for computation in proto.computations}
        self._misunderstood: list[str] = []

    def read(self) -> Module:
        proto = self._proto
        computations = tuple(self._computation(computation) for computation in proto.computations)
        assignment = proto.device_assignment
        aliases = [f"result {list(entry.output_shape_index)} is argument {entry.parameter_number}"
                   for entry in proto.input_output_alias.entries]  # fmt: skip
        return Module(
            name=proto.name,
            computations=computations,
            devices=max(1, assignment.replica_count * assignment.computation_count),
            aliases="; ".join(aliases),
            not_understood=tuple(self._misunderstood),
        )

    def _computation(self, proto: Any) -> Computation:
        names = {instruction.id: instruction.name for instruction in proto.instructions}
        instructions = []
        for instruction in proto.instructions:
            try:
                instructions.append(self._instruction(instruction, names, is_root=instruction.id == proto.root_id))
            except (RatchetError, ValueError, KeyError) as error:
                self._misunderstood.append(f"{instruction.name} of {proto.name}: {error}")
        is_entry = proto.name == self._proto.entry_computation_name
        return Computation(name=proto.name, instructions=tuple(instructions), is_entry=is_entry)

    def _instruction(self, proto: Any, names: dict[int, str], *, is_root: bool) -> Instruction:
        backend = proto.backend_config.decode(errors="replace")
        convolution = _convolution(proto) if proto.opcode == "convolution" else None
        return Instruction(
            name=proto.name,
            opcode=proto.opcode,
            shape=_shape(proto.shape),
            operands=tuple(Operand(name=names[number]) for number in proto.operand_ids),
            is_root=is_root,
            number=_number(proto),
            literal=_literal(proto) if proto.opcode == "constant" else "",
            dimensions=tuple(proto.dimensions),
            slice_sizes=tuple(proto.dynamic_slice_sizes or proto.gather_slice_sizes),
            called=self._called(proto),
            fusion_kind=proto.fusion_kind,
            target=proto.custom_call_target,
            contraction=_contraction(proto) if proto.opcode == "dot" else None,
            convolution=convolution,
            direction=proto.comparison_direction,
            groups=_groups(proto),
            pairs=tuple((pair.source, pair.target) for pair in proto.source_target_pairs),
            channel=proto.channel_id if proto.channel_id > 0 else None,
            precision=_precision(proto),
            sharding=_sharding(proto.sharding) if proto.HasField("sharding") else None,
            aliasing=", ".join(f"operand {pair.operand_index}" for pair in proto.output_operand_aliasing),
            trip_count=trip_count(backend),
            op_name=proto.metadata.op_name,
            source=_source(proto.metadata, self._proto.stack_frame_index),
            backend=backend,
        )

    def _called(self, proto: Any) -> tuple[tuple[CallRole, str], ...]:
        called = [self._computations[number] for number in proto.called_computation_ids]
        if proto.opcode == "while" and len(called) == 2:
            return (("body", called[0]), ("condition", called[1]))
        role: CallRole = "calls"
        if proto.opcode == "conditional":
            role = "branch"
        elif proto.opcode in _APPLYING:
            role = "to_apply"
        return tuple((role, name) for name in called)


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


# Operations whose computation is applied to elements (`to_apply=` in the text); others `call` theirs.
_APPLYING = (
    "reduce", "reduce-window", "all-reduce", "all-reduce-start", "reduce-scatter", "map", "sort", "scatter", "call",
    "select-and-scatter",
)  # fmt: skip


def _shape(proto: Any) -> Shape:
    if proto.element_type == _TUPLE:
        return Tuple(members=tuple(_shape(member) for member in proto.tuple_shapes))
    dtype = _TYPES.get(proto.element_type)
    if dtype is None:
        raise ValueError(f"the element type {proto.element_type} is not known")
    sizes = tuple(None if size < 0 else size for size in proto.dimensions)
    layout = None
    # The text has no `{}` behind a scalar.
    if proto.HasField("layout") and (sizes or proto.layout.ByteSize()):
        layout = Layout(
            minor_to_major=tuple(proto.layout.minor_to_major),
            tiles=tuple(
                tuple(JOINED if size == _COMBINE else size for size in tile.dimensions) for tile in proto.layout.tiles
            ),
            tail_elements=proto.layout.tail_padding_alignment_in_elements or 1,
            element_bits=proto.layout.element_size_in_bits,
            memory_space=proto.layout.memory_space,
        )
    return Array(dtype=dtype, dimensions=sizes, dynamic=tuple(proto.is_dynamic_dimension), layout=layout)


def _number(proto: Any) -> int | None:
    if proto.opcode == "parameter":
        return int(proto.parameter_number)
    return int(proto.tuple_index) if proto.opcode == "get-tuple-element" else None


def _literal(proto: Any) -> str:
    """The text of a scalar; `{...}` for anything larger, as the text has it."""
    literal = proto.literal
    if math.prod(proto.shape.dimensions) != 1:
        return "{...}"
    for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s, literal.f32s):
        if values:
            return f"{values[0]:g}" if isinstance(values[0], float) else str(values[0])
    if literal.preds:
        return str(literal.preds[0]).lower()
    if len(literal.bf16s) == 2:
        return f"{struct.unpack('<f', bytes(2) + literal.bf16s)[0]:g}"
    return ""


def _contraction(proto: Any) -> Contraction:
    numbers = proto.dot_dimension_numbers
    return Contraction(
        left=tuple(numbers.lhs_contracting_dimensions),
        right=tuple(numbers.rhs_contracting_dimensions),
        left_batch=tuple(numbers.lhs_batch_dimensions),
        right_batch=tuple(numbers.rhs_batch_dimensions),
    )


def _convolution(proto: Any) -> Convolution:
    numbers = proto.convolution_dimension_numbers
    given, kernel, out = (
        tuple(getattr(numbers, f"{side}_spatial_dimensions")) for side in ("input", "kernel", "output")
    )
    parts = (
        _labels({numbers.input_batch_dimension: "b", numbers.input_feature_dimension: "f"}, given),
        _labels({numbers.kernel_input_feature_dimension: "i", numbers.kernel_output_feature_dimension: "o"}, kernel),
        _labels({numbers.output_batch_dimension: "b", numbers.output_feature_dimension: "f"}, out),
    )
    return Convolution(
        text=f"{parts[0]}_{parts[1]}->{parts[2]}",
        input_batch=numbers.input_batch_dimension,
        input_feature=numbers.input_feature_dimension,
        input_spatial=given,
        kernel_input=numbers.kernel_input_feature_dimension,
        kernel_output=numbers.kernel_output_feature_dimension,
        kernel_spatial=kernel,
        output_batch=numbers.output_batch_dimension,
        output_feature=numbers.output_feature_dimension,
        output_spatial=out,
        window=tuple(
            Window(
                size=dimension.size,
                stride=dimension.stride or 1,
                low_padding=dimension.padding_low,
                high_padding=dimension.padding_high,
                input_dilation=dimension.base_dilation or 1,
                window_dilation=dimension.window_dilation or 1,
            )
            for dimension in proto.window.dimensions
        ),
        feature_groups=proto.feature_group_count or 1,
        batch_groups=proto.batch_group_count or 1,
    )


def _labels(named: dict[int, str], spatial: tuple[int, ...]) -> str:
    places = {**named, **{place: str(number) for number, place in enumerate(spatial)}}
    return "".join(places[place] for place in sorted(places))


def _groups(proto: Any) -> Groups | None:
    """The groups in whichever of the four fields they stand; their text is what the text form would say."""
    if proto.HasField("mesh_axes_replica_group_list"):
        found = proto.mesh_axes_replica_group_list
        return grouping.groups(f"{_mesh(found.mesh)} {{{_axes(found.mesh, found.axes)}}}")
    iota = proto.iota_collective_device_list
    if not proto.HasField("iota_collective_device_list"):
        iota = proto.collective_device_list.iota_replica_group_list
    if iota.num_replica_groups:
        sizes, order = _comma(iota.iota_reshape_dims), _comma(iota.iota_transpose_perm)
        turned = f"T({order})" if list(iota.iota_transpose_perm) != sorted(iota.iota_transpose_perm) else ""
        return grouping.groups(f"[{iota.num_replica_groups},{iota.num_devices_per_group}]<=[{sizes}]{turned}")
    lists = proto.collective_device_list.replica_groups or proto.replica_groups
    if not lists:
        return None
    return grouping.groups("{" + ",".join("{" + _comma(group.replica_ids) + "}" for group in lists) + "}")


def _mesh(mesh: Any) -> str:
    axes = ",".join(f"'{axis.name}'={axis.size}" for axis in mesh.axes)
    devices = f", device_ids=([{len(mesh.device_ids)}]{_comma(mesh.device_ids)})" if mesh.device_ids else ""
    return f"mesh[{axes}]{devices}"


def _axes(mesh: Any, references: Any) -> str:
    words = []
    for reference in references:
        part = reference.sub_axis_info
        suffix = f":({part.pre_size}){part.size}" if reference.HasField("sub_axis_info") else ""
        words.append(f"'{mesh.axes[reference.mesh_axis_index].name}'{suffix}")
    return ",".join(words)


def _comma(numbers: Any) -> str:
    return ",".join(map(str, numbers))


def _precision(proto: Any) -> tuple[str, ...]:
    given = [_PRECISIONS.get(number, str(number)) for number in proto.precision_config.operand_precision]
    return tuple(given) if any(word != "default" for word in given) else ()


def _sharding(proto: Any) -> Sharding:
    if proto.HasField("named_sharding"):
        named = proto.named_sharding
        sizes = [axis.size for axis in named.mesh.axes]
        parts = []
        for dimension in named.dim_shardings:
            parts.append(math.prod(
                axis.sub_axis_info.size if axis.HasField("sub_axis_info") else sizes[axis.mesh_axis_index]
                for axis in dimension.axes
            ))  # fmt: skip
        split = ", ".join(f"{{{_axes(named.mesh, dimension.axes)}}}" for dimension in named.dim_shardings)
        return Sharding(text=f"{{{_mesh(named.mesh)}, [{split}]}}", kind="mesh", parts=tuple(parts))
    kind = _KINDS.get(proto.type, "")
    if kind:
        return Sharding(text=f"{{{kind}}}", kind=kind)
    sizes = list(proto.tile_assignment_dimensions)
    replicated = len(proto.last_tile_dims) or int(proto.replicate_on_last_tile_dim)
    text = f"{{devices=[{_comma(sizes)}]{' last_tile_dim_replicate' if proto.replicate_on_last_tile_dim else ''}}}"
    return Sharding(text=text, kind="devices", parts=tuple(sizes[: len(sizes) - replicated]))
