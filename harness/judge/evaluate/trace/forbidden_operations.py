"""Refuses programs with operations that no kernel may do: host calls, work outside kernels, writes to inputs."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax._src.state.types import AccumEffect, WriteEffect
from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import (
    DOTS,
    EXPS,
    Equation,
    Jaxpr,
    equations,
    inner,
    is_in_hbm,
    is_pallas_call,
    is_row_by_row,
    is_triton,
    line_of,
    pallas_calls,
)
from harness.sandbox.messages import Rejected

_HOST = ("infeed", "outfeed", "debug_print", "custom_partitioning", "xla_ffi_call", "ffi_call", "tpu_custom_call")
_PLATFORM = ("platform_index", "platform_dependent")


def refuse_foreign_work(jaxpr: Jaxpr) -> None:
    """Raises Rejected at the first forbidden operation.

    Kinds: `host-callback` and `platform-dependent` (anywhere in the program), `dot-outside-pallas`,
    `exp-outside-pallas`, `no-pallas-call`.
    """
    for equation in equations(jaxpr):
        name = equation.primitive.name
        if "callback" in name or name in _HOST:
            raise Rejected(
                "static",
                "host-callback",
                f"{line_of(equation)}{name}: a kernel must not call the host or foreign code; remove it",
            )
        if name in _PLATFORM:
            raise Rejected(
                "static",
                "platform-dependent",
                f"{line_of(equation)}{name}: the program that is checked on the CPU must be the program that runs on "
                "the chip; use the same operations on every platform",
            )
    for equation in equations(jaxpr, into_pallas=False):
        name = equation.primitive.name
        if name in DOTS and not is_row_by_row(equation):
            raise Rejected(
                "static",
                "dot-outside-pallas",
                f"{line_of(equation)}{name} outside any Pallas call: move the matrix work into the kernel",
            )
        if name in EXPS:
            raise Rejected(
                "static",
                "exp-outside-pallas",
                f"{line_of(equation)}{name} outside any Pallas call: only cheap elementwise work may stay outside; "
                "move it into the kernel",
            )
    if not pallas_calls(jaxpr):
        raise Rejected(
            "static",
            "no-pallas-call",
            "expected kernel_fn to do its work in pl.pallas_call, found no Pallas call in its trace",
        )


def written_tables(equation: Equation) -> list[Any]:
    """The integer inputs that this Pallas call's kernel writes to, in order."""
    body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    written = _written(body)
    inputs = body.invars[: mapping.num_index_operands + mapping.num_inputs]
    return [ref for ref in inputs if ref in written and not jnp.issubdtype(ref.aval.dtype, jnp.floating)]


def _written(jaxpr: Jaxpr) -> set[Any]:
    """The references that the program's equations write to. A wait has the effects of its copy, but writes nothing.

    JAX represents the wait for the send of a remote copy as a wait for the reverse copy. The reverse copy would write
    to memory that the remote copy only reads.
    """
    written: set[Any] = set()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dma_wait":
            continue
        touched = {effect.input for effect in equation.effects if isinstance(effect, (WriteEffect, AccumEffect))}
        within: set[Any] = set()
        for part in inner(equation) if touched else ():
            # The inner program takes the equation's last operands; predicates and others' operands come before.
            parameters = part.constvars or part.invars
            operands = dict(zip(parameters, equation.invars[-len(parameters) :], strict=False))
            within |= {operands[ref] for ref in _written(part) if ref in operands}
            if len(parameters) > len(equation.invars):
                within = touched
        written |= touched & within if any(inner(equation)) else touched
    return written


def refuse_written_inputs(jaxpr: Jaxpr) -> None:
    """Raises Rejected `input-written` if a kernel writes to an input in HBM that is not aliased to an output.

    On a chip that input is the caller's own array, or an array that the next kernel reads; the program on a CPU writes
    to a copy. XLA may keep a computed array in VMEM, and then a window is a part of the array itself. So a kernel may
    write to an input window only if the window's array is a parameter of the program with no other use.
    """
    for equation, parameters in _calls_with_parameters(jaxpr, frozenset(jaxpr.invars)):
        if is_triton(equation):
            continue
        body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
        written = _written(body)
        first = mapping.num_index_operands
        aliased = {source for source, _ in equation.params["input_output_aliases"]}
        for position, block in enumerate(mapping.block_mappings[: mapping.num_inputs], first):
            operand = equation.invars[mapping.num_dynamic_grid_bounds + position]
            is_shared = is_in_hbm(block) or isinstance(operand, core.Literal) or operand not in parameters
            if is_shared and body.invars[position] in written and position not in aliased:
                does = "copies" if is_in_hbm(block) else "writes"
                raise Rejected(
                    "static",
                    "input-written",
                    f"{line_of(equation)}expected the kernel not to change its inputs, but it {does} to input "
                    f"{position}, {body.invars[position].aval}, which is an array of the caller or the result of an "
                    "earlier kernel; write to an output",
                )


def _calls_with_parameters(jaxpr: Jaxpr, parameters: frozenset[Any]) -> Iterator[tuple[Equation, frozenset[Any]]]:
    """Each Pallas call, with the `parameters` of the program around it that are used only once."""
    uses = Counter(
        var
        for variables in (*(equation.invars for equation in jaxpr.eqns), jaxpr.outvars)
        for var in variables
        if isinstance(var, core.Var)
    )
    alone = frozenset(var for var in parameters if uses[var] == 1)
    for equation in jaxpr.eqns:
        if is_pallas_call(equation):
            yield equation, alone
            continue
        for part in inner(equation):
            handed = (
                var
                for var, operand in zip(part.invars, equation.invars, strict=False)
                if not isinstance(operand, core.Literal) and operand in alone
            )
            # The body of a loop may use a constant in each iteration.
            is_one_call = len(part.invars) == len(equation.invars) and equation.primitive.name not in ("scan", "while")
            yield from _calls_with_parameters(part, frozenset(handed) if is_one_call else frozenset())


def refuse_changed_tables(jaxpr: Jaxpr) -> None:
    """Raises Rejected `table-changed` if a kernel writes to an integer input that is not the kernel's own copy.

    The contents of such a table decide which blocks are computed, and the simulator knows only its initial contents. An
    input in scalar memory (`num_scalar_prefetch`) is the kernel's own copy: the simulator keeps the values that each
    step writes there. It is still refused under vmap, because the steps that share a table are then unknown, and if an
    index map reads it, because an index map may be evaluated before the previous step has written.
    """
    for equation in pallas_calls(jaxpr):
        body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
        for ref in written_tables(equation):
            position = body.invars.index(ref)
            asked = [
                part.index_map_jaxpr.jaxpr.invars[len(mapping.grid) + position] in _read(part.index_map_jaxpr.jaxpr)
                for part in mapping.block_mappings
                if position < mapping.num_index_operands
            ]
            if not asked or any(asked) or mapping.vmapped_dims:
                raise Rejected(
                    "static",
                    "table-changed",
                    f"{line_of(equation)}expected the kernel not to change its integer inputs, but it writes to "
                    f"input {position}, {ref.aval}; use scratch memory",
                )


def _read(jaxpr: Jaxpr) -> set[Any]:
    """The variables that the equations of `jaxpr` take as operands."""
    return {var for equation in jaxpr.eqns for var in equation.invars if isinstance(var, core.Var)}
