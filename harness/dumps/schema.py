"""Makes message classes for those fields of a public proto that are read; plain tuples describe the fields."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

# Message -> (field, number, type). A type is a scalar (`bytes`, `int64` ...) or another message of the schema. After
# the type, `*` means repeated, and `!` that the field's presence matters (all fields with `!` are one `oneof value`).
Schema: TypeAlias = Mapping[str, Sequence[tuple[str, int, str]]]


def message_class(package: str, schema: Schema, root: str) -> Any:
    """The class that parses `root`, in a new pool of descriptors. It skips every field that `schema` leaves out."""
    fields = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, content in schema.items():
        described = file.message_type.add(name=name)
        if any(kind.endswith("!") for _, _, kind in content):
            described.oneof_decl.add(name="value")
        for field, number, spelled in content:
            kind, mark = spelled.rstrip("*!"), spelled[-1]
            label = fields.LABEL_REPEATED if mark == "*" else fields.LABEL_OPTIONAL
            added = described.field.add(name=field, number=number, label=label)
            if kind in schema:
                added.type, added.type_name = fields.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                added.type = fields.Type.Value(f"TYPE_{kind.upper()}")
            if mark == "!":
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{root}"))
