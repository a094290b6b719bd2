"""Compares a kernel's programs at two shapes, and finds the first difference that sizes do not explain."""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import product, zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from harness.judge.evaluate.trace import jaxprs

_ADDRESS = re.compile(r"\b0x[0-9a-f]+")
_NUMBER = re.compile(r"\b\d+\b")
# A number may be a size, a size plus one, or a size minus one (the last index), in the same way at both shapes.
_BESIDE = (0, 1, -1)
# The rounding of float literals, which are computed from sizes in double precision and stored as float32.
_FLOAT32_ROUNDING = 2.0**-23
# Operations that compare with a number, or compute a number for a comparison. Sums and products are left out, because
# they mostly compute addresses.
_DECISIONS = (
    "eq ne lt le gt ge rem div shift_left shift_right_logical shift_right_arithmetic and or xor not max min clamp sign "
    "select_n"
)
_DECIDING = frozenset(_DECISIONS.split())
# Parts of a Pallas call that are names, debugging options, or costs for XLA's scheduler.
_NOT_THE_PROGRAM = ("name", "name_and_src_info", "cost_estimate", "metadata", "debug", "debug_info", "backend")


def difference(small: Any, large: Any) -> str | None:
    """The first difference between two closed jaxprs that sizes do not explain, in words; None if there is none.

    Primitives, dtypes, ranks, nesting, effects, data flow and parameters must be equal. Shapes and grids may differ.
    Other numbers may differ if the ratio of an axis's two lengths explains them:

    - Two integers have this ratio, or have it after 1 is added to both, or after 1 is subtracted from both.
    - Two floats have this ratio, its inverse, or the square root of either.

    A kernel must not compare with a number that is equal at both shapes, except -1, 0 and 1, because it may be a number
    that only steps of the larger grid reach.
    """
    return _ProgramComparison(small, large).difference()


class _Different(Exception):
    """A difference between the programs; the text names the two parts and their place."""


class _ProgramComparison:
    """A comparison of two programs; `_place` is the source line of the current operation."""

    def __init__(self, small: Any, large: Any) -> None:
        self._small, self._large = small, large
        self._same: dict[Any, Any] = {}
        self._place = ""
        self._is_in_kernel = False
        self._sizes = frozenset(_sizes(small.jaxpr, large.jaxpr))

    def difference(self) -> str | None:
        """The place and description of the first difference; None if there is none."""
        try:
            self._closed(self._small, self._large)
        except _Different as different:
            return f"{self._place}{different}"
        return None

    def _closed(self, small: Any, large: Any) -> None:
        """Compares two programs with their constants."""
        counts = len(small.consts), len(large.consts)
        self._require(counts[0] == counts[1], "the number of constants", *counts)
        for constant, other in zip(small.consts, large.consts, strict=True):
            self._value("a constant", constant, other)
        self._jaxpr(small.jaxpr, large.jaxpr)

    def _jaxpr(self, small: Any, large: Any) -> None:
        for part, other in zip_longest((*small.constvars, *small.invars), (*large.constvars, *large.invars)):
            self._variable("an input", part, other)
        for part, other in zip_longest(small.eqns, large.eqns):
            self._equation(part, other)
        for part, other in zip_longest(small.outvars, large.outvars):
            self._operand("an output", part, other)

    def _equation(self, small: Any, large: Any) -> None:
        names = [None if equation is None else equation.primitive.name for equation in (small, large)]
        self._place = jaxprs.line_of(large or small)
        self._require(names[0] == names[1], "an operation", *names)
        # Effects name their operands by position; the flow of data is compared below.
        effects = [sorted(type(effect).__name__ for effect in equation.effects) for equation in (small, large)]
        self._require(effects[0] == effects[1], f"the effects of {names[0]}", *effects)
        for var, other in zip_longest(small.invars, large.invars):
            self._operand(f"an operand of {names[0]}", var, other)
            if self._is_in_kernel and names[0] in _DECIDING:
                self._decision(names[0], var, other)
        for name in sorted({*small.params, *large.params} - {*_NOT_THE_PROGRAM}):
            outside = self._is_in_kernel
            self._is_in_kernel |= jaxprs.is_pallas_call(large) and name == "jaxpr"
            self._value(f"{name} of {names[0]}", small.params.get(name), large.params.get(name))
            self._is_in_kernel, self._place = outside, jaxprs.line_of(large)
        for var, other in zip_longest(small.outvars, large.outvars):
            self._variable(f"a result of {names[0]}", var, other)

    def _variable(self, what: str, small: Any, large: Any) -> None:
        """Pairs two variables at their definitions; from then on they count as the same."""
        self._require(small is not None and large is not None, f"{what}, which only one shape has,", small, large)
        self._type(what, small.aval, large.aval)
        self._same[small] = large

    def _operand(self, what: str, small: Any, large: Any) -> None:
        self._require(small is not None and large is not None, f"{what}, which only one shape has,", small, large)
        self._type(what, small.aval, large.aval)
        literals = [isinstance(operand, core.Literal) for operand in (small, large)]
        self._require(literals[0] == literals[1], f"whether {what} is a constant in the trace", *literals)
        if literals[0]:
            self._value(what, small.val, large.val)
        else:
            self._require(self._same.get(small) is large, f"the source of {what}", small, large)

    def _decision(self, name: str, small: Any, large: Any) -> None:
        """Compares an integer, on which a decision of the kernel depends, with the same integer at the other shape."""
        if isinstance(large, core.Literal) and not np.ndim(large.val) and jnp.issubdtype(large.aval.dtype, jnp.integer):
            is_reached = int(large.val) in (-1, 0, 1) or int(large.val) != int(small.val)
            self._require(is_reached, f"the number in {name}, which perhaps only a large grid reaches,", small, large)

    def _type(self, what: str, small: Any, large: Any) -> None:
        """Compares two types, except for the lengths of axes."""
        kinds = [
            (
                type(aval).__name__,
                len(getattr(aval, "shape", ())),
                *(str(getattr(aval, name, "")) for name in ("dtype", "memory_space")),
            )
            for aval in (small, large)
        ]
        self._require(kinds[0] == kinds[1], f"the type of {what}", *kinds)

    def _value(self, what: str, small: Any, large: Any) -> None:
        """Compares the contents of two parameters, literals or constants."""
        if isinstance(small, core.ClosedJaxpr) and isinstance(large, core.ClosedJaxpr):
            self._closed(small, large)
        elif isinstance(small, core.Jaxpr) and isinstance(large, core.Jaxpr):
            self._jaxpr(small, large)
        elif type(small) is not type(large):
            self._require(False, what, small, large)
        elif isinstance(small, jax.core.Tracer):
            # In jax 0.12, run_scoped closes over references of the surrounding program.
            self._operand(what, small.val, large.val)
        elif isinstance(small, (bool, str, type(None))):
            self._require(small == large, what, small, large)
        elif isinstance(small, jax.Array) and jax.dtypes.issubdtype(small.dtype, jax.dtypes.extended):
            self._value(what, *map(jax.random.key_data, (small, large)))
        elif isinstance(small, (int, float, np.number, np.ndarray)) or hasattr(small, "__array__"):
            self._numbers(what, np.asarray(small), np.asarray(large))
        elif isinstance(small, (tuple, list)):
            self._require(len(small) == len(large), f"the length of {what}", len(small), len(large))
            for element, other in zip(small, large, strict=True):
                self._value(what, element, other)
        elif isinstance(small, dict):
            self._require(small.keys() == large.keys(), what, sorted(map(str, small)), sorted(map(str, large)))
            for key in small:
                self._value(f"{what}: {key}", small[key], large[key])
        elif hasattr(small, "__dataclass_fields__"):
            for name in small.__dataclass_fields__:
                if name not in _NOT_THE_PROGRAM:
                    self._value(f"{what}: {name}", getattr(small, name), getattr(large, name))
        elif hasattr(small, "shape") and hasattr(small, "dtype"):
            self._type(what, small, large)
        elif not callable(small):
            self._texts(what, *(_ADDRESS.sub("", str(value)) for value in (small, large)))

    def _texts(self, what: str, small: str, large: str) -> None:
        """Compares two parameters, such as slices within a tree, by their texts and the numbers in these texts."""
        self._require(_NUMBER.sub("N", small) == _NUMBER.sub("N", large), what, small, large)
        for number, other in zip(_NUMBER.findall(small), _NUMBER.findall(large), strict=True):
            self._require(number == other or self._is_size(int(number), int(other)), what, small, large)

    def _numbers(self, what: str, small: Any, large: Any) -> None:
        self._require(small.dtype == large.dtype, f"the type of {what}", small.dtype, large.dtype)
        self._require(small.ndim == large.ndim, f"the rank of {what}", small.ndim, large.ndim)
        if small.shape == large.shape and np.array_equal(small, large, equal_nan=small.dtype.kind == "f"):
            return
        # An array of numbers is a table. Only interpretation at the full shape shows whether a difference in the table
        # matters.
        self._require(small.ndim == 0 and small.dtype.kind in "iuf", what, small, large)
        is_explained = self._is_size if small.dtype.kind in "iu" else self._is_factor
        self._require(is_explained(small.item(), large.item()), what, small, large)

    def _is_size(self, small: int, large: int) -> bool:
        pairs = product(self._sizes, _BESIDE)
        return any(length and (small - off) * other == (large - off) * length for (length, other), off in pairs)

    def _is_factor(self, small: float, large: float) -> bool:
        ratios = {Fraction(other, length) for length, other in self._sizes if length and other}
        powers = {power for ratio in ratios for power in (float(ratio), 1 / float(ratio))}
        factors = powers | {power**0.5 for power in powers}
        return any(abs(large - small * each) <= 4 * _FLOAT32_ROUNDING * abs(large) for each in factors)

    def _require(self, is_same: bool, what: str, small: object, large: object) -> None:
        if not is_same:
            shown = [" ".join(str(value).split())[:80] for value in (small, large)]
            raise _Different(f"{what} is {shown[1]} at the full shape and {shown[0]} at a smaller one")


def _sizes(small: Any, large: Any) -> Iterator[tuple[int, int]]:
    """The two lengths of each axis in both programs: axes of inputs, outputs and grids of Pallas calls."""
    for part, other in zip((*small.invars, *small.outvars), (*large.invars, *large.outvars), strict=False):
        yield from zip(part.aval.shape, other.aval.shape, strict=False)
    for calls in zip(jaxprs.pallas_calls(small), jaxprs.pallas_calls(large), strict=False):
        bounds = zip(*(call.params["grid_mapping"].grid for call in calls), strict=False)
        yield from ((few, many) for few, many in bounds if isinstance(few, int) and isinstance(many, int))
