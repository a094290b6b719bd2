"""Kernels that write inputs aliased to outputs, of which JAX's interpreter for any platform makes two arrays each."""

from typing import Any

from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr

_IN_HBM = ("any", "hbm")


def with_outputs_written(equation: Equation) -> Jaxpr:
    """The kernel of a Pallas call that writes to its outputs where it is written to write to inputs aliased to them.

    An output that the kernel names nowhere is the input's memory, and what is written to the input is the result. A
    kernel that names both is left as it is.
    """
    body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    first, inputs = mapping.num_index_operands, mapping.num_inputs
    named = {operand for each in body.eqns for operand in each.invars if not isinstance(operand, core.Literal)}
    outputs: dict[Any, Any] = {}
    for source, target in equation.params["input_output_aliases"]:
        blocks = (mapping.block_mappings[source - first], mapping.block_mappings[inputs + target])
        output = body.invars[first + inputs + target]
        are_in_hbm = all(str(block.transformed_block_aval.memory_space).lower() in _IN_HBM for block in blocks)
        if are_in_hbm and output not in named:
            outputs[body.invars[source]] = output
    if not outputs:
        return body

    def renamed(operand: Any) -> Any:
        return operand if isinstance(operand, core.Literal) else outputs.get(operand, operand)

    return body.replace(eqns=[each.replace(invars=list(map(renamed, each.invars))) for each in body.eqns])
