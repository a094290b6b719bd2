"""Refuses programs with forbidden operations: host calls, work outside kernels, writes to inputs."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import jax.numpy as jnp
from jax._src.state.types import AccumEffect, WriteEffect
from jax.extend import core

from harness.judge.evaluate.trace import jaxprs
from harness.judge.evaluate.trace.grids import is_triton
from harness.sandbox.messages import Rejected

_HOST = ("infeed", "outfeed", "debug_print", "custom_partitioning", "xla_ffi_call", "ffi_call", "tpu_custom_call")
_PLATFORM = ("platform_index", "platform_dependent")
_SUMS = ("add", "sub", "add_any")
# Operations that do no arithmetic on floats; they only move or convert them.
_MOVES = frozenset(
    ("broadcast_in_dim", "convert_element_type", "copy", "dynamic_slice", "expand_dims", "reshape", "slice", "squeeze")
)


def refuse_foreign_work(jaxpr: jaxprs.Jaxpr) -> None:
    """Raises Rejected at the first forbidden operation.

    Kinds: `host-callback` and `platform-dependent` (anywhere in the program), `dot-outside-pallas`,
    `exp-outside-pallas`, `no-pallas-call`.
    """
    for equation in jaxprs.equations(jaxpr):
        name = equation.primitive.name
        if "callback" in name or name in _HOST:
            message = f"expected no call to the host or to foreign code, got {name}; remove it"
            raise jaxprs.refusal(equation, "host-callback", message)
        if name in _PLATFORM:
            message = f"expected the same operations on the CPU and the chip, got {name}; remove the choice of platform"
            raise jaxprs.refusal(equation, "platform-dependent", message)
    for equation in jaxprs.equations(jaxpr, into_pallas=False):
        name = equation.primitive.name
        if name in jaxprs.DOTS and not jaxprs.is_row_by_row(equation):
            message = f"expected matrix products in Pallas calls only, got {name} outside; move it into the kernel"
            raise jaxprs.refusal(equation, "dot-outside-pallas", message)
        if name in jaxprs.EXPS:
            message = f"expected only cheap elementwise work outside Pallas calls, got {name}; move it into the kernel"
            raise jaxprs.refusal(equation, "exp-outside-pallas", message)
    if not jaxprs.pallas_calls(jaxpr):
        message = "expected kernel_fn to do its work in pl.pallas_call, got a program without a Pallas call"
        raise Rejected("static", "no-pallas-call", message)


def refuse_second_constants(jaxpr: jaxprs.Jaxpr) -> None:
    """Raises Rejected `platform-dependent` if two constants are added to a float outside kernels, one after the other.

    On a chip, XLA adds both constants first. So (x + c) - c is x on a chip, and x rounded to the digits of c on a CPU.
    """
    equation = next(_second_constants(jaxpr, set(), set()), None)
    if equation is not None:
        message = (
            "expected at most one constant to be added to a number outside Pallas calls, got a second one: XLA adds "
            "the two constants first, so that the number is not rounded between the two sums; add in the kernel, or "
            "add one constant"
        )
        raise jaxprs.refusal(equation, "platform-dependent", message)


def _second_constants(jaxpr: jaxprs.Jaxpr, constants: set[Any], sums: set[Any]) -> Iterator[jaxprs.Equation]:
    """The sums of a constant and a number to which a constant was added already.

    `constants` are the program's variables that hold a constant, and `sums` those that are a sum with a constant; both
    are extended.
    """

    def is_constant(operand: Any) -> bool:
        return isinstance(operand, core.Literal) or operand in constants

    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, equation.invars
        is_float = all(jnp.issubdtype(getattr(out.aval, "dtype", int), jnp.floating) for out in equation.outvars)
        if jaxprs.is_pallas_call(equation):
            continue
        if name in _SUMS and is_float:
            others = [operand for operand in operands if not is_constant(operand)]
            if len(others) == 1:
                if others[0] in sums:
                    yield equation
                sums |= {*equation.outvars}
            elif not others:
                constants |= {*equation.outvars}
        elif name in _MOVES and is_float:
            if is_constant(operands[0]):
                constants |= {*equation.outvars}
            elif operands[0] in sums:
                sums |= {*equation.outvars}
        for part in jaxprs.inner(equation):
            outer = jaxprs.outer_operands(equation, part)
            constants_inside = {inside for inside, operand in outer.items() if is_constant(operand)}
            sums_inside = {inside for inside, operand in outer.items() if not is_constant(operand) and operand in sums}
            yield from _second_constants(part, constants_inside, sums_inside)
            if len(part.outvars) == len(equation.outvars):
                pairs = [*zip(part.outvars, equation.outvars, strict=True)]
                sums |= {out for inside, out in pairs if isinstance(inside, core.Var) and inside in sums_inside}


def written_tables(equation: jaxprs.Equation) -> list[Any]:
    """The integer inputs that this Pallas call's kernel writes to, in order."""
    body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    written = _written(body)
    inputs = body.invars[: mapping.num_index_operands + mapping.num_inputs]
    return [ref for ref in inputs if ref in written and not jnp.issubdtype(ref.aval.dtype, jnp.floating)]


def _written(jaxpr: jaxprs.Jaxpr) -> set[Any]:
    """The references that the program's equations write to.

    Waits are skipped, because JAX gives them the effects of their copy although they write nothing. JAX represents the
    wait for the send of a remote copy as a wait for the reverse copy. The reverse copy would write to memory that the
    remote copy only reads.
    """
    written: set[Any] = set()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dma_wait":
            continue
        touched = {effect.input for effect in equation.effects if isinstance(effect, (WriteEffect, AccumEffect))}
        within: set[Any] = set()
        for part in jaxprs.inner(equation) if touched else ():
            outer = jaxprs.outer_operands(equation, part)
            within |= {outer[ref] for ref in _written(part) if ref in outer}
            if len(part.constvars or part.invars) > len(equation.invars):
                within |= touched
        written |= touched & within if any(jaxprs.inner(equation)) else touched
    return written


def refuse_written_inputs(jaxpr: jaxprs.Jaxpr) -> None:
    """Raises Rejected `input-written` if a kernel writes to an input in HBM that is not aliased to an output.

    On a chip, this input is the caller's array, or an array that the next kernel reads. On a CPU, the program writes to
    a copy, so the checks would not see the change. If XLA keeps a computed array in VMEM, an input window is a part of
    the array itself. So a kernel may write to an input window only if the window's array is a parameter of the program
    and is used only once.
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
            is_shared = jaxprs.is_in_hbm(block) or isinstance(operand, core.Literal) or operand not in parameters
            if is_shared and body.invars[position] in written and position not in aliased:
                does = "a copy" if jaxprs.is_in_hbm(block) else "a write"
                message = (
                    f"expected the kernel not to change its inputs, got {does} to input {position}, "
                    f"{body.invars[position].aval}: it is the caller's array or an earlier kernel's result; write to "
                    "an output"
                )
                raise jaxprs.refusal(equation, "input-written", message)


def _calls_with_parameters(
    jaxpr: jaxprs.Jaxpr, parameters: frozenset[Any]
) -> Iterator[tuple[jaxprs.Equation, frozenset[Any]]]:
    """Each Pallas call, with the `parameters` of the program around it that are used only once."""
    operands = chain(jaxpr.outvars, *(equation.invars for equation in jaxpr.eqns))
    uses = Counter(var for var in operands if isinstance(var, core.Var))
    alone = frozenset(var for var in parameters if uses[var] == 1)
    for equation in jaxpr.eqns:
        if jaxprs.is_pallas_call(equation):
            yield equation, alone
            continue
        for part in jaxprs.inner(equation):
            pairs = zip(part.invars, equation.invars, strict=False)
            passed = (var for var, operand in pairs if isinstance(operand, core.Var) and operand in alone)
            # The body of a loop may use a constant in each iteration.
            is_one_call = len(part.invars) == len(equation.invars) and equation.primitive.name not in ("scan", "while")
            yield from _calls_with_parameters(part, frozenset(passed) if is_one_call else frozenset())


def refuse_changed_tables(jaxpr: jaxprs.Jaxpr) -> None:
    """Raises Rejected `table-changed` if a kernel writes to an integer input that is not a private copy of the kernel.

    The contents of such a table decide which blocks are computed, and the simulator knows only the initial contents.

    An input in scalar memory (`num_scalar_prefetch`) is the kernel's own copy, and the simulator keeps the values that
    each step writes there. A write to such a copy is refused in two cases only: under vmap, because it is unknown which
    steps share a table; and if an index map reads the table, because this may happen before the previous step has
    written it.
    """
    for equation in jaxprs.pallas_calls(jaxpr):
        body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
        for ref in written_tables(equation):
            position = body.invars.index(ref)
            maps = [part.index_map_jaxpr.jaxpr for part in mapping.block_mappings]
            is_copy = position < mapping.num_index_operands
            is_read = is_copy and any(_reads(each, each.invars[len(mapping.grid) + position]) for each in maps)
            if not (is_copy and maps) or is_read or mapping.vmapped_dims:
                message = (
                    f"expected the kernel not to change its integer inputs, got a write to input {position}, "
                    f"{ref.aval}; use scratch memory"
                )
                raise jaxprs.refusal(equation, "table-changed", message)


def _reads(jaxpr: jaxprs.Jaxpr, table: Any) -> bool:
    return any(var is table for equation in jaxpr.eqns for var in equation.invars)
