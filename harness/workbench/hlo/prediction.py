"""Lower bounds on the time of an operation or a matmul, peaks of chips, and array shapes written by hand."""

import difflib
import math
from dataclasses import dataclass, replace
from typing import Literal

from harness import chips
from harness.chips.row import Figures
from harness.errors import UsageError
from harness.hlo.shapes import ELEMENT_BITS
from harness.hlo.tokens import Misunderstood, Tokens
from harness.workbench.hlo.interconnect import host_bytes_per_second
from harness.workbench.hlo.work import InstructionWork

Bound = Literal["FLOPs", "bytes", "bytes at least", "host link", "unknown"]
# Bytes per parameter of mixed-precision training with Adam: weights and gradients in bfloat16, two moments and the
# master copy in f32 (16 together; ZeRO, Rajbhandari et al. 2020, section 3.1).
TRAINING_BYTES = (
    ("weights", 2),
    ("gradients", 2),
    ("Adam, first moment", 4),
    ("Adam, second moment", 4),
    ("master weights", 4),
)
# Types that the MXU multiplies faster than bfloat16, on some chips.
_SMALL = ("s8", "u8", "int8", "uint8", "f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e4m3", "fp8", "s4", "u4", "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Lower bounds on a time by resource (None: unknown), and their maximum, max(FLOPs/peak, bytes/bandwidth).

    `host_seconds` is the time of the bytes that cross the link to the host, 0 without such bytes.
    """

    compute_seconds: float | None
    memory_seconds: float | None
    host_seconds: float = 0.0

    @property
    def seconds(self) -> float | None:
        """The largest known floor; None if no floor is known. If a floor is unknown, this is only a lower bound."""
        if self.compute_seconds is None and not self.memory_seconds and not self.host_seconds:
            return None
        return max(self.compute_seconds or 0.0, self.memory_seconds or 0.0, self.host_seconds)

    @property
    def bound(self) -> Bound:
        """The resource with the largest floor."""
        if self.seconds is None:
            return "unknown"
        if self.host_seconds and self.host_seconds == self.seconds:
            return "host link"
        if self.compute_seconds is None:
            return "bytes at least"
        return "FLOPs" if self.compute_seconds >= (self.memory_seconds or 0.0) else "bytes"


def roofline(flops: float | None, hbm_bytes: float | None, peak: float, bandwidth: float) -> Time:
    """T = max(FLOPs/peak, bytes/bandwidth), the roofline (Williams, Waterman, Patterson, CACM 52(4), 2009)."""
    return Time(
        compute_seconds=None if flops is None else flops / peak,
        memory_seconds=None if hbm_bytes is None else hbm_bytes / bandwidth,
    )


def figures_of(name: str) -> Figures:
    """The figures of the chip `name` (any case), even if no contest can use it. Raises UsageError `unknown-chip`."""
    word, names = name.strip().lower(), chips.names()
    if word in names:
        return chips.row(word).chip
    near = difflib.get_close_matches(word, names, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError("unknown-chip", f"unknown chip {name!r}: {hint}expected one of {', '.join(names)}")


def peak(chip: Figures, dtype: str) -> tuple[float, str]:
    """The peak of matmuls in this HLO type in FLOP/s, and a remark if the type is float32 or narrower than bfloat16."""
    bfloat16 = chip.peak_bf16_flops_per_second
    if dtype in _SMALL:
        narrow = chip.narrow_peak("float8" if dtype.startswith("f") else f"int{dtype.lstrip('suint')}")
        if narrow is None:
            return bfloat16, f"no peak of {dtype} is published for {chip.name}: the bfloat16 peak is used"
        return narrow, f"{dtype} at {narrow / bfloat16:.3g}x the bfloat16 peak"
    if dtype in ("f32", "float32"):
        return bfloat16, "f32 operands in one bfloat16 pass, the default precision of a TPU"
    return bfloat16, ""


def operation_time(work: InstructionWork, dtype: str, target: Figures) -> Time:
    """The least time of one execution of an instruction, with all FLOPs at the MXU's peak."""
    floors = roofline(work.flops, work.hbm_bytes, peak(target, dtype)[0], target.hbm_bytes_per_second)
    link = host_bytes_per_second(target, to_host=work.to_host)
    return replace(floors, host_seconds=(work.host_bytes or 0) / link)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """An array written by hand: `X[32@data,1024,8192]`, with the mesh axes that split each dimension."""

    name: str
    dtype: str
    dimensions: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]

    def parts(self, mesh: dict[str, int]) -> tuple[int, ...]:
        """The number of parts of each dimension."""
        return tuple(math.prod(mesh[axis] for axis in axes) for axes in self.axes)

    def local(self, mesh: dict[str, int]) -> tuple[int, ...]:
        """The dimensions of one device's part, rounded up."""
        return tuple(-(-size // parts) for size, parts in zip(self.dimensions, self.parts(mesh), strict=True))

    def whole(self, mesh: dict[str, int]) -> tuple[int, ...]:
        """The dimensions of the whole array, if this array is one device's part."""
        return tuple(size * parts for size, parts in zip(self.dimensions, self.parts(mesh), strict=True))

    def __str__(self) -> str:
        parts = (
            "+".join([str(size), *axes]).replace("+", "@", 1)
            for size, axes in zip(self.dimensions, self.axes, strict=True)
        )
        return f"{self.name or self.dtype}[{','.join(parts)}]"


# HLO's names of types, by numpy's and JAX's names.
_NUMPY = {
    "bool": "pred",
    "int4": "s4",
    "int8": "s8",
    "int16": "s16",
    "int32": "s32",
    "uint4": "u4",
    "uint8": "u8",
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
}


def spec(text: str, dtype: str) -> Spec:
    """The array described by `text`; if the text names no type, `dtype` is used. Raises UsageError `bad-shape`."""
    tokens = Tokens(text)
    try:
        name = "" if tokens.sees("[") else tokens.name()
        tokens.expect("[")
        sizes: list[int] = []
        axes: list[tuple[str, ...]] = []
        while not tokens.skip("]"):
            if sizes:
                tokens.expect(",")
            sizes.append(tokens.integer())
            if sizes[-1] < 1:
                raise Misunderstood(f"a dimension of {sizes[-1]}")
            split: list[str] = []
            while tokens.skip("@") or tokens.skip("+"):
                split.append(tokens.name())
            axes.append(tuple(split))
        if tokens.peek().kind != "end":
            raise tokens.misunderstood("the end of the shape")
    except Misunderstood as error:
        raise UsageError(
            "bad-shape", f"expected an array such as X[32,1024,8192] or bf16[4096@model,8192], got {text!r}: {error}"
        ) from error
    name, dtype = _NUMPY.get(name, name), _NUMPY.get(dtype, dtype)
    is_type = name in ELEMENT_BITS
    return Spec(
        name="" if is_type else name, dtype=name if is_type else dtype, dimensions=tuple(sizes), axes=tuple(axes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulShape:
    """A matmul of two arrays; `letters` name the dimensions of left operand, right operand and result (einsum)."""

    left: Spec
    right: Spec
    letters: tuple[str, str, str]
    result: tuple[int, ...]
    flops: float
    flops_per_device: float
    bytes_per_device: float
    partial_over: tuple[str, ...]


def matmul(left: Spec, right: Spec, einsum: str | None, mesh: dict[str, int], devices: int) -> MatmulShape:
    """The work of a matmul on `devices` devices, split by the axes in its operands, or evenly without axes.

    FLOPs are 2 times the product of all different dimensions. Without axes, each device has an equal share of the FLOPs
    and of all bytes; these bytes are a lower bound, because they assume that no two devices read the same value. With
    axes, each device reads its parts of the operands. Raises UsageError `bad-shape`, `bad-einsum`, `unknown-axis`.
    """
    letters = _letters(left, right, einsum)
    sizes: dict[str, int] = {}
    axes: dict[str, tuple[str, ...]] = {}
    for array, names in ((left, letters[0]), (right, letters[1])):
        for letter, size, split in zip(names, array.dimensions, array.axes, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise UsageError(
                    "bad-shape",
                    f"expected the dimension `{letter}` of {left} and {right} to be the same, got {sizes[letter]} and "
                    f"{size}; to state which dimensions belong together, use --einsum, such as --einsum bsd,df->bsf",
                )
            axes[letter] = tuple(dict.fromkeys((*axes.get(letter, ()), *split)))
    for name in {axis for split in axes.values() for axis in split}:
        if name not in mesh:
            axes_given = ", ".join(f"{axis}={size}" for axis, size in mesh.items()) or "none"
            raise UsageError(
                "unknown-axis", f"expected the size of the axis {name} in --mesh {name}=N, got {axes_given}"
            )
    result = tuple(sizes[letter] for letter in letters[2])
    width = _width(left.dtype), _width(right.dtype)
    total = math.prod(left.dimensions) * width[0] + math.prod(right.dimensions) * width[1]
    total += math.prod(result) * width[0]
    flops = 2.0 * math.prod(sizes.values())
    is_split = any(axes.values())
    parts = {letter: math.prod(mesh[axis] for axis in split) for letter, split in axes.items()}
    summed = [letter for letter in letters[0] if letter in letters[1] and letter not in letters[2]]
    per_device = total / devices
    if is_split:
        out = math.prod(-(-sizes[letter] // parts[letter]) for letter in letters[2])
        per_device = math.prod(left.local(mesh)) * width[0] + math.prod(right.local(mesh)) * width[1] + out * width[0]
    return MatmulShape(
        left=left,
        right=right,
        letters=letters,
        result=result,
        flops=flops,
        flops_per_device=flops / (math.prod(parts.values()) if is_split else devices),
        bytes_per_device=per_device,
        partial_over=tuple(axis for letter in summed for axis in axes[letter]),
    )


def _letters(left: Spec, right: Spec, einsum: str | None) -> tuple[str, str, str]:
    if einsum is None:
        same = [(i, j) for i, a in enumerate(left.dimensions) for j, b in enumerate(right.dimensions) if a == b]
        if len(right.dimensions) > 2 and same == [(len(left.dimensions) - 1, 0)]:
            rows, columns = "abcdefghijklm"[: len(left.dimensions) - 1], "nopqrstuvw"[: len(right.dimensions) - 1]
            return f"{rows}x", f"x{columns}", f"{rows}{columns}"
        if len(right.dimensions) != 2 or not left.dimensions:
            raise UsageError(
                "bad-einsum",
                f"expected a matrix on the right, or an array that shares only its first dimension with the last of "
                f"{left}, got {right}; to state which dimensions belong together: --einsum bmk,bkn->bmn",
            )
        if left.dimensions[-1] != right.dimensions[0]:
            raise UsageError(
                "bad-shape",
                f"expected the last dimension of {left} and the first of {right} to be the same, got "
                f"{left.dimensions[-1]} and {right.dimensions[0]}; to sum over others, use --einsum bd,fd->bf",
            )
        rows = "abcdefghijklm"[: len(left.dimensions) - 1]
        return f"{rows}x", "xy", f"{rows}y"
    inputs, arrow, result = einsum.replace(" ", "").partition("->")
    names = inputs.split(",")
    if not arrow or len(names) != 2 or len(names[0]) != len(left.dimensions) or len(names[1]) != len(right.dimensions):
        raise UsageError(
            "bad-einsum",
            f"expected --einsum with {len(left.dimensions)} and {len(right.dimensions)} letters for {left} and "
            f"{right}, such as bd,df->bf, got {einsum!r}",
        )
    if set(result) - set(inputs) or len(set(result)) != len(result):
        raise UsageError(
            "bad-einsum",
            f"expected a result of --einsum with letters of its operands, each once, got `{result}` in {einsum}",
        )
    return names[0], names[1], result


def _width(dtype: str) -> float:
    bits = ELEMENT_BITS.get(dtype)
    if bits is None:
        raise UsageError("bad-dtype", f"expected --dtype as in HLO, such as {', '.join(TYPES)}, got {dtype!r}")
    return bits / 8


TYPES = ("bf16", "f32", "f16", "s8", "f8e4m3fn")


def spec_bytes(array: Spec) -> int:
    """Bytes of an array written by hand, without padding."""
    return math.ceil(math.prod(array.dimensions) * _width(array.dtype))
