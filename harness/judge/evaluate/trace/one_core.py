"""Refuses programs for devices that are not judged: meshes other than the contest's mesh, and SparseCores."""

import ast
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
from jax import sharding

from harness.hardware import Chip
from harness.judge.evaluate.trace import jaxprs
from harness.judge.evaluate.trace.used_again import refuse_use_again
from harness.sandbox.messages import Rejected

# Operations that split arrays over devices, or move data between devices. They are looked for only outside Pallas
# calls. Inside, most of them have other meanings, and `semantics` decides.
_OVER_DEVICES = (
    "all_gather all_gather_invariant all_gather_reduced all_to_all axis_index custom_partitioning mesh_cast pbroadcast "
    "pcast pgather pmap pmax pmin ppermute psum psum2 psum_invariant psum_scatter ragged_all_to_all reduce_scatter "
    "reshard shard_map sharding_constraint unreduced_psum unreduced_reduce_scatter xla_pmap"
)
_SHARDED = frozenset(_OVER_DEVICES.split())
# The compiler refuses products of numbers with 8 bits or fewer if the matrix unit cannot compute them. It always
# refuses float16 (libtpu 0.0.42.1 and 0.0.50.1).
_NARROW_BITS = 8
# The primitives of kernels over a mesh of cores.
_OVER_CORES = ("core_map", "mpmd_map")
# If a kernel.py fails and names one of these, the message states that the judge has one device, or no SparseCores.
_FOR_SHARDING = (
    "Mesh NamedSharding PartitionSpec PositionalSharding make_mesh pmap set_mesh shard_map use_mesh "
    "with_sharding_constraint"
)
_NAMES_OF_SHARDING = frozenset(_FOR_SHARDING.split())
_NAMES_OF_SPARSECORES = frozenset(
    ("SC_SCALAR_SUBCORE", "SC_VECTOR_SUBCORE", "ScalarSubcoreMesh", "VectorSubcoreMesh", "plsc", "tpu_sc")
)
# A candidate that calls one of these functions could trace to another program on a machine with several devices.
_COUNTS_OF_DEVICES = frozenset(("device_count", "local_device_count", "process_count"))

_ONE_DEVICE = (
    "only one device is judged, and its time says nothing about several; use the function that one device runs (the "
    "body of shard_map) as kernel_fn, and the shapes of one shard as the contest's shapes"
)
_NO_SPARSECORE = (
    "SparseCores are neither interpreted nor simulated; write the kernel for the TensorCore with pl.pallas_call"
)

# Sums over the chips of a mesh. The order in which XLA adds is unknown, and each step rounds to the operand's dtype.
# With 32 bits the rounding is within the tolerance for sums; with fewer bits it is not.
_SUMS = frozenset(("psum", "psum_invariant", "reduce_scatter"))
_SUM_BYTES = 4
# Operations that are allowed in a program over a mesh, because XLA's programs for them are simulated.
_ALLOWED_ON_A_MESH = jaxprs.COLLECTIVES | {"axis_index", "shard_map"}


def refuse_sharded(jaxpr: jaxprs.Jaxpr, chip: Chip) -> None:
    """Raises Rejected `sharded` if a program is for several devices, even if it also runs on one device.

    A program for the contest's mesh is refused for sums over chips in fewer than 32 bits, unknown collectives, another
    mesh, work that some chips may skip, and reused memory or semaphores (`used_again`).
    """
    every = tuple(jaxprs.equations(jaxpr, into_pallas=False))
    if any(equation.primitive.name in _OVER_CORES for equation in every):
        # `refuse_over_cores` refuses kernels over cores with another kind, because their axes are a chip's cores.
        return
    if chip.mesh:
        _refuse_unreached(jaxpr)
        refuse_use_again(jaxpr)
    for equation in every:
        name = equation.primitive.name
        if chip.mesh:
            _refuse_on_a_mesh(equation, chip)
            continue
        if name in _SHARDED:
            raise _sharded(name, jaxprs.line_of(equation))
        placed = next(filter(_is_over_a_mesh, _placements(equation)), None)
        if placed is not None:
            raise _sharded(f"{name} with {type(placed).__name__}", jaxprs.line_of(equation))


def _refuse_unreached(jaxpr: jaxprs.Jaxpr) -> None:
    """Raises Rejected `sharded` for a kernel or collective in a branch or `while`, which some chips may not reach."""
    for branching in jaxprs.equations(jaxpr, into_pallas=False):
        if branching.primitive.name not in ("cond", "while"):
            continue
        for body in jaxprs.inner(branching):
            for equation in jaxprs.equations(body, into_pallas=False):
                name = equation.primitive.name
                if name == "pallas_call" or (name in _ALLOWED_ON_A_MESH and name != "axis_index"):
                    message = (
                        f"expected kernels and collectives that all chips reach, got {name} in "
                        f"{branching.primitive.name}: if one chip does not reach it, the others wait forever; put the "
                        "branch into the kernel"
                    )
                    raise jaxprs.refusal(equation, "sharded", message)


def _refuse_on_a_mesh(equation: jaxprs.Equation, chip: Chip) -> None:
    name = equation.primitive.name
    if name in _SHARDED - _ALLOWED_ON_A_MESH:
        message = f"expected one of the operations {', '.join(sorted(_ALLOWED_ON_A_MESH))}, got {name}"
        remedy = "its results were never compared between CPU and chip; send the data within a kernel"
        raise jaxprs.refusal(equation, "sharded", f"{message}: {remedy}")
    narrow = [var.aval.dtype for var in equation.invars if name in _SUMS and var.aval.dtype.itemsize < _SUM_BYTES]
    if narrow:
        message = (
            f"expected a sum over chips in 32 bits, got {name} of {narrow[0]}: XLA rounds the sum after each step, and "
            "the number of steps is unknown; convert to float32 first, or add up within a kernel"
        )
        raise jaxprs.refusal(equation, "sharded", message)
    mesh = equation.params.get("mesh") if name == "shard_map" else None
    if mesh is not None and tuple(mesh.shape.items()) != chip.mesh:
        sizes = ", ".join(f"{axis}={size}" for axis, size in chip.mesh)
        raise jaxprs.refusal(equation, "sharded", f"expected shard_map over the mesh {sizes}, got {mesh}")


def refuse_sparsecore(jaxpr: jaxprs.Jaxpr) -> None:
    """Raises Rejected `sparsecore` if a kernel is made for a chip's SparseCores."""
    for equation in jaxprs.equations(jaxpr, into_pallas=False):
        params = (equation.params.get(name) for name in ("mesh", "meshes", "compiler_params"))
        if equation.primitive.name in (*_OVER_CORES, "pallas_call") and any(map(_is_of_sparsecores, params)):
            message = f"expected a kernel for the TensorCore, got {equation.primitive.name} for SparseCores"
            raise jaxprs.refusal(equation, "sparsecore", f"{message}: {_NO_SPARSECORE}")


def refuse_over_cores(jaxpr: jaxprs.Jaxpr) -> None:
    """Raises Rejected `refused-primitive` if a kernel is written for a mesh of cores (`pl.kernel`, `pl.core_map`)."""
    for equation in jaxprs.equations(jaxpr, into_pallas=False):
        if equation.primitive.name in _OVER_CORES:
            message = (
                f"expected kernels in pl.pallas_call, got {equation.primitive.name} over a mesh of cores (pl.kernel)"
            )
            remedy = "call pl.pallas_call with the same body and a grid; its parallel axes use both cores of a chip"
            raise jaxprs.refusal(equation, "refused-primitive", f"{message}: {remedy}")


def refuse_counting(sources: Iterable[bytes]) -> None:
    """Raises Rejected `sharded` if a candidate reads the number of devices, which is always one in an evaluation."""
    names = sorted({name for source in sources for name in _named(source)} & _COUNTS_OF_DEVICES)
    if names:
        raise _sharded(f"a function that asks for {', '.join(names)}")


def refuse_dtypes(jaxpr: jaxprs.Jaxpr, chip: Chip) -> None:
    """Raises Rejected `dtype-not-on-chip` if a kernel computes with a type that the chip's compiler refuses."""
    if chip.platform != "tpu":
        return
    for call in jaxprs.pallas_calls(jaxpr):
        for equation in jaxprs.equations(call.params["jaxpr"]):
            name = equation.primitive.name
            dtypes = [getattr(var.aval, "dtype", None) for var in (*equation.invars, *equation.outvars)]
            what = next((str(dtype) for dtype in dtypes if dtype == jnp.float16), "")
            if name in jaxprs.DOTS and not chip.has_narrow_products:
                operands = [var.aval.dtype for var in equation.invars]
                what = next((str(dtype) for dtype in operands if dtype.itemsize * 8 <= _NARROW_BITS), what)
            if what:
                message = f"expected a type that the compiler for {chip.name} accepts, got {name} of {what}"
                remedy = "convert to bfloat16 or float32 first, or judge for another chip"
                raise jaxprs.refusal(equation, "dtype-not-on-chip", f"{message}; {remedy}")


def with_cause(failed: Rejected, sources: Iterable[bytes]) -> Rejected:
    """A Rejected that names the cause, if the sources name devices or cores that the judge lacks; otherwise `failed`.

    Only import errors and trace errors are replaced.
    """
    if failed.failure.kind not in ("import-error", "trace-error"):
        return failed
    named = {name for source in sources for name in _named(source)}
    for names, kind, what in (
        (_NAMES_OF_SPARSECORES, "sparsecore", _NO_SPARSECORE),
        (_NAMES_OF_SHARDING, "sharded", _ONE_DEVICE),
    ):
        if named & names:
            message = f"kernel.py names {', '.join(sorted(named & names))}, and {failed.failure.message}: {what}"
            return Rejected("static", kind, message, failed.failure.detail)
    return failed


def _sharded(what: str, line: str = "") -> Rejected:
    return Rejected("static", "sharded", f"{line}expected a function of one device, got {what}: {_ONE_DEVICE}")


def _placements(equation: jaxprs.Equation) -> Iterable[Any]:
    """The sharding that an equation states for its arrays."""
    for name in ("in_shardings", "out_shardings", "sharding", "shardings", "devices", "srcs"):
        value = equation.params.get(name)
        yield from value if isinstance(value, (tuple, list)) else (value,)


def _is_over_a_mesh(placed: Any) -> bool:
    # In a program without a mesh, JAX infers a NamedSharding over an empty mesh for arrays.
    if not isinstance(placed, sharding.Sharding) or isinstance(placed, sharding.SingleDeviceSharding):
        return False
    mesh = getattr(placed, "mesh", None)
    return mesh is None or bool(mesh.axis_names)


def _is_of_sparsecores(param: Any) -> bool:
    parts = param if isinstance(param, (tuple, list)) else (param,)
    words = " ".join(f"{type(part).__name__} {getattr(part, 'kernel_type', '')}" for part in parts)
    return "SC_" in words or "Subcore" in words or "subcore" in words


def _named(source: bytes) -> Iterable[str]:
    """The names that a file uses, imports, or reads as attributes."""
    for node in ast.walk(ast.parse(source)):
        values = (getattr(node, field, None) for field in ("id", "attr", "name", "asname", "module"))
        yield from (name for value in values if isinstance(value, str) for name in value.split("."))
