"""Rewrites operations that XLA on a CPU computes differently from the chip, so that checks see the chip's results.

docs/SEMANTICS.md lists each rewritten operation (kind `modelled`) and the reason for the rewrite.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.extend import core

from harness.hardware import Chip
from harness.judge.evaluate.interpret.rewriting import holds_operations, rewritten
from harness.judge.evaluate.interpret.undefined import is_between, marked_memory, marks
from harness.judge.evaluate.trace.jaxprs import (
    DOTS,
    ELEMENTWISE,
    REDUCTIONS,
    Equation,
    Jaxpr,
    inlined,
    inner,
    with_inner,
)

_CONVERSION = "convert_element_type"
_FLOAT32_DIGITS = 24
# Every number of these types is also a number of bfloat16.
_EIGHT_BITS = (jnp.dtype(jnp.int8), jnp.dtype(jnp.uint8))
# Operations whose results may need rounding. Operations that select an operand or change its sign need none.
_ROUNDED = (
    {*DOTS, *ELEMENTWISE, *REDUCTIONS, _CONVERSION}
    - {"max", "min", "neg", "abs", "sign", "clamp", "argmax", "argmin", "cummax", "cummin", "sort"}
    - {"reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min"}
)
# `vpack.c.b16` and `vpack.c.b8` pack integers of at least 8 bits.
_FEWEST_PACKED = 8
# A register of bfloat16.
_TILE_ROWS, _LANES = 16, 128
_LOG2_E, _LN_2 = float(np.log2(np.e)), float(np.log(2.0))
# Below this absolute value, the compiler's log1p uses two terms of the series, otherwise log(1 + x) (libtpu 0.0.42.1;
# read off its schedules for v5e and v6e).
_SERIES_BELOW = 0.0004427343
SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")
# The models of these operations consist of operations that are then replaced by their own models. The operations in
# other models are left as they are.
_STEPWISE = frozenset(("logistic", "integer_pow"))

# A function that computes an operation's results from its operands as the chip does. The functions in `_MODELS` return
# the model of an equation, or None if XLA on a CPU computes the same results.
Model = Callable[..., Any]


def as_on_chip(jaxpr: Jaxpr, chip: Chip) -> Jaxpr:
    """The same kernel. A model replaces every operation for which `chip` and XLA on a CPU give different results.

    `_and_rounded` makes XLA round every computed bfloat16 value and perform every conversion.
    """
    changed: list[Equation] = []
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        model = _MODELS[name](equation, chip) if chip.platform == "tpu" and name in _MODELS else None
        if model is not None:
            steps = inlined(model, equation.invars, equation.outvars, equation.source_info)
            changed += as_on_chip(jaxpr.replace(eqns=steps), chip).eqns if name in _STEPWISE else _to_eight_bits(steps)
            continue
        if inner(equation):
            equation = with_inner(equation, lambda each: as_on_chip(each, chip))
        changed += _and_rounded(equation)
    return jaxpr.replace(eqns=changed)


def with_roundings(jaxpr: Jaxpr) -> Jaxpr:
    """The same program; outside kernels, XLA rounds every computed bfloat16 value and performs every conversion."""
    return rewritten(jaxpr, _and_rounded, enters=holds_operations)


def _to_eight_bits(steps: list[Equation]) -> list[Equation]:
    """A model's steps. Only conversions to 8-bit integers get `_and_rounded`: the model itself rounds to bfloat16."""
    return [each for step in steps for each in (_and_rounded(step) if _is_to_eight_bits(step) else [step])]


def _is_to_eight_bits(equation: Equation) -> bool:
    is_conversion = equation.primitive.name == _CONVERSION
    return is_conversion and getattr(equation.outvars[0].aval, "dtype", None) in _EIGHT_BITS


def _and_rounded(equation: Equation) -> list[Equation]:
    """The operation, followed by a rounding to eight significant bits if XLA might not round the result to its type.

    The added rounding changes no bfloat16, int8 or uint8 number, and XLA does not remove it. Without it, XLA computes
    bfloat16 in float32. On a CPU it also leaves out a conversion to bfloat16, int8 or uint8 before a sum (jaxlib
    0.10.2, 0.12.0). The compilers of TPUs keep this conversion.
    """
    before = {out: core.Var(out.aval) for out in equation.outvars if _is_rounded(equation, out)}
    equations = [equation.replace(outvars=[before.get(out, out) for out in equation.outvars])]
    for out, value in before.items():
        wide, rounded = (core.Var(out.aval.update(dtype=jnp.dtype(jnp.float32))) for _ in range(2))
        equations += [conversion(value, wide), _rounding(wide, rounded), conversion(rounded, out)]
    return equations


def _is_rounded(equation: Equation, out: Any) -> bool:
    if equation.primitive.name not in _ROUNDED or isinstance(out, core.DropVar):
        return False
    return is_bfloat16(out) or _is_to_eight_bits(equation)


def is_float32(var: Any) -> bool:
    return bool(var.aval.dtype == np.float32)


def is_bfloat16(var: Any) -> bool:
    return bool(getattr(var.aval, "dtype", None) == jnp.bfloat16)


def conversion(value: Any, out: Any) -> Equation:
    params = {"new_dtype": out.aval.dtype, "weak_type": False, "sharding": None}
    return core.new_jaxpr_eqn([value], [out], lax.convert_element_type_p, params, core.no_effects)


def _rounding(value: Any, out: Any) -> Equation:
    bfloat16 = jnp.finfo(jnp.bfloat16)
    params = {"exponent_bits": bfloat16.nexp, "mantissa_bits": bfloat16.nmant}
    return core.new_jaxpr_eqn([value], [out], lax.reduce_precision_p, params, core.no_effects)


def _rounded(value: Any) -> Any:
    """A float32 value rounded to bfloat16 precision; its type stays float32."""
    return lax.reduce_precision(value, exponent_bits=8, mantissa_bits=7)


def _wide(value: Any) -> Any:
    return lax.convert_element_type(value, jnp.float32)


def _narrow(value: Any) -> Any:
    return lax.convert_element_type(value, jnp.bfloat16)


def _constant(value: float) -> float:
    """A number rounded to bfloat16."""
    return float(ml_dtypes.bfloat16(value))


# Products.


def _dot(equation: Equation, _: Chip) -> Model | None:
    """Models products: DEFAULT rounds float32 to bfloat16, HIGH sums three products of parts, HIGHEST rounds nothing.

    HIGH and HIGHEST subtract the first part of each number from the number, so an infinite number becomes NaN.
    """
    precision = equation.params["precision"]
    precision = precision[0] if isinstance(precision, tuple) else precision
    params = {**equation.params, "precision": (lax.Precision.HIGHEST,) * 2}
    single = [var.aval.dtype == jnp.float32 for var in equation.invars]
    if not any(single):
        return None

    def product(left: Any, right: Any) -> Any:
        return lax.dot_general_p.bind(left, right, **params)

    def product_after(change: Callable[[Any], Any]) -> Model:
        return lambda *operands: product(
            *(change(x) if is_f32 else x for x, is_f32 in zip(operands, single, strict=True))
        )

    if precision == lax.Precision.HIGHEST:
        return product_after(lambda x: lax.add(x, lax.sub(x, x)))
    if precision == lax.Precision.HIGH and all(single):
        return lambda left, right: _three_products(product, left, right)
    return product_after(_rounded)


def _three_products(product: Model, left: Any, right: Any) -> Any:
    """The product of two operands, each split into upper 16 bits and a rounded rest. Omits the product of the rests."""
    parts = []
    for value in (left, right):
        bits = lax.bitcast_convert_type(value, jnp.uint32)
        upper = lax.bitcast_convert_type(lax.bitwise_and(bits, np.uint32(0xFFFF0000)), jnp.float32)
        parts.append((upper, _rounded(lax.sub(value, upper))))
    (upper_left, lower_left), (upper_right, lower_right) = parts
    small = lax.add(product(upper_left, lower_right), product(lower_left, upper_right))
    return lax.add(small, product(upper_left, upper_right))


# Functions of bfloat16.


def _exp(equation: Equation, chip: Chip) -> Model | None:
    if not is_bfloat16(equation.invars[0]) or not chip.has_bfloat16_units:
        return None
    return lambda x: _power_of_two(_rounded(lax.mul(_wide(x), _constant(_LOG2_E))))


def _exp2(equation: Equation, _: Chip) -> Model | None:
    """Models 2^x, which all chips compute directly. XLA on a CPU rounds x ln 2 first.

    In bfloat16, this rounding makes the result 11 % wrong at 2^-28.
    """
    if is_bfloat16(equation.invars[0]):
        return lambda x: _power_of_two(_wide(x))
    return _exact_power_of_two if is_float32(equation.invars[0]) else None


def _exact_power_of_two(exponent: Any) -> Any:
    """2^exponent in float32: the exponential of the fraction, times the power of the whole part in two factors."""
    # Beyond these powers, all results are 0 or infinity.
    nearest = lax.round(exponent, lax.RoundingMethod.TO_NEAREST_EVEN)
    whole = lax.clamp(np.float32(-250), nearest, np.float32(250))
    fraction = lax.sub(exponent, whole)
    part = lax.exp_p.bind(lax.mul(fraction, lax.full_like(fraction, _LN_2)), accuracy=None)
    power = lax.convert_element_type(whole, np.int32)
    half = lax.shift_right_arithmetic(power, lax.full_like(power, 1))
    for each in (half, lax.sub(power, half)):
        bits = lax.shift_left(lax.add(each, lax.full_like(each, 127)), lax.full_like(each, 23))
        part = lax.mul(part, lax.bitcast_convert_type(bits, np.float32))
    return part


def _log1p(equation: Equation, _: Chip) -> Model | None:
    """Models log1p: two terms of the series near 0, elsewhere log(1 + x), in which 1 + x is rounded.

    The rounding makes the result 1.3e-4 (relative) off at x = 4.5e-4.
    """
    if not is_float32(equation.invars[0]):
        return None

    def model(x: Any) -> Any:
        series = lax.mul(lax.sub(lax.full_like(x, 1), lax.mul(lax.full_like(x, 0.5), x)), x)
        logarithm = lax.log_p.bind(lax.add(x, lax.full_like(x, 1)), accuracy=None)
        return lax.select(lax.lt(lax.abs(x), lax.full_like(x, _SERIES_BELOW)), series, logarithm)

    return model


def _power_of_two(exponent: Any) -> Any:
    """2^exponent, computed in float32 and immediately rounded to bfloat16."""
    return _narrow(_rounded(lax.exp_p.bind(lax.mul(exponent, _LN_2), accuracy=None)))


def _pow(equation: Equation, _: Chip) -> Model | None:
    """Models a bfloat16 power with base 2, which Mosaic compiles in the same way as `exp2`."""
    base, exponent = equation.invars
    is_power_of_two = isinstance(base, core.Literal) and base.val == 2.0
    if not is_power_of_two or not is_bfloat16(equation.outvars[0]) or not is_bfloat16(exponent):
        return None
    return lambda _, x: _power_of_two(_wide(x))


def _log(equation: Equation, chip: Chip) -> Model | None:
    if not is_bfloat16(equation.invars[0]) or not chip.has_bfloat16_units:
        return None

    def model(x: Any) -> Any:
        power = _rounded(lax.mul(lax.log_p.bind(_wide(x), accuracy=None), _LOG2_E))
        return _narrow(_rounded(lax.mul(power, _constant(_LN_2))))

    return model


def _logistic(equation: Equation, _: Chip) -> Model | None:
    """Models the compiled form, 1 / (1 + exp(-x)), with each step rounded to bfloat16."""
    if not is_bfloat16(equation.invars[0]):
        return None

    def model(x: Any) -> Any:
        ones = lax.full_like(x, 1)
        return lax.div(ones, lax.add(ones, lax.exp_p.bind(lax.neg(x), accuracy=None)))

    return model


def _integer_pow(equation: Equation, _: Chip) -> Model | None:
    """Models the compiled form, products that are each rounded to bfloat16."""
    power: int = equation.params["y"]
    if not is_bfloat16(equation.invars[0]) or power in (0, 1):
        return None

    def model(x: Any) -> Any:
        factor, result, left = x, None, abs(power)
        while left:
            if left & 1:
                result = factor if result is None else lax.mul(result, factor)
            left >>= 1
            if left:
                factor = lax.mul(factor, factor)
        return lax.div(lax.full_like(x, 1), result) if power < 0 else result

    return model


def root(equation: Equation, chip: Chip) -> Model | None:
    """Models the compiled form, x * rsqrt(x), or sqrt(x) where this product is not finite."""
    dtype = equation.invars[0].aval.dtype
    steps_are_narrow = dtype == jnp.bfloat16 and chip.has_bfloat16_units
    if not steps_are_narrow and dtype != jnp.float32:
        return None

    def model(x: Any) -> Any:
        wide = _wide(x)
        inverse = lax.rsqrt_p.bind(wide, accuracy=None)
        product = _rounded(lax.mul(wide, _rounded(inverse))) if steps_are_narrow else lax.mul(wide, inverse)
        root = lax.select(lax.is_finite(product), product, lax.sqrt_p.bind(wide, accuracy=None))
        return _narrow(root) if steps_are_narrow else root

    return model


# Sums of bfloat16.


def _reduce_sum(equation: Equation, chip: Chip) -> Model | None:
    """Models bfloat16 sums: in the schedules' order if the chip adds in bfloat16; otherwise in float32, rounded once.

    The order in the schedules:

    1. Whole registers are added one after the other, and each sum is rounded.
    2. The lanes of the remaining register are added (presumably in pairs), and each sum is rounded.
    3. The rows of this register are added in float32, and this sum is rounded once.
    """
    if not is_bfloat16(equation.invars[0]):
        return None
    rank, axes = equation.invars[0].aval.ndim, equation.params["axes"]
    if not chip.has_bfloat16_units:
        return lambda x: _narrow(_rounded(lax.reduce_sum(_wide(x), axes)))
    return lambda x: _narrow(_sum_of_registers(_wide(x), rank, axes))


def _sum_of_registers(x: Any, rank: int, axes: tuple[int, ...]) -> Any:
    """The sum of bfloat16 numbers along `axes`, in the order of the schedules; `x` and the sum have type float32."""
    tiled = {rank - 2: _TILE_ROWS, rank - 1: _LANES}
    lengths: list[int] = []
    outer: list[int] = []
    inside: dict[int, int] = {}
    for axis in range(rank):
        length, size = x.shape[axis], tiled.get(axis, 1)
        if axis in axes and axis in tiled:
            padding = [(0, -length % size if dimension == axis else 0, 0) for dimension in range(rank)]
            x = lax.pad(x, np.float32(0), padding)
            outer.append(len(lengths))
            inside[axis] = len(lengths) + 1
            lengths += [-(-length // size), size]
            continue
        if axis in axes:
            outer.append(len(lengths))
        lengths.append(length)
    kept = [place for place in range(len(lengths)) if place not in outer]
    x = lax.transpose(lax.reshape(x, lengths), (*outer, *kept))
    count = math.prod(lengths[place] for place in outer)
    registers = lax.reshape(x, (count, *(lengths[place] for place in kept)))
    total, _ = lax.scan(
        lambda before, register: (_rounded(lax.add(before, register)), None), registers[0], registers[1:]
    )
    if rank - 1 in inside:
        lanes = kept.index(inside[rank - 1])
        while total.shape[lanes] > 1:
            low, high = jnp.split(total, 2, axis=lanes)
            total = _rounded(lax.add(low, high))
        total = lax.squeeze(total, (lanes,))
    if rank - 2 in inside:
        total = _rounded(lax.reduce_sum(total, (kept.index(inside[rank - 2]),)))
    return total


def _negated(equation: Equation, _: Chip) -> Model | None:
    """Models the negation of floats, 0 - x, which is +0 for both zeros."""
    is_float = jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating)
    return (lambda x: lax.sub(lax.full_like(x, 0), x)) if is_float else None


# Quotients.


def quotient(equation: Equation, chip: Chip) -> Model | None:
    """Models a quotient of floats, x (1 / y), and marks an integer quotient by zero."""
    dtype = equation.outvars[0].aval.dtype
    if jnp.issubdtype(dtype, jnp.integer):
        return divided(equation)
    if dtype == jnp.float32:
        return lambda x, y: lax.mul(x, lax.div(lax.full_like(y, 1), y))
    if dtype != jnp.bfloat16 or not chip.has_bfloat16_units:
        return None

    def model(x: Any, y: Any) -> Any:
        inverse = _rounded(lax.div(lax.full_like(y, 1, jnp.float32), _wide(y)))
        return _narrow(_rounded(lax.mul(_wide(x), inverse)))

    return model


def remainder(equation: Equation, _: Chip) -> Model | None:
    """Models the compiled form for floats: r = |x| - floor(|x| (1 / |y|)) |y|, or 0 if r = |y|, with the sign of x."""
    dtype = equation.outvars[0].aval.dtype
    if jnp.issubdtype(dtype, jnp.integer):
        return divided(equation)

    def model(x: Any, y: Any) -> Any:
        x, y = jnp.broadcast_arrays(x, y)
        size, divisor = lax.abs(x), lax.abs(y)
        rest = lax.sub(size, lax.mul(lax.floor(lax.mul(size, lax.div(lax.full_like(y, 1), divisor))), divisor))
        rest = lax.select(lax.eq(rest, divisor), lax.full_like(rest, 0), rest)
        return lax.select(lax.lt(x, lax.full_like(x, 0)), lax.neg(rest), rest)

    return model if dtype == jnp.float32 else None


# Undefined results.


def _marked_unless(is_defined: Any, operand: Any, compute: Model, *, instead: int = 0) -> Any:
    """`compute(operand)`, with marks in undefined elements, for which `compute` gets the valid operand `instead`."""
    result = compute(lax.select(is_defined, operand, lax.full_like(operand, instead)))
    return lax.select(is_defined, result, marks(result))


def _extreme(equation: Equation, _: Chip) -> Model | None:
    """Models the maximum or minimum of a NaN, which is undefined: returns the marked NaN instead of XLA's plain NaN."""
    (out,) = equation.outvars
    if not jnp.issubdtype(out.aval.dtype, jnp.floating):
        return None
    primitive, params = equation.primitive, equation.params

    def model(*operands: Any) -> Any:
        extreme = primitive.bind(*operands, **params)
        return lax.select(lax.ne(extreme, extreme), marked_memory(extreme), extreme)

    return model


def divided(equation: Equation) -> Model | None:
    """Marks an integer quotient or remainder by zero, which is undefined."""
    divisor = equation.invars[1]
    if isinstance(divisor, core.Literal) and np.all(np.asarray(divisor.val) != 0):
        return None
    primitive = equation.primitive

    def model(x: Any, y: Any) -> Any:
        # An axis of one operand may have length one where the other operand's axis is longer.
        x, y = jnp.broadcast_arrays(x, y)
        return _marked_unless(lax.ne(y, lax.full_like(y, 0)), y, lambda safe: primitive.bind(x, safe), instead=1)

    return model


def _reciprocal(equation: Equation, chip: Chip) -> Model | None:
    """Models an approximate reciprocal: exact if divisions use the same instruction, otherwise rounded to bfloat16."""
    if not equation.params["approx"]:
        return None
    if chip.divides_by_exact_reciprocal:
        return lambda x: lax.div(lax.full_like(x, 1), x)
    return lambda x: lax.convert_element_type(
        _rounded(lax.div(lax.full_like(x, 1, jnp.float32), _rounded(_wide(x)))), x.dtype
    )


def shifted(equation: Equation) -> Model | None:
    """Marks a shift by the word length or more: XLA gives 0 (or the sign); many processors shift modulo the length."""
    amount, width = equation.invars[1], 8 * equation.invars[0].aval.dtype.itemsize
    if isinstance(amount, core.Literal) and np.all((np.asarray(amount.val) >= 0) & (np.asarray(amount.val) < width)):
        return None
    primitive = equation.primitive

    def model(x: Any, y: Any) -> Any:
        x, y = jnp.broadcast_arrays(x, y)
        return _marked_unless(is_between(y, 0, width - 1), y, lambda safe: primitive.bind(x, safe))

    return model


def _roll(equation: Equation, _: Chip) -> Model | None:
    """Marks a roll by less than 0, or by at least the axis length. For these, no source states the result of `vrot`."""
    length, amount = equation.invars[0].aval.shape[equation.params["axis"]], equation.invars[1]
    if isinstance(amount, core.Literal) and 0 <= int(amount.val) < length:
        return None
    primitive, params = equation.primitive, equation.params

    def model(x: Any, by: Any) -> Any:
        is_defined = is_between(by, 0, length - 1)
        rolled = primitive.bind(x, lax.select(is_defined, by, lax.full_like(by, 0)), **params)
        return lax.select(lax.broadcast(is_defined, rolled.shape), rolled, marks(rolled))

    return model


def _gather(equation: Equation, _: Chip) -> Model:
    """Marks elements at indices beyond the axis. For these, no source states which element `vperm` takes."""
    primitive, params = equation.primitive, equation.params
    (axis,) = params["dimension_numbers"].start_index_map
    length = equation.invars[0].aval.shape[axis]

    def model(x: Any, indices: Any) -> Any:
        index = lax.squeeze(indices, (indices.ndim - 1,))

        def elements(within: Any) -> Any:
            return primitive.bind(x, lax.expand_dims(within, (indices.ndim - 1,)), **params)

        return _marked_unless(is_between(index, 0, length - 1), index, elements)

    return model


def _multiple_of(equation: Equation, _: Chip) -> Model:
    """Rounds the value towards 0 to the multiple that the kernel promises: the compiler may rely on this promise."""
    factor = int(np.lcm.reduce(equation.params["values"]))
    return lambda x: lax.sub(x, lax.rem(x, lax.full_like(x, factor)))


def _keeps_low_bits(equation: Equation) -> bool:
    """True for conversions between integers of 8 bits or more, signed or unsigned: the chip packs their low bits."""
    old, new = equation.invars[0].aval.dtype, equation.params["new_dtype"]
    return all(jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).bits >= _FEWEST_PACKED for dtype in (old, new))


def converted(equation: Equation) -> Model | None:
    """Marks the conversion of a number that the new integer type cannot hold, which is undefined."""
    old, new = equation.invars[0].aval.dtype, equation.params["new_dtype"]
    if not jnp.issubdtype(new, jnp.integer) or old == jnp.bool_ or old == new:
        return None
    new_limits = jnp.iinfo(new)
    if jnp.issubdtype(old, jnp.integer):
        had = jnp.iinfo(old)
        # No bit is lost.
        if new_limits.bits >= had.bits:
            return None
        low, high = new_limits.min, new_limits.max
    else:
        # The largest float32 that fits: 127 for 8 bits; 2^31 - 128 for 32 bits, because 2^31 - 1 is not a float32.
        low, high = float(new_limits.min), float(new_limits.max)
        if new_limits.bits > _FLOAT32_DIGITS:
            high *= 1 - 2.0**-_FLOAT32_DIGITS
    params = equation.params

    def model(x: Any) -> Any:
        number = x if jnp.issubdtype(old, jnp.integer) else _wide(x)
        is_held = is_between(number, low, high)
        return _marked_unless(is_held, x, lambda safe: lax.convert_element_type_p.bind(safe, **params))

    return model


# Several narrow numbers in a word.


def _words(value: Any) -> Any:
    return lax.bitcast_convert_type(value, jnp.dtype(f"uint{8 * value.dtype.itemsize}"))


def _packed(equation: Equation, _: Chip) -> Model | None:
    """Models packing: integers keep low bits, floats are rounded to bfloat16. The first operand has the lowest bits."""
    packed_dtype = jnp.dtype(equation.params["packed_dtype"])
    is_float = packed_dtype == jnp.bfloat16
    bits = 16 if is_float else jnp.iinfo(packed_dtype).bits

    def model(*values: Any) -> Any:
        word = None
        for place, value in enumerate(values):
            part = _words(_rounded(value) if is_float else value)
            if is_float:
                part = lax.shift_right_logical(part, lax.full_like(part, bits))
            part = lax.bitwise_and(part, lax.full_like(part, (1 << bits) - 1))
            part = lax.shift_left(part, lax.full_like(part, place * bits))
            word = part if word is None else lax.bitwise_or(word, part)
        return word

    return model


def _unpacked(equation: Equation, _: Chip) -> Model | None:
    """Models unpacking of floats and signed integers. No source says how the chip unpacks unsigned integers."""
    new, packed_dtype = jnp.dtype(equation.params["unpacked_dtype"]), jnp.dtype(equation.params["packed_dtype"])
    place, width = equation.params["index"], 8 * new.itemsize
    is_float = packed_dtype == jnp.bfloat16 and new == jnp.float32
    if not is_float and not all(jnp.issubdtype(dtype, jnp.signedinteger) for dtype in (new, packed_dtype)):
        return None
    bits = 16 if is_float else jnp.iinfo(packed_dtype).bits

    def model(value: Any) -> Any:
        word = _words(value)
        at_the_top = lax.shift_left(word, lax.full_like(word, width - (place + 1) * bits))
        if is_float:
            return lax.bitcast_convert_type(lax.bitwise_and(at_the_top, lax.full_like(word, 0xFFFF0000)), new)
        number = lax.bitcast_convert_type(at_the_top, new)
        return lax.shift_right_arithmetic(number, lax.full_like(number, width - bits))

    return model


_MODELS: dict[str, Callable[[Equation, Chip], Model | None]] = {
    "dot_general": _dot,
    "exp": _exp,
    "exp2": _exp2,
    "pow": _pow,
    "log": _log,
    "log1p": _log1p,
    "logistic": _logistic,
    "integer_pow": _integer_pow,
    "neg": _negated,
    "sqrt": root,
    "div": quotient,
    "rem": remainder,
    **dict.fromkeys(("max", "min", "clamp", "reduce_max", "reduce_min"), _extreme),
    "reduce_sum": _reduce_sum,
    "reciprocal": _reciprocal,
    **dict.fromkeys(SHIFTS, lambda equation, _: shifted(equation)),
    "multiple_of": _multiple_of,
    "roll": _roll,
    "gather": _gather,
    "pack_elementwise": _packed,
    "unpack_elementwise": _unpacked,
    "convert_element_type": lambda equation, _: None if _keeps_low_bits(equation) else converted(equation),
}
MODELLED = frozenset(_MODELS)
