"""XLA's own parser on some hundred modules, field by field against what we read of the text that it prints."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import _hlo
from made_modules import Maker
from module_fixtures import MODULES, readable

from harness.dumps.schema import message_class
from harness.hlo import parse
from harness.hlo.module import Computation, Instruction, Module
from harness.hlo.shapes import JOINED, Array, Layout, Shape, Tuple
from harness.hlo.sharding import tiles

# The part of XLA's hlo.proto and xla_data.proto that is compared.
SCHEMA = {
    "HloModuleProto": (("entry_computation_name", 2, "string"), ("computations", 3, "HloComputationProto*")),
    "HloComputationProto": (
        ("name", 1, "string"),
        ("instructions", 2, "HloInstructionProto*"),
        ("id", 5, "int64"),
        ("root_id", 6, "int64"),
    ),
    "HloInstructionProto": (
        ("name", 1, "string"),
        ("opcode", 2, "string"),
        ("shape", 3, "ShapeProto"),
        ("tuple_index", 13, "int64"),
        ("dimensions", 14, "int64*"),
        ("custom_call_target", 28, "string"),
        ("channel_id", 26, "int64"),
        ("id", 35, "int64"),
        ("operand_ids", 36, "int64*"),
        ("called_computation_ids", 38, "int64*"),
        ("sharding", 40, "OpSharding"),
        ("backend_config", 43, "bytes"),
        ("source_target_pairs", 52, "SourceTarget*"),
        ("parameter_number", 9, "int64"),
        ("collective_device_list", 87, "CollectiveDeviceList"),
        ("iota_replica_group_list", 92, "Iota"),
    ),
    "SourceTarget": (("source", 1, "int64"), ("target", 2, "int64")),
    "CollectiveDeviceList": (("replica_groups", 1, "ReplicaGroup*"),),
    "ReplicaGroup": (("replica_ids", 1, "int64*"),),
    "Iota": (
        ("num_replica_groups", 1, "int64"),
        ("num_devices_per_group", 2, "int64"),
        ("iota_reshape_dims", 3, "int64*"),
        ("iota_transpose_perm", 4, "int64*"),
    ),
    "OpSharding": (
        ("type", 1, "int32"),
        ("tile_assignment_dimensions", 3, "int64*"),
        ("tile_assignment_devices", 4, "int64*"),
        ("replicate_on_last_tile_dim", 6, "bool"),
        ("last_tile_dims", 8, "int32*"),
        ("iota_reshape_dims", 9, "int64*"),
        ("iota_transpose_perm", 10, "int64*"),
    ),
    "ShapeProto": (
        ("element_type", 2, "int32"),
        ("dimensions", 3, "int64*"),
        ("tuple_shapes", 4, "ShapeProto*"),
        ("layout", 5, "LayoutProto"),
        ("is_dynamic_dimension", 6, "bool*"),
    ),
    "LayoutProto": (
        ("minor_to_major", 1, "int64*"),
        ("tiles", 6, "TileProto*"),
        ("element_size_in_bits", 7, "int64"),
        ("memory_space", 8, "int64"),
        ("tail_padding_alignment_in_elements", 16, "int64"),
    ),
    "TileProto": (("dimensions", 1, "int64*"),),
}
MODULE_PROTO = message_class("hlo_compared", SCHEMA, "HloModuleProto")
# xla_data.proto, PrimitiveType.
TUPLE = 13
TYPES = {
    1: "pred",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    12: "f64",
    14: "opaque",
    15: "c64",
    16: "bf16",
    17: "token",
    18: "c128",
    19: "f8e5m2",
    20: "f8e4m3fn",
    21: "s4",
    22: "u4",
    23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz",
    25: "f8e4m3fnuz",
    26: "s2",
    27: "u2",
    28: "f8e4m3",
}
# xla_data.proto, OpSharding.Type.
KINDS = {0: "replicated", 1: "maximal", 2: "tuple", 3: "devices", 4: "manual"}
# XLA ends a tile's dimension that is joined with the next one with this number.
COMBINED = -(1 << 63)


# --- What XLA has -----------------------------------------------------------------------------------


def shape_of(proto: Any) -> Shape:
    if proto.element_type == TUPLE:
        return Tuple(members=tuple(shape_of(member) for member in proto.tuple_shapes))
    layout = Layout(
        minor_to_major=tuple(proto.layout.minor_to_major),
        tiles=tuple(tuple(JOINED if size == COMBINED else size for size in t.dimensions) for t in proto.layout.tiles),
        tail_elements=max(1, proto.layout.tail_padding_alignment_in_elements),
        element_bits=proto.layout.element_size_in_bits,
        memory_space=proto.layout.memory_space,
    )
    # A scalar's layout is printed only if it says something.
    is_said = proto.element_type not in (14, 17) and (proto.dimensions or layout != Layout())
    return Array(
        dtype=TYPES[proto.element_type],
        dimensions=tuple(proto.dimensions),
        dynamic=tuple(proto.is_dynamic_dimension) or (False,) * len(proto.dimensions),
        layout=layout if is_said else None,
    )


def numbered(sizes: Any, order: Any, count: int) -> list[int]:
    """0, 1, 2, ... reshaped, transposed and read row by row."""
    devices: list[int] = (
        np.arange(count).reshape(list(sizes) or [count]).transpose(list(order) or None).ravel().tolist()
    )
    return devices


def groups_of(proto: Any) -> tuple[tuple[int, ...], ...]:
    if proto.HasField("iota_replica_group_list"):
        iota = proto.iota_replica_group_list
        size = iota.num_devices_per_group
        devices = numbered(iota.iota_reshape_dims, iota.iota_transpose_perm, iota.num_replica_groups * size)
        return tuple(tuple(devices[start : start + size]) for start in range(0, len(devices), size))
    return tuple(tuple(group.replica_ids) for group in proto.collective_device_list.replica_groups)


def assert_same_sharding(ours: Instruction, proto: Any) -> None:
    assert (ours.sharding is not None) == proto.HasField("sharding"), ours
    if ours.sharding is None:
        return
    theirs = proto.sharding
    if ours.sharding.kind == "mesh":
        # The proto has no type for these (jax 0.12): nothing is split here, and "replicated" says so.
        assert KINDS[theirs.type] == "replicated"
        assert not any(ours.sharding.split)
        return
    assert ours.sharding.kind == KINDS[theirs.type]
    if ours.sharding.kind == "devices":
        sizes = tuple(theirs.tile_assignment_dimensions)
        devices = tuple(theirs.tile_assignment_devices) or tuple(
            numbered(theirs.iota_reshape_dims, theirs.iota_transpose_perm, math.prod(sizes))
        )
        assert tiles(ours.sharding) == (sizes, devices)
        replicated = int(theirs.replicate_on_last_tile_dim) or len(theirs.last_tile_dims)
        assert ours.sharding.parts == sizes[: len(sizes) - replicated]


def assert_same_instruction(ours: Instruction, proto: Any, names: dict[int, str], computations: dict[int, str]) -> None:
    assert ours.opcode == proto.opcode, ours
    assert ours.shape == shape_of(proto.shape), ours
    assert [operand.name for operand in ours.operands] == [names[operand] for operand in proto.operand_ids], ours
    assert sorted({name for _, name in ours.called}) == sorted({computations[c] for c in proto.called_computation_ids})
    if ours.opcode in ("get-tuple-element", "parameter"):
        assert ours.number == (proto.tuple_index if ours.opcode == "get-tuple-element" else proto.parameter_number)
    if ours.dimensions and ours.opcode != "iota":
        assert ours.dimensions == tuple(proto.dimensions), ours
    assert ours.target == proto.custom_call_target
    assert (ours.channel or 0) == proto.channel_id
    assert ours.pairs == tuple((pair.source, pair.target) for pair in proto.source_target_pairs)
    if ours.groups is not None and not ours.groups.text.startswith("mesh"):
        assert ours.groups.groups == groups_of(proto), ours
        assert ours.groups.is_everyone == (not groups_of(proto))
    assert_same_sharding(ours, proto)


def assert_same(ours: Module, data: bytes) -> int:
    """The number of instructions that were compared."""
    module = MODULE_PROTO()
    module.ParseFromString(data)
    assert ours.not_understood == ()
    assert ours.entry is not None
    assert ours.entry.name == module.entry_computation_name
    computations = {computation.id: computation.name for computation in module.computations}
    names = {
        instruction.id: instruction.name
        for computation in module.computations
        for instruction in computation.instructions
    }
    by_name: dict[str, Computation] = ours.by_name
    assert by_name.keys() == set(computations.values())
    for computation in module.computations:
        there = {instruction.name: instruction for instruction in by_name[computation.name].instructions}
        assert there.keys() == {instruction.name for instruction in computation.instructions}
        for proto in computation.instructions:
            assert_same_instruction(there[proto.name], proto, names, computations)
        root = by_name[computation.name].root
        assert root is not None
        assert root.name == names[computation.root_id]
    return len(names)


def compared(module: Any) -> int:
    """The module's printed text read by us against XLA's own proto; each instruction prints as its line."""
    text = module.to_string()
    ours = parse.module(text)
    lines = {}
    for line in text.splitlines():
        line = re.sub(r"/\*index=\d+\*/", "", line.strip().removeprefix("ROOT "))
        lines[line.partition(" = ")[0]] = re.sub(r", backend_config=.*", "", line)
    for name, instruction in ours.instructions.items():
        assert str(instruction) == lines[f"%{name}"]
    return assert_same(ours, module.as_serialized_hlo_module_proto())


# --- Modules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_modules_that_are_made_read_as_xla_reads_them(seed: int) -> None:
    """Thirty modules each, of ten operations: dtypes, layouts, tiles, memories, shardings, groups, calls."""
    for number in range(30):
        module = _hlo.hlo_module_from_text(Maker(100 * seed + number).module())
        assert compared(module) > 10


MATRIX = jax.ShapeDtypeStruct((4, 6), jnp.float32)
INDICES = jax.ShapeDtypeStruct((5,), jnp.int32)


def programs() -> Iterator[tuple[Any, tuple[jax.ShapeDtypeStruct, ...]]]:
    for function in (
        jnp.sin,
        jnp.sort,
        jnp.cumsum,
        jnp.argmax,
        jnp.flip,
        jax.nn.softmax,
        jnp.linalg.norm,
        jnp.var,
        jnp.round,
        jax.nn.gelu,
        jnp.ravel,
        lambda x: x.T @ x,
        lambda x: x[1:, ::2],
        lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), x[0], x),
        lambda x: jnp.where(x > 0, x, 0),
        lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * 2, x),
        lambda x: jax.lax.top_k(x, 2),
        lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        lambda x: x.at[1].add(2.0),
        lambda x: jnp.einsum("ab,cb->ac", x, x),
        jax.grad(lambda x: jnp.sum(jnp.tanh(x))),
        jnp.fft.rfft,
        lambda x: jax.lax.conv_general_dilated(x[None, None], x[None, None], (1, 2), "SAME"),
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 2), (1, 2), "SAME"),
        lambda x: jnp.pad(x, 2),
        lambda x: x.astype(jnp.bfloat16).reshape(3, 8),
        lambda x: jax.lax.bitcast_convert_type(x, jnp.int32),
        lambda x: jnp.concatenate([x, x], 1),
        lambda x: jnp.repeat(x, 2, 0),
        lambda x: (x, (x + 1, x.sum())),
    ):
        yield function, (MATRIX,)
    for function in (
        jnp.cumsum,
        jnp.sort,
        lambda i: jnp.zeros(9)[i],
        lambda i: jnp.bincount(i, length=4),
        lambda i: jax.random.uniform(jax.random.key(0), (i.shape[0],)),
        lambda i: i // 3 % 2,
    ):
        yield function, (INDICES,)


@pytest.mark.long
def test_modules_that_jax_makes_read_as_xla_reads_them() -> None:
    for function, shapes in programs():
        lowered = jax.jit(function).lower(*shapes).compiler_ir("hlo")
        compared(_hlo.HloModule.from_serialized_hlo_module_proto(lowered.as_serialized_hlo_module_proto()))


@pytest.mark.slow
def test_modules_that_are_compiled_read_as_xla_reads_them() -> None:
    for function, shapes in programs():
        (module,) = jax.jit(function).lower(*shapes).compile().runtime_executable().hlo_modules()
        compared(module)


@pytest.mark.parametrize("path", sorted(MODULES.glob("*.hlo.pb")), ids=lambda path: path.name)
def test_saved_modules_read_as_xla_reads_them(path: Path) -> None:
    if not readable(path):
        pytest.skip("compiled by a newer XLA")
    compared(_hlo.HloModule.from_serialized_hlo_module_proto(path.read_bytes()))
