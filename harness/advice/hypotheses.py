"""Friendly words on an experiment: a hypothesis that names no observation, a change that mixes kinds."""

import re

from harness.advice.kernel_changes import Kind, mixed_kinds

# A hypothesis is tied to an observation where it has a number, or a word that a report uses for what it counts, times
# or advises. Words are matched from their beginning, so `spill` stands for spills and spilling.
_WORDS = (
    "accumulat", "align", "bandwidth", "bound", "bubble", "buffer", "busy", "cast", "causal", "copies", "copy",
    "cycle", "dma", "drain", "eup", "exp", "fetch", "fill", "flop", "gap", "grid", "hbm", "idle", "intensity",
    "issue", "lane", "latency", "launch", "layout", "limit", "mask", "matmul", "mxu", "overlap", "padd", "pipeline",
    "prefetch", "re-read", "recomput", "reduc", "register", "reread", "rescal", "ridge", "roofline", "semantics",
    "slot", "softmax", "spill", "stall", "step", "store", "sublane", "tile", "traffic", "transpos", "unit",
    "unroll", "util", "valu", "vector", "vmem", "vreg", "wait", "xlu",
)  # fmt: skip
_NAMED = re.compile(rf"\d|%|\b(?:{'|'.join(map(re.escape, _WORDS))})", re.IGNORECASE)


def names_observation(hypothesis: str) -> bool:
    """True where `hypothesis` has a number, a unit, a counter or a rule's word; "make it faster" has none."""
    return _NAMED.search(hypothesis) is not None


def on_hypothesis(hypothesis: str) -> str:
    """The sentence for a hypothesis that names no observation; empty for any other."""
    if names_observation(hypothesis):
        return ""
    return (
        "the hypothesis names no observation: a figure of the last report and what should become of it make a loss "
        'as telling as a gain, as in "BW 37%, memory-bound: BQ 128 -> 512 cuts K/V re-reads 4x"'
    )


def on_change(kinds: tuple[Kind, ...]) -> str:
    """The sentence for a change of several kinds (see advice/kernel_changes.py); empty for a change of one."""
    mixed = mixed_kinds(kinds)
    if not mixed:
        return ""
    named = f"{', '.join(mixed[:-1])} and {mixed[-1]}"
    return f"one experiment, several kinds of change ({named}): if the time moves, none of them is known to be why"
