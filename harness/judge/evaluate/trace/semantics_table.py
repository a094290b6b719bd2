"""A row for each operation of a kernel: its result on a CPU and on a TPU, and the check that sees a difference.

The instructions come from schedules by libtpu 0.0.42.1 (jax 0.10.2) and 0.0.50.1 (jax 0.12.0) for v4, v5e, v5p, v6e and
v7x. Facts that a schedule cannot show (how an instruction rounds) are named as unknown.
"""

from dataclasses import dataclass
from typing import Literal

# same: CPU and chip compute the same, up to the rounding of floats. modelled: the program that is checked is rewritten
# (chip_model, undefined). guarded: another check sees a difference. refused: the operation is refused by its name.
Kind = Literal["same", "modelled", "guarded", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticsEntry:
    """Primitives that share an explanation. `guard` is the reason for the kind, or for the refusal.

    `narrow_is_refused`: only float32 and integers are accepted. `option_is_refused`: `semantics` refuses some uses of
    the primitive.
    """

    primitives: tuple[str, ...]
    kind: Kind
    on_cpu: str
    on_chip: str
    guard: str
    narrow_is_refused: bool = False
    option_is_refused: bool = False


def entry(names: str, kind: Kind, on_cpu: str, on_chip: str, guard: str, **options: bool) -> SemanticsEntry:
    """A row for the primitives with these names, which are separated by blanks."""
    return SemanticsEntry(
        primitives=tuple(names.split()), kind=kind, on_cpu=on_cpu, on_chip=on_chip, guard=guard, **options
    )


_REFUSED = "not run"
_STEPS = "in bfloat16 the compiler computes in bfloat16 by an unpublished formula: refused, convert to float32 first"

PRODUCTS = (
    entry(
        "dot_general",
        "modelled",
        "float32",
        "float32 with DEFAULT precision: one pass of bfloat16 (16 `vpop` at 128 x 128 x 128, 96 with HIGHEST: six "
        "passes, 48 with HIGH, jax 0.12 only: three). The float32 operand of a mixed product is rounded too. bfloat16, "
        "float8, int8 and int4 are exact; sums are float32 or int32",
        "operands of float32 are rounded to bfloat16 for DEFAULT, split into two parts for HIGH. HIGH and HIGHEST make "
        "NaN of an infinite operand, as the subtraction of its first part does. v7x rounds by "
        "`vpack.c.bf16`, to nearest; the others within the matrix unit, taken to do the same. A product with one "
        "row that the compiler puts on the vector unit in float32 is judged as rounded, too",
        option_is_refused=True,
    ),
    entry(
        "conv_general_dilated conv",
        "refused",
        _REFUSED,
        "matrix products (jax 0.12)",
        "their precision is not modelled: write the products",
    ),
    entry(
        "matmul_push_rhs matmul_acc_lhs matmul_pop matmul_lhs_fifo matmul_pop_fifo",
        "refused",
        _REFUSED,
        "the matrix unit by hand",
        "JAX's interpreters do not know the state of the unit",
    ),
)

FUNCTIONS = (
    entry(
        "exp", "modelled", "exact to 1 ulp",
        "2^(x log2 e): `vmul.f32`, `vpow2.f32`; of bfloat16 on v6e and v7x `vmul.bf16`, `vpow.bf16`: log2 e and the "
        "product rounded to bfloat16, 4 % off at x = 20; on v4, v5e, v5p float32, rounded once",
        "in bfloat16 as the chip does. In float32 the product adds |x| 2^-24, less than rounded scores do",
    ),
    entry(
        "exp2", "modelled", "exp(x ln 2), ln 2 and the product in bfloat16 for bfloat16: 11 % off at 2^-28",
        "`vpow2.f32`; of bfloat16 `vpow.bf16` on v6e and v7x", "in bfloat16 computed in float32 and rounded once",
    ),
    entry(
        "pow", "modelled", "library function", "2^x as exp2; else selections around exp2 and log2",
        "2^x as exp2; other bases in float32 only", option_is_refused=True,
    ),
    entry(
        "log", "modelled", "exact to 1 ulp",
        "`vlog2.f32`, `vmul.f32` by ln 2; of bfloat16 on v6e and v7x in bfloat16 with ln 2 rounded",
        "in bfloat16 as the chip does",
    ),
    entry(
        "logistic", "modelled", "1 / (1 + exp(-x))", "the same; in bfloat16 each step rounds",
        "in bfloat16 taken apart into its steps, each with its own model",
    ),
    entry(
        "integer_pow", "modelled", "products, not rounded in between", "products, each rounded",
        "in bfloat16 taken apart into products",
    ),
    entry(
        "sqrt", "modelled", "exact", "x * rsqrt(x) by `vrsqrt`; of bfloat16 on v6e and v7x both steps in bfloat16",
        "as the chip does",
    ),
    entry(
        "rsqrt tanh", "same", "exact to 1 ulp", "`vrsqrt`, `vtanh`; of bfloat16 on v6e and v7x in bfloat16",
        "one instruction, and its result rounded; how exact it is within an ulp is not published",
    ),
    entry("erf", "same", "polynomial", "polynomial, on v6e and v7x `verf`", "rounding of floats"),
    entry(
        "log1p sin cos tan atan2 erf_inv nextafter", "same", "library function", "polynomials and selections",
        f"in float32 rounding of floats; {_STEPS}", narrow_is_refused=True,
    ),
    entry(
        "log2 one_minus_square reduce_precision mulhi", "refused", _REFUSED, "one operation each (jax 0.12)",
        "new in jax 0.12 and not compared yet",
    ),
    entry(
        "div", "modelled", "IEEE quotient; of integers by 0: -1",
        "float32: `vrcp.f32`, refined by a Newton step on v4, v5e, v5p, as it is on v6e and v7x, and a product. "
        "bfloat16: float32 and one rounding; on v6e and v7x `vrcp.bf16` and `vmul.bf16`. Integers: shifts and "
        "subtractions towards zero, by constants a product; negative ones by their absolute values",
        "x * (1 / y), in bfloat16 with the chip's roundings; a quotient of integers by 0 is a mark",
    ),
    entry(
        "rem", "modelled", "sign of the dividend; of integers by 0: the dividend",
        "of integers as div; of float32 |x| - floor(|x| (1 / |y|)) |y|, wrong for large quotients; 0 if that is |y|",
        f"of integers by 0: a mark; of floats as the chip does, in float32 only: {_STEPS}", narrow_is_refused=True,
    ),
    entry(
        "reciprocal", "modelled", "approx=True: of x rounded to bfloat16, rounded to bfloat16 (2^-8)",
        "approx=True: `vrcp.f32` alone. On v6e and v7x that is the exact one's only instruction too; on v4, v5e and "
        "v5p the exact one adds a Newton step, so that it has 2^-12 if one step is to reach float32; not published",
        "on v6e and v7x the exact reciprocal; elsewhere JAX's own rounding, the pessimistic one. full_range=False "
        "differs for 0, infinities and subnormal results only",
    ),
)  # fmt: skip

ARITHMETIC = (
    entry(
        "add sub mul neg abs square add_any",
        "same",
        "IEEE; integers wrap",
        "float32 the same; of bfloat16 on v4, v5e, v5p float32 and a rounding each, on v6e and v7x in bfloat16",
        "each result in bfloat16 is rounded on the CPU too (XLA would leave it out). Subnormal numbers may be 0",
    ),
    entry(
        "max min clamp reduce_max reduce_min",
        "modelled",
        "NaN if one is NaN",
        "`vmax`, `vmin`: of NaN not published",
        "a marked NaN on the CPU: it reaches an output and fails there, and comparisons with it are reversed",
    ),
    entry(
        "reduce_sum",
        "modelled",
        "float32 in some order",
        "`vadd`, `vadd.xlane`; of bfloat16 on v4, v5e, v5p in float32, rounded once; on v6e and v7x registers one by "
        "one by `vadd.bf16`, then 128 lanes by `vadd.xlane.bf16` (how that rounds is not published), then rows in "
        "float32, rounded once",
        "in float32 rounding of floats. In bfloat16 in the order of the schedules, lanes taken to be added in pairs, "
        "each sum rounded: jnp.sum adds in float32 by itself. Of other narrow floats refused",
        option_is_refused=True,
    ),
    entry("reduce_and reduce_or", "same", "exact", "exact", "no rounding"),
    entry(
        "argmax argmin",
        "refused",
        _REFUSED,
        "`vmax.index.xlane`",
        "which of several equal elements the chip names is not published",
    ),
    entry("eq ne lt le gt ge is_finite select_n sign", "same", "exact", "exact", "no rounding"),
    entry("and or xor not clz population_count", "same", "exact", "exact", "bits"),
    entry(
        "shift_left shift_right_logical shift_right_arithmetic",
        "modelled",
        "by a word and more: 0, or the sign",
        "`vshll`, `vshrl`, `vshra`, `sshll`: by a word and more not published",
        "a mark on the CPU, unknown to the simulator",
    ),
    entry("floor ceil round", "same", "exact", "`vfloor`, `vceil`, conversions", "no rounding"),
    entry(
        "convert_element_type",
        "modelled",
        "to nearest even; integers that do not fit saturate or wrap",
        "`vpack`, `vcvt`, `vtrunc`: to nearest even; of integers `vpack.c.b16`, `vpack.c.b8`, the same for both signs: "
        "the low bits; of floats that do not fit not published",
        "each rounding to bfloat16 is made; of integers the low bits are kept; a float that the integer type cannot "
        "hold is a mark, as is an integer that does not fit into 4 bits",
    ),
    entry("bitcast_convert_type bitcast", "same", "the same bits", "nothing, or `vcombine`", "bits"),
    entry(
        "pack_elementwise unpack_elementwise",
        "modelled",
        "no program",
        "`vpack`, `vunpack`",
        "shifts; conversions to bfloat16 round to nearest even; numbers without a sign are not unpacked",
    ),
    entry("threefry2x32 iota iota_2x32_shape", "same", "exact", "exact", "integers"),
    entry(
        "prng_seed prng_random_bits prng_split prng_join random_seed random_wrap random_unwrap random_bits "
        "random_fold_in stochastic_round",
        "refused",
        _REFUSED,
        "random bits of the chip",
        "the chip's random bits differ from the interpreter's",
    ),
)

ARRAYS = (
    entry(
        "broadcast_in_dim broadcast_to concatenate pad reshape squeeze slice split stack unstack tile transpose",
        "same",
        "copies",
        "copies",
        "no arithmetic",
    ),
    entry(
        "roll",
        "modelled",
        "jnp.roll",
        "`vrot`, `vperm`; by a negative amount, or the length and more, not published",
        "there a mark; else no arithmetic",
    ),
    entry(
        "gather",
        "modelled",
        "indices beyond the axis as `mode` says",
        "`vperm`: one register along the axis (Mosaic refuses more), an index beyond it not published",
        "along one of the last two axes, as jnp.take_along_axis writes it, of numbers of 32 bits: an index beyond the "
        "axis is a mark. Other gathers are refused, as are promises about indices",
        option_is_refused=True,
    ),
    entry(
        "sort top_k approx_top_k einshape_lo",
        "refused",
        _REFUSED,
        "permutations",
        "the order of equal elements differs between the two",
    ),
)

MEMORY = (
    entry(
        "get swap",
        "modelled",
        "a slice that leads out of its array is moved to its border",
        "reads or writes whatever lies there; the compiler checks some of it and halts",
        "at every shape, results that depend on an index beyond the array are marked; at a reduced shape, the TPU "
        "interpreter fails on such an index and on a read of unwritten memory; the simulator sees failed bounds checks",
    ),
    entry("masked_swap", "guarded", "elements left out keep what was there", "the same", "outputs that depend on them"),
    entry("masked_load", "refused", _REFUSED, "elements left out hold anything", "use a load and a selection"),
    entry(
        "multiple_of",
        "modelled",
        "the value as it is",
        "`assume_multiple`: believed. Where an address counts tiles (128 lanes, 8 rows of bfloat16) what is beyond one "
        "is shifted out (`sadd 64`, `sshra 7`)",
        "the next multiple below: a false hint leads to other data",
    ),
    entry(
        "run_scoped empty_ref",
        "guarded",
        "memory of NaN",
        "memory as it was left",
        "holds NaN, a marked NaN or an unpredictable number, one per shape; comparisons with the marked NaN give the "
        "opposite of what NaN gives, as what an earlier call has left may",
    ),
    entry(
        "dma_start",
        "guarded",
        "copies at once",
        "`dma`: some time later",
        "the TPU interpreter finds races, the simulator bounds and transfers never waited for. Copies that add are "
        "refused, and copies to another device except in contests over a mesh",
        option_is_refused=True,
    ),
    entry("dma_wait", "guarded", "nothing", "waits for a copy", "as dma_start", option_is_refused=True),
    entry(
        "semaphore_signal semaphore_wait",
        "guarded",
        "counts",
        "counts",
        "the TPU interpreter waits as the chip does; signals to another core are refused, and to another device except "
        "in contests over a mesh",
        option_is_refused=True,
    ),
    entry(
        "semaphore_read",
        "refused",
        _REFUSED,
        "the count at that moment",
        "the count depends on time: a copy that is done on the CPU may still be under way on the chip",
    ),
    entry("delay", "refused", _REFUSED, "waits", "a result that is right only after a delay depends on time"),
    entry(
        "get_barrier_semaphore axis_index",
        "guarded",
        "a device of its own for each chip",
        "another chip",
        "in a contest over a mesh only: all chips run side by side, and races between them are looked for",
        option_is_refused=True,
    ),
)

CONTROL = (
    entry(
        "cond while scan",
        "same",
        "the same",
        "the same; short loops are unrolled",
        "branches on what is not defined take a mark on the CPU and are unknown to the simulator",
    ),
    entry(
        "jit custom_jvp_call custom_vjp_call add_dependency stop_gradient",
        "same",
        "calls",
        "inlined",
        "their bodies are looked at",
    ),
    entry(
        "program_id num_programs",
        "guarded",
        "the step of the grid",
        "the step of the grid",
        "`parallel` axes on two cores: the TPU interpreter",
    ),
    entry("platform_index", "refused", _REFUSED, "the branch of a platform", "refused as `platform-dependent`"),
    entry("debug_callback debug_print", "refused", _REFUSED, "the host", "refused as `host-callback`"),
    entry(
        "check",
        "guarded",
        "nothing",
        "nothing, unless a setting of JAX switches it on",
        "pl.debug_check is left out of what is checked and compiled, as JAX leaves it out; other checks are refused, "
        "as is a kernel.py that changes the setting",
        option_is_refused=True,
    ),
    entry("trace_value", "refused", _REFUSED, "traces that a flag switches on", "their cost is not in the schedule"),
    entry(
        "emit_pipeline pipeline_body stage",
        "refused",
        _REFUSED,
        "pipelines expanded by the compiler",
        "pltpu.emit_pipeline of a TensorCore kernel is expanded by JAX and accepted; these remain for SparseCore",
    ),
    entry(
        "dim_as_value reshard eval_jaxpr custom_fusion has_memory_space",
        "refused",
        _REFUSED,
        "symbolic sizes, meshes, fusion",
        "not interpreted on a CPU",
    ),
)

SECTIONS: tuple[tuple[str, tuple[SemanticsEntry, ...]], ...] = (
    ("Matrix products", PRODUCTS),
    ("Functions and quotients", FUNCTIONS),
    ("Arithmetic, comparisons, bits", ARITHMETIC),
    ("Shapes", ARRAYS),
    ("Memory, copies, semaphores", MEMORY),
    ("Control", CONTROL),
)
# Options of pltpu.CompilerParams with which the chip makes fewer checks while it runs.
CHECKS = {
    "disable_bounds_checks": "the chip does not halt at accesses beyond an array; the judge checks the kernel with "
    "these checks and times it without",
    "disable_semaphore_checks": "the chip does not halt at a semaphore that is not zero at the end; the judge checks "
    "the kernel with this check and times it without",
}
# Options of pltpu.CompilerParams that change neither results nor checks, and what they do change.
OPTIONS = {
    "dimension_semantics": "which axes cores share: races and parallel axes are checked",
    "vmem_limit_bytes": "how much memory the compiler may use",
    "internal_scratch_in_bytes": "how much memory the compiler takes for itself",
    "has_side_effects": "keeps a call whose results are not used",
    "serialization_format": "how the program is written down",
    "skip_device_barrier": "for several devices; one is judged",
    "shape_invariant_numerics": "how sums are ordered",
    "use_tc_tiling_on_sc": "of the SparseCore",
    "needs_layout_passes": "of the SparseCore",
    "fuse_transposed_lhs_in_matmul": "where an operand is transposed",
    **CHECKS,
    "allow_collective_id_without_custom_barrier": "for several devices; one is judged",
}
# Options that remove the barrier with which several chips begin a kernel together: on a mesh they are refused.
OF_A_BARRIER = frozenset(("skip_device_barrier", "allow_collective_id_without_custom_barrier"))
# Flags of the compiler for one kernel (`pltpu.CompilerParams(flags=...)`) that change neither results nor checks.
FLAGS = {"XLA_TPU_FORCE_LP_LLO_SCHEDULER": "in which order instructions are issued"}
