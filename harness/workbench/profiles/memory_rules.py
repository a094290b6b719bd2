"""The purpose of a buffer, derived from its group and name by a list of rules; the first matching rule counts."""

import re
from dataclasses import dataclass

from harness.workbench.hlo.prediction import TRAINING_BYTES

PARAMETERS, OPTIMIZER, INPUTS = "parameters", "optimizer", "other inputs"
LOGITS, MOE, ATTENTION, OTHER = "logits, cross entropy", "MoE", "attention", "other"
SMALL = "small buffers"

# JAX's names for work that jax.checkpoint recomputes, and for the two passes of a derivative.
AGAIN, BACKWARD, _FORWARD = "rematted_computation", "transpose(", "jvp("
# From this length on, a dimension counts as a vocabulary (protocol, section 6).
VOCABULARY_ELEMENTS = 100_000
# 16 bytes (protocol, section 5).
TRAINING_BYTES_PER_PARAMETER = sum(width for _, width in TRAINING_BYTES)

_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([\d,]*)\]")


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """A rule: buffers of `group` ("": of any group) with a name that matches `pattern` belong to `category`."""

    category: str
    pattern: str
    group: str = ""


# Groups and words are those of the published analysis (protocol, section 6), arguments first. The analysis assigns
# `softmax` to the loss. Attention contains a softmax, too, so this rule comes last here. Arguments that are neither
# parameters nor optimizer state are other inputs.
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
    """The category of a buffer, derived from its names; SMALL if the buffer has no shape."""
    return category_of_name(f"{op_name} {name}", group) if shape else SMALL


def is_activation(op_name: str) -> bool:
    """True if the buffer is made by the forward pass, or recomputed for the backward pass."""
    return AGAIN in op_name or (_FORWARD in op_name and BACKWARD not in op_name)


def category_of_name(name: str, group: str = "") -> str:
    """The category of a buffer or operation with this `name`."""
    rules = (rule for rule in RULES if rule.group in ("", group))
    return next((rule.category for rule in rules if re.search(rule.pattern, name, re.IGNORECASE)), OTHER)


def dimensions(shape: str) -> tuple[int, ...]:
    """The dimensions in a shape's text, such as (512, 100352) for `bf16[512,100352]{1,0}`; of a tuple's first array."""
    match = _SHAPE.search(shape)
    return tuple(int(size) for size in match[2].split(",") if size) if match else ()
