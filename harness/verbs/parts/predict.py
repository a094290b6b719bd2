"""What `predict` says: the time of a matmul or a collective, a training run's memory, true shapes from parts."""

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


def predict(given: Namespace) -> Outcome:
    run, options = _KINDS[given.what]
    for name in sorted(_OPTIONS - options):
        if getattr(given, name) is not None:
            known = ", ".join(f"--{option}" for option in sorted(options)).replace("_", "-")
            raise UsageError("usage", f"predict {given.what} takes {known}; got --{name.replace('_', '-')}")
    return outcome_of(f"predict {given.what}", run(given))


def _matmul(given: Namespace) -> tuple[Table, ...]:
    if len(given.arrays) != 2:
        raise UsageError(
            "usage",
            f"expected two arrays such as X[32,1024,8192] W[8192,32768], got {len(given.arrays)}: {given.arrays}",
        )
    dtype = given.dtype or "bf16"
    left, right = (prediction.spec(word, dtype) for word in given.arrays)
    mesh = mesh_sizes(given.mesh)
    devices = _devices(given.devices, mesh)
    target = _target(given)
    found = prediction.matmul(left, right, given.einsum, mesh, devices)
    return forecast.matmul_tables(found, target, devices, mesh)


def _collective(given: Namespace) -> tuple[Table, ...]:
    if len(given.arrays) != 1:
        raise UsageError(
            "usage", f"expected one of {', '.join(interconnect.COLLECTIVES)}, got {given.arrays or 'nothing'}"
        )
    kind = interconnect.collective(given.arrays[0])
    if (given.bytes is None) == (given.shape is None):
        raise UsageError("usage", "expected --bytes 128MiB or --shape bf16[8,1024,8192], one of the two")
    remark = ""
    if given.shape is not None:
        array = prediction.spec(given.shape, given.dtype or "bf16")
        mesh = mesh_sizes(given.mesh)
        _axes_known([array], mesh)
        part = replace(array, dimensions=array.local(mesh), axes=tuple(() for _ in array.axes))
        size: float = prediction.spec_bytes(part)
        if part.dimensions != array.dimensions:
            remark = f"Of {array} with {given.mesh} each group sends {part}."
    else:
        size = quantity(given.bytes, "--bytes")
    axes = _axis(given)
    target = _target(_chip_alone(given))
    ring = quantity(given.bandwidth, "--bandwidth") if given.bandwidth is not None else None
    return forecast.collective_tables(kind, size, axes, target, ring, remark)


def _chip_alone(given: Namespace) -> Namespace:
    """The same without figures of the chip's own: a collective's --bandwidth is its links'."""
    return Namespace(chip=given.chip, peak=None, bandwidth=None)


def _memory(given: Namespace) -> tuple[Table, ...]:
    _no_words(given)
    model = _transformer(given)
    if given.parameters is None and model is None:
        raise UsageError(
            "usage", "expected --parameters, such as 7e9 or 7G, or a model: --batch, --seq, --layers and --d-model"
        )
    target = figures_of(given.chip) if given.chip else None
    devices = _devices(given.devices, {})
    if given.devices is not None and target is None:
        raise UsageError("usage", "expected --chip with --devices: how much memory has each?")
    parameters = quantity(given.parameters, "--parameters") if given.parameters is not None else None
    if parameters is None and model is not None:
        parameters = model.parameters
    return training_memory.memory_tables(parameters or 0.0, model, target, devices, is_recomputed=bool(given.remat))


def _transformer(given: Namespace) -> Transformer | None:
    """The model whose activations are asked for; None where nothing of one is said."""
    needed = {name: getattr(given, name) for name in ("batch", "seq", "layers", "d_model")}
    others = ("d_ff", "heads", "vocab", "remat")
    if all(value is None for value in needed.values()) and all(getattr(given, name) is None for name in others):
        return None
    if missing := [f"--{name.replace('_', '-')}" for name, value in needed.items() if value is None]:
        raise UsageError("usage", f"expected {' and '.join(missing)} too: activations are those of a whole model")
    return Transformer(
        batch=given.batch,
        sequence=given.seq,
        layers=given.layers,
        width=given.d_model,
        hidden=given.d_ff or 4 * given.d_model,
        heads=given.heads,
        vocabulary=given.vocab,
    )


def _shapes(given: Namespace) -> tuple[Table, ...]:
    if not given.arrays:
        raise UsageError("usage", "expected arrays as one device has them, such as bf16[8,8192] bf16[4096@model,8192]")
    arrays = [prediction.spec(word, given.dtype or "bf16") for word in given.arrays]
    mesh = mesh_sizes(given.mesh)
    remarks = []
    if given.groups is not None:
        found = sharding.groups(given.groups)
        named = {axis for array in arrays for axes in array.axes for axis in axes} - set(mesh)
        if found.size is None:
            raise UsageError("usage", f"expected --groups of one size, got {given.groups}")
        if len(named) != 1:
            raise UsageError(
                "usage",
                f"expected one axis of the arrays that --mesh does not name, for --groups to give its size: "
                f"bf16[4096@model,8192]; got {', '.join(sorted(named)) or 'none'}",
            )
        axis = named.pop()
        mesh[axis] = found.size
        stride = f", {found.stride} apart" if found.stride else ""
        remarks.append(f"The groups have {found.size} devices each{stride}: {axis} is {found.size}-way.")
        if "..." in given.groups:
            remarks.append("`...` is read as going on in the same steps.")
    _axes_known(arrays, mesh)
    return forecast.shape_tables(arrays, mesh, remarks)


def _no_words(given: Namespace) -> None:
    if given.arrays:
        raise UsageError("usage", f"predict {given.what} takes no arrays, got {' '.join(given.arrays)}")


def _axes_known(arrays: list[Spec], mesh: dict[str, int]) -> None:
    for array in arrays:
        for axis in (axis for axes in array.axes for axis in axes):
            if axis not in mesh:
                raise UsageError("unknown-axis", f"expected the size of the axis {axis} of {array} in --mesh {axis}=N")


def _axis(given: Namespace) -> tuple[int, ...]:
    """The lengths of the axes that take part."""
    if given.axis is not None and given.groups is not None:
        raise UsageError("usage", "expected --axis or --groups, not both")
    if given.groups is not None:
        size = sharding.groups(given.groups).size
        if size is None:
            raise UsageError("usage", f"expected --groups of one size, got {given.groups}")
        return (size,)
    if given.axis is None:
        return ()
    try:
        sizes = tuple(int(word) for word in given.axis.split(","))
    except ValueError as error:
        raise UsageError("usage", f"expected --axis as 4 or 4,2, got {given.axis!r}") from error
    if any(size < 2 for size in sizes):
        raise UsageError("usage", f"expected axes of 2 devices or more, got {given.axis}")
    return sizes


def _devices(given: int | None, mesh: dict[str, int]) -> int:
    size = math.prod(mesh.values())
    if given is not None and mesh and given != size:
        raise UsageError("usage", f"expected --devices {size} with a mesh of {size}, got {given}")
    return given if given is not None else size


def _target(given: Namespace) -> Figures:
    found = figures_of(given.chip or DEFAULT_CHIP)
    if given.peak is not None:
        peak = quantity(given.peak, "--peak")
        found = replace(
            found,
            peak_bf16_flops_per_second=peak,
            peak_int8_ops_per_second=peak,
            peak_fp8_flops_per_second=peak,
            peak_int4_ops_per_second=peak,
            source="as given",
        )
    if given.bandwidth is not None:
        found = replace(found, hbm_bytes_per_second=quantity(given.bandwidth, "--bandwidth"), source="as given")
    return found


def quantity(text: str, option: str) -> float:
    """`128MiB`, `1.2e11 B/s`, `23T`, `7e9` as a number above zero. Raises UsageError `bad-quantity`."""
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
