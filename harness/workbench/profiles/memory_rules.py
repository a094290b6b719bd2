"""The purpose of a buffer, read off its group and name: rules as data; the first match counts."""

import re
from dataclasses import dataclass

from harness.workbench.hlo.prediction import TRAINING_BYTES

PARAMETERS, OPTIMIZER, INPUTS = "parameters", "optimizer", "other inputs"
LOGITS, MOE, ATTENTION, OTHER = "logits, cross entropy", "MoE", "attention", "other"
SMALL = "small buffers"

# JAX's names for work that jax.checkpoint computes again, and for the two halves of a derivative.
AGAIN, BACKWARD, _FORWARD = "rematted_computation", "transpose(", "jvp("
# A dimension as long as a vocabulary (protocol, section 6).
VOCABULARY_ELEMENTS = 100_000
# 16 bytes (protocol, section 5).
TRAINING_BYTES_PER_PARAMETER = sum(width for _, width in TRAINING_BYTES)

_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([\d,]*)\]")


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """Buffers of `group` (of any group if it is empty) whose name matches `pattern` are of `category`."""

    category: str
    pattern: str
    group: str = ""


# Protocol, section 6: the groups and words of the published analysis, the arguments first. There `softmax` alone means
# the loss; inside an attention it does not, so that word comes last here. Arguments that are neither parameters nor
# optimizer state are other inputs.
RULES = (
    CategoryRule(OPTIMIZER, r"opt_state|optimizer|\bmu\b|\bnu\b|momentum", group="Parameter"),
    CategoryRule(PARAMETERS, r"params?\b|weights?\b|kernel\b", group="Parameter"),
    CategoryRule(INPUTS, r"", group="Parameter"),
    CategoryRule(LOGITS, r"logits|cross_entropy|lm_head|log_softmax"),
    CategoryRule(MOE, r"\bmoe|expert|\bt?gmm|router"),
    CategoryRule(ATTENTION, r"attention|attn|\bmla\b|splash_m[hq]a|\bwq_|\bwkv_"),
    CategoryRule(LOGITS, r"softmax"),
)


def category(name: str, shape: str, group: str, op_name: str) -> str:
    """The category of a buffer, read off its names; SMALL if the buffer has no shape."""
    return category_of_name(f"{op_name} {name}", group) if shape else SMALL


def is_activation(op_name: str) -> bool:
    """True if the forward pass makes the buffer, or if the buffer is computed again for the backward pass."""
    return AGAIN in op_name or (_FORWARD in op_name and BACKWARD not in op_name)


def category_of_name(name: str, group: str = "") -> str:
    """The category of anything called `name`."""
    rules = (rule for rule in RULES if rule.group in ("", group))
    return next((rule.category for rule in rules if re.search(rule.pattern, name, re.IGNORECASE)), OTHER)


def dimensions(shape: str) -> tuple[int, ...]:
    """`bf16[512,100352]{1,0:T(8,128)}` -> (512, 100352); for a tuple's shape, those of the first array."""
    match = _SHAPE.search(shape)
    return tuple(int(size) for size in match[2].split(",") if size) if match else ()
