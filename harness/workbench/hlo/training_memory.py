"""The memory of training a transformer, predicted: state, activations with and without recomputation, remedies."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.chips.row import Figures
from harness.records import Cell, Table
from harness.units import decimal, percent, quantity
from harness.workbench.hlo.prediction import TRAINING_BYTES
from harness.workbench.tables import columns, table

# The assumed number of pieces of a chunked cross entropy.
CHUNKS = 8
_BF16, _F32 = 2, 4
# The state of training: bytes per parameter.
_STATE_BYTES = sum(size for _, size in TRAINING_BYTES)


@dataclass(frozen=True, slots=True)
class KeptActivations:
    """Activations that one layer keeps: their `bytes`, and the `formula` (B, S, D, F, H as in Transformer)."""

    name: str
    formula: str
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A decoder in bfloat16: B sequences of S tokens, L layers of width D, an MLP of width F, H heads, vocabulary V.

    If `heads` is None, the attention kernel keeps no scores. If `vocabulary` is None, the loss is not counted.
    """

    batch: int
    sequence: int
    layers: int
    width: int
    hidden: int
    heads: int | None = None
    vocabulary: int | None = None

    @property
    def parameters(self) -> int:
        """The number of parameters: in each layer four matrices of attention and two of the MLP; one embedding."""
        each = 4 * self.width**2 + 2 * self.width * self.hidden
        return self.layers * each + self.width * (self.vocabulary or 0)

    def parts(self) -> Iterator[KeptActivations]:
        """The activations that one layer keeps for its backward pass.

        Source: Korthikanti et al. 2022 (Reducing Activation Recomputation in Large Transformer Models), section 4.1,
        but without dropout. With F = 4 D this is 32 B S D (the paper: 34, with dropout masks), and scores are 2 H B S^2
        (the paper: 5).
        """
        tokens = self.batch * self.sequence
        yield KeptActivations("two norms", "4 B S D", 4 * tokens * self.width)
        yield KeptActivations("attention: inputs, q, k, v, output", "10 B S D", 10 * tokens * self.width)
        if self.heads is not None:
            yield KeptActivations("attention: scores", "2 H B S^2", 2 * self.heads * self.batch * self.sequence**2)
        mlp = tokens * (2 * self.width + 4 * self.hidden)
        yield KeptActivations("MLP: input, before and after its activation", "B S (2 D + 4 F)", mlp)

    @property
    def layer_bytes(self) -> float:
        """The bytes of the activations of one layer."""
        return sum(part.bytes for part in self.parts())

    @property
    def input_bytes(self) -> float:
        """The bytes that a recomputed layer keeps: only its input."""
        return _BF16 * self.batch * self.sequence * self.width

    def activation_bytes(self, *, is_recomputed: bool) -> float:
        """The bytes of all activations at the peak; if recomputed, the inputs of all layers, and one layer in full."""
        if is_recomputed:
            return self.layers * self.input_bytes + self.layer_bytes
        return self.layers * self.layer_bytes

    @property
    def logit_bytes(self) -> float:
        """The bytes of float32 logits, shared by the loss and its gradient (Korthikanti et al.: 4 B S V)."""
        return _F32 * self.batch * self.sequence * (self.vocabulary or 0)


_COLUMNS = columns("what;bytes_per_parameter=a parameter:B;bytes;formula")
_SYMBOLS = (
    "P: parameters, B: --batch, S: --seq, L: --layers, D: --d-model, F: --d-ff (default 4 D), H: --heads, V: --vocab."
)


def memory_tables(
    parameters: float, model: Transformer | None, target: Figures | None, devices: int, *, is_recomputed: bool
) -> tuple[Table, ...]:
    """Tables of the memory for mixed-precision training with Adam: 16 bytes per parameter, plus activations."""
    rows: list[tuple[Cell, ...]] = [(name, each, int(parameters * each), f"{each} P") for name, each in TRAINING_BYTES]
    total = parameters * _STATE_BYTES
    notes = []
    if model is not None:
        activations = model.activation_bytes(is_recomputed=is_recomputed)
        formula = "2 B S D L + one layer" if is_recomputed else "L x one layer"
        rows.append((f"activations{', recomputed' if is_recomputed else ''}", None, int(activations), formula))
        total += activations
        if model.vocabulary is not None:
            rows.append(("logits", None, int(model.logit_bytes), "4 B S V"))
            total += model.logit_bytes
        notes.append("The compiler's workspace is additional; loops over layers and overlapped work may need more.")
        notes.append(_SYMBOLS)
        rows.append(("together", None, int(total), ""))
    else:
        rows.append(("together", _STATE_BYTES, int(total), f"{_STATE_BYTES} P"))
        notes.append(
            "Activations, the batch and the compiler's workspace are additional (ZeRO, Rajbhandari et al. 2020, 3.1). "
            "To estimate the activations, give --batch, --seq, --layers and --d-model."
        )
    if target is not None:
        each, least = total / devices, math.ceil(total / target.hbm_bytes)
        notes.append(
            f"Split evenly over {target.name} {target.device}s ({devices}): {decimal(each, 'B')} on each, "
            f"{percent(each / target.hbm_bytes)} of its {decimal(target.hbm_bytes, 'B')}. The least number of "
            f"{target.device}s with enough memory: {least}."
        )
    if target is not None and model is not None:
        notes.append(_largest_batch(parameters * _STATE_BYTES, model, target, devices, is_recomputed=is_recomputed))
    title = f"memory to train {parameters:,.0f} parameters"
    first = table("memory", title, "predicted", _COLUMNS, rows, notes)
    if model is None:
        return (first,)
    return first, _layer(model), _remedies(parameters, model, devices, is_recomputed=is_recomputed)


def _largest_batch(state: float, model: Transformer, target: Figures, devices: int, *, is_recomputed: bool) -> str:
    """A sentence on the largest batch that fits next to the state on all devices, and on gradient accumulation."""
    single = replace(model, batch=1)
    each = single.activation_bytes(is_recomputed=is_recomputed) + single.logit_bytes
    fits = int((devices * target.hbm_bytes - state) // each)
    if fits < 1:
        return (
            f"The state takes {decimal(state, 'B')}, which leaves no room for a sequence on "
            f"{quantity(devices, target.device)}. Split the state over more devices."
        )
    steps = math.ceil(model.batch / fits)
    more = (
        f"; gradient accumulation over {steps} steps of {math.ceil(model.batch / steps)} makes a batch of {model.batch}"
    )
    return f"The largest batch that fits next to the state: {quantity(fits, 'sequence')}{more if steps > 1 else ''}."


def _layer(model: Transformer) -> Table:
    parts: Sequence[KeptActivations] = (
        *model.parts(),
        KeptActivations("together", "", model.layer_bytes),
        KeptActivations("if recomputed: the layer's input alone", "2 B S D", model.input_bytes),
    )
    notes = (
        "Source: Korthikanti et al. 2022, section 4.1, without dropout. This is an upper estimate: XLA recomputes "
        "element-wise work inside fusions, so it mostly keeps one of the MLP's two arrays (2 F instead of 4 F).",
        "Here attention keeps no scores, like a flash kernel; to add the scores of other attention, use --heads."
        if model.heads is None
        else "Here attention keeps its scores; a flash kernel keeps no scores.",
        _SYMBOLS,
    )
    rows = [(part.name, part.bytes, part.formula) for part in parts]
    return table("layer", "activations of one layer", "predicted", "what;bytes;formula", rows, notes)


_REMEDIES = columns("remedy!;saved_bytes=saves;formula;how")


def _remedies(parameters: float, model: Transformer, devices: int, *, is_recomputed: bool) -> Table:
    """A table of the saving of each remedy alone, the largest first."""
    rows: list[tuple[str, float, str, str]] = [
        ("bfloat16 optimizer state", 4 * parameters, "4 P", "both moments of Adam in 2 bytes instead of 4")
    ]
    if not is_recomputed:
        saved = model.activation_bytes(is_recomputed=False) - model.activation_bytes(is_recomputed=True)
        formula, how = "L x one layer - (2 B S D L + one layer)", "jax.checkpoint: --remat; a third more FLOPs"
        rows.append(("rematerialisation", saved, formula, how))
    if model.vocabulary is not None:
        saved = model.logit_bytes * (1 - 1 / CHUNKS)
        rows.append(("chunked cross entropy", saved, f"4 B S V (1 - 1/{CHUNKS})", f"the loss in {CHUNKS} pieces"))
    others = max(2, devices)
    saved, formula = parameters * _STATE_BYTES * (1 - 1 / others), f"{_STATE_BYTES} P (1 - 1/{others})"
    rows.append(("sharding the state", saved, formula, f"FSDP over {others} devices: the saving on each"))
    savings = [(name, int(saved), formula, how) for name, saved, formula, how in rows if saved > 0]
    savings.sort(key=lambda row: -row[1])
    notes = [
        "Each saving is for one remedy alone, on a device that otherwise has the whole model.",
        "Recomputation runs the forward pass twice: 8 FLOPs per parameter and token instead of 6 (2 forward, 4 "
        "backward).",
        _SYMBOLS,
    ]
    return table("remedies", "ways to save memory", "predicted", _REMEDIES, savings, notes)
