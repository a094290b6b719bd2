"""The attributes of an HLO instruction's text: `key=value` pairs, each read by the grammar of its key."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from harness.workbench.hlo.groups import Groups, Sharding, read_groups, read_sharding
from harness.workbench.hlo.module import CallRole, Contraction, Convolution, Instruction, WindowDimension
from harness.workbench.hlo.tokens import Misunderstood, Tokens

_CALLS: dict[str, CallRole] = {
    "calls": "calls",
    "to_apply": "to_apply",
    "body": "body",
    "condition": "condition",
    "true_computation": "branch",
    "false_computation": "branch",
    "branch_computations": "branch",
    "called_computations": "calls",
    "async_computation": "calls",
}
_DOT = {
    "lhs_contracting_dims": "left",
    "rhs_contracting_dims": "right",
    "lhs_batch_dims": "left_batch",
    "rhs_batch_dims": "right_batch",
}


@dataclass(slots=True)
class Attributes:
    """What was read so far of one instruction's attributes."""

    called: list[tuple[CallRole, str]] = field(default_factory=list)
    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    labels: str = ""
    window: tuple[WindowDimension, ...] = ()
    groups: Groups | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    precision: tuple[str, ...] = ()
    sharding: Sharding | None = None
    op_name: str = ""
    source: str = ""
    frame: int = 0
    others: list[str] = field(default_factory=list)

    def onto(self, instruction: Instruction) -> Instruction:
        """The instruction with them. Raises Misunderstood where two of them do not fit together."""
        number = self._one("index") if instruction.number is None else instruction.number
        contraction = None
        if instruction.opcode == "dot":
            contraction = Contraction(**{name: self.numbers.get(key, ()) for key, name in _DOT.items()})
        convolution = None
        if self.labels:
            convolution = replace(
                labelled(self.labels),
                window=self.window,
                batch_groups=self._one("batch_group_count") or 1,
            )
        backend = self.words.get("backend_config", "")
        return replace(
            instruction,
            number=number,
            dimensions=self.numbers.get("dimensions", ()),
            called=tuple(self.called),
            fusion_kind=self.words.get("kind", ""),
            target=self.words.get("custom_call_target", ""),
            contraction=contraction,
            convolution=convolution,
            direction=self.words.get("direction", ""),
            groups=self.groups,
            pairs=self.pairs,
            channel=self._one("channel_id"),
            precision=self.precision,
            sharding=self.sharding,
            aliasing=self.words.get("output_to_operand_aliasing", ""),
            trip_count=trip_count(backend),
            op_name=self.op_name,
            source=self.source,
            backend=backend,
            other_attributes=tuple(self.others),
        )

    def _one(self, key: str) -> int | None:
        found = self.numbers.get(key, ())
        return found[0] if found else None


def read_attribute(tokens: Tokens, key: str, into: Attributes) -> None:
    """Reads the value of `key`, which begins at the next token. Raises Misunderstood."""
    if key in _CALLS:
        for name in _names(tokens):
            into.called.append((_CALLS[key], name))
    elif key in _READERS:
        _READERS[key](tokens, into)
    elif key in _NUMBERS:
        into.numbers[key] = _integers(tokens)
    elif key in _WORDS:
        into.words[key] = _word(tokens)
    else:
        into.others.append(key)
        _pass_over(tokens)


def labelled(text: str) -> Convolution:
    """The convolution's dimensions from labels such as `b01f_01io->b01f`. Raises Misunderstood."""
    match = re.fullmatch(r"(\w+?)_(\w+)->(\w+)", text)
    if match is None:
        raise Misunderstood(f"expected labels such as bf_io->bf, got `{text[:40]}`")
    given, kernel, out = match.groups()
    spatial = sorted(set(given) & set("0123456789"))
    try:
        return Convolution(
            text=text,
            input_batch=given.index("b"),
            input_feature=given.index("f"),
            input_spatial=tuple(given.index(digit) for digit in spatial),
            kernel_input=kernel.index("i"),
            kernel_output=kernel.index("o"),
            kernel_spatial=tuple(kernel.index(digit) for digit in spatial),
            output_batch=out.index("b"),
            output_feature=out.index("f"),
            output_spatial=tuple(out.index(digit) for digit in spatial),
        )
    except ValueError as error:
        raise Misunderstood(f"the labels {text} do not name batch, features and the same dimensions thrice") from error


def trip_count(backend: str) -> int | None:
    """How often a loop runs, where the compiler wrote it down."""
    if "known_trip_count" not in backend:
        return None
    try:
        return int(json.loads(backend)["known_trip_count"]["n"])
    except (ValueError, KeyError, TypeError):
        return None


def window_dimensions(text: str) -> tuple[WindowDimension, ...]:
    """The window of `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2}`. Raises Misunderstood."""
    fields = dict(part.split("=", 1) for part in text.strip("{}").split() if "=" in part)
    sizes = fields.get("size", "")
    if not sizes:
        return ()
    count = len(sizes.split("x"))
    unknown = set(fields) - {"size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"}
    if unknown:
        raise Misunderstood(f"a window with {', '.join(sorted(unknown))}")
    try:
        numbers = {
            key: [int(word) for word in fields.get(key, "x".join(["1"] * count)).split("x")]
            for key in ("size", "stride", "lhs_dilate", "rhs_dilate")
        }
        padding = [tuple(map(int, pair.split("_"))) for pair in fields.get("pad", "x".join(["0_0"] * count)).split("x")]
        return tuple(
            WindowDimension(
                size=size,
                stride=stride,
                low_padding=low,
                high_padding=high,
                input_dilation=input_dilation,
                window_dilation=window_dilation,
            )
            for size, stride, (low, high), input_dilation, window_dilation in zip(
                numbers["size"],
                numbers["stride"],
                padding,
                numbers["lhs_dilate"],
                numbers["rhs_dilate"],
                strict=True,
            )
        )
    except ValueError as error:
        raise Misunderstood(f"expected a window such as {{size=3x3 pad=1_1x1_1}}, got {text[:60]!r}") from error


def _names(tokens: Tokens) -> list[str]:
    if not tokens.skip("{"):
        return [tokens.name()]
    found: list[str] = []
    while not tokens.skip("}"):
        tokens.skip(",")
        found.append(tokens.name())
    return found


def _integers(tokens: Tokens) -> tuple[int, ...]:
    if not tokens.skip("{"):
        return (tokens.integer(),)
    found: list[int] = []
    while not tokens.skip("}"):
        if found:
            tokens.expect(",")
        found.append(tokens.integer())
    return tuple(found)


def _word(tokens: Tokens) -> str:
    if tokens.sees("{", "["):
        return tokens.group()
    token = tokens.take()
    return token.text[1:-1] if token.kind == "string" else token.text


def _pass_over(tokens: Tokens) -> None:
    """One value of any kind: words and groups up to the next comma, closing brace or end of the line."""
    while True:
        if tokens.sees("{", "[", "("):
            tokens.group()
        else:
            tokens.take()
        if tokens.sees(",", "}") or tokens.begins_line():
            return


def _read_groups(tokens: Tokens, into: Attributes) -> None:
    into.groups = read_groups(tokens)


def _read_sharding(tokens: Tokens, into: Attributes) -> None:
    into.sharding = read_sharding(tokens)


def _read_pairs(tokens: Tokens, into: Attributes) -> None:
    found = read_groups(tokens).groups
    pairs = [(pair[0], pair[1]) for pair in found if len(pair) == 2]
    if len(pairs) != len(found):
        raise Misunderstood(f"expected pairs of devices such as {{{{0,1}},{{1,0}}}}, got {found[:3]}")
    into.pairs = tuple(pairs)


def _read_window(tokens: Tokens, into: Attributes) -> None:
    into.window = window_dimensions(tokens.group())


def _read_labels(tokens: Tokens, into: Attributes) -> None:
    into.labels = tokens.take().text
    if tokens.skip("->"):
        into.labels += f"->{tokens.take().text}"


def _read_precision(tokens: Tokens, into: Attributes) -> None:
    into.precision = tuple(tokens.group().strip("{}").split(","))


def _read_metadata(tokens: Tokens, into: Attributes) -> None:
    """`{op_name="jit(f)/mul" source_file="kernel.py" source_line=3 stack_frame_id=2}`."""
    inner = Tokens(tokens.group()[1:-1])
    line = ""
    file = ""
    while inner.peek().kind != "end":
        key = inner.name()
        inner.expect("=")
        value = _word(inner)
        if key == "op_name":
            into.op_name = value
        elif key == "source_file":
            file = value
        elif key == "source_line":
            line = value
        elif key == "stack_frame_id" and value.isdigit():
            into.frame = int(value)
    into.source = f"{file}:{line}" if file else ""


_NUMBERS = (
    "dimensions",
    "dynamic_slice_sizes",
    "slice_sizes",
    "index",
    "channel_id",
    "feature_group_count",
    "batch_group_count",
    *_DOT,
)
_WORDS = ("kind", "custom_call_target", "direction", "backend_config", "output_to_operand_aliasing")
_READERS: dict[str, Callable[[Tokens, Attributes], None]] = {
    "replica_groups": _read_groups,
    "source_target_pairs": _read_pairs,
    "sharding": _read_sharding,
    "window": _read_window,
    "dim_labels": _read_labels,
    "operand_precision": _read_precision,
    "metadata": _read_metadata,
}
