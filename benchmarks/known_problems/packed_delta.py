"""A gated delta rule over packed sequences, as a server calls it: each has a state in a pool, which is written back."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS = 32
SEQUENCES = 32
SLOTS = 36
KEY_HEADS = 2
VALUE_HEADS, DIM = 4, 128
# Taps of a causal convolution in front; 0: there is none.
TAPS = 0
# True: each dimension of a key has its own gate.
WIDE = False
# True: decays, gates and keys of length 1 are given.
GATES_AS_INPUTS = False
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedDelta(Formula):
    """O [tokens, value heads dim] of QKV, the new STATES [slots, value heads, dim, dim], float32, and the new TAILS.

    Sequence i has the tokens from STARTS[i] on and the slot AT[i]; if HAS[i] is 0 it begins with zeros instead of what
    the slot holds. There are COUNTS[2] of them; the first COUNTS[0] have one token. In each step, X = silu(QKV), or
    with taps silu of its convolution with WEIGHTS, plus BIAS; q and k of X are brought to length 1, q / sqrt(dim):
    S = e^-(e^A_LOG softplus(A + DT)) S, S = S + k sigmoid(B) (v - k S), O = q S. Value head h has key head
    h key_heads / value_heads. TAILS [slots, taps - 1, channels] are the last rows of QKV. Where no sequence has a
    token, O is 0; without taps all tokens are used. If gates are given, X is QKV with keys of length 1, A is the
    logarithm of the decays and B the gate itself, both float32, and there are no A_LOG and DT. The new states and
    tails are reshaped to as many rows as O has.
    """

    operation = "packed_delta"
    # Each sequence has a slot of its own, which is written.
    distinct = ("at",)
    own_families = ("normal", "small", "spikes")
    tokens: int = field(metadata=axis(shortest=16, is_uneven=True))  # each divides the elements of both pools
    sequences: int = field(metadata=axis(shortest=16, is_uneven=True, along="tokens"))
    slots: int
    key_heads: int
    value_heads: int
    dim: int
    taps: int | None
    wide: bool
    gates_as_inputs: bool
    dtype: str = "bfloat16"

    @property
    def timed(self):
        return ("decode",) if self.sequences == self.tokens else ("mixed",)

    def families(self, full):
        rest = ("drawn-outliers", "composite") if full else (*self.own_families, "drawn-scales", "drawn-outliers")
        return (*self.timed, *rest)

    def arrays(self):
        channels = (2 * self.key_heads + self.value_heads) * self.dim
        gates = self.value_heads * (self.dim if self.wide else 1)
        qkv = Array(name="qkv", shape=(self.tokens, channels), dtype=self.dtype)
        states = Array(name="states", shape=(self.slots, self.value_heads, self.dim, self.dim), dtype="float32")
        each, dtype = {"a": gates, "b": self.value_heads}, "float32" if self.gates_as_inputs else self.dtype
        parameters = (
            replace(states, name="a_log", shape=(self.value_heads,)),
            replace(states, name="dt", shape=(gates,)),
        )[: 0 if self.gates_as_inputs else 2]
        tails = replace(qkv, name="tails", shape=(self.slots, (self.taps or 1) - 1, channels))
        starts = Array(name="starts", shape=(self.sequences + 1,), dtype="int32", low=0, high=self.tokens)
        inputs = (
            qkv,
            *(replace(qkv, name=name, shape=(self.tokens, n), dtype=dtype) for name, n in each.items()),
            *parameters,
            states,
            starts,
            replace(starts, name="at", shape=(self.sequences,), high=self.slots - 1),
            replace(starts, name="has", shape=(self.sequences,), high=1),
            replace(starts, name="counts", shape=(3,), high=self.sequences),
        )
        outputs = (
            Array(name="o", shape=(self.tokens, self.value_heads * self.dim), dtype=self.dtype),
            replace(states, name="new_states", shape=self._in_rows(states)),
        )
        if not self.taps:
            return inputs, outputs
        convolution = (
            tails,
            replace(qkv, name="weights", shape=(channels, 1, self.taps)),
            replace(qkv, name="bias", shape=(channels,)),
        )
        return (*inputs, *convolution), (*outputs, replace(tails, name="new_tails", shape=self._in_rows(tails)))

    def _in_rows(self, array):
        return (self.tokens, int(np.prod(array.shape)) // self.tokens)

    def exact(self):
        return ("new_tails",) if self.taps else ()

    def domain(self, name, values):
        if self.gates_as_inputs and name == "qkv":
            heads = values.reshape(self.tokens, -1, self.dim)
            keys = slice(self.key_heads, 2 * self.key_heads)
            heads[:, keys] /= np.maximum(np.linalg.norm(heads[:, keys], axis=-1, keepdims=True), 1e-30)
            return heads.reshape(values.shape)
        if self.gates_as_inputs and name in ("a", "b"):
            return -np.minimum(np.abs(values), 64) / 8 if name == "a" else 1 / (1 + np.exp(-values.clip(-80, 80)))
        limits = {"a_log": (-4, 2), "dt": (-8, 8), "a": (-32, 32), "b": (-32, 32), "weights": (-4, 4), "bias": (-4, 4)}
        return values.clip(*limits[name]) if name in limits else values

    def tables(self, family, random):
        is_timed, is_decoding = family in self.timed, self.sequences == self.tokens
        # Without a convolution, no kernel promises anything of rows that no sequence has.
        is_full = is_timed or not self.taps
        count = self.sequences if is_full else int(random.integers(self.sequences // 2, self.sequences + 1))
        decoding = count if is_decoding else count // 2 if is_timed else int(random.integers(count))
        used = count if is_decoding else self.tokens if is_full else int(random.integers(self.tokens // 2, self.tokens))
        lengths = np.zeros(self.sequences, np.int32)
        lengths[:decoding] = 1
        if not is_decoding:
            rest, others = used - decoding, count - decoding
            cuts = np.sort(random.choice(np.arange(1, rest), others - 1, replace=False))
            lengths[decoding:count] = np.diff(np.concatenate([[0], cuts, [rest]]))
        at, has = np.zeros((2, self.sequences), np.int32)
        at[:count] = random.permutation(np.arange(1, self.slots))[:count]
        has[:count] = random.integers(2, size=count)
        has[:decoding] = 1
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return {"starts": starts, "at": at, "has": has, "counts": np.array([decoding, decoding, count], np.int32)}

    def formula(self, in_bfloat16, qkv, a, b, *rest):
        a_log, dt, states, starts, at, has, counts, *convolution = (None, None, *rest) if self.gates_as_inputs else rest
        sequences = list(zip(starts[:-1], starts[1:], at, has, strict=True))[: counts[2]]
        x, outputs = qkv, ()
        if self.taps:
            x, tails = self._convolve(sequences, qkv, *convolution)
            outputs = (tails.reshape(self.tokens, -1),)
        if not self.gates_as_inputs:
            x = x / (1 + np.exp(-x))
            z = (a + dt).reshape(self.tokens, self.value_heads, -1)
            a = -np.exp(a_log)[:, None] * (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))))
            b = 1 / (1 + np.exp(-b))
        decays, gates = np.exp(a).reshape(self.tokens, self.value_heads, -1), b[:, :, None]
        x, keys = x.reshape(self.tokens, -1, self.dim), self.key_heads
        q, k, v = x[:, :keys], x[:, keys : 2 * keys], x[:, 2 * keys :]
        if not self.gates_as_inputs:
            q, k = (rows / np.sqrt(np.sum(rows * rows, axis=-1, keepdims=True) + 1e-6) for rows in (q, k))
        q, k = (np.repeat(rows, self.value_heads // keys, axis=1) for rows in (q, k))
        q, read = in_bfloat16(q * self.dim**-0.5), in_bfloat16(k)
        o, states = 0 * v, np.array(states, subok=True)
        for start, end, slot, is_kept in sequences:
            state = states[slot] if is_kept else 0 * states[slot]
            for step in range(start, end):
                state = decays[step][:, :, None] * state
                recalled = np.einsum("hk,hkv->hv", read[step], in_bfloat16(state))
                state = state + k[step][:, :, None] * (gates[step] * (v[step] - recalled))[:, None]
                o[step] = np.einsum("hk,hkv->hv", q[step], in_bfloat16(state))
            states[slot] = state
        return (o.reshape(self.tokens, -1), states.reshape(self.tokens, -1), *outputs)

    def _convolve(self, sequences, qkv, tails, weights, bias):
        x, tails = 0 * qkv, np.array(tails, subok=True)
        for start, end, slot, is_kept in sequences:
            before = tails[slot] if is_kept else 0 * np.abs(tails[slot])
            rows = np.concatenate([before, qkv[start:end]])
            for tap in range(self.taps):
                x[start:end] = x[start:end] + rows[tap : tap + end - start] * weights[:, 0, tap]
            x[start:end] = x[start:end] + bias
            tails[slot] = rows[len(rows) - self.taps + 1 :]
        return x, tails


def problem():
    return PackedDelta(
        tokens=TOKENS,
        sequences=SEQUENCES,
        slots=SLOTS,
        key_heads=KEY_HEADS,
        value_heads=VALUE_HEADS,
        dim=DIM,
        taps=TAPS or None,
        wide=WIDE,
        gates_as_inputs=GATES_AS_INPUTS,
    )
