"""Reads a traced program: its Pallas calls, and its floating-point work inside and outside of these calls."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from operator import add
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from harness.sandbox.messages import Rejected

Jaxpr = Any
Equation = Any

DOTS = ("dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general", "scaled_matmul_wrapper")
_EXPS = (
    "exp exp2 expm1 log log1p logistic tanh sinh cosh asinh acosh atanh pow erf erfc erf_inv lgamma digamma "
    "cumlogsumexp"
)
EXPS = tuple(_EXPS.split())
# The positions of the indices among the operands of a write; the other operands are reference, value and mask.
_INDICES_OF_A_WRITE = {"swap": slice(2, None), "addupdate": slice(2, None), "masked_swap": slice(1, -2)}
# A power with any base counts as one exponential.
_EXPONENTIALS = ("exp", "exp2", "pow")
# Operations that count as one FLOP for each element of the result.
_ARITHMETIC = (
    "add sub mul div max min neg abs rem sqrt rsqrt cbrt integer_pow square sin cos tan atan2 floor ceil round sign "
    "clamp nextafter add_any"
)
ELEMENTWISE = frozenset((*EXPS, *_ARITHMETIC.split()))
# Operations that count as one FLOP for each element of the operand.
_REDUCING = (
    "reduce_sum reduce_max reduce_min reduce_prod argmax argmin cumsum cummax cummin cumprod cumlogsumexp "
    "reduce_window_sum reduce_window_max reduce_window_min sort"
)
REDUCTIONS = frozenset(_REDUCING.split())
# Operations that count as other elementwise operations do, but only outside of kernels: library functions that kernels
# do not have, and comparisons and operations on bits, from which a sort can be made. On booleans they do not count.
_LIBRARY = frozenset(("acos", "asin", "atan"))
_BITS = "and or xor not shift_left shift_right_logical shift_right_arithmetic population_count clz"
_COMPARING = frozenset(("eq ne lt le gt ge eq_to le_to lt_to " + _BITS).split())
# Operations that count as one FLOP for each element of their operand at this position. Integers count too, because
# (for positive numbers) floats have the same order as integers with the same bits. Scatters count for each element of
# their updates.
_ORDERING_OR_SCATTERING = {
    **dict.fromkeys(("sort", "top_k"), 0),
    **dict.fromkeys(("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"), 2),
}
# Operations that move elements to places that may depend on data. Outside of kernels they count as one FLOP for each
# element that they move: those of their operand at this position; None: those of their result.
_PLACING = {"gather": None, "dynamic_slice": None, "scatter": 2, "dynamic_update_slice": 1}
# Collectives move or add elements, and count as one FLOP for each element of the operand. So if the problem is a
# collective, XLA's collective exceeds the limit on work outside kernels.
_MOVING = "all_gather all_gather_invariant all_to_all pmax pmin ppermute psum psum_invariant reduce_scatter"
COLLECTIVES = frozenset(_MOVING.split())


@dataclass(frozen=True, slots=True)
class Flops:
    """Floating-point operations in Pallas calls (`pallas`) and outside of them.

    `uncounted_loops` is the number of loops with an unknown trip count; their bodies are counted once. `exponentials`
    is a part of `pallas`. `outside_in_loops` is the part of `outside` that is inside uncounted loops.
    """

    pallas: int = 0
    outside: int = 0
    uncounted_loops: int = 0
    exponentials: int = 0
    outside_in_loops: int = 0

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(*map(add, astuple(self), astuple(other)))

    def times(self, factor: int) -> "Flops":
        scaled = Flops(*(count * factor for count in astuple(self)))
        return replace(scaled, uncounted_loops=self.uncounted_loops)


def inner(equation: Equation) -> list[Jaxpr]:
    """The programs that an equation holds: branches, bodies, called functions."""
    return [
        open_program(part)
        for value in equation.params.values()
        for part in (value if isinstance(value, (tuple, list)) else (value,))
        if isinstance(part, (core.ClosedJaxpr, core.Jaxpr))
    ]


def operands_of(equation: Equation) -> Any:
    """The operands of a copy, signal or wait. The last operand of a copy is the device (None: this device)."""
    tree = equation.params.get("tree", equation.params.get("args_tree"))
    return jax.tree.unflatten(tree, equation.invars)


def outer_operands(equation: Equation, part: Jaxpr) -> dict[Any, Any]:
    """For each parameter of a program inside the equation, the corresponding operand of the equation.

    The program takes the last operands; predicates and the operands of other programs come first.
    """
    parameters = part.constvars or part.invars
    return dict(zip(parameters, equation.invars[-len(parameters) :], strict=False))


def is_in_hbm(block: Any) -> bool:
    """True if the kernel gets the whole array of a block mapping (in HBM), not a window."""
    return str(block.transformed_block_aval.memory_space).lower() in ("any", "hbm")


def uses_replaced_values(jaxpr: Jaxpr) -> bool:
    """True if any write in the program also returns the replaced value, and the program uses it."""
    return any(
        equation.primitive.name in ("swap", "masked_swap") and not isinstance(equation.outvars[0], core.DropVar)
        for equation in equations(jaxpr)
    )


def writes_at_computed_places(jaxpr: Jaxpr) -> bool:
    """True if any write in the program has an index that is not a constant."""
    return any(
        not isinstance(operand, core.Literal)
        for equation in equations(jaxpr)
        for operand in equation.invars[_INDICES_OF_A_WRITE.get(equation.primitive.name, slice(0))]
    )


def open_program(program: Any) -> Jaxpr:
    """The jaxpr of a program, which may be a ClosedJaxpr or already a jaxpr."""
    return program.jaxpr if isinstance(program, core.ClosedJaxpr) else program


def with_change(program: Any, change: Callable[[Jaxpr], Jaxpr]) -> Any:
    """The program after `change`. A ClosedJaxpr keeps its constants."""
    changed = change(open_program(program))
    return program.replace(jaxpr=changed) if isinstance(program, core.ClosedJaxpr) else changed


def without_names(jaxpr: Jaxpr) -> Any:
    """Debug information without names: JAX requires a name for each parameter, and the parameters have changed."""
    return jaxpr.debug_info._replace(arg_names=None, result_paths=None)


def equations(jaxpr: Jaxpr, *, into_pallas: bool = True) -> Iterator[Equation]:
    """Every equation, including those of programs inside equations, in order; kernels only if `into_pallas`."""
    for equation in jaxpr.eqns:
        yield equation
        if into_pallas or not is_pallas_call(equation):
            for part in inner(equation):
                yield from equations(part, into_pallas=into_pallas)


def every_program(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The program, and every program inside its equations, including the index maps of kernels."""
    yield jaxpr
    for equation in jaxpr.eqns:
        parts = inner(equation)
        if is_pallas_call(equation):
            parts += [block.index_map_jaxpr.jaxpr for block in equation.params["grid_mapping"].block_mappings]
        for part in parts:
            yield from every_program(part)


def every_equation(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Every equation, including those of programs inside equations and of kernels' index maps."""
    for program in every_program(jaxpr):
        yield from program.eqns


def scan_constants(scan: Equation) -> int:
    """The number of a scan's constants: its first operands, which are the same in each iteration."""
    if "ft_in" in scan.params:
        # jax 0.12 has trees in place of the numbers of constants, carried values and rows.
        return len(tuple(scan.params["ft_in"].unpack()[0]))
    return int(scan.params["num_consts"])


def is_pallas_call(equation: Equation) -> bool:
    """True if this equation calls a Pallas kernel."""
    return bool(equation.primitive.name == "pallas_call")


def calls_within_loops(jaxpr: Jaxpr) -> list[Equation]:
    """The Pallas calls in loops or branches. One run of the program may make them several times or not at all."""
    calls = []
    for equation in jaxpr.eqns:
        if not is_pallas_call(equation):
            is_loop = equation.primitive.name in ("scan", "while", "cond")
            for part in inner(equation):
                calls += pallas_calls(part) if is_loop else calls_within_loops(part)
    return calls


def pallas_calls(jaxpr: Jaxpr) -> list[Equation]:
    """The Pallas calls of the program, in order."""
    return [equation for equation in equations(jaxpr, into_pallas=False) if is_pallas_call(equation)]


def with_inner(equation: Equation, change: Callable[[Jaxpr], Jaxpr]) -> Equation:
    """The equation with `change` applied to the programs that it holds."""

    def changed(value: Any) -> Any:
        if isinstance(value, (core.ClosedJaxpr, core.Jaxpr)):
            return with_change(value, change)
        if type(value) in (tuple, list):
            return type(value)(changed(part) for part in value)
        return value

    return equation.replace(params={name: changed(value) for name, value in equation.params.items()})


def inlined(model: Callable[..., Any], operands: list[Any], results: list[Any], source_info: Any) -> list[Equation]:
    """The equations of `model`, a function of arrays, that compute the variables `results` from `operands`."""
    shapes = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in operands]
    closed = jax.make_jaxpr(model)(*shapes)
    assert not closed.consts, "a model has constants of its own: write them as Python numbers"
    body = closed.jaxpr
    new: dict[Any, Any] = dict(zip(body.invars, operands, strict=True))
    is_computed = not any(isinstance(var, core.Literal) or var in new for var in body.outvars)
    assert is_computed, "a model must compute each result: it returns an operand or a literal"
    new.update(zip(body.outvars, results, strict=True))

    def renamed(var: Any) -> Any:
        return var if isinstance(var, (core.Literal, core.DropVar)) else new.setdefault(var, core.Var(var.aval))

    return [
        equation.replace(
            invars=[renamed(var) for var in equation.invars],
            outvars=[renamed(var) for var in equation.outvars],
            source_info=source_info,
        )
        for equation in body.eqns
    ]


def line_of(equation: Equation) -> str:
    """The source line of the equation in the candidate's files, as `kernel.py line 12: `; "" if it is not known."""
    return next((f"{file} line {line}: " for file, line in frames(equation) if is_own(file)), "")


def frames(equation: Equation) -> Iterator[tuple[str, int]]:
    """The file and the line of each frame of the equation's traceback, innermost first; none if it has no traceback."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        yield frame.file_name, int(frame.start_line if hasattr(frame, "start_line") else frame.line_num)


def is_own(file: str) -> bool:
    """True if the file belongs to the candidate, whose code has file names without a folder."""
    return file.endswith(".py") and "/" not in file


def distinct(places: Iterable[str]) -> tuple[str, ...]:
    """The known source lines at these `places`, each once. The places end with a colon (see `line_of`)."""
    return tuple(dict.fromkeys(filter(None, (place.removesuffix(": ") for place in places))))


def refusal(equation: Equation, kind: str, message: str) -> Rejected:
    """The refusal of an operation in stage `static`; its source line precedes the message."""
    return Rejected("static", kind, f"{line_of(equation)}{message}")


def one_pass_lines(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines with products of float32 below precision HIGH, whose operands a TPU rounds to bfloat16."""
    return distinct(
        line_of(equation)
        for equation in equations(jaxpr)
        if equation.primitive.name == "dot_general"
        and any(var.aval.dtype == jnp.float32 for var in equation.invars)
        and not {lax.Precision.HIGH, lax.Precision.HIGHEST} & {*_precisions(equation)}
        and not is_row_by_row(equation)
    )


def _precisions(equation: Equation) -> tuple[Any, ...]:
    precision = equation.params["precision"]
    return precision if isinstance(precision, tuple) else (precision,)


def is_row_by_row(equation: Equation) -> bool:
    """True for a float32 product whose operands have only batch and contracting axes, such as each query's sum(o * do).

    XLA then multiplies element by element and adds, all in float32, at every precision. libtpu 0.0.42.1 and 0.0.50.1 do
    not use the matrix unit for this.
    """
    if equation.primitive.name != "dot_general" or any(var.aval.dtype != jnp.float32 for var in equation.invars):
        return False
    summed, batched = equation.params["dimension_numbers"]
    is_plain = all(precision is None or isinstance(precision, lax.Precision) for precision in _precisions(equation))
    rows = zip(equation.invars, summed, batched, strict=True)
    return is_plain and all(len(var.aval.shape) == len(some) + len(others) for var, some, others in rows)


def flops(jaxpr: Jaxpr, steps: Mapping[int, int], where: Literal["pallas", "outside"] = "outside") -> Flops:
    """The floating-point work of one run: 2mnk for a dot, 1 for each element of an elementwise op or a reduction.

    - Sorting, and scattering with an addition, product, minimum or maximum, also count 1 for each element, of any
      dtype. Outside kernels, integers count as floats do, because the problem may have no floats; and comparisons,
      operations on bits and moves to places that may depend on data count 1 for each element.
    - A Pallas body counts once for each grid step (`steps` has the number of steps by the equation's id()). If a kernel
      skips blocks, the result is an upper bound.
    - A scan's body counts once for each iteration.
    - A condition counts as its most expensive branch; for work outside kernels, as the branch with most of this work.
    """
    total = Flops()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        parts = inner(equation)
        if is_pallas_call(equation):
            total += flops(equation.params["jaxpr"], steps, "pallas").times(steps[id(equation)])
        elif name == "cond":
            branches = [flops(part, steps, where) for part in parts]
            total += replace(
                max(branches, key=lambda branch: branch.pallas + branch.outside),
                outside=max(branch.outside for branch in branches),
                outside_in_loops=max(branch.outside_in_loops for branch in branches),
            )
        elif name == "scan":
            total += flops(parts[0], steps, where).times(equation.params["length"])
        elif parts and name not in _ORDERING_OR_SCATTERING:
            within = sum((flops(part, steps, where) for part in parts), Flops())
            if name == "while":
                within = replace(within, uncounted_loops=within.uncounted_loops + 1, outside_in_loops=within.outside)
            total += within
        else:
            count = _own_flops(equation, is_outside=where == "outside")
            exponentials = count if name in _EXPONENTIALS else 0
            total += Flops(pallas=count, exponentials=exponentials) if where == "pallas" else Flops(outside=count)
    return total


def _own_flops(equation: Equation, *, is_outside: bool) -> int:
    name = equation.primitive.name
    if name in DOTS:
        return _dot_flops(equation)
    if name in _ORDERING_OR_SCATTERING:
        return math.prod(equation.invars[_ORDERING_OR_SCATTERING[name]].aval.shape)
    if is_outside and name in _PLACING:
        moved = equation.outvars[0] if _PLACING[name] is None else equation.invars[_PLACING[name]]
        return math.prod(moved.aval.shape)
    if is_outside and name in _COMPARING:
        compared = equation.invars[0].aval
        return 0 if compared.dtype == jnp.bool_ else math.prod(equation.outvars[0].aval.shape)
    has_result = bool(equation.outvars) and hasattr(equation.outvars[0].aval, "dtype")
    if not has_result or name not in ELEMENTWISE | _LIBRARY | REDUCTIONS | COLLECTIVES:
        return 0
    operand = equation.outvars[0].aval if name in ELEMENTWISE | _LIBRARY else equation.invars[0].aval
    elements: int = math.prod(operand.shape)
    return elements if is_outside or jnp.issubdtype(operand.dtype, jnp.floating) else 0


def _dot_flops(equation: Equation) -> int:
    out: int = math.prod(equation.outvars[0].aval.shape)
    left, right = ([int(length) for length in var.aval.shape] for var in equation.invars[:2])
    numbers: Any = equation.params.get("dimension_numbers")
    if equation.primitive.name == "dot_general":
        return 2 * out * math.prod(left[int(axis)] for axis in numbers[0][0])
    if equation.primitive.name == "conv_general_dilated":
        return 2 * out * math.prod(right) // right[int(numbers.rhs_spec[0])]
    return 2 * out * left[-1]
