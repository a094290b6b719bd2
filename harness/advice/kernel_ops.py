"""The operations of a run that are the kernel's and those that XLA put around it, told apart by their names."""

import re
from collections.abc import Sequence

from harness.advice.operands import UNNAMED_KERNEL
from harness.records import OpTime, PallasCall

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")

# XLA names an operation by its opcode, and a fusion by the opcodes of its parts: `copy.5`, `compare_select_fusion`,
# `slice-start.1`. These are the words of such names. A kernel bears the name of a function: that of its pallas_call,
# else of the jitted function around it.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        abs add afz and arithmetic async atan2 barrier bitcast broadcast call cbrt ceil ceiling clamp clone compare
        complex concatenate conditional constant convert convolution copy cosine count custom divide domain done dot
        dynamic element erf even exp exponential finite floor fusion gather generator get imag iota is leading left
        log logarithm logical logistic map maximum minimum minus multiply nearest negate not one optimization or pad
        parameter plus population power precision real reduce remainder reshape reverse right rng round rsqrt
        scatter select shift sign sine slice sort sqrt start subtract tan tanh transpose tuple update while wide
        window xor zeros
        """,
    )
)
_NUMBER = re.compile(r"(?:\.\d+|\.clone|\.remat\d*)+$")


def outside_ops(ops: Sequence[OpTime], calls: Sequence[PallasCall]) -> list[OpTime] | None:
    """The operations outside the Pallas `calls`, collectives left out; None if it is not known which are outside."""
    names = (*(call.name for call in calls), UNNAMED_KERNEL)
    others = [op for op in ops if not op.name.startswith((*names, *COLLECTIVES))]
    if any(op.name.startswith(names) for op in ops):
        return others
    strange = [op for op in others if not _is_of_xla(op.name)]
    return [op for op in others if op not in strange] if strange and len(strange) == len(calls) else None


def _is_of_xla(name: str) -> bool:
    return _WORDS.issuperset(re.split(r"[-_]", _NUMBER.sub("", name)))
