"""Online-softmax attention in numpy as a kernel does it, with honest variations and planted bugs to try a judge on."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

# Variations that an honest kernel may have.
HONEST = (
    "",
    "base 2",
    "queries scaled before",
    "queries scaled before, base 2",
    "float32 probabilities",
    "sum of rounded probabilities",
    "transposed scores",
    "normalised every block",
    "lazy maximum",
    "last block first",
    "in four parts",
    "queries scaled before, base 2, lazy maximum, sum of rounded probabilities, last block first",
)

BUGS = (
    "accumulator not rescaled",
    "sum not rescaled",
    "last block dropped",
    "first block only",
    "one block skipped in one row block",
    "light blocks skipped",
    "maximum for sum",
    "not divided",
    "bfloat16 accumulator",
    "bfloat16 sum",
    "bfloat16 scores",
    "float8 probabilities",
    "no maximum subtracted",
    "scale missing",
    "scale 1/d",
    "zero output",
    "last rows not written",
    "row block of its neighbour",
)

WINDOW_BUGS = ("window missing", "window one longer", "window one shorter", "window by whole blocks")
PACKED_BUGS = ("sequences not kept apart", "sequences by whole blocks", "sees the sequence before")
CAP_BUGS = ("cap missing", "cap by clipping", "cap before the scale", "cap of half the size", "cap of tanh to bfloat16")
CAUSAL_BUGS = ("mask missing", "mask on the wrong side", "mask one early", "mask one late", "last block unmasked")

_ROW_BLOCK = 128
_HIDDEN = np.float32(-1e30)


def attention(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    *,
    scale: float,
    block: int = 128,
    causal: bool = False,
    window: int | None = None,
    soft_cap: float | None = None,
    ids: NDArray[Any] | None = None,
    variation: str = "",
    bug: str = "",
) -> NDArray[Any]:
    """The output `[rows, d]` in the dtype of q `[rows, d]` for k, v `[kv, d]`, over blocks of keys, in float32."""
    dtype, out_rows, keys = q.dtype, len(q), len(k)
    q, k, v = (array.astype(np.float32) for array in (q, k, v))
    factor = np.float32({"scale missing": 1.0, "scale 1/d": 1 / q.shape[1]}.get(bug, scale))
    exp: np.ufunc = np.exp
    if "base 2" in variation:
        exp, factor = np.exp2, np.float32(factor / np.log(2))
    # The cap in the units of the scores, which are smaller in base 2.
    cap = None if soft_cap is None else np.float32(soft_cap * (factor / np.float32(scale)))
    if "queries scaled before" in variation:
        q, factor = _rounded(q * factor, dtype), np.float32(1)
    m = np.full((out_rows, 1), -np.inf, np.float32)
    total, acc = np.zeros_like(m), np.zeros_like(q)
    empty, parts = (m, total, acc), []
    starts = list(range(0, keys, block))
    if bug in ("last block dropped", "first block only"):
        starts = starts[:-1] if bug == "last block dropped" else starts[:1]
    if "last block first" in variation:
        starts.reverse()
    # A planted bug may overflow; the judge must notice it, so numpy's warnings are off.
    with np.errstate(all="ignore"):
        for start in starts:
            if "in four parts" in variation and start and start % (keys // 4) == 0:
                parts.append((m, total, acc))
                m, total, acc = empty
            s = _scores(q, k[start : start + block], "transposed scores" in variation) * factor
            if bug == "bfloat16 scores":
                s = _rounded(s, dtype)
            if cap is not None:
                s = _capped(s, cap, factor, dtype, bug)
            if causal:
                s = np.where(_kept(out_rows, keys, start, s.shape[1], window, bug), s, _HIDDEN)
            if ids is not None:
                s = np.where(_of_one_sequence(ids, out_rows, start, s.shape[1], bug), s, _HIDDEN)
            m_new = np.maximum(m, s.max(axis=1, keepdims=True))
            if "lazy maximum" in variation:
                m_new = np.where(m_new - m > 8, m_new, m)
            if bug == "no maximum subtracted":
                m_new = np.zeros_like(m)
            p, alpha = np.where(s == _HIDDEN, 0, exp(s - m_new)), exp(m - m_new)
            if bug == "one block skipped in one row block" and start == starts[len(starts) // 2]:
                p[-_ROW_BLOCK:] = 0
            if bug == "light blocks skipped":
                # Skips a block if none of 128 rows has a score within 5 of its maximum so far.
                for rows in (slice(first, first + _ROW_BLOCK) for first in range(0, out_rows, _ROW_BLOCK)):
                    if (s[rows] - m[rows]).max() < -5:
                        p[rows] = 0
            weights = _weights(p, dtype, variation, bug)
            new = (weights if "sum of rounded" in variation else p).sum(axis=1, keepdims=True)
            old_total, total = total, total * (1 if bug == "sum not rescaled" else alpha) + new
            acc = acc * (1 if bug == "accumulator not rescaled" else alpha)
            if "normalised every block" in variation:
                # Rows that have seen no key yet have nothing to normalise.
                acc = (acc * old_total + weights @ v[start : start + block]) / np.where(total == 0, 1, total)
            else:
                acc += weights @ v[start : start + block]
            if bug == "bfloat16 accumulator":
                acc = _rounded(acc, dtype)
            if bug == "bfloat16 sum":
                total = _rounded(total, dtype)
            m = m_new
        for other_m, other_total, other_acc in parts:
            m_new = np.maximum(m, other_m)
            alpha, other_alpha = exp(m - m_new), exp(other_m - m_new)
            m, total, acc = m_new, total * alpha + other_total * other_alpha, acc * alpha + other_acc * other_alpha
        divisor = {"maximum for sum": m, "not divided": np.ones_like(m)}.get(bug, total)
        o = acc if "normalised every block" in variation else acc / divisor
    return _ruined(o, bug).astype(dtype)


def _rounded(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return values.astype(dtype).astype(np.float32)


def _scores(q: NDArray[Any], k: NDArray[Any], transposed: bool) -> NDArray[Any]:
    scores: NDArray[Any] = (k @ q.T).T if transposed else q @ k.T
    return scores


def _weights(p: NDArray[Any], dtype: Any, variation: str, bug: str) -> NDArray[Any]:
    if "float32 probabilities" in variation:
        return p
    return _rounded(p, ml_dtypes.float8_e4m3fn if bug == "float8 probabilities" else dtype)


def _capped(s: NDArray[Any], cap: np.float32, factor: np.float32, dtype: Any, bug: str) -> NDArray[Any]:
    if bug == "cap missing":
        return s
    if bug == "cap by clipping":
        return np.asarray(np.clip(s, -cap, cap))
    if bug == "cap of half the size":
        cap = cap / np.float32(2)
    if bug == "cap before the scale":
        return np.asarray(np.tanh(s / factor / cap) * cap * factor)
    cut = np.tanh(s / cap)
    return np.asarray((_rounded(cut, ml_dtypes.bfloat16) if bug == "cap of tanh to bfloat16" else cut) * cap)


def _kept(rows: int, keys: int, start: int, width: int, window: int | None, bug: str) -> NDArray[np.bool_]:
    """`[rows, width]`, True for keys of a block that a row sees; causal is aligned at the end."""
    last = np.arange(rows)[:, None] + keys - rows
    key = start + np.arange(width)[None]
    if bug == "mask missing" or (bug == "last block unmasked" and start + width == keys):
        return np.ones((rows, width), bool)
    if bug == "mask on the wrong side":
        return key >= last
    kept: NDArray[np.bool_] = key <= last + {"mask one early": -1, "mask one late": 1}.get(bug, 0)
    if window is None or bug == "window missing":
        return kept
    if bug == "window by whole blocks":
        return kept & (start + width > last - window + 1)
    return kept & (key > last - window - {"window one longer": 1, "window one shorter": -1}.get(bug, 0))


def _of_one_sequence(ids: NDArray[Any], rows: int, start: int, width: int, bug: str) -> NDArray[np.bool_]:
    """`[rows, width]`, True for keys of a block in the same packed sequence as each of the last rows."""
    of_query, key = ids[-rows:][:, None], ids[start : start + width][None]
    if bug == "sequences by whole blocks":
        of_query = ids[(np.arange(rows) + len(ids) - rows) // width * width][:, None]
    if bug == "sees the sequence before":
        return np.asarray((key == of_query) | (key == of_query - 1))
    return np.asarray(np.ones((rows, width), bool) if bug == "sequences not kept apart" else key == of_query)


def _ruined(o: NDArray[Any], bug: str) -> NDArray[Any]:
    if bug == "zero output":
        o = np.zeros_like(o)
    elif bug == "last rows not written":
        o[-8:] = 0
    elif bug == "row block of its neighbour":
        o[_ROW_BLOCK : 2 * _ROW_BLOCK] = o[:_ROW_BLOCK]
    return o
