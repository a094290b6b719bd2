"""Finds the arrays that a program transposes outside of its kernels."""

from harness.judge.evaluate.trace.jaxprs import Jaxpr, equations
from harness.judge.evaluate.trace.packages import place_of


def lines(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines that transpose arrays outside of kernels."""
    places = (
        place_of(equation).removesuffix(": ")
        for equation in equations(jaxpr, into_pallas=False)
        if equation.primitive.name == "transpose"
    )
    return tuple(dict.fromkeys(filter(None, places)))
