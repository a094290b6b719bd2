"""One trace of a candidate's function: the program, the shapes of its inputs, and its Pallas calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from harness.hardware import Chip
from harness.judge.evaluate.trace import (
    constants,
    contract,
    forbidden_operations,
    grids,
    jaxprs,
    known_tables,
    meshes,
    one_core,
    semantics,
    traffic,
)
from harness.operators import Problem, timing_inputs
from harness.records import PallasCall
from harness.sandbox.messages import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedKernel:
    """One trace for `chip`: program, input shapes, Pallas calls, and each call's steps by the id() of its equation."""

    chip: Chip
    problem: Problem
    closed: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    calls: tuple[PallasCall, ...]
    steps: Mapping[int, int]


def traced_program(function: Callable[..., Any], problem: Problem, chip: Chip) -> TracedKernel:
    """The trace of the function for the problem's inputs. Raises Rejected if the program breaks a rule."""
    statement = problem.statement()
    closed, out = jax.make_jaxpr(function, return_shape=True)(*meshes.shapes(statement.inputs, None))
    closed = constants.own_copy(closed)
    contract.refuse_outputs(out, statement)
    refuse_unfit(closed, chip)
    equations = tuple(jaxprs.pallas_calls(closed.jaxpr))
    within = set(map(id, jaxprs.calls_within_loops(closed.jaxpr)))
    # The contents of each input that the problem states for the first timed call; None for other inputs.
    stated = next(iter(timing_inputs(problem).values()), {})
    grid_of = known_tables.grids(closed, [stated.get(array.name) for array in statement.inputs])
    calls = tuple(
        traffic.pallas_call(each, chip, grid_of[id(each)], is_called_once=id(each) not in within) for each in equations
    )
    shapes = meshes.placed(closed.in_avals, meshes.splits(statement.inputs), chip)
    steps = {id(equation): call.steps for equation, call in zip(equations, calls, strict=True)}
    return TracedKernel(chip=chip, problem=problem, closed=closed, shapes=shapes, calls=calls, steps=steps)


def refuse_unfit(closed: Any, chip: Chip) -> None:
    """Raises Rejected if the program breaks a rule for kernels on this chip."""
    one_core.refuse_sharded(closed.jaxpr, chip)
    one_core.refuse_sparsecore(closed.jaxpr)
    one_core.refuse_over_cores(closed.jaxpr)
    one_core.refuse_dtypes(closed.jaxpr, chip)
    forbidden_operations.refuse_foreign_work(closed.jaxpr)
    if chip.platform == "tpu":
        forbidden_operations.refuse_second_constants(closed.jaxpr)
    semantics.refuse_unclassified(closed.jaxpr, chip)
    forbidden_operations.refuse_changed_tables(closed.jaxpr)
    forbidden_operations.refuse_written_inputs(closed.jaxpr)
    equations = jaxprs.pallas_calls(closed.jaxpr)
    if any(equation.params["interpret"] for equation in equations):
        message = "expected kernels for the device, got pallas_call(interpret=...); leave interpret out"
        raise Rejected("static", "interpret-mode", message)
    for equation in equations:
        if any(
            str(aval.memory_space).lower() in ("any", "hbm") for aval in equation.params["grid_mapping"].scratch_avals
        ):
            message = (
                "expected scratch_shapes in VMEM or SMEM, got an array in HBM, which JAX's TPU interpret mode cannot "
                "run; return the array as another output of pallas_call (memory_space=pl.ANY), and ignore this output"
            )
            raise jaxprs.refusal(equation, "not-interpretable", message)
    if chip.platform == "cuda" and not all(map(grids.is_triton, equations)):
        message = "expected compiler_params=triton.CompilerParams(...) in every pallas_call, got other compiler_params"
        reason = "only kernels for Triton can be checked on a CPU; pass jax.experimental.pallas.triton.CompilerParams"
        raise Rejected("static", "not-triton", f"{message}: {reason}")
