"""Refuses operations that no check covers; each operation of a program is looked up in the table."""

import math
import sys
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core

from harness.hardware import Chip
from harness.judge.evaluate.trace import jaxprs
from harness.judge.evaluate.trace.grids import is_triton
from harness.judge.evaluate.trace.packages import place_of
from harness.judge.evaluate.trace.semantics_outside import OUTSIDE
from harness.judge.evaluate.trace.semantics_table import CHECKS, FLAGS, OF_A_BARRIER, OPTIONS, SECTIONS, SemanticsEntry
from harness.sandbox.messages import Rejected

PAGE = "docs/SEMANTICS.md"
ENTRIES: dict[str, SemanticsEntry] = {
    name: entry for _, entries in SECTIONS for entry in entries for name in entry.primitives
}
# The entries of operations outside kernels.
OUTSIDE_ENTRIES: dict[str, SemanticsEntry] = {name: entry for entry in OUTSIDE for name in entry.primitives}
_ONE_DEVICE = (
    "over several devices: this contest judges one device; write the kernel for one device, or make a contest over a "
    "mesh"
)


def refuse_unclassified(jaxpr: jaxprs.Jaxpr, chip: Chip) -> None:
    """Raises Rejected if a program uses an operation that no check covers, outside its kernels or in a TPU's kernel.

    Kinds: `unknown-primitive` (not in the table), `refused-primitive` (refused by the table, always or for this use),
    `refused-option` (of the compiler).
    """
    for equation in jaxprs.every_equation(jaxpr):
        _refuse_context(equation)
    for equation in jaxprs.equations(jaxpr, into_pallas=False):
        name = equation.primitive.name
        if _promises(equation):
            promises = f"{name} with indices_are_sorted or unique_indices"
            reason = "XLA relies on these promises on a chip but not on a CPU; leave them out"
            raise _refused(equation, f"{promises}: {reason}")
        _refuse_listed(equation, OUTSIDE_ENTRIES)
        if name == "call_hi_primitive" and not _is_of_jax(type(equation.params["_prim"])):
            raise _refused(equation, "call_hi_primitive of a class that is not JAX's: write it with operations of JAX")
    for call in jaxprs.pallas_calls(jaxpr):
        if is_triton(call):
            continue
        _refuse_options(call, chip)
        maps = (mapping.index_map_jaxpr.jaxpr for mapping in call.params["grid_mapping"].block_mappings)
        for body in (call.params["jaxpr"], *maps):
            for equation in jaxprs.equations(body):
                _refuse(equation, chip)


def _refuse_context(equation: jaxprs.Equation) -> None:
    """Raises Rejected if an operation writes to host memory, or has options for XLA that a run on a CPU cannot check.

    Kinds: `refused-option`, `refused-primitive`.
    """
    if any(getattr(var.aval, "memory_space", None) == jax.memory.Space.Host for var in equation.outvars):
        reason = "a CPU has no separate host memory, so this cannot be checked; leave it out"
        raise _refused(equation, f"{equation.primitive.name} to host memory: {reason}")
    for value, name in ((equation.ctx.compute_type, "compute_on"), (equation.ctx.xla_metadata, "set_xla_metadata")):
        if value:
            message = (
                f"{equation.primitive.name} within {name} of {value}: a CPU cannot check the choice of a processor or "
                "hints for XLA; leave them out"
            )
            raise jaxprs.refusal(equation, "refused-option", message)


def _is_of_jax(owner: type) -> bool:
    """True if a module of JAX defines the class `owner`; a module's name alone proves nothing."""
    module = sys.modules.get(owner.__module__)
    return owner.__module__.startswith("jax.") and getattr(module, owner.__name__, None) is owner


def _refuse_listed(equation: jaxprs.Equation, entries: dict[str, SemanticsEntry]) -> SemanticsEntry:
    """The entry of the operation. Raises Rejected if there is no entry, or if the entry refuses it."""
    name = equation.primitive.name
    entry = entries.get(name)
    if entry is None:
        message = f"expected operations listed in {PAGE}, got {name}: the judge does not know its result on the chip"
        raise Rejected("static", "unknown-primitive", f"{place_of(equation)}{message}; use listed operations")
    if entry.kind == "refused":
        raise _refused(equation, f"{name}: {entry.guard}")
    return entry


def _refuse(equation: jaxprs.Equation, chip: Chip) -> None:
    entry, name = _refuse_listed(equation, ENTRIES), equation.primitive.name
    if entry.narrow_is_refused and any(_is_narrow(var) for var in (*equation.invars, *equation.outvars)):
        raise _refused(equation, f"{name} of a float narrower than float32: {entry.guard}")
    if entry.option_is_refused:
        reason = _OPTIONS[name](equation, chip)
        if reason:
            raise _refused(equation, f"{name} {reason}")


def _promises(equation: jaxprs.Equation) -> bool:
    """True if a gather or scatter at several indices makes promises about these indices."""
    if not equation.primitive.name.startswith(("gather", "scatter")):
        return False
    places = math.prod(equation.invars[1].aval.shape[:-1])
    return places > 1 and bool(equation.params["indices_are_sorted"] or equation.params["unique_indices"])


def _refused(equation: jaxprs.Equation, why: str) -> Rejected:
    return Rejected("static", "refused-primitive", f"{place_of(equation)}{why} ({PAGE})")


def _is_narrow(var: Any) -> bool:
    dtype = getattr(var.aval, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.floating) and jnp.dtype(dtype).itemsize < 4


def _of_dot(equation: jaxprs.Equation, _: Chip) -> str:
    """The reason to refuse a product of two types, one of them integers of more than 8 bits; "" for other products."""
    dtypes = [var.aval.dtype for var in equation.invars]
    is_wide = any(jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).bits > 8 for dtype in dtypes)
    is_mixed = is_wide and len(set(dtypes)) > 1
    return f"of {dtypes[0]} and {dtypes[1]}: convert the integers first" if is_mixed else ""


def _of_pow(equation: jaxprs.Equation, _: Chip) -> str:
    base, exponent = equation.invars
    if not any(map(_is_narrow, (base, exponent))):
        return ""
    is_two = isinstance(base, core.Literal) and base.val == 2.0
    return "" if is_two and _is_narrow(exponent) else "of a narrow float: convert to float32 first, or use 2^x"


def _of_copy(equation: jaxprs.Equation, chip: Chip) -> str:
    if equation.params.get("add"):
        return "that adds to its destination: this is not modelled; copy into scratch memory, and add from there"
    *_, device = jaxprs.operands_of(equation)
    return "" if device is None or chip.mesh else _ONE_DEVICE


def _of_signal(equation: jaxprs.Equation, chip: Chip) -> str:
    if equation.primitive.name == "semaphore_wait":
        return ""
    *_, device, core_index = jaxprs.operands_of(equation)
    if core_index is not None:
        return "to another core: only one core is judged; signal a semaphore of this core"
    return "" if device is None or chip.mesh else _ONE_DEVICE


def _of_device(_: jaxprs.Equation, chip: Chip) -> str:
    return "" if chip.mesh else _ONE_DEVICE


def _of_sum(equation: jaxprs.Equation, _: Chip) -> str:
    (operand,) = equation.invars
    if not _is_narrow(operand) or operand.aval.dtype == jnp.bfloat16:
        return ""
    return f"of {operand.aval.dtype}: convert to float32 first, or use jnp.sum with dtype=jnp.float32"


def _of_gather(equation: jaxprs.Equation, _: Chip) -> str:
    """The reason to refuse a gather: Mosaic does not lower it, or its result cannot hold a mark; "" if allowed."""
    params, operand = equation.params, equation.invars[0].aval
    numbers = params["dimension_numbers"]
    rank, axes = len(operand.shape), numbers.collapsed_slice_dims
    is_along_an_axis = (
        tuple(params["slice_sizes"]) == (1,) * rank
        and not numbers.offset_dims
        and len(axes) == 1
        and axes == numbers.start_index_map
        and axes[0] >= rank - 2
        and numbers.operand_batching_dims == numbers.start_indices_batching_dims
        and len(numbers.operand_batching_dims) == rank - 1
        and params["mode"] in (lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.PROMISE_IN_BOUNDS)
    )
    if not is_along_an_axis:
        remedy = "use jnp.take_along_axis along one of the last two axes, with mode='fill' or 'promise_in_bounds'"
        return f"that Mosaic does not lower: {remedy}"
    if params["indices_are_sorted"] or params["unique_indices"]:
        return "with indices_are_sorted or unique_indices: leave these promises out"
    if operand.dtype not in (jnp.float32, jnp.int32, jnp.uint32):
        return f"of {operand.dtype}: convert to 32 bits first"
    return ""


def _of_check(equation: jaxprs.Equation, _: Chip) -> str:
    return "" if equation.params["debug"] else "without debug: use pl.debug_check"


_OPTIONS = {
    "check": _of_check,
    "gather": _of_gather,
    "reduce_sum": _of_sum,
    "dot_general": _of_dot,
    "pow": _of_pow,
    "dma_start": _of_copy,
    "dma_wait": _of_copy,
    "semaphore_signal": _of_signal,
    "semaphore_wait": _of_signal,
    "get_barrier_semaphore": _of_device,
    "axis_index": _of_device,
}


def checks_left_out(call: jaxprs.Equation) -> tuple[str, ...]:
    """The names of a kernel's options that make the compiler leave out run-time checks."""
    options = call.params["compiler_params"]
    return tuple(name for name in CHECKS if isinstance(options, pltpu.CompilerParams) and getattr(options, name))


def _refuse_options(call: jaxprs.Equation, chip: Chip) -> None:
    """Raises Rejected `refused-option` for a compiler option that is not listed, `refused-primitive` for a mesh."""
    options, usual = call.params["compiler_params"], pltpu.CompilerParams()
    if call.params.get("mesh") is not None:
        raise _refused(call, "pallas_call with a mesh: only programs for one core or device are judged; leave mesh out")
    if options is None:
        return
    if not isinstance(options, pltpu.CompilerParams):
        unlisted = [type(options).__name__]
    else:
        allowed = {*OPTIONS, "collective_id"} - OF_A_BARRIER if chip.mesh else OPTIONS
        flags = {name: value for name, value in (options.flags or {}).items() if name not in FLAGS}
        values = {name: getattr(options, name) for name in vars(usual) if name not in allowed}
        values["flags"] = flags or None
        unlisted = [f"{name}={value!r}" for name, value in values.items() if value != getattr(usual, name)]
    if unlisted:
        message = f"expected only compiler options that {PAGE} lists, got {', '.join(unlisted)}; leave them out"
        raise Rejected("static", "refused-option", f"{place_of(call)}{message}")
