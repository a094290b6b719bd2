"""Delta rules and gated linear attention: in each step, a state decays and a new value replaces a key's old value."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.operators.axes import axis
from harness.operators.blocks import empty_block, empty_lines
from harness.operators.fields import require_member
from harness.operators.formula import Formula, Rounds
from harness.operators.problem import Values
from harness.operators.space import generator
from harness.records import Array

# The gates of each kind: True if each dimension of a key or value has its own gate, False if each head has one.
_GATES = {
    "gated delta rule 2": {"g": True, "b": True, "w": True},
    "gated delta rule": {"g": False, "b": False},
    "delta attention": {"g": True, "b": False},
    "gated linear attention": {"g": True},
    "delta rule": {"b": False},
}
# The family with successive steps of the fastest decay that is allowed: the inverse of the decay of 16 such steps
# overflows float32. In some columns, runs of this many such steps alternate with as long runs of other steps.
_STEEP, _RUN_STEPS = "steep", 32
_FASTEST = 8.0
# The range of p: in columns that hardly decay, all steps together decay by e^-(2^p).
_SLOW = (-2.0, 1.0)
# The family with runs of equal and of nearly equal keys, as repeated tokens make them, and the fewest and the most
# steps of a run. The shortest run fills a chunk of 32 steps or half of a chunk of 64, wherever it begins.
_REPEATS, _REPEATED = "repeats", (64, 512)
# The distance of nearly equal keys, as negative powers of two; half of the runs have equal keys.
_NEARNESS = (2, 11)
# The most by which the gates b of a run are less than 1; in half of the runs they are 1.
_ALMOST_ONE = 0.1
# The families that some kinds do not have, and the gate that they need.
_OF_GATES = {_STEEP: "g", _REPEATS: "b"}
# The families in which some rows of each input are zero, as padding makes them; the share of such rows, and the fewest
# steps of a block of zeros.
_WITH_EMPTY_ROWS, _EMPTY, _EMPTY_STEPS = ("spikes", "composite"), 0.0625, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta(Formula):
    """O of Q, K, V, all [time, heads, dim]: at each step S = e^G S, S = S + K (W V - (B K) S), O = Q S / sqrt(dim).

    S is 0 at first. G is from -8 to 0, B and W are from 0 to 1, all float32; keys have length 1, or are zero in
    padding. A kind without G has no decay, and in a kind without W, W is B. Gated linear attention has neither B nor W:
    nothing is forgotten, and values are written in full.
    """

    operation = "gated_delta"
    own_families = ("normal", "small", "spikes", _STEEP, _REPEATS)
    kind: str
    time: int = field(metadata=axis(shortest=128))
    heads: int = field(metadata=axis(few=2))
    dim: int
    dtype: str = "bfloat16"

    def require_fields(self) -> None:
        """Raises UsageError `bad-problem` if the kind or a size is invalid."""
        require_member("gated_delta", "kind", self.kind, _GATES)
        Formula.require_fields(self)

    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Q, K, V [time, heads, dim] and the gates of the kind, for each dimension or each head; O as Q."""
        q = Array(name="q", shape=(self.time, self.heads, self.dim), dtype=self.dtype)
        gates = (
            Array(name=name, shape=q.shape if is_wide else q.shape[:2], dtype="float32")
            for name, is_wide in _GATES[self.kind].items()
        )
        return (q, replace(q, name="k"), replace(q, name="v"), *gates), (replace(q, name="o"),)

    def families(self, full: bool) -> tuple[str, ...]:
        """The families: only a draw and a composite at the full shape, where checks are slow; else kinds and draws."""
        if full:
            return ("drawn-outliers", "composite")
        gates = (None, *_GATES[self.kind])
        alone = tuple(family for family in self.own_families if _OF_GATES.get(family) in gates)
        return (*alone, "drawn-scales", "drawn-outliers")

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """As in a Formula, with two more families, and with rows that are made zero after `domain` was applied.

        spikes, composite: some rows of each input, and a block of steps of all inputs, are zero, as padding makes them;
        in the composite only in the first half of the steps.
        steep: about two thirds of the columns of G have the fastest decay, in all steps or in every second run of 32
        steps. The composite has such decays in the second half of its steps. Its other columns hardly decay: the decays
        of all their steps together are about e^-1, so that the first steps still count at the end.
        repeats, composite: runs of 64 to 512 steps of a head have equal or nearly equal keys, B from 0.9 to 1 and
        hardly any decay. Shapes of few steps have shorter runs.
        """
        inputs = Formula.make_inputs(self, family, seed)
        if family in (_REPEATS, "composite") and "b" in _GATES[self.kind]:
            self._repeat_keys(inputs, family, seed)
        if family in _WITH_EMPTY_ROWS:
            self._empty_rows(inputs, family, seed)
        gates = list(_GATES[self.kind])
        if family not in (_STEEP, "composite") or "g" not in gates:
            return inputs
        g, random = inputs[3 + gates.index("g")], generator(f"decays of {family}", seed)
        step = np.arange(self.time).reshape(-1, *[1] * (g.ndim - 1))
        # 0: the column's decays stay as they are, or are slow in the composite; 1: they are the fastest in all runs of
        # steps; 2: in every second run.
        period = random.integers(3, size=g.shape[1:])
        fast, slow = random.integers(period.size, size=2)
        period.flat[fast] = 1
        if family == "composite":
            period.flat[slow] = 0
            rates = np.exp2(random.uniform(*_SLOW, g.shape[1:])) / self.time
            g[:] = np.where(period == 0, -rates * random.uniform(0, 2, g.shape), g)
        is_fast = (period > 0) & (step // _RUN_STEPS % np.maximum(period, 1) == 0)
        g[is_fast & (step >= (self.time // 2 if family == "composite" else 0))] = -_FASTEST
        return inputs

    def _repeat_keys(self, inputs: tuple[Values, ...], family: str, seed: int) -> None:
        """Repeats keys in runs of steps of each head; these steps hardly decay, and forget what a key recalls.

        The powers of the matrix of products of such keys are large, and cancel in a kernel that adds them.
        """
        gates = dict(zip(_GATES[self.kind], inputs[3:], strict=True))
        k, random = inputs[1], generator(f"repeats of {family}", seed)
        # In the composite, a run lies in the first half of the steps, in which no decay is the fastest.
        longest = min(_REPEATED[1], max(1, self.time // 4 if family == "composite" else self.time // 2))
        lengths = np.log2((min(_REPEATED[0], longest), longest))
        for head in range(self.heads):
            stop = 0
            while stop < self.time:
                length = round(np.exp2(random.uniform(*lengths)))
                start = stop + random.integers(length, endpoint=True)
                stop = start + length
                run = k[start:stop, head].astype(np.float32)
                apart = np.exp2(-random.integers(*_NEARNESS)) * random.integers(2)
                k[start:stop, head] = self.domain("k", run[:1] + apart * run).astype(k.dtype)
                b = gates["b"][start:stop, head]
                b[:] = 1 - _ALMOST_ONE * random.integers(2) * random.random(b.shape)
                if "g" in gates:
                    g = gates["g"][start:stop, head]
                    g[:] = -random.random(g.shape) / length

    def _empty_rows(self, inputs: tuple[Values, ...], family: str, seed: int) -> None:
        """Makes single rows and the same block of all inputs zero; different blocks might make all outputs zero."""
        stop = self.time // 2 if family == "composite" else self.time
        random = generator(f"empty rows of {family}", seed)
        block = empty_block(stop, _EMPTY_STEPS, random)
        for array in inputs:
            is_empty = random.random(array.shape[:2]) < _EMPTY
            if family != "composite":
                # In the composite, they would leave too little of the runs of equal keys.
                is_empty[empty_lines(len(is_empty), _EMPTY, random)] = True
            is_empty[block] = True
            is_empty[stop:] = False
            array[is_empty] = 0

    def domain(self, name: str, values: Any) -> Any:
        """Keys of length 1, logarithms of decays from -8 to 0, gates from 0 to 1; queries and values unchanged."""
        if name == "k":
            return values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), 1e-30)
        if name == "g":
            return -np.minimum(np.abs(values) / 8, _FASTEST)
        return 1 / (1 + np.exp(-values.clip(-80, 80))) if name in ("b", "w") else values

    def matmul_flops(self) -> int:
        """The FLOPs of the products Q S, one in each step."""
        return 2 * self.time * self.heads * self.dim**2

    def formula(self, in_bfloat16: Rounds, *inputs: Any) -> Any:
        """`[time, heads, dim]`, step by step."""
        q, k, v, *gates = inputs
        gates_by_name = dict(zip(_GATES[self.kind], gates, strict=True))
        wide = {name: gate if gate.ndim == 3 else gate[..., None] for name, gate in gates_by_name.items()}
        forgets = wide.get("b", 0 * k)
        writes = wide.get("w", wide.get("b", 1 + 0 * v))
        decays = np.exp(wide.get("g", 0 * k))
        scaled, erased, written = map(in_bfloat16, (q * self.dim**-0.5, forgets * k, writes * v))
        state, outputs = np.zeros((self.heads, self.dim, self.dim), q.dtype), []
        for step in range(self.time):
            state = np.broadcast_to(decays[step], k[step].shape)[:, :, None] * state
            recalled = np.einsum("hk,hkv->hv", erased[step], state)
            state = state + k[step][:, :, None] * (written[step] - recalled)[:, None]
            outputs.append(np.einsum("hk,hkv->hv", scaled[step], state))
        return np.stack(outputs)
