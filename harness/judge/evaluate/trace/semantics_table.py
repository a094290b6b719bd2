"""A row for each operation in kernels: its results on a CPU and on a TPU, and the check that detects a difference.

The instructions come from schedules by libtpu 0.0.42.1 (jax 0.10.2) and 0.0.50.1 (jax 0.12.0) for v4, v5e, v5p, v6e and
v7x. Schedules do not show some facts, such as the rounding of an instruction. The row then states that they are
unknown.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

# same: CPU and chip give the same result, up to the rounding of floats. modelled: the checked program is rewritten to
# give the chip's result (chip_model, undefined). guarded: another check detects a difference. refused: programs with
# the operation are refused.
Kind = Literal["same", "modelled", "guarded", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticsEntry:
    """Primitives with the same explanation. `guard` states why a difference is harmless, or why they are refused.

    `narrow_is_refused`: floats narrower than float32 are refused. `option_is_refused`: `semantics` refuses some uses
    of the primitives.
    """

    primitives: tuple[str, ...]
    kind: Kind
    on_cpu: str
    on_chip: str
    guard: str
    narrow_is_refused: bool = False
    option_is_refused: bool = False


def _entry(kind: Kind, names: str, on_cpu: str, on_chip: str, guard: str, **options: bool) -> SemanticsEntry:
    primitives = tuple(names.split())
    return SemanticsEntry(primitives=primitives, kind=kind, on_cpu=on_cpu, on_chip=on_chip, guard=guard, **options)


def refused(names: str, on_chip: str, guard: str, *, on_cpu: str = "not run") -> SemanticsEntry:
    """A row for refused primitives with these names, which are separated by blanks."""
    return _entry("refused", names, on_cpu, on_chip, guard)


# Rows of the other kinds: names of primitives, separated by blanks; results on CPU and chip; guard.
same, modelled, guarded = partial(_entry, "same"), partial(_entry, "modelled"), partial(_entry, "guarded")

_ONLY_ROUNDING = "the results differ only by rounding"
_NARROW = (
    "narrower floats are refused, because the compiler's formula for them is not published: convert to float32 first"
)

PRODUCTS = (
    modelled(
        "dot_general",
        "a product in float32",
        "float32 operands: one pass of bfloat16 products with DEFAULT precision, three with HIGH (jax 0.12 only), six "
        "with HIGHEST (16, 48 and 96 `vpop` for 128 x 128 x 128). The float32 operand of a mixed product is rounded to "
        "bfloat16 too. Products of bfloat16, float8, int8 and int4 are exact; sums are float32 or int32",
        "float32 operands are rounded to bfloat16 for DEFAULT and split into two bfloat16 parts for HIGH. HIGH and "
        "HIGHEST turn an infinite operand into NaN, because its first part is subtracted from it. v7x rounds by "
        "`vpack.c.bf16`, to nearest; the other chips round inside the matrix unit, which is assumed to round to "
        "nearest too. A product with one row is rounded too; the compiler may compute it in float32 on the vector unit",
        option_is_refused=True,
    ),
    refused(
        "conv_general_dilated conv",
        "matrix products (jax 0.12)",
        "their precision is not modelled: write matrix products",
    ),
    refused(
        "matmul_push_rhs matmul_acc_lhs matmul_pop matmul_lhs_fifo matmul_pop_fifo",
        "single steps of the matrix unit",
        "JAX's interpreters do not model the state of the matrix unit: use jnp.dot",
    ),
)

FUNCTIONS = (
    modelled(
        "exp", "exact to 1 ulp",
        "2^(x log2 e). float32: `vmul.f32`, `vpow2.f32`. bfloat16 on v4, v5e, v5p: computed in float32, rounded once. "
        "bfloat16 on v6e and v7x: `vmul.bf16`, `vpow.bf16`, with log2 e and the product rounded to bfloat16, which is "
        "4 % off at x = 20",
        "bfloat16: as on the chip. float32: not rewritten, because the chip's rounded product adds a relative error of "
        "only abs(x) 2^-24; the rounding of the scores adds more",
    ),
    modelled(
        "exp2", "exp(x ln 2); in bfloat16, ln 2 and the product are rounded: 11 % off at 2^-28",
        "`vpow2.f32`; of bfloat16 on v6e and v7x `vpow.bf16`",
        "float32: computed from the fraction and the whole part of x. bfloat16: computed in float32 and rounded once",
    ),
    modelled(
        "pow", "library function",
        "base 2: as exp2. Other bases: exp2 and log2, with selections around them",
        "base 2: as exp2. Other bases: accepted in float32 only", option_is_refused=True,
    ),
    modelled(
        "log", "exact to 1 ulp",
        "`vlog2.f32`, then `vmul.f32` by ln 2; of bfloat16 on v6e and v7x both in bfloat16, with ln 2 rounded",
        "bfloat16: as on the chip",
    ),
    modelled(
        "logistic", "1 / (1 + exp(-x))", "the same formula; in bfloat16 the result of each step is rounded",
        "bfloat16: replaced by its steps, each with a model of its own",
    ),
    modelled(
        "integer_pow", "products, not rounded in between", "products, each rounded",
        "bfloat16: replaced by products that are each rounded",
    ),
    modelled(
        "sqrt", "exact", "x * rsqrt(x) by `vrsqrt`; of bfloat16 on v6e and v7x both steps in bfloat16",
        "computed as on the chip",
    ),
    same(
        "rsqrt tanh", "exact to 1 ulp", "`vrsqrt`, `vtanh`; of bfloat16 on v6e and v7x in bfloat16",
        "a single instruction, whose result is rounded; its error within one ulp is not published",
    ),
    same("erf", "polynomial", "polynomial; on v6e and v7x `verf`", _ONLY_ROUNDING),
    modelled(
        "log1p", "exact to 1 ulp", "(1 - x / 2) x if abs(x) < 0.00044, otherwise log(1 + x): 1.3e-4 off at 0.00045",
        f"float32: as on the chip. {_NARROW}", narrow_is_refused=True,
    ),
    same(
        "sin cos tan atan2 erf_inv nextafter", "library function", "polynomials and selections",
        f"in float32 {_ONLY_ROUNDING}; {_NARROW}", narrow_is_refused=True,
    ),
    refused(
        "log2 one_minus_square reduce_precision mulhi", "one operation each (jax 0.12)",
        "new in jax 0.12 and not yet compared between CPU and chip: write it with older operations",
    ),
    modelled(
        "div", "IEEE quotient; an integer divided by 0 is -1",
        "float32: `vrcp.f32` and a product, with a Newton step between them on v4, v5e and v5p. bfloat16: computed in "
        "float32 and rounded once; on v6e and v7x `vrcp.bf16` and `vmul.bf16`. Integers: shifts and subtractions of "
        "absolute values, rounded towards zero; a product if the divisor is a constant",
        "x * (1 / y), on v6e and v7x in bfloat16 with the chip's roundings; the quotient of an integer by 0 is a mark",
    ),
    modelled(
        "rem", "has the sign of the dividend; the remainder of an integer by 0 is the dividend",
        "integers: as div. float32: abs(x) - floor(abs(x) (1 / abs(y))) abs(y) with the sign of x, or 0 if that is "
        "abs(y); this is wrong for large quotients",
        f"the remainder of an integer by 0 is a mark; float32 is computed as on the chip; {_NARROW}",
        narrow_is_refused=True,
    ),
    modelled(
        "reciprocal", "approx=True: both x and the result are rounded to bfloat16 (relative error 2^-8)",
        "approx=True: `vrcp.f32` alone. The exact reciprocal is the same instruction on v6e and v7x; on v4, v5e and "
        "v5p a Newton step follows. The relative error of `vrcp.f32` is not published; one step reaches float32 only "
        "from an error near 2^-12",
        "on v6e and v7x the exact reciprocal; on other chips JAX's own rounding to bfloat16, the pessimistic "
        "assumption. full_range=False makes a difference only for 0, infinities and subnormal results",
    ),
)  # fmt: skip

ARITHMETIC = (
    same(
        "add sub mul abs square add_any",
        "IEEE; integers wrap",
        "float32: the same. bfloat16: on v4, v5e, v5p each result is computed in float32 and rounded; on v6e and v7x "
        "in bfloat16",
        "each bfloat16 result is rounded in the checked program too; XLA's own program for the CPU leaves such "
        "roundings out. Subnormal numbers may become 0",
    ),
    modelled("neg", "changes the sign", "0 - x: the negation of either zero is +0", "computed as on the chip"),
    modelled(
        "max min clamp reduce_max reduce_min",
        "NaN if an operand is NaN",
        "`vmax`, `vmin`; their result for NaN is not published",
        "if an operand is NaN, the checked program computes a marked NaN: outputs that contain it fail, and "
        "comparisons with it give the opposite of their result for NaN",
    ),
    modelled(
        "reduce_sum",
        "a sum in float32, in some order",
        "`vadd`, `vadd.xlane`. bfloat16 on v4, v5e, v5p: added in float32, rounded once. bfloat16 on v6e and v7x: "
        "registers are added one after the other by `vadd.bf16`, then 128 lanes by `vadd.xlane.bf16` (whose rounding "
        "is not published), then rows in float32, and this sum is rounded once",
        f"in float32 {_ONLY_ROUNDING}. bfloat16 on v6e and v7x is added in the order of the schedules, and each sum is "
        "rounded; lanes are assumed to be added in pairs. jnp.sum adds bfloat16 in float32, which avoids this. Other "
        "floats narrower than float32 are refused",
        option_is_refused=True,
    ),
    same("reduce_and reduce_or", "exact", "exact", "no rounding"),
    refused(
        "argmax argmin",
        "`vmax.index.xlane`",
        "the chip's choice among equal elements is not published: take the smallest index at which the extreme value "
        "occurs",
    ),
    same("eq ne lt le gt ge is_finite select_n sign", "exact", "exact", "no rounding"),
    same("and or xor not clz population_count", "exact", "exact", "no rounding"),
    modelled(
        "shift_left shift_right_logical shift_right_arithmetic",
        "a shift by the word length or more gives 0, or the sign in every bit",
        "`vshll`, `vshrl`, `vshra`, `sshll`; their result for a shift by the word length or more is not published",
        "such a shift gives a mark on the CPU, and is unknown to the simulator",
    ),
    same("floor ceil round", "exact", "`vfloor`, `vceil`, conversions", "no rounding"),
    modelled(
        "convert_element_type",
        "rounds to nearest even; numbers that an integer type cannot hold saturate or wrap",
        "`vpack`, `vcvt`, `vtrunc`: rounds to nearest even. Integers keep their low bits, whatever their sign "
        "(`vpack.c.b16`, `vpack.c.b8`). The result for a float that an integer type cannot hold is not published",
        "every rounding to bfloat16 is performed; integers keep their low bits; a float that the integer type cannot "
        "hold is a mark, as is an integer that does not fit into 4 bits",
    ),
    same("bitcast_convert_type bitcast", "the same bits", "no instruction, or `vcombine`", "no arithmetic"),
    modelled(
        "pack_elementwise unpack_elementwise",
        "no lowering",
        "`vpack`, `vunpack`",
        "written as shifts; conversions to bfloat16 round to nearest even. Unsigned integers cannot be unpacked here",
    ),
    same("threefry2x32 iota iota_2x32_shape", "exact", "exact", "integer arithmetic"),
    refused(
        "prng_seed prng_random_bits prng_split prng_join random_seed random_wrap random_unwrap random_bits "
        "random_fold_in stochastic_round",
        "the chip's random bits",
        "the chip's random bits differ from the interpreter's: take random numbers as an input",
    ),
)

ARRAYS = (
    same(
        "broadcast_in_dim broadcast_to concatenate pad reshape squeeze slice split stack unstack tile transpose",
        "copies",
        "copies",
        "no arithmetic",
    ),
    modelled(
        "roll",
        "jnp.roll",
        "`vrot`, `vperm`; the result for an amount below 0, or not below the axis length, is not published",
        "such an amount gives a mark; otherwise no arithmetic",
    ),
    modelled(
        "gather",
        "`mode` decides about indices beyond the axis",
        "`vperm`: one register along the axis (Mosaic refuses more); the result for an index beyond the axis is not "
        "published",
        "accepted for 32-bit elements along one of the last two axes, as jnp.take_along_axis writes it: an index "
        "beyond the axis gives a mark. Other gathers, and promises about indices, are refused",
        option_is_refused=True,
    ),
    refused(
        "sort top_k approx_top_k einshape_lo",
        "permutations",
        "CPU and chip order equal elements differently: write it with other operations, or sort outside of kernels",
    ),
)

MEMORY = (
    modelled(
        "get swap",
        "a slice that reaches beyond its array is moved back inside",
        "reads or writes the memory at that address; the compiler's run-time checks detect some of these accesses and "
        "halt the chip",
        "at every shape, results that depend on an index beyond the array are marked; at a reduced shape, the TPU "
        "interpreter fails on such an index and on a read of unwritten memory; the simulator sees failed bounds checks",
    ),
    guarded(
        "masked_swap",
        "elements that the mask leaves out keep their values",
        "the same",
        "outputs that depend on these elements are compared",
    ),
    refused("masked_load", "elements that the mask leaves out are undefined", "use a load and jnp.where"),
    modelled(
        "multiple_of",
        "the unchanged value",
        "`assume_multiple`: the compiler trusts the hint. In an address that counts tiles (128 lanes, 8 rows of "
        "bfloat16), the remainder within a tile is shifted out (`sadd 64`, `sshra 7`)",
        "the checked program rounds the value towards 0 to the multiple, so a false hint addresses other data",
    ),
    guarded(
        "run_scoped empty_ref",
        "memory filled with NaN",
        "memory with the contents that earlier code left there",
        "in the checked programs the memory holds NaN, a marked NaN or an unpredictable number, depending on the "
        "shape. Comparisons with a marked NaN give the opposite of their result for NaN, because comparisons with "
        "contents that an earlier call left may do so too",
    ),
    guarded(
        "dma_start",
        "copies at once",
        "`dma`: copies at an unknown later time",
        "the TPU interpreter finds races; the simulator finds transfers out of bounds and transfers that are never "
        "waited for. Copies that add to their destination are refused; copies to another device are accepted only in "
        "contests over a mesh",
        option_is_refused=True,
    ),
    guarded("dma_wait", "nothing", "waits for a copy", "as for dma_start", option_is_refused=True),
    guarded(
        "semaphore_signal semaphore_wait",
        "counts",
        "counts",
        "the TPU interpreter waits as the chip does; signals to another core are refused; signals to another device "
        "are accepted only in contests over a mesh",
        option_is_refused=True,
    ),
    refused(
        "semaphore_read",
        "the count at that moment",
        "the count depends on time: a copy that is done on the CPU may still be running on the chip; use "
        "semaphore_wait",
    ),
    refused("delay", "waits", "a result that is right only after a delay depends on time: wait for a semaphore"),
    guarded(
        "get_barrier_semaphore axis_index",
        "a simulated device for each chip",
        "the chips of the mesh",
        "accepted only in a contest over a mesh: all chips run side by side, and races between them are looked for",
        option_is_refused=True,
    ),
)

CONTROL = (
    same(
        "cond while scan",
        "the same",
        "the same; short loops are unrolled",
        "a branch on an undefined value gets a mark on the CPU, and is unknown to the simulator",
    ),
    same(
        "jit custom_jvp_call custom_vjp_call add_dependency stop_gradient",
        "calls",
        "inlined",
        "the operations of their bodies are looked up",
    ),
    guarded(
        "program_id num_programs",
        "the index of the grid step, the size of the grid",
        "the same",
        "the TPU interpreter splits `parallel` axes between cores",
    ),
    refused("platform_index", "the branch for the platform", "refused as `platform-dependent`"),
    refused("debug_callback debug_print", "calls the host", "refused as `host-callback`"),
    guarded(
        "check",
        "nothing",
        "nothing, unless a setting of JAX switches it on",
        "pl.debug_check is removed from the checked and the compiled program, as JAX does by default; other checks are "
        "refused, as is a kernel.py that changes the setting",
        option_is_refused=True,
    ),
    refused("trace_value", "a trace entry if a flag is set", "its cost is not in the schedule: leave it out"),
    refused(
        "emit_pipeline pipeline_body stage",
        "pipelines expanded by the compiler",
        "only kernels for SparseCores contain these: JAX itself expands pltpu.emit_pipeline in a kernel for the "
        "TensorCore, where it is accepted",
    ),
    refused(
        "dim_as_value reshard eval_jaxpr custom_fusion has_memory_space",
        "symbolic sizes, meshes, fusion",
        "no interpreter on a CPU has it: leave it out",
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
# Options of pltpu.CompilerParams that leave out checks that the chip makes at run time.
CHECKS = {
    "disable_bounds_checks": "the chip does not halt at accesses beyond an array; the judge checks the kernel with "
    "these checks and times it without them",
    "disable_semaphore_checks": "the chip does not halt if a semaphore is not zero at the end; the judge checks the "
    "kernel with this check and times it without it",
}
# The accepted options of pltpu.CompilerParams, each with its effect. No option changes results by more than rounding,
# and only the options in CHECKS change checks.
OPTIONS = {
    "dimension_semantics": "the axes whose steps the cores share; races and parallel axes are checked",
    "vmem_limit_bytes": "the amount of VMEM that the compiler may use",
    "internal_scratch_in_bytes": "the amount of memory that the compiler takes for itself",
    "has_side_effects": "whether a call is kept if its results are not used",
    "serialization_format": "the format in which the program is written",
    "skip_device_barrier": "the barrier of several devices, of which one is judged; refused over a mesh",
    "shape_invariant_numerics": "the order in which sums are added up",
    "use_tc_tiling_on_sc": "code for the SparseCore only",
    "needs_layout_passes": "code for the SparseCore only",
    "fuse_transposed_lhs_in_matmul": "where an operand is transposed",
    **CHECKS,
    "allow_collective_id_without_custom_barrier": "the barrier of several devices, of which one is judged; refused "
    "over a mesh",
}
# Options that remove the barrier with which several chips begin a kernel together. On a mesh they are refused.
OF_A_BARRIER = frozenset(("skip_device_barrier", "allow_collective_id_without_custom_barrier"))
# Accepted flags of the compiler for one kernel (`pltpu.CompilerParams(flags=...)`): they change neither results nor
# checks.
FLAGS = {"XLA_TPU_FORCE_LP_LLO_SCHEDULER": "the order in which instructions are issued"}
