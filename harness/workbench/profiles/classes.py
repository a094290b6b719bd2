"""Classes of operations by kind of work, part of a model and direction: tables of patterns; the first match counts."""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from harness.errors import RatchetError
from harness.hlo import shapes
from harness.records import Operation

Direction: TypeAlias = Literal["forward", "backward", "neither known"]

COMMUNICATION, DATA_FORMATTING, MATMUL = "communication", "data formatting", "matmul"
CONTROL_FLOW, TRANSFER, CUSTOM_KERNEL = "control flow", "memory transfer", "custom kernel"

# The opcode before the arguments: `fusion(`, `all-gather-start(`. Words in layouts have no blank before them.
_OPCODE = re.compile(r"[)\]} ] ?([a-z][a-z0-9-]*)\(")
_HALF = re.compile(r"-(start|done|update)\b")
# The result of an operation that returns one array: `%name = f32[8]{0:T(128)} `.
_RESULT = re.compile(r"%?\S+ = (\w+\[[\d,]*\](?:\{[^}]*\})?) ")
_FUSION_KIND = re.compile(r"kind=k(\w+)")
_FUSIONS = {"Loop": "loop fusion", "Input": "input fusion", "Output": "output fusion", "Custom": "custom fusion"}
_COLLECTIVE = r"all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast"
# Names of collectives: XLA's (`all-gather-start.3`), JAX's (`all_to_all.9`), and libtpu's for the halves of a
# continuation fusion (`async-collective-done`, libtpu 0.0.50).
_COLLECTIVE_NAME = re.compile(rf"^({_COLLECTIVE}|async-collective)\b|^({_COLLECTIVE.replace('-', '_')})\b")
_HOST_MEMORY = "S(5)"
# In captures of a CPU, these opcodes are the categories of operations that XProf calls `non-fusion elementwise`.
_POINTWISE = (
    "add|subtract|multiply|divide|maximum|minimum|power|negate|abs|sign|exponential|exponential-minus-one|log|"
    "log-plus-one|logistic|tanh|sqrt|rsqrt|cbrt|erf|floor|ceil|round-nearest-even|sine|cosine|convert|select|compare|"
    "clamp|and|or|xor|not|is-finite|remainder"
)


@dataclass(frozen=True, slots=True)
class ClassRule:
    """A rule: operations have the class `meaning` if `category` and `name` match theirs."""

    meaning: str
    category: str = ""
    name: str = ""


# Rules on hlo_category and name (protocol, section 6). Operations that the protocol does not name (control flow,
# transfers into VMEM, reductions) have separate classes, so that they do not distort other classes.
_CLASSES = (
    ClassRule(COMMUNICATION, category=rf"^({_COLLECTIVE}|ragged-all-to-all|send|recv)(-start|-done)?( fusion)?$"),
    ClassRule(COMMUNICATION, name=_COLLECTIVE_NAME.pattern),
    ClassRule(TRANSFER, category=r"^(copy|slice|dynamic-slice|dynamic-update-slice)-(start|done)$"),
    ClassRule(TRANSFER, category=r"^async-(start|done|update)$", name=r"^(copy|slice|dynamic-)"),
    ClassRule(COMMUNICATION, category=r"^async-(start|done|update)$"),
    ClassRule("attention", name=r"^splash_m[hq]a|flash_?attention|^splash_attention"),
    ClassRule(MATMUL, category=r"^(convolution fusion|convolution|dot)$"),
    ClassRule(CUSTOM_KERNEL, category=r"^custom-call$"),
    ClassRule("custom fusion", category=r"^custom fusion$"),
    ClassRule("elementwise fusion", category=rf"^(loop fusion|non-fusion elementwise|{_POINTWISE})$"),
    ClassRule("other fusion", category=r"fusion$"),
    ClassRule(DATA_FORMATTING, category=r"^(data formatting|copy|transpose|reshape|bitcast-convert)$"),
    ClassRule("routing", category=r"^(sort|topk|top-k)$"),
    ClassRule(CONTROL_FLOW, category=r"^(while|conditional|call|async-call)$"),
    ClassRule("other"),
)
CLASSES = tuple(dict.fromkeys(rule.meaning for rule in _CLASSES))

# The framework categories (protocol, section 6), the most specific first. The patterns are matched with the tf_op; if
# none matches, with the operation's name.
_FRAMEWORK = (
    ("gla", r"(?<![a-z])gla(?![a-z])|gated_?linear|linear_attention|delta_?net|delta_rule"),
    ("moe", r"(?<![a-z])moe(?![a-z])|mixture_of_experts|expert|router|routing|(?<![a-z])t?gmm(?![a-z])|megablox"),
    ("attention", r"attention|attn|splash|flash|(?<![a-z])m[hq]a(?![a-z])"),
    ("norm", r"norm"),
    ("embedding", r"embed|vocab|lm_head|unembed"),
)
FRAMEWORK_CATEGORIES = (*(name for name, _ in _FRAMEWORK), "collective", "matmul", "other")

_BACKWARD_NAMES = re.compile(r"^tgmm|^splash_m[hq]a_d")
_FORWARD_NAMES = re.compile(r"^splash_m[hq]a_fwd")
_EXPONENTIAL = re.compile(r"/exp2?(:|$)")
_GROUPED = re.compile(r"^t?gmm")


def opcode(operation: Operation) -> str:
    """The HLO opcode in the operation's text; if there is none, the operation's name without its number."""
    _, _, after = operation.text.partition(" = ")
    match = _OPCODE.search(f" {after}")
    return match[1] if match else re.sub(r"[.\d]+$", "", operation.name)


def category(operation: Operation) -> str:
    """XProf's hlo_category; if it is missing, unknown or only `fusion`, a category derived from the text or name."""
    if operation.category not in ("", "fusion", "unknown"):
        return operation.category
    name = opcode(operation)
    kind = _FUSION_KIND.search(operation.text)
    if name == "fusion" and kind:
        return _FUSIONS.get(kind[1], "fusion")
    # On a CPU, XLA names a fusion after its operations: `broadcast_add_fusion`, `wrapped_tanh`.
    return "fusion" if name.endswith("fusion") else name.removeprefix("wrapped_")


def op_class(operation: Operation) -> str:
    """One of CLASSES."""
    kind = category(operation)
    matches = (rule for rule in _CLASSES if re.search(rule.category, kind) and re.search(rule.name, operation.name))
    # The last rule matches everything.
    return next(matches).meaning


def half(operation: Operation) -> Literal["start", "done", "update", ""]:
    """The part of an asynchronous operation: `start`, `done` (the wait for its end), `update`, or "" if synchronous."""
    words = (operation.name, category(operation), opcode(operation))
    match = next(filter(None, map(_HALF.search, words)), None)
    return cast(Literal["start", "done", "update"], match[1]) if match else ""


def pair_name(name: str) -> str:
    """The common name of both halves of an asynchronous operation: `all-gather.2` for `all-gather-done.2`."""
    return _HALF.sub("", name)


def result_bytes(operation: Operation) -> float | None:
    """Bytes of the result in memory, padding included; None if the text does not state one array."""
    match = _RESULT.match(operation.text)
    if match is None:
        return None
    try:
        return shapes.array(match[1]).padded_bytes
    except RatchetError:
        return None


def is_host_transfer(operation: Operation) -> bool:
    """True for a copy to or from the host's memory (S(5) in layouts: XLA's layout.h), or the wait for such a copy."""
    return op_class(operation) == TRANSFER and _HOST_MEMORY in operation.text


def framework_category(operation: Operation) -> str:
    """One of FRAMEWORK_CATEGORIES."""
    kind = op_class(operation)
    if kind == COMMUNICATION:
        return "collective"
    for text in (operation.framework_name.lower(), operation.name.lower()):
        for name, pattern in _FRAMEWORK:
            if re.search(pattern, text):
                return name
    if kind == MATMUL or re.search(r"dot_general|einsum|conv_general", operation.framework_name):
        return "matmul"
    return "other"


def direction(operation: Operation) -> tuple[Direction, Literal["tf_op", "name", ""]]:
    """The direction and its source: first the tf_op, then the name, "" if neither shows it (protocol, section 6)."""
    if re.search(r"transpose\((?:\w+\()*jvp\(", operation.framework_name):
        return "backward", "tf_op"
    if "jvp(" in operation.framework_name:
        return "forward", "tf_op"
    if _BACKWARD_NAMES.search(operation.name):
        return "backward", "name"
    if _FORWARD_NAMES.search(operation.name):
        return "forward", "name"
    return "neither known", ""


def grouped_matmul(operation: Operation) -> str | None:
    """`GMM` or `TGMM` for the grouped matmuls of a mixture of experts, else None."""
    match = _GROUPED.search(operation.name)
    return match[0].upper() if match else None


def is_exponential(operation: Operation) -> bool:
    """True for an exponential, and for a fusion with an exponential as its tf_op."""
    return category(operation).startswith("exponential") or bool(_EXPONENTIAL.search(operation.framework_name))


def is_custom_call(operation: Operation) -> bool:
    """True for a kernel that XLA did not generate, such as a Pallas kernel."""
    return category(operation) == "custom-call" or opcode(operation) == "custom-call"
