"""Sums that a kernel keeps in bfloat16, which is what a wrong result within every element's tolerance often is."""

import jax.numpy as jnp

from harness.judge.evaluate.trace.jaxprs import Jaxpr, equations
from harness.judge.evaluate.trace.packages import place_of


def lines(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines of kernels, of their packages too, that add up numbers of bfloat16 as such."""
    found = (
        place_of(equation).removesuffix(": ")
        for equation in equations(jaxpr)
        if equation.primitive.name == "reduce_sum" and equation.invars[0].aval.dtype == jnp.bfloat16
    )
    return tuple(dict.fromkeys(filter(None, found)))
