"""The work of `predict`: the time of a matmul or collective, a training run's memory, global shapes."""

import math
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace

from harness.chips.row import Figures
from harness.errors import UsageError
from harness.hardware import DEFAULT_CHIP
from harness.hlo import sharding
from harness.records import Table
from harness.shell.arguments import mesh_sizes
from harness.shell.tables import outcome_of
from harness.shell.verb import Outcome
from harness.workbench.hlo import forecast, interconnect, prediction, training_memory
from harness.workbench.hlo.prediction import Spec, figures_of
from harness.workbench.hlo.training_memory import Transformer

_QUANTITY = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*([kKMGTP]?i?)\s*(B|B/s|FLOPs?|FLOPs?/s|FLOPS)?")
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 1 << 10, "ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}


def run(arguments: Namespace) -> Outcome:
    tables, options = _KINDS[arguments.what]
    for name in sorted(_OPTIONS - options):
        if getattr(arguments, name) is not None:
            allowed = ", ".join(f"--{option}" for option in sorted(options)).replace("_", "-")
            raise UsageError("usage", f"predict {arguments.what} takes {allowed}; got --{name.replace('_', '-')}")
    return outcome_of(f"predict {arguments.what}", tables(arguments))


def _matmul(arguments: Namespace) -> tuple[Table, ...]:
    if len(arguments.arrays) != 2:
        raise UsageError(
            "usage",
            "expected two arrays such as X[32,1024,8192] W[8192,32768], got "
            f"{len(arguments.arrays)}: {arguments.arrays}",
        )
    dtype = arguments.dtype or "bf16"
    left, right = (prediction.spec(word, dtype) for word in arguments.arrays)
    mesh = mesh_sizes(arguments.mesh)
    devices = _devices(arguments.devices, mesh)
    target = _target(arguments)
    product = prediction.matmul(left, right, arguments.einsum, mesh, devices)
    return forecast.matmul_tables(product, target, devices, mesh)


def _collective(arguments: Namespace) -> tuple[Table, ...]:
    if len(arguments.arrays) != 1:
        raise UsageError(
            "usage", f"expected one of {', '.join(interconnect.COLLECTIVES)}, got {arguments.arrays or 'nothing'}"
        )
    kind = interconnect.collective(arguments.arrays[0])
    if (arguments.bytes is None) == (arguments.shape is None):
        raise UsageError("usage", "expected --bytes 128MiB or --shape bf16[8,1024,8192], one of the two")
    remark = ""
    if arguments.shape is not None:
        array = prediction.spec(arguments.shape, arguments.dtype or "bf16")
        mesh = mesh_sizes(arguments.mesh)
        _axes_known([array], mesh)
        part = replace(array, dimensions=array.local(mesh), axes=tuple(() for _ in array.axes))
        size: float = prediction.spec_bytes(part)
        if part.dimensions != array.dimensions:
            remark = f"The array of each group is {part}: {array}, split over the mesh {arguments.mesh}."
    else:
        size = quantity(arguments.bytes, "--bytes")
    axes = _axis(arguments)
    # `--bandwidth` of a collective is that of the links, not of HBM.
    target = _target(Namespace(chip=arguments.chip, peak=None, bandwidth=None))
    ring = quantity(arguments.bandwidth, "--bandwidth") if arguments.bandwidth is not None else None
    return forecast.collective_tables(kind, size, axes, target, ring, remark)


def _memory(arguments: Namespace) -> tuple[Table, ...]:
    if arguments.arrays:
        raise UsageError("usage", f"predict {arguments.what} takes no arrays, got {' '.join(arguments.arrays)}")
    model = _transformer(arguments)
    if arguments.parameters is None and model is None:
        raise UsageError(
            "usage", "expected --parameters, such as 7e9 or 7G, or a model: --batch, --seq, --layers and --d-model"
        )
    target = figures_of(arguments.chip) if arguments.chip else None
    devices = _devices(arguments.devices, {})
    if arguments.devices is not None and target is None:
        raise UsageError("usage", "expected --chip with --devices: the chip gives the memory of each device")
    parameters = quantity(arguments.parameters, "--parameters") if arguments.parameters is not None else None
    if parameters is None and model is not None:
        parameters = model.parameters
    return training_memory.memory_tables(parameters or 0.0, model, target, devices, is_recomputed=bool(arguments.remat))


def _transformer(arguments: Namespace) -> Transformer | None:
    """The model whose activations are counted; None if no option describes a model."""
    needed = {name: getattr(arguments, name) for name in ("batch", "seq", "layers", "d_model")}
    others = ("d_ff", "heads", "vocab", "remat")
    if all(value is None for value in needed.values()) and all(getattr(arguments, name) is None for name in others):
        return None
    if missing := [f"--{name.replace('_', '-')}" for name, value in needed.items() if value is None]:
        raise UsageError("usage", f"expected {' and '.join(missing)} too: activations are counted for a whole model")
    return Transformer(
        batch=arguments.batch,
        sequence=arguments.seq,
        layers=arguments.layers,
        width=arguments.d_model,
        hidden=arguments.d_ff or 4 * arguments.d_model,
        heads=arguments.heads,
        vocabulary=arguments.vocab,
    )


def _shapes(arguments: Namespace) -> tuple[Table, ...]:
    if not arguments.arrays:
        raise UsageError("usage", "expected per-device shapes of arrays, such as bf16[8,8192] bf16[4096@model,8192]")
    arrays = [prediction.spec(word, arguments.dtype or "bf16") for word in arguments.arrays]
    mesh = mesh_sizes(arguments.mesh)
    remarks = []
    if arguments.groups is not None:
        replica_groups = sharding.groups(arguments.groups)
        unsized = {axis for array in arrays for axes in array.axes for axis in axes} - set(mesh)
        if replica_groups.size is None:
            raise UsageError("usage", f"expected --groups of one size, got {arguments.groups}")
        if len(unsized) != 1:
            raise UsageError(
                "usage",
                "--groups gives the size of one axis: expected the arrays to have one axis that --mesh does not name, "
                f"such as model in bf16[4096@model,8192], got {', '.join(sorted(unsized)) or 'none'}",
            )
        axis = unsized.pop()
        mesh[axis] = replica_groups.size
        stride = f", {replica_groups.stride} apart" if replica_groups.stride else ""
        remarks.append(
            f"The groups have {replica_groups.size} devices each{stride}: {axis} is {replica_groups.size}-way."
        )
        if "..." in arguments.groups:
            remarks.append("`...` is read as a continuation in equal steps.")
    _axes_known(arrays, mesh)
    return forecast.shape_tables(arrays, mesh, remarks)


def _axes_known(arrays: list[Spec], mesh: dict[str, int]) -> None:
    for array in arrays:
        for axis in (axis for axes in array.axes for axis in axes):
            if axis not in mesh:
                raise UsageError("unknown-axis", f"expected the size of the axis {axis} of {array} in --mesh {axis}=N")


def _axis(arguments: Namespace) -> tuple[int, ...]:
    """The lengths of the torus axes over which the collective runs; () if no option gives them."""
    if arguments.axis is not None and arguments.groups is not None:
        raise UsageError("usage", "expected --axis or --groups, got both")
    if arguments.groups is not None:
        size = sharding.groups(arguments.groups).size
        if size is None:
            raise UsageError("usage", f"expected --groups of one size, got {arguments.groups}")
        return (size,)
    if arguments.axis is None:
        return ()
    try:
        sizes = tuple(int(word) for word in arguments.axis.split(","))
    except ValueError as error:
        raise UsageError("usage", f"expected --axis as 4 or 4,2, got {arguments.axis!r}") from error
    if any(size < 2 for size in sizes):
        raise UsageError("usage", f"expected axes of 2 devices or more, got {arguments.axis}")
    return sizes


def _devices(devices: int | None, mesh: dict[str, int]) -> int:
    size = math.prod(mesh.values())
    if devices is not None and mesh and devices != size:
        raise UsageError("usage", f"expected --devices {size} with a mesh of {size}, got {devices}")
    return devices if devices is not None else size


def _target(arguments: Namespace) -> Figures:
    figures = figures_of(arguments.chip or DEFAULT_CHIP)
    if arguments.peak is not None:
        peak = quantity(arguments.peak, "--peak")
        figures = replace(
            figures,
            peak_bf16_flops_per_second=peak,
            peak_int8_ops_per_second=peak,
            peak_fp8_flops_per_second=peak,
            peak_int4_ops_per_second=peak,
            source="as given",
        )
    if arguments.bandwidth is not None:
        figures = replace(figures, hbm_bytes_per_second=quantity(arguments.bandwidth, "--bandwidth"), source="as given")
    return figures


def quantity(text: str, option: str) -> float:
    """The positive number in `128MiB`, `1.2e11 B/s`, `23T` or `7e9`. Raises UsageError `bad-quantity`."""
    match = _QUANTITY.fullmatch(text.strip())
    factor = {**_PREFIXES, **_BINARY}.get(match[2]) if match else None
    value = float(match[1]) * factor if match and factor is not None else 0.0
    if not value or not math.isfinite(value):
        raise UsageError(
            "bad-quantity", f"{option}: expected a number above zero such as 128MiB or 1.2e11, got {text!r}"
        )
    return value


_COMMON = frozenset({"chip"})
_KINDS: dict[str, tuple[Callable[[Namespace], tuple[Table, ...]], frozenset[str]]] = {
    "matmul": (_matmul, _COMMON | {"dtype", "devices", "mesh", "einsum", "peak", "bandwidth"}),
    "collective": (_collective, _COMMON | {"dtype", "bytes", "shape", "mesh", "axis", "groups", "bandwidth"}),
    "memory": (
        _memory,
        _COMMON | {"parameters", "devices", "batch", "seq", "layers", "d_model", "d_ff", "heads", "vocab", "remat"},
    ),
    "shapes": (_shapes, frozenset({"dtype", "mesh", "groups"})),
}
_OPTIONS = frozenset().union(*(options for _, options in _KINDS.values()))
