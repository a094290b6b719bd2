"""The part of XLA's HLO protos that is read, and the message class built from it."""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

# The part of XLA's public hlo.proto and xla_data.proto that is read here: message -> (field, number, type). A `+` in
# front of a type says repeated. protobuf skips every other field.
SCHEMA: dict[str, tuple[tuple[str, int, str], ...]] = {
    "HloProto": (("hlo_module", 1, "HloModuleProto"),),
    "HloModuleProto": (
        ("name", 1, "string"),
        ("entry_computation_name", 2, "string"),
        ("computations", 3, "+HloComputationProto"),
        ("input_output_alias", 8, "Aliases"),
        ("device_assignment", 15, "DeviceAssignment"),
        ("stack_frame_index", 17, "Frames"),
    ),
    "DeviceAssignment": (("replica_count", 1, "int32"), ("computation_count", 2, "int32")),
    "Aliases": (("entries", 1, "+AliasEntry"),),
    "AliasEntry": (("output_shape_index", 1, "+int64"), ("parameter_number", 2, "int64")),
    "Frames": (
        ("file_names", 1, "+string"),
        ("file_locations", 3, "+FileLocation"),
        ("stack_frames", 4, "+StackFrame"),
    ),
    "FileLocation": (("file_name_id", 1, "int32"), ("line", 3, "int32")),
    "StackFrame": (("file_location_id", 1, "int32"),),
    "HloComputationProto": (
        ("name", 1, "string"),
        ("instructions", 2, "+HloInstructionProto"),
        ("id", 5, "int64"),
        ("root_id", 6, "int64"),
    ),
    "HloInstructionProto": (
        ("name", 1, "string"),
        ("opcode", 2, "string"),
        ("shape", 3, "ShapeProto"),
        ("metadata", 7, "OpMetadata"),
        ("literal", 8, "LiteralProto"),
        ("parameter_number", 9, "int64"),
        ("fusion_kind", 11, "string"),
        ("tuple_index", 13, "int64"),
        ("dimensions", 14, "+int64"),
        ("window", 15, "Window"),
        ("convolution_dimension_numbers", 16, "ConvolutionNumbers"),
        ("slice_dimensions", 17, "+SliceDimensions"),
        ("dynamic_slice_sizes", 20, "+int64"),
        ("channel_id", 26, "int64"),
        ("custom_call_target", 28, "string"),
        ("dot_dimension_numbers", 30, "DotNumbers"),
        ("gather_slice_sizes", 34, "+int64"),
        ("id", 35, "int64"),
        ("operand_ids", 36, "+int64"),
        ("called_computation_ids", 38, "+int64"),
        ("sharding", 40, "OpSharding"),
        ("backend_config", 43, "bytes"),
        ("replica_groups", 49, "+ReplicaGroup"),
        ("feature_group_count", 50, "int64"),
        ("precision_config", 51, "PrecisionConfig"),
        ("source_target_pairs", 52, "+SourceTarget"),
        ("batch_group_count", 58, "int64"),
        ("comparison_direction", 63, "string"),
        ("output_operand_aliasing", 74, "+Aliasing"),
        ("collective_device_list", 87, "DeviceList"),
        ("iota_collective_device_list", 92, "IotaGroups"),
        ("mesh_axes_replica_group_list", 93, "MeshGroups"),
    ),
    "ShapeProto": (
        ("element_type", 2, "int32"),
        ("dimensions", 3, "+int64"),
        ("tuple_shapes", 4, "+ShapeProto"),
        ("layout", 5, "LayoutProto"),
        ("is_dynamic_dimension", 6, "+bool"),
    ),
    "LayoutProto": (
        ("minor_to_major", 1, "+int64"),
        ("tiles", 6, "+TileProto"),
        ("element_size_in_bits", 7, "int64"),
        ("memory_space", 8, "int64"),
        ("tail_padding_alignment_in_elements", 16, "int64"),
    ),
    "TileProto": (("dimensions", 1, "+int64"),),
    "OpMetadata": (
        ("op_name", 2, "string"),
        ("source_file", 3, "string"),
        ("source_line", 4, "int32"),
        ("stack_frame_id", 15, "int32"),
    ),
    "LiteralProto": (
        ("preds", 2, "+bool"),
        ("s32s", 4, "+int32"),
        ("s64s", 5, "+int64"),
        ("u32s", 6, "+uint32"),
        ("u64s", 7, "+uint64"),
        ("f32s", 8, "+float"),
        ("bf16s", 13, "bytes"),
    ),
    "Window": (("dimensions", 1, "+WindowDimension"),),
    "WindowDimension": (
        ("size", 1, "int64"),
        ("stride", 2, "int64"),
        ("padding_low", 3, "int64"),
        ("padding_high", 4, "int64"),
        ("window_dilation", 5, "int64"),
        ("base_dilation", 6, "int64"),
    ),
    "ConvolutionNumbers": (
        ("kernel_input_feature_dimension", 3, "int64"),
        ("kernel_output_feature_dimension", 4, "int64"),
        ("kernel_spatial_dimensions", 6, "+int64"),
        ("input_batch_dimension", 7, "int64"),
        ("input_feature_dimension", 8, "int64"),
        ("output_batch_dimension", 9, "int64"),
        ("output_feature_dimension", 10, "int64"),
        ("input_spatial_dimensions", 11, "+int64"),
        ("output_spatial_dimensions", 12, "+int64"),
    ),
    "SliceDimensions": (("start", 1, "int64"),),
    "DotNumbers": (
        ("lhs_contracting_dimensions", 1, "+int64"),
        ("rhs_contracting_dimensions", 2, "+int64"),
        ("lhs_batch_dimensions", 3, "+int64"),
        ("rhs_batch_dimensions", 4, "+int64"),
    ),
    "OpSharding": (
        ("type", 1, "int32"),
        ("tile_assignment_dimensions", 3, "+int64"),
        ("replicate_on_last_tile_dim", 6, "bool"),
        ("last_tile_dims", 8, "+int32"),
        ("iota_reshape_dims", 9, "+int64"),
        ("named_sharding", 14, "NamedSharding"),
    ),
    "NamedSharding": (("mesh", 2, "Mesh"), ("dim_shardings", 3, "+DimensionSharding")),
    "Mesh": (("axes", 1, "+MeshAxis"), ("device_ids", 2, "+int64")),
    "MeshAxis": (("name", 1, "string"), ("size", 2, "int64")),
    "DimensionSharding": (("axes", 1, "+AxisRef"),),
    "AxisRef": (("mesh_axis_index", 1, "int64"), ("sub_axis_info", 2, "SubAxis")),
    "SubAxis": (("pre_size", 1, "int64"), ("size", 2, "int64")),
    "ReplicaGroup": (("replica_ids", 1, "+int64"),),
    "SourceTarget": (("source", 1, "int64"), ("target", 2, "int64")),
    "PrecisionConfig": (("operand_precision", 1, "+int32"),),
    "Aliasing": (("operand_index", 2, "int64"),),
    "DeviceList": (("replica_groups", 1, "+ReplicaGroup"), ("iota_replica_group_list", 2, "IotaGroups")),
    "IotaGroups": (
        ("num_replica_groups", 1, "int64"),
        ("num_devices_per_group", 2, "int64"),
        ("iota_reshape_dims", 3, "+int64"),
        ("iota_transpose_perm", 4, "+int32"),
    ),
    "MeshGroups": (("mesh", 1, "Mesh"), ("axes", 2, "+AxisRef")),
}
_SCALARS = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "float": descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
}
_PACKAGE = "hlo_reading"


@cache
def message_class(name: str) -> Any:
    """The message class `HloProto` or `HloModuleProto`, built from `SCHEMA` in a pool of its own."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    fields = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, content in SCHEMA.items():
        described = file.message_type.add(name=name)
        for field, number, kind in content:
            label = fields.LABEL_REPEATED if kind.startswith("+") else fields.LABEL_OPTIONAL
            kind = kind.removeprefix("+")
            if kind in SCHEMA:
                type_name = f".{_PACKAGE}.{kind}"
                described.field.add(
                    name=field, number=number, label=label, type=fields.TYPE_MESSAGE, type_name=type_name
                )
            else:
                described.field.add(name=field, number=number, label=label, type=_SCALARS[kind])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool
