"""Rewrites kernels whose inputs are aliased to outputs: `interpret=True` makes two arrays where a chip has one."""

from collections.abc import Mapping
from math import prod
from typing import Any

from jax.extend import core

from harness.judge.evaluate.interpret.rewriting import moved
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inner, is_in_hbm, with_inner


def with_one_memory(equation: Equation, vmem_bytes: int) -> Jaxpr:
    """The kernel of a Pallas call. An input in HBM that is aliased to an output is replaced by this output.

    On a chip, input and output are one array, so a write to one can be read from the other. The interpreter's array for
    the output begins with the input's contents. XLA may keep an array of at most `vmem_bytes` in VMEM. Then an input
    window and an output window with equal blocks and index maps are the same memory, so this input is replaced too.
    """
    body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    first, inputs = mapping.num_index_operands, mapping.num_inputs
    outputs: dict[Any, Any] = {}
    for source, target in equation.params["input_output_aliases"]:
        blocks = (mapping.block_mappings[source - first], mapping.block_mappings[inputs + target])
        if all(map(is_in_hbm, blocks)) or _are_one_window(*blocks, vmem_bytes):
            outputs[body.invars[source]] = body.invars[first + inputs + target]
    return _renamed(body, outputs) if outputs else body


def _are_one_window(block: Any, other: Any, vmem_bytes: int) -> bool:
    """True if both windows have the same place in an array of at most `vmem_bytes` in every step."""
    aval = block.array_aval
    return (
        not (is_in_hbm(block) or is_in_hbm(other))
        and prod(aval.shape) * aval.dtype.itemsize <= vmem_bytes
        and block.block_shape == other.block_shape
        and str(block.index_map_jaxpr) == str(other.index_map_jaxpr)
    )


def _renamed(jaxpr: Jaxpr, outputs: Mapping[Any, Any]) -> Jaxpr:
    """The program with each aliased input replaced by its output. A loop or branch with both as operands keeps both."""
    equations = []
    for equation in jaxpr.eqns:
        effects = moved(equation.effects, outputs)
        variables = {operand for operand in equation.invars if isinstance(operand, core.Var)}
        both = {source: target for source, target in outputs.items() if {source, target} <= variables}
        if both and inner(equation):
            equation = with_inner(equation, lambda part, each=equation, names=both: _within(each, part, names))  # type: ignore[misc]
        else:
            both = {}
        operands = [
            operand if isinstance(operand, core.Literal) or operand in both else outputs.get(operand, operand)
            for operand in equation.invars
        ]
        equations.append(equation.replace(invars=operands, effects=effects))
    return jaxpr.replace(eqns=equations, effects=moved(jaxpr.effects, outputs))


def _within(equation: Equation, part: Jaxpr, outputs: Mapping[Any, Any]) -> Jaxpr:
    """The inner program `part` of `equation` after `_renamed`. `part` has its own variables for `outputs`."""
    if equation.primitive.name == "while" and part is equation.params["cond_jaxpr"].jaxpr:
        return part  # a loop's condition never reads aliased inputs or outputs
    # The inner program takes the equation's last operands; predicates and other programs' operands come before them.
    parameters = part.constvars or part.invars
    operands = zip(equation.invars[-len(parameters) :], parameters, strict=True)
    names = {operand: name for operand, name in operands if isinstance(operand, core.Var)}
    return _renamed(part, {names[source]: names[target] for source, target in outputs.items()})
