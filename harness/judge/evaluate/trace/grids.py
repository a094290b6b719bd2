"""The `dimension_semantics` of a Pallas call, as Mosaic reads them, and in the form for TPU interpret mode."""

from typing import Any

from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton

from harness.sandbox.messages import Rejected

Equation = Any

# The values of `dimension_semantics` for an axis whose steps may run in any order, or be split between cores.
_PARALLEL = ("parallel", "core_parallel", "subcore_parallel")


def is_triton(equation: Equation) -> bool:
    """True if this Pallas call is in the Triton form, for GPUs."""
    return isinstance(equation.params["compiler_params"], pltriton.CompilerParams)


def semantics(equation: Equation) -> tuple[str, ...]:
    """The declaration of each axis of the grid as Mosaic reads it: `parallel` or `arbitrary`.

    For Mosaic the axes that vmap adds are `parallel` (jax 0.10.2, mosaic/lowering.py, MosaicGridMapping). On a GPU
    every axis is parallel.
    """
    mapping, options = equation.params["grid_mapping"], equation.params["compiler_params"]
    if is_triton(equation):
        return ("parallel",) * len(mapping.grid)
    declared = [str(getattr(kind, "value", kind)) for kind in getattr(options, "dimension_semantics", None) or ()]
    declarations = iter(declared or ["arbitrary"] * len(mapping.grid))
    kinds = (
        "parallel" if axis in mapping.vmapped_dims else next(declarations, "arbitrary")
        for axis in range(len(mapping.grid))
    )
    return tuple("parallel" if kind in _PARALLEL else "arbitrary" for kind in kinds)


def as_interpreted(equation: Equation, interpret: Any) -> dict[str, Any]:
    """The changed params with which TPU interpret mode walks the grid of a Pallas call as the chip's cores would.

    The interpreter splits the steps of the leading parallel axes between the cores, in the order that `grid_order`
    gives. It cannot split steps of a later axis, so such a grid raises Rejected `not-interpretable`. On one core, the
    steps of later axes run in order.
    """
    mapping, options = equation.params["grid_mapping"], equation.params["compiler_params"]
    order = semantics(equation)
    if "parallel" not in order:
        return {}
    leading = order.index("arbitrary") if "arbitrary" in order else len(order)
    split = [axis for axis in range(leading, len(order)) if order[axis] == "parallel" and mapping.grid[axis] != 1]
    if split and interpret.num_cores_or_threads > 1:
        raise Rejected(
            "correctness",
            "not-interpretable",
            f"expected the parallel axes of the grid to come first, got {order} for {mapping.grid}: how two cores "
            f"share the steps can be checked for leading axes only; reorder the grid, or declare axis {split[0]} "
            "arbitrary",
        )
    order = ("parallel",) * leading + ("arbitrary",) * (len(order) - leading)
    if is_triton(equation) or options is None:
        compiler_params = pltpu.CompilerParams(dimension_semantics=order)
    else:
        compiler_params = options.replace(dimension_semantics=order)
    return {"compiler_params": compiler_params}
