"""A row for each known operation outside kernels: its results under XLA on a CPU and on a chip.

The kinds are the same as in `semantics_table`. Products, exponentials, host calls and platform-dependent operations are
refused with other kinds (see `forbidden_operations.refuse_foreign_work`).
"""

from harness.judge.evaluate.trace.semantics_table import guarded, modelled, refused, same

_BODY = "the operations of its body are looked up"
_ONLY_ROUNDING = "the results differ only by rounding"
_OVER_A_MESH = "accepted only in a contest over a mesh"

OUTSIDE = (
    same(
        "abs add add_any and clz eq eq_to ge gt is_finite le le_to lt lt_to max min mul ne neg not or "
        "population_count select_n sign square sub xor clamp",
        "IEEE; integers wrap",
        "the same",
        "a chip rounds a chain of bfloat16 operations at its end only; the kernel must be right with this rounding "
        "and, on one chip, also with every result rounded. A constant added to a sum with another constant is refused, "
        "because XLA adds the constants first",
    ),
    same(
        "acos asin atan cbrt cos floor ceil integer_pow nextafter round rsqrt sin tan atan2",
        "library function",
        "polynomials and iterations",
        _ONLY_ROUNDING,
    ),
    same(
        "bitcast_convert_type broadcast_in_dim concatenate copy device_put dynamic_slice dynamic_update_slice "
        "iota layout_constraint pad reshape rev slice split squeeze stack tile transpose unstack "
        "with_memory_space_constraint zeros_like",
        "copies",
        "copies",
        "no arithmetic; on every platform XLA moves a dynamic slice that reaches beyond its array back inside",
    ),
    same(
        "cumprod cumsum reduce_prod reduce_sum reduce_window_sum scatter-add scatter-mul scatter-sub",
        "combined in some order",
        "combined in some order",
        "floats differ only by rounding; integers are exact in any order",
    ),
    same(
        "argmax argmin cummax cummin reduce_and reduce_max reduce_min reduce_or reduce_window_max "
        "reduce_window_min reduce_xor scatter-max scatter-min top_k",
        "exact",
        "exact",
        "on every platform XLA returns the first of several equal elements; whether the maximum of +0 and -0 is +0 or "
        "-0 is not specified",
    ),
    modelled(
        "div rem",
        "of an integer by 0: -1 (div), the dividend (rem)",
        "of an integer by 0: not published. float32: as in kernels; a product if the divisor is a constant",
        "the quotient or remainder of an integer by 0 is a mark; float32 as in kernels: x * (1 / y), and the remainder "
        "by this quotient",
    ),
    modelled("sqrt", "exact", "x * rsqrt(x)", "float32: computed as on the chip"),
    modelled(
        "shift_left shift_right_logical shift_right_arithmetic",
        "a shift by the word length or more gives 0, or the sign in every bit",
        "the same, according to XLA",
        "such a shift gives a mark, as in kernels",
    ),
    modelled(
        "convert_element_type",
        "numbers that an integer type cannot hold saturate or wrap",
        "the result for such numbers is not published",
        "a number that the integer type cannot hold is a mark; no conversion is left out",
    ),
    same("reduce_precision", "to nearest even", "to nearest even", "the same rounding"),
    same("gather", "`mode` decides about indices beyond the array", "the same", "promises about indices are refused"),
    modelled(
        "scatter",
        "the last of several updates of an element remains",
        "any of several updates of an element may remain",
        "an element is a mark if two of its updates differ in a bit; promises about indices are refused",
    ),
    modelled(
        "sort",
        "equal keys in some order",
        "equal keys in some order, unless is_stable",
        "different values with equal keys are marks, unless the sort is stable",
    ),
    guarded("pallas_call", "interpreted", "compiled", "all other sections of this page"),
    guarded(
        "all_gather all_gather_invariant all_to_all axis_index ppermute shard_map",
        "moved between devices",
        "moved between chips",
        _OVER_A_MESH,
    ),
    guarded("pmax pmin", "exact", "exact", _OVER_A_MESH),
    guarded(
        "psum psum_invariant reduce_scatter",
        "added in some order",
        "added in some order, rounded after each step",
        f"{_OVER_A_MESH}, and only for 32-bit operands; the tolerance covers the rounding of floats",
    ),
    guarded(
        "call_hi_primitive",
        "calls",
        "calls",
        "accepted only for JAX's own classes (such as that of jnp.searchsorted in jax 0.12)",
    ),
    same("cond while scan", "the same", "the same", _BODY),
    same(
        "call closed_call custom_jvp_call custom_vjp_call custom_vmap_call jit linear_call remat2 remat_opt "
        "custom_lin name optimization_barrier stop_gradient add_dependency",
        "calls",
        "calls",
        _BODY,
    ),
    guarded(
        "dot_general",
        "added in some order",
        "added in some order",
        "accepted only for float32 products of each row with one row of the other operand, which are elementwise "
        "products and sums; others are refused as `dot-outside-pallas`",
    ),
    guarded(
        "conv_general_dilated ragged_dot_general scaled_matmul scaled_matmul_wrapper",
        "not run",
        "products",
        "refused as `dot-outside-pallas`",
    ),
    guarded(
        "acosh asinh atanh cosh cumlogsumexp digamma erf erf_inv erfc exp exp2 expm1 lgamma log log1p logistic pow "
        "sinh tanh",
        "not run",
        "exponentials and logarithms",
        "refused as `exp-outside-pallas`",
    ),
    refused(
        "call_exported composite custom_partitioning ffi_call tpu_custom_call",
        "operations that the source does not show",
        "its operations are not in the trace and may differ between platforms: call the function itself",
    ),
    refused(
        "approx_top_k",
        "approximate",
        "the number of elements that it misses depends on the platform: use lax.top_k",
        on_cpu="exact",
    ),
    refused(
        "random_seed random_wrap random_unwrap random_bits random_fold_in random_split random_gamma random_clone "
        "rng_bit_generator rng_uniform philox2x32 philox4x32 threefry2x32 threefry4x32",
        "other random bits",
        "the bits that a key gives depend on the platform and on options: take random numbers as an input",
        on_cpu="random bits",
    ),
    refused(
        "cholesky cholesky_update eig eigh fft hessenberg householder_product custom_linear_solve geqp3 geqrf "
        "ormqr lu lu_pivots_to_permutation qr schur svd symmetric_product triangular_solve tridiagonal "
        "tridiagonal_solve",
        "an algorithm of its own",
        "each platform's library has its own algorithm, which may choose other signs: write it with listed operations",
        on_cpu="LAPACK",
    ),
    refused(
        "reduce select_and_scatter select_and_scatter_add select_and_gather_add reduce_window igamma igammac "
        "polygamma regularized_incomplete_beta bessel_i0e bessel_i1e",
        "not compared",
        "not yet compared between the platforms: write it with listed operations",
        on_cpu="not compared",
    ),
)
