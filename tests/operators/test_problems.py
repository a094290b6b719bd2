"""Every problem follows the rules for problems; honest variants of each operation pass, and known bugs fail."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.operators import (
    AllGather,
    AllGatherMatmul,
    AllReduce,
    Attention,
    AttentionBackward,
    CacheRows,
    CrossEntropy,
    GatedDelta,
    GroupedMatmul,
    GroupedMatmulTransposed,
    LatentAttention,
    Matmul,
    MatmulReduceScatter,
    PagedAttention,
    Problem,
    QuantizedMatmul,
    ReduceScatter,
    RingAttention,
    RMSNorm,
    SwiGLU,
    TopK,
    changed,
    check,
    check_probe,
    complaints,
)
from harness.operators.blocks import blocks, sampled_rows, shorter
from harness.operators.outputs import row_count, spans
from harness.operators.problem import Exact

pytestmark = pytest.mark.long

Outputs = tuple[NDArray[Any], ...]
Kernel = Callable[[Sequence[NDArray[Any]]], Outputs]
BF16 = ml_dtypes.bfloat16
FLOAT8 = "float8_e4m3fn"

PAGES: dict[str, Any] = {"sequences": 5, "pages": 40, "page_size": 16, "pages_per_sequence": 12}
LATENT: dict[str, Any] = {"latent": 128, "rope": 64, "padded": 128, "page_size": 16, "scale": 0.1}
PROBLEMS: dict[str, Problem] = {
    "attention": Attention(sequence=260, head_dim=64),
    "attention, causal": Attention(sequence=260, head_dim=64, causal=True),
    "attention, grouped": Attention(batch=2, heads=2, kv_heads=1, sequence=260, head_dim=64),
    "attention, window": Attention(sequence=260, head_dim=64, causal=True, window=100, soft_cap=50.0),
    "attention, packed": Attention(batch=2, sequence=260, head_dim=64, segments=3),
    "attention backward": AttentionBackward(sequence=260, head_dim=64),
    "attention backward, causal": AttentionBackward(heads=2, sequence=260, head_dim=64, causal=True),
    "attention backward, grouped": AttentionBackward(heads=6, kv_heads=2, sequence=260, head_dim=64, causal=True),
    "attention backward, one head of keys": AttentionBackward(heads=4, kv_heads=1, sequence=130, head_dim=64),
    "attention backward, float32": AttentionBackward(sequence=130, head_dim=64, dtype="float32"),
    "matmul": Matmul(m=512, n=384, k=512),
    "matmul, float32": Matmul(m=260, n=256, k=300, dtype="float32"),
    "all-gather matmul": AllGatherMatmul(m=512, n=512, k=384),
    "matmul reduce-scatter": MatmulReduceScatter(m=512, n=384, k=512),
    "all-gather": AllGather(rows=512, columns=384),
    "all-gather, float32, two chips": AllGather(rows=260, columns=128, dtype="float32", chips=2),
    "reduce-scatter": ReduceScatter(rows=512, columns=384),
    "all-reduce": AllReduce(rows=512, columns=128, chips=8),
    "ring attention": RingAttention(sequence=260, head_dim=64),
    "cross-entropy": CrossEntropy(tokens=260, model=256, vocabulary=512),
    "cross-entropy, float32": CrossEntropy(tokens=130, model=260, vocabulary=300, dtype="float32"),
    "grouped matmul": GroupedMatmul(m=512, groups=8, k=512, n=384),
    "grouped matmul, float32": GroupedMatmul(m=260, groups=3, k=300, n=256, dtype="float32"),
    "grouped matmul, one group": GroupedMatmul(m=300, groups=1, k=256, n=128),
    "transposed grouped matmul": GroupedMatmulTransposed(m=512, groups=8, k=384, n=256),
    "transposed grouped matmul, float32": GroupedMatmulTransposed(m=260, groups=3, k=300, n=128, dtype="float32"),
    "quantized matmul": QuantizedMatmul(m=260, n=384, k=512),
    "quantized matmul, int8": QuantizedMatmul(m=260, n=256, k=384, activations="int8"),
    "quantized matmul, float8 weights": QuantizedMatmul(m=260, n=256, k=384, weights=FLOAT8),
    "quantized matmul, float8": QuantizedMatmul(m=260, n=256, k=384, activations=FLOAT8, weights=FLOAT8),
    "quantized matmul, float32": QuantizedMatmul(m=260, n=256, k=300, dtype="float32"),
    "paged attention": PagedAttention(heads=4, kv_heads=2, head_dim=64, **PAGES),
    "paged attention, ragged": PagedAttention(tokens=70, heads=4, kv_heads=2, head_dim=64, **PAGES),
    "paged attention, update": PagedAttention(tokens=70, heads=4, kv_heads=2, head_dim=64, update=True, **PAGES),
    "paged attention, ragged, float32": PagedAttention(
        tokens=20, heads=1, kv_heads=1, head_dim=64, dtype="float32", **PAGES
    ),
    "rmsnorm": RMSNorm(rows=256, columns=512),
    "rmsnorm, alone, float32": RMSNorm(rows=128, columns=384, residual=False, dtype="float32"),
    "top k": TopK(rows=256, columns=384, k=3),
    "top k, bfloat16": TopK(rows=130, columns=128, k=1, dtype="bfloat16"),
    "latent attention": LatentAttention(tokens=4, sequences=4, heads=4, pages=20, pages_per_sequence=4, **LATENT),
    "latent attention, mixed": LatentAttention(
        tokens=40, sequences=3, heads=2, pages=16, pages_per_sequence=5, heads_first=True, **LATENT
    ),
    "cache rows": CacheRows(tokens=64, heads=4, head_dim=64, pages=32, page_size=16, pieces=8),
    "gated delta rule": GatedDelta(kind="gated delta rule", time=256, heads=4, dim=64),
    "delta attention": GatedDelta(kind="delta attention", time=256, heads=1, dim=64),
    "swiglu": SwiGLU(tokens=260, model=260, hidden=256),
    "swiglu, down": SwiGLU(tokens=260, model=128, hidden=260, down=True),
    "swiglu, float32": SwiGLU(tokens=260, model=128, hidden=128, dtype="float32"),
}
MATMUL, NORM = Matmul(m=128, n=128, k=1024), RMSNorm(rows=64, columns=1024)
BACKWARD = AttentionBackward(sequence=128, head_dim=64)
SHARED = AttentionBackward(heads=16, kv_heads=2, sequence=128, head_dim=64)
ENTROPY = CrossEntropy(tokens=128, model=512, vocabulary=512)
GROUPED = GroupedMatmul(m=256, groups=4, k=512, n=128)
QUANTIZED = QuantizedMatmul(m=128, n=128, k=1024)
INT8 = QuantizedMatmul(m=128, n=128, k=1024, activations="int8")
NARROW = QuantizedMatmul(m=128, n=128, k=1024, activations=FLOAT8, weights=FLOAT8)
NARROW_WEIGHTS = QuantizedMatmul(m=128, n=128, k=1024, weights=FLOAT8)
GATED, DOWN = SwiGLU(tokens=64, model=1024, hidden=128), SwiGLU(tokens=64, model=128, hidden=1024, down=True)


def computed_once(method: Callable[..., Exact]) -> Callable[..., Exact]:
    """The method of a problem, which computes nothing twice for equal inputs and rows."""
    kept: dict[bytes, Exact] = {}

    def run(problem: Problem, inputs: Sequence[NDArray[Any]], rows: NDArray[np.int64]) -> Exact:
        digest = hashlib.sha256(repr(problem).encode())
        for array in (*inputs, rows):
            digest.update(array.tobytes())
        name = digest.digest()
        if name not in kept:
            kept[name] = method(problem, inputs, rows)
            kept[name].flags.writeable = False
        return kept[name]

    return run


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_keeps_the_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Most rules ask for the same numbers.
    kind = type(PROBLEMS[name])
    for method in ("reference", "honest", "rounding"):
        monkeypatch.setattr(kind, method, computed_once(getattr(kind, method)))
    assert complaints(PROBLEMS[name]) == ()


# --- Honest variants and known bugs ------------------------------------------------------------


def single(array: NDArray[Any]) -> NDArray[np.float32]:
    return array.astype(np.float32)


def bf16(array: NDArray[Any]) -> NDArray[np.float32]:
    """The array rounded to bfloat16, as float32."""
    return array.astype(BF16).astype(np.float32)


def product(
    a: NDArray[Any],
    b: NDArray[Any],
    *,
    block: int = 128,
    accumulate: Any = single,
    skip: int = -1,
    is_empty: Callable[[NDArray[Any]], Any] = lambda part: False,
) -> Any:
    """A b as kernels do it: blocks of k one after another, the sum kept by `accumulate`; block `skip` is left out, and
    so are those of which `is_empty` says so.
    """
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for place, start in enumerate(range(0, a.shape[1], block)):
        if place != skip and not is_empty(a[:, start : start + block]):
            total = accumulate(total + single(a[:, start : start + block]) @ single(b[start : start + block]))
    return total


def matmul(**how: Any) -> Kernel:
    return lambda inputs: (product(*inputs, **how).astype(BF16),)


def float8_e5m2(values: NDArray[Any]) -> NDArray[Any]:
    """The values with one bit of the fraction less."""
    return single(values.astype(ml_dtypes.float8_e5m2))


def quantized(
    *,
    scales_as: Callable[[NDArray[Any]], NDArray[Any]] = np.copy,
    rows_as: Callable[[NDArray[Any]], NDArray[Any]] = np.copy,
    weights_as: Any = single,
    before: bool = False,
    **how: Any,
) -> Kernel:
    """The product with the weights as they are, scaled at the end, or `before`: each weight scaled and rounded."""

    @np.errstate(all="ignore")
    def run(inputs: Sequence[NDArray[Any]]) -> Outputs:
        a, q, scales, *of_rows = inputs
        weights, factors = weights_as(q), scales_as(scales) * (rows_as(of_rows[0]) if of_rows else 1)
        if before:
            return (product(a, bf16(weights * factors), **how).astype(BF16),)
        return ((product(a, weights, **how) * factors).astype(BF16),)

    return run


def moved_rows(inputs: Sequence[NDArray[Any]]) -> Outputs:
    """The second block of rows computed from the third, as an index map that is off by one does."""
    a = inputs[0].copy()
    a[32:64] = inputs[0][64:96]
    return matmul()((a, inputs[1]))


def stale_rows(inputs: Sequence[NDArray[Any]]) -> Outputs:
    """The last block of rows holds the contents of the block before it."""
    (c,) = matmul()(inputs)
    c[-32:] = c[-64:-32]
    return (c,)


def grouped(
    *, tile: int = 64, neighbour: bool = False, as_if: Callable[[NDArray[Any]], NDArray[Any]] = np.copy, **how: Any
) -> Kernel:
    """Tile by tile and group by group, as kernels do it.

    `neighbour`: rows that share a tile with another group get the matrix of the tile's first group. `as_if`: the sizes
    that the kernel assumes.
    """

    @np.errstate(all="ignore")
    def run(inputs: Sequence[NDArray[Any]]) -> Outputs:
        lhs, rhs, sizes = inputs
        out = np.zeros((len(lhs), rhs.shape[2]), BF16)
        group_of = np.repeat(np.arange(len(sizes)), as_if(sizes))
        for start in range(0, len(lhs), tile):
            members = group_of[start : start + tile]
            rows = np.arange(start, start + len(members))
            for group in np.unique(members)[: 1 if neighbour else None]:
                kept = rows if neighbour else rows[members == group]
                out[kept] = product(lhs[kept], rhs[group], **how).astype(BF16)
        return (out,)

    return run


def last_row_of_the_first(sizes: NDArray[Any]) -> NDArray[Any]:
    """The sizes with one row moved from the first group that has rows to the last group."""
    changed = sizes.copy()
    changed[np.flatnonzero(sizes)[0]] -= 1
    changed[-1] += 1
    return changed


def none_empty(sizes: NDArray[Any]) -> NDArray[Any]:
    """Empty groups are passed over: their matrices go to the groups behind them."""
    return np.concatenate([sizes[sizes > 0], sizes[sizes == 0]])


def backward(
    *,
    weights_as: Any = bf16,
    products_as: Any = single,
    queries_as: Any = single,
    of_delta: Callable[..., Any] = lambda o, do, weights, products: (o * do).sum(axis=1, keepdims=True),
    skip: bool = False,
    dk_scale: bool = True,
    swap: bool = False,
) -> Kernel:
    """All pairs at once; `skip` leaves the last block of queries out of dk and dv."""

    @np.errstate(all="ignore")
    def run(inputs: Sequence[NDArray[Any]]) -> Outputs:
        q, k, v, o, lse, do = map(single, inputs)
        scale = np.float32(q.shape[1] ** -0.5)
        scores = queries_as(q * scale) @ k.T
        weights = np.exp(scores - lse[:, None])
        products = products_as(do @ v.T)
        gradients = weights_as(weights * (products - of_delta(o, do, weights, products)))
        kept = slice(None, -32) if skip else slice(None)
        dk = (gradients[kept].T @ q[kept]) * (scale if dk_scale else 1)
        dv = weights_as(weights)[kept].T @ do[kept]
        results = ((gradients @ k) * scale, *((dv, dk) if swap else (dk, dv)))
        return tuple(array.astype(BF16) for array in results)

    return run


def backward_of_groups(
    *, kv_head: Callable[[int], int] = lambda head: head // 8, sums_as: Any = single, skip: int = 0
) -> Kernel:
    """Each of 16 heads by itself, dk and dv added up over the 8 that read the same keys but for the first `skip`."""

    @np.errstate(all="ignore")
    def run(inputs: Sequence[NDArray[Any]]) -> Outputs:
        q, k, v, o, lse, do = map(single, inputs)
        dq, dk, dv = (np.zeros_like(array) for array in (q, k, v))
        for head in range(len(q)):
            shared = kv_head(head)
            scores = q[head] @ k[shared].T * np.float32(q.shape[2] ** -0.5)
            # Scores of other keys may be far above the logarithm of sums.
            weights = np.exp(np.minimum(scores - lse[head][:, None], 60))
            delta = (o[head] * do[head]).sum(axis=1, keepdims=True)
            gradients = bf16(weights * (do[head] @ v[shared].T - delta))
            dq[head] = gradients @ k[shared]
            if head % 8 >= skip:
                dk[shared] = sums_as(dk[shared] + sums_as(gradients.T @ q[head]))
                dv[shared] = sums_as(dv[shared] + sums_as(bf16(weights).T @ do[head]))
        scale = np.float32(q.shape[2] ** -0.5)
        return tuple(array.astype(BF16) for array in (dq * scale, dk * scale, dv))

    return run


def norm(
    *,
    eps: float = 1e-6,
    outside: bool = False,
    centred: bool = False,
    of_rounded: bool = False,
    twice: bool = False,
    skip: bool = False,
    squares: Any = single,
    written: Any = None,
) -> Kernel:
    @np.errstate(all="ignore")
    def run(inputs: Sequence[NDArray[Any]]) -> Outputs:
        x, r, w = map(single, inputs)
        h = bf16(x + r) if of_rounded else x + r
        used = h - h.mean(axis=1, keepdims=True) if centred else h
        counted = used[:, 128:] if skip else used
        mean = squares(squares(counted * counted).sum(axis=1, keepdims=True)) / used.shape[1]
        scale = 1 / (np.sqrt(mean) + eps) if outside else 1 / np.sqrt(mean + np.float32(eps))
        y = used * scale
        y = (bf16(y) if twice else y) * w
        return y.astype(BF16), (h if written is None else written(x, r)).astype(BF16)

    return run


def silu(gate: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = gate / (1 + np.exp(-gate))
    return values


def other_silu(gate: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = gate * np.exp(gate) / (1 + np.exp(gate))
    return values


def relu(gate: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = np.maximum(gate, 0)
    return values


def cut_off(gate: NDArray[Any]) -> NDArray[Any]:
    """SiLU with the sigmoid replaced where it is nearly 0 or 1."""
    return np.where(np.abs(gate) > 8, relu(gate), silu(gate))


def gelu(gate: NDArray[Any]) -> NDArray[Any]:
    values: NDArray[Any] = silu(1.702 * gate) / 1.702
    return values


def swiglu(activation: Any = silu, *, swap: bool = False, between: Any = single, **how: Any) -> Kernel:
    @np.errstate(all="ignore")
    def run(inputs: Sequence[NDArray[Any]]) -> Outputs:
        x, gate_weight, up_weight, *rest = inputs
        gate, up = (between(product(x, weight, **how)) for weight in (gate_weight, up_weight))
        if swap:
            gate, up = up, gate
        values = (activation(gate) * up).astype(BF16)
        return (product(values, rest[0], **how).astype(BF16) if rest else values,)

    return run


def entropy(
    *,
    block: int = 128,
    maximum: bool = True,
    rescaled: bool = True,
    skip: int = -1,
    logits: NDArray[Any] | None = None,
    logits_as: Any = single,
    maxima_as: Any = single,
    begins: float = -np.inf,
    differences_as: Any = single,
    terms_as: Any = single,
    sums_as: Any = single,
    **how: Any,
) -> Kernel:
    """The loss, one block of words at a time, from the largest logit and the sum so far; leaves block `skip` out.

    `logits` are those of the inputs, where they are known.
    """

    @np.errstate(all="ignore")
    def run(inputs: Sequence[NDArray[Any]]) -> Outputs:
        x, w, labels = inputs
        rounded = logits_as(product(x, w, **how) if logits is None else logits)
        largest = np.full((len(x), 1), begins, np.float32)
        total = np.zeros((len(x), 1), np.float32)
        for place, start in enumerate(range(0, w.shape[1], block)):
            if place == skip:
                continue
            some = rounded[:, start : start + block]
            higher = np.maximum(largest, some.max(axis=1, keepdims=True)) if maximum else np.zeros_like(largest)
            higher = maxima_as(higher)
            total *= np.exp(largest - higher) if rescaled and maximum else 1
            total += terms_as(np.exp(differences_as(some - higher))).sum(axis=1, keepdims=True)
            total = sums_as(total)
            largest = higher
        of_label = np.take_along_axis(rounded, labels, axis=1)
        return ((largest + np.log(total) - of_label).astype(np.float32),)

    return run


def refusing_families(problem: Problem, run: Kernel) -> Iterator[str]:
    """The families of inputs that refuse the kernel, each tried when it is asked for."""
    for family in problem.families(False):
        inputs = problem.make_inputs(family, 3)
        if check(problem, inputs, run(inputs), family=family, mode="reduced", seed=3)[1] is not None:
            yield family


def refusing_probes(problem: Problem, run: Kernel, seed: int = 3) -> Iterator[str]:
    """The names of the probes that refuse the kernel, each tried when it is asked for."""
    outputs = problem.statement().outputs
    for probe in problem.probes(False, seed):
        inputs = problem.make_inputs(probe.family, seed)
        before, after = run(inputs), run(changed(probe, inputs))
        if check_probe(outputs, probe, before, after, mode="reduced", seed=seed)[1] is not None:
            yield probe.name


HONEST: dict[str, tuple[Problem, Kernel]] = {
    "matmul in blocks": (MATMUL, matmul()),
    "matmul in one block": (MATMUL, matmul(block=1024)),
    "matmul without empty blocks": (MATMUL, matmul(is_empty=lambda part: not part.any())),
    "backward": (BACKWARD, backward()),
    "backward, grouped": (SHARED, backward_of_groups()),
    "backward, nothing rounded between": (BACKWARD, backward(weights_as=single)),
    "backward, scaled queries rounded": (BACKWARD, backward(queries_as=bf16)),
    "grouped matmul": (GROUPED, grouped()),
    "grouped matmul in one tile": (GROUPED, grouped(tile=256, block=512)),
    "quantized matmul": (QUANTIZED, quantized()),
    "quantized matmul in one block": (QUANTIZED, quantized(block=1024)),
    "quantized matmul of int8": (INT8, quantized()),
    "quantized matmul of float8": (NARROW, quantized()),
    "quantized matmul with float8 weights": (NARROW_WEIGHTS, quantized()),
    "norm": (NORM, norm()),
    "norm of the rounded sum": (NORM, norm(of_rounded=True)),
    "norm rounded before the weights": (NORM, norm(twice=True)),
    "norm rounded wherever it may be": (NORM, norm(of_rounded=True, twice=True)),
    "swiglu in blocks": (GATED, swiglu()),
    "swiglu in one block": (GATED, swiglu(block=1024)),
    "swiglu, down": (DOWN, swiglu()),
    "cross-entropy in blocks": (ENTROPY, entropy()),
    "cross-entropy in one block": (ENTROPY, entropy(block=512)),
    "cross-entropy, maxima rounded up": (ENTROPY, entropy(maxima_as=np.ceil)),
    "cross-entropy, a first maximum of -1e9": (ENTROPY, entropy(begins=-1e9)),
}

WRONG: dict[str, tuple[Problem, Kernel]] = {
    "cross-entropy, no maximum": (ENTROPY, entropy(maximum=False)),
    "cross-entropy, a first maximum of -1e5": (ENTROPY, entropy(begins=-1e5)),
    "cross-entropy, sums of other maxima": (ENTROPY, entropy(rescaled=False)),
    "cross-entropy, first words left out": (ENTROPY, entropy(skip=0)),
    "cross-entropy, last words left out": (ENTROPY, entropy(block=32, skip=15)),
    "cross-entropy, logits in bfloat16": (ENTROPY, entropy(logits_as=bf16)),
    "cross-entropy, accumulator in bfloat16": (ENTROPY, entropy(accumulate=bf16)),
    "cross-entropy, differences in bfloat16": (ENTROPY, entropy(differences_as=bf16)),
    "cross-entropy, exponentials in bfloat16": (ENTROPY, entropy(terms_as=bf16)),
    "cross-entropy, sums in bfloat16": (ENTROPY, entropy(sums_as=bf16)),
    "matmul, accumulator in bfloat16": (MATMUL, matmul(accumulate=bf16)),
    "matmul, first block of k left out": (MATMUL, matmul(skip=0)),
    "matmul, last block of k left out": (MATMUL, matmul(skip=7)),
    "matmul, blocks without those whose first column is empty": (
        MATMUL,
        matmul(is_empty=lambda part: not part[:, 0].any()),
    ),
    "matmul, rows of another block": (MATMUL, moved_rows),
    "matmul, a block of rows written twice": (MATMUL, stale_rows),
    "backward, heads share keys in turn": (SHARED, backward_of_groups(kv_head=lambda head: head % 2)),
    "backward, dk and dv of the last head": (SHARED, backward_of_groups(skip=7)),
    "backward, dk and dv without the first head": (SHARED, backward_of_groups(skip=1)),
    "backward, heads added in bfloat16": (SHARED, backward_of_groups(sums_as=bf16)),
    "backward without delta": (BACKWARD, backward(of_delta=lambda *arrays: 0.0)),
    "backward, delta of the weights": (
        BACKWARD,
        backward(of_delta=lambda o, do, p, dp: (p * dp).mean(axis=1)[:, None]),
    ),
    "backward, dk not scaled": (BACKWARD, backward(dk_scale=False)),
    "backward, dk and dv swapped": (BACKWARD, backward(swap=True)),
    "backward, last block of queries left out": (BACKWARD, backward(skip=True)),
    "backward, do v rounded before delta is taken off": (BACKWARD, backward(products_as=bf16)),
    "quantized matmul, accumulator in bfloat16": (QUANTIZED, quantized(accumulate=bf16)),
    "quantized matmul, first block of k left out": (QUANTIZED, quantized(skip=0)),
    "quantized matmul of int8, rows not scaled": (INT8, quantized(rows_as=np.ones_like)),
    "quantized matmul of int8, row scales in bfloat16": (INT8, quantized(rows_as=bf16)),
    "quantized matmul of int8, the next row's scale": (INT8, quantized(rows_as=lambda all_: np.roll(all_, 1, 0))),
    "quantized matmul of int8, last block of k left out": (INT8, quantized(skip=7)),
    "quantized matmul of float8, rows not scaled": (NARROW, quantized(rows_as=np.ones_like)),
    "quantized matmul of float8, accumulator in bfloat16": (NARROW, quantized(accumulate=bf16)),
    "quantized matmul of float8, first block of k left out": (NARROW, quantized(skip=0)),
    "quantized matmul of float8, two bits of the fraction": (NARROW, quantized(weights_as=float8_e5m2)),
    "quantized matmul with float8 weights, two bits": (NARROW_WEIGHTS, quantized(weights_as=float8_e5m2)),
    "quantized matmul with float8 weights, the largest cut": (
        NARROW_WEIGHTS,
        quantized(weights_as=lambda q: single(q).clip(-240, 240)),
    ),
    "quantized matmul with float8 weights, scaled weights rounded": (NARROW_WEIGHTS, quantized(before=True)),
    "quantized matmul, not scaled": (QUANTIZED, quantized(scales_as=np.ones_like)),
    "quantized matmul, scales in bfloat16": (QUANTIZED, quantized(scales_as=bf16)),
    "quantized matmul, scales clamped": (QUANTIZED, quantized(scales_as=lambda all_: np.maximum(all_, 1e-8))),
    "quantized matmul of int8, row scales without a sign": (INT8, quantized(rows_as=np.abs)),
    "quantized matmul, the next column's scale": (QUANTIZED, quantized(scales_as=lambda all_: np.roll(all_, 1, 1))),
    "quantized matmul, scaled weights rounded": (QUANTIZED, quantized(before=True)),
    "quantized matmul, weights without a sign": (QUANTIZED, quantized(weights_as=lambda q: single(q.view(np.uint8)))),
    "quantized matmul, four bits of the weights": (QUANTIZED, quantized(weights_as=lambda q: single(q // 16 * 16))),
    "grouped matmul, accumulator in bfloat16": (GROUPED, grouped(accumulate=bf16)),
    "grouped matmul, last block of k left out": (GROUPED, grouped(skip=3)),
    "grouped matmul, a tile has one group": (GROUPED, grouped(neighbour=True)),
    "grouped matmul, empty groups passed over": (GROUPED, grouped(as_if=none_empty)),
    "grouped matmul, a border one row off": (GROUPED, grouped(as_if=last_row_of_the_first)),
    "grouped matmul, groups of equal size": (GROUPED, grouped(as_if=lambda sizes: np.full_like(sizes, 64))),
    "norm without eps": (NORM, norm(eps=0.0)),
    "norm with another eps": (NORM, norm(eps=1e-5)),
    "norm with eps outside the root": (NORM, norm(outside=True)),
    "norm that subtracts the mean": (NORM, norm(centred=True)),
    "norm, a block of columns not counted": (NORM, norm(skip=True)),
    "norm, squares in bfloat16": (NORM, norm(squares=lambda a: a.astype(BF16).cumsum(axis=1, dtype=BF16)[:, -1:])),
    "norm, residual not added to h": (NORM, norm(written=lambda x, r: x)),
    "swiglu, exponential overflows": (GATED, swiglu(other_silu)),
    "swiglu with relu": (GATED, swiglu(relu)),
    "swiglu with gelu": (GATED, swiglu(gelu)),
    "swiglu without a sigmoid at large gates": (GATED, swiglu(cut_off)),
    "swiglu, gate and up swapped": (GATED, swiglu(swap=True)),
    "swiglu, accumulators in bfloat16": (GATED, swiglu(accumulate=bf16)),
    "swiglu, gate and up rounded": (GATED, swiglu(between=bf16)),
    "swiglu, last block of k left out": (GATED, swiglu(skip=7)),
    "swiglu, down, accumulator in bfloat16": (DOWN, swiglu(accumulate=bf16)),
}


def test_scores_of_gradients_lie_far_from_zero_and_gradients_of_outputs_may_be_tiny() -> None:
    assert "far-scores" in BACKWARD.families(full=True)
    for head_dim in (64, 128):
        problem = AttentionBackward(heads=2, sequence=128, head_dim=head_dim)
        *_, lse, do = problem.make_inputs("far-scores", 1)
        assert -400 < lse.min() < -150
        assert 150 < lse.max() < 400
        assert np.abs(lse).min() > 30
        sizes = np.abs(do.astype(np.float64)).max(axis=-1)
        assert sizes.max() > 2**8 * sizes.min()
    for family in ("far-scores", "drawn-rises", "composite"):
        sizes = [np.abs(BACKWARD.make_inputs(family, seed)[5].astype(np.float64)).max() for seed in range(8)]
        assert min(sizes) < 1e-5
        assert max(sizes) > 1e-2


def test_sums_of_int8_that_are_cut_off_are_refused_at_the_full_shape() -> None:
    # k is as long as in the example: with a shorter k, no sum comes near the limit.
    problem, limit = QuantizedMatmul(m=16, n=64, k=14336, activations="int8"), 1 << 24
    kinds = {}
    for family in problem.families(full=True):
        a, q, scales, row_scales = inputs = problem.make_inputs(family, 1)
        sums = a.astype(np.int64) @ q.astype(np.int64)
        outputs = ((sums.clip(-limit, limit) * scales * row_scales).astype(BF16),)
        _, failure = check(problem, inputs, outputs, family=family, mode="full", seed=1)
        kinds[family] = failure.kind if failure else ""
    assert kinds["far-values"] == "wrong-result"


@pytest.mark.long
@pytest.mark.parametrize("family", ["few", "composite"])
def test_exponentials_that_are_rounded_are_refused_in_every_draw(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # There are as few rows as with a long vocabulary. Over many words roundings average out, over few they do not.
    monkeypatch.setattr(CrossEntropy, "checked", 1 << 27)
    problem = CrossEntropy(tokens=1024, model=1024, vocabulary=4096)
    assert 20 < len(problem.sample_rows(0)) < 40
    kinds: dict[str, set[str]] = {}
    for seed in range(6):
        inputs = problem.make_inputs(family, seed)
        logits = product(*inputs[:2])
        for what, run in {
            "nothing": entropy(block=1024, logits=logits),
            "exponentials": entropy(block=1024, logits=logits, terms_as=bf16),
            "exponentials, in one block": entropy(block=4096, logits=logits, terms_as=bf16),
            "differences": entropy(block=1024, logits=logits, differences_as=bf16),
            "sums": entropy(block=1024, logits=logits, sums_as=bf16),
            "logits": entropy(block=1024, logits=logits, logits_as=bf16),
        }.items():
            _, failure = check(problem, inputs, run(inputs), family=family, mode="full", seed=seed)
            kinds.setdefault(what, set()).add(failure.kind if failure else "")
    assert kinds.pop("nothing") == {""}
    assert {what for what, refusals in kinds.items() if refusals != {"wrong-result"}} == set()


@pytest.mark.parametrize("seed", range(10))
def test_the_last_row_of_a_group_is_compared_where_few_rows_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupedMatmul, "checked", 1 << 20)
    problem = GroupedMatmul(m=4096, groups=8, k=128, n=64)
    assert len(problem.sample_rows(seed)) < 200
    inputs = problem.make_inputs("composite", seed)
    sizes = inputs[2]
    assert sizes.max() > problem.m // 2
    out = problem.honest(inputs, np.arange(problem.m)).astype(BF16)
    last = int(np.cumsum(sizes)[sizes.argmax()]) - 1
    assert check(problem, inputs, (out,), family="composite", mode="full", seed=seed)[1] is None
    out[last] = out[last - 1]
    _, failure = check(problem, inputs, (out,), family="composite", mode="full", seed=seed)
    assert failure is not None
    assert failure.kind == "wrong-result"


@pytest.mark.parametrize(
    "name",
    [
        *("attention, causal", "matmul", "grouped matmul", "attention backward", "attention backward, grouped"),
        *("rmsnorm", "swiglu"),
    ],
)
def test_no_input_that_is_drawn_fails_the_honest_computation(name: str) -> None:
    problem = PROBLEMS[name]
    outputs = problem.statement().outputs
    rows = np.arange(row_count(outputs))
    for family in (*problem.families(full=False), *problem.families(full=True)):
        for seed in range(3):
            inputs = problem.make_inputs(family, seed)
            whole = problem.honest(inputs, rows).astype(BF16)
            arrays = [whole[:, columns].reshape(output.shape) for _, output, columns in spans(outputs)]
            _, failure = check(problem, inputs, arrays, family=family, mode="reduced", seed=seed)
            assert failure is None


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_pass(name: str) -> None:
    assert set(refusing_families(*HONEST[name])) == set()
    assert set(refusing_probes(*HONEST[name])) == set()


@pytest.mark.parametrize("name", WRONG)
def test_known_bugs_are_refused_by_their_values(name: str) -> None:
    assert any(refusing_families(*WRONG[name]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("matmul, first block of k left out", "columns of a"),
        ("matmul, rows of another block", "rows "),
        ("backward, last block of queries left out", "gradients of the output of head 0, each"),
        ("backward, dk and dv swapped", "values"),
        ("backward, heads share keys in turn", "queries"),
        ("backward, dk and dv of the last head", "gradients of the output of head"),
        ("backward, dk and dv without the first head", "queries"),
        ("grouped matmul, last block of k left out", "columns of lhs"),
        ("grouped matmul, a tile has one group", "matrices of all groups"),
        ("grouped matmul, empty groups passed over", "matrices of all groups"),
        ("grouped matmul, a border one row off", "matrices of all groups"),
        ("grouped matmul, groups of equal size", "matrices of all groups"),
        ("norm, a block of columns not counted", "columns of x"),
        ("norm, residual not added to h", "rows "),
        ("swiglu, last block of k left out", "columns of x"),
    ],
)
def test_what_is_not_read_is_seen_by_a_probe(name: str, words: str) -> None:
    # The changed rows are drawn, and one draw may miss the wrong rows.
    refusing = (probe for seed in range(8) for probe in refusing_probes(*WRONG[name], seed))
    assert any(probe.startswith(words) for probe in refusing)


def test_a_wrong_second_output_is_named() -> None:
    problem, run = WRONG["norm, residual not added to h"]
    inputs = problem.make_inputs("normal", 3)
    result, failure = check(problem, inputs, run(inputs), family="normal", mode="reduced", seed=3)
    assert failure is not None
    assert failure.message.startswith("wrong result in h[")
    assert result.elements == 2 * 64 * 1024


# --- What is stated ----------------------------------------------------------------------------


def test_useful_work_is_counted_once() -> None:
    assert Matmul(m=8192, n=8192, k=8192).work().flops == 2 * 8192**3
    assert Matmul(m=2, n=3, k=5).work().minimum_hbm_bytes == 2 * (10 + 15 + 6)
    half = AttentionBackward(heads=2, sequence=4, head_dim=8, causal=True).work()
    assert (half.matmul_flops, half.vector_flops) == (10 * 2 * 10 * 8, 5 * 2 * 10 + 2 * 2 * 4 * 8)
    assert half.minimum_hbm_bytes == 2 * 8 * (2 * 4 * 8) + 4 * 8
    shared = AttentionBackward(heads=4, kv_heads=2, sequence=4, head_dim=8, causal=True).work()
    assert (shared.flops, shared.exponentials) == (2 * half.flops, 2 * half.exponentials)
    assert shared.minimum_hbm_bytes == 2 * half.minimum_hbm_bytes - 2 * 4 * (2 * 4 * 8)
    # Skewed sizes leave one of eight groups empty, whose matrix nobody reads: 7.5 on the average.
    groups = GroupedMatmul(m=1024, groups=8, k=2, n=4).work()
    assert groups.matmul_flops == 2 * 1024 * 2 * 4
    assert groups.minimum_hbm_bytes == 2 * (1024 * (2 + 4) + 60) + 4 * 8
    norm_work = RMSNorm(rows=8, columns=16).work()
    assert (norm_work.matmul_flops, norm_work.vector_flops) == (0, 5 * 128)
    assert norm_work.minimum_hbm_bytes == 2 * (4 * 128 + 16)
    assert RMSNorm(rows=8, columns=16, residual=False).work().minimum_hbm_bytes == 2 * (2 * 128 + 16)
    gated, down = SwiGLU(tokens=4, model=8, hidden=6).work(), SwiGLU(tokens=4, model=8, hidden=6, down=True).work()
    assert (gated.matmul_flops, gated.vector_flops, gated.exponentials) == (4 * 4 * 8 * 6, 5 * 24, 24)
    assert gated.minimum_hbm_bytes == 2 * (32 + 2 * 48 + 24)
    assert (down.matmul_flops, down.minimum_hbm_bytes) == (6 * 4 * 8 * 6, 2 * (32 + 3 * 48 + 32))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Matmul(m=0, n=1, k=1), "matmul: expected m to be a positive integer, got 0"),
        (lambda: Matmul(m=1, n=1, k=1, dtype="int8"), "matmul: expected dtype bfloat16 or float32"),
        (lambda: GroupedMatmul(m=1, groups=0, k=1, n=1), "grouped_matmul: expected groups to be a positive integer"),
        (
            lambda: AttentionBackward(heads=6, kv_heads=4, sequence=1, head_dim=1),
            "attention_backward: expected kv_heads to divide heads, got heads=6, kv_heads=4",
        ),
        (
            lambda: AttentionBackward(heads=6, kv_heads=0, sequence=1, head_dim=1),
            "attention_backward: expected kv_heads to be a positive integer, got 0",
        ),
        (lambda: RMSNorm(rows=1, columns=1, eps=0.0), "rmsnorm: expected a positive finite eps"),
        (lambda: RMSNorm(rows=1, columns=1, residual=1), "rmsnorm: expected residual to be True or False, got 1"),  # type: ignore[arg-type]
        (lambda: SwiGLU(tokens=1, model=1, hidden=1, down=2), "swiglu: expected down"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_exist_is_refused(make: Callable[[], Problem], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()


def test_the_rows_of_shared_keys_have_all_queries_that_read_them_beside_them() -> None:
    q, k, v, o, lse, do = inputs = SHARED.make_inputs("normal", 1)
    whole = SHARED.reference(inputs, np.arange(2 * 128))
    dq, dk, dv = (whole[:, columns].reshape(output.shape) for _, output, columns in spans(SHARED.statement().outputs))
    alone = AttentionBackward(heads=16, sequence=128, head_dim=64)
    apart = alone.reference((q, *(np.repeat(array, 8, axis=0) for array in (k, v)), o, lse, do), np.arange(16 * 128))
    of_q, *of_keys = (apart[:, columns].reshape(16, 128, 64) for _, _, columns in spans(alone.statement().outputs))
    np.testing.assert_allclose(dq, of_q, rtol=1e-12)
    for shared, each in zip((dk, dv), of_keys, strict=True):
        np.testing.assert_allclose(shared, each.reshape(2, 8, 128, 64).sum(axis=1), rtol=1e-9, atol=1e-12)


def test_a_wrong_row_among_others_beside_it_is_named() -> None:
    inputs = SHARED.make_inputs("normal", 1)
    dq, dk, dv = backward_of_groups()(inputs)
    dq[3, 77, 5] += 1
    _, failure = check(SHARED, inputs, (dq, dk, dv), family="normal", mode="reduced", seed=1)
    assert failure is not None
    assert failure.message.startswith("wrong result in dq[3, 77, 5]: worst element dq[3, 77, 5] is")


def test_heads_with_keys_of_their_own_are_stated_as_before() -> None:
    alone = AttentionBackward(heads=16, kv_heads=16, sequence=128, head_dim=64).statement()
    assert alone == AttentionBackward(heads=16, sequence=128, head_dim=64).statement()
    assert "kv_heads" not in dict(alone.parameters)
    assert dict(SHARED.statement().parameters)["kv_heads"] == 2
    assert [array.shape[0] for array in SHARED.statement().outputs] == [16, 2, 2]
    (small, *_) = AttentionBackward(heads=32, kv_heads=8, sequence=4096, head_dim=64).reduced()
    assert (small.heads, small.kv_heads) == (8, 2)


def test_shapes_shrink_along_each_axis_the_cheapest_first() -> None:
    shapes = list(shorter(1024, 512, 256))
    assert shapes == [(256, 256, 256), (256, 512, 256), (512, 256, 256), (512, 512, 256), (1024, 256, 256)]
    assert list(shorter(256, 100)) == []


def test_rows_are_sampled_from_every_block_within_the_budget() -> None:
    assert np.array_equal(sampled_rows(2, 100, 100, 1), np.arange(200))
    rows = sampled_rows(1, 8192, 192, 1)
    assert set(rows // 128) == set(range(64))
    assert {0, 8191} <= set(rows.tolist())
    assert len(rows) <= 194
    assert len(sampled_rows(1, 8192, 0, 1)) <= 5


def test_blocks_are_as_many_as_asked_for_at_most() -> None:
    assert [len(block) for block in blocks(300, 10, 128)] == [128, 128, 44]
    assert len(blocks(8192, 10, 128)) <= 10
