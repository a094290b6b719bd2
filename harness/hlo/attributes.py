"""The attributes of an HLO instruction's text: `key=value` pairs, each read by the grammar of its key."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.hlo.module import CallRole, Contraction, Convolution, WindowDimension
from harness.hlo.sharding import read_groups, read_sharding
from harness.hlo.tokens import NAME, Misunderstood, Tokens

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


# Limits: labels of eight dimensions are far shorter than this, and a window's numbers have at most 31 bits.
_LONGEST_LABELS, _LARGEST_WINDOW = 100, 1 << 31
# The usual spelling of most attributes in XLA's text is read in one match; any other spelling is read token by token.
_KEY = re.compile(r",\s*([a-z_][\w\-]*)=")
_END = re.compile(r"\s*\n\s*(?=[%}R])")
_NAME = re.compile(r"%?([\w.\-]{1,200})(?=[,\n])")
_NUMBERS = re.compile(r"\{((?:\d{1,18},)*\d{1,18})?\}")
_NUMBER = re.compile(r"(\d{1,18})(?=[,\n])")
_PLAIN_WORD = re.compile(r'"([^"\\\n]*)"|(\w+)(?=[,\n])')
_METADATA = re.compile(r'\{((?:\w+=(?:"[^"\\\n]*"|\d+) ?)*)\}')
_ENTRY = re.compile(r'(\w+)=(?:"([^"]*)"|(\d+))')


def read_attributes(tokens: Tokens, source_of: Callable[[int], str], *, is_dot: bool) -> dict[str, Any]:
    """The fields of an instruction from the attributes that begin at the next token.

    `source_of` returns the source line of a stack frame. Raises Misunderstood.
    """
    fields: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    called: list[tuple[CallRole, str]] = []
    others: list[str] = []
    start = end = tokens.place
    while True:
        if (match := tokens.match(_KEY)) is not None:
            key = match[1]
        elif tokens.match(_END) is not None or not tokens.skip(","):
            break
        else:
            # After the comma at the end of an abridged listing, an instruction may follow. It has a blank before its
            # `=`; an attribute does not.
            key_end = tokens.peek().start + len(tokens.peek().text)
            if tokens.begins_line() and not tokens.text.startswith("=", key_end):
                break
            key = tokens.name()
            tokens.expect("=")
        if key in _CALLS:
            called += [(_CALLS[key], name) for name in _names(tokens)]
        elif key in _FIELDS:
            field, read = _FIELDS[key]
            fields[field] = read(tokens)
        elif key in _PARTS:
            parts[key] = _PARTS[key](tokens)
        else:
            others.append(key)
            _pass_over(tokens)
        if "backend" not in fields:
            end = tokens.place
    if "metadata" in parts:
        fields |= _origin(parts["metadata"], source_of)
    if is_dot:
        fields["contraction"] = Contraction(**{name: parts.get(key, ()) for key, name in _DOT.items()})
    if "dim_labels" in parts:
        groups = next(iter(parts.get("batch_group_count", ())), 1)
        if groups < 1:
            raise Misunderstood(f"expected a batch_group_count of 1 or more, got {groups}")
        fields["convolution"] = replace(
            _convolution(parts["dim_labels"]), window=parts.get("window", ()), batch_groups=groups
        )
    fields |= {"called": tuple(called), "other_attributes": tuple(others)}
    if "backend" in fields:
        fields["trip_count"] = trip_count(fields["backend"])
    fields["attributes"] = tokens.text[start:end].rstrip()
    return fields


def _convolution(text: str) -> Convolution:
    """The convolution with labels such as `b01f_01io->b01f`. Raises Misunderstood."""
    match = re.fullmatch(r"(\w+?)_(\w+)->(\w+)", text) if len(text) <= _LONGEST_LABELS else None
    if match is None:
        raise Misunderstood(f"expected labels such as bf_io->bf, got `{text[:40]}`")
    data, kernel, out = match.groups()
    spatial = sorted(set(data) & set("0123456789"))
    try:
        return Convolution(
            text=text,
            input_batch=data.index("b"),
            input_feature=data.index("f"),
            input_spatial=tuple(data.index(digit) for digit in spatial),
            kernel_input=kernel.index("i"),
            kernel_output=kernel.index("o"),
            kernel_spatial=tuple(kernel.index(digit) for digit in spatial),
            output_batch=out.index("b"),
            output_feature=out.index("f"),
            output_spatial=tuple(out.index(digit) for digit in spatial),
        )
    except ValueError as error:
        raise Misunderstood(
            f"the labels {text} do not name batch, features and the same dimensions for input, kernel and output"
        ) from error


def configuration(backend: str, *path: str) -> object:
    """The value at `path` of a backend's configuration; None if `backend` is not JSON or has no such path."""
    try:
        stated: object = json.loads(backend) if backend else None
    except (ValueError, RecursionError):
        return None
    for name in path:
        stated = stated.get(name) if isinstance(stated, dict) else None
    return stated


def trip_count(backend: str) -> int | None:
    """The number of iterations of a loop; None if the compiler did not state it."""
    count = configuration(backend, "known_trip_count", "n") if "known_trip_count" in backend else None
    try:
        return int(count) if isinstance(count, int | str) else None
    except ValueError:
        return None


def window_dimensions(text: str) -> tuple[WindowDimension, ...]:
    """The dimensions of a window such as `{size=3x3 pad=1_1x1_1 lhs_dilate=2x2}`; () without sizes.

    Raises Misunderstood.
    """
    NAME.check(len(text), "a window")
    fields = dict(part.split("=", 1) for part in text.strip("{}").split() if "=" in part)
    sizes = fields.get("size", "")
    if not sizes:
        return ()
    count = len(sizes.split("x"))
    unknown = set(fields) - {"size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"}
    if unknown:
        raise Misunderstood(f"expected a window of known attributes, got {', '.join(sorted(unknown))}")
    try:
        numbers = {
            key: [int(word) for word in fields.get(key, "x".join(["1"] * count)).split("x")]
            for key in ("size", "stride", "lhs_dilate", "rhs_dilate")
        }
        if not all(0 < number <= _LARGEST_WINDOW for each in numbers.values() for number in each):
            raise ValueError("sizes and steps are whole numbers above 0")
        padding = [tuple(map(int, pair.split("_"))) for pair in fields.get("pad", "x".join(["0_0"] * count)).split("x")]
        if not all(abs(number) <= _LARGEST_WINDOW for pair in padding for number in pair):
            raise ValueError("padding of more than 31 bits")
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
                numbers["size"], numbers["stride"], padding, numbers["lhs_dilate"], numbers["rhs_dilate"], strict=True
            )
        )
    except ValueError as error:
        raise Misunderstood(f"expected a window such as {{size=3x3 pad=1_1x1_1}}, got {text[:60]!r}") from error


def _names(tokens: Tokens) -> list[str]:
    if (match := tokens.match(_NAME)) is not None:
        return [match[1]]
    if not tokens.skip("{"):
        return [tokens.name()]
    listed: list[str] = []
    while not tokens.skip("}"):
        tokens.skip(",")
        listed.append(tokens.name())
    return listed


def _integers(tokens: Tokens) -> tuple[int, ...]:
    if (match := tokens.match(_NUMBERS)) is not None:
        return tuple(map(int, match[1].split(","))) if match[1] else ()
    if not tokens.skip("{"):
        return (tokens.integer(),)
    return tuple([tokens.integer() for _ in tokens.items("}")])


def _word(tokens: Tokens) -> str:
    if (match := tokens.match(_PLAIN_WORD)) is not None:
        return match[1] if match[2] is None else match[2]
    if tokens.sees("{", "["):
        return tokens.group()
    token = tokens.take()
    return token.text[1:-1] if token.kind == "string" else token.text


def _pass_over(tokens: Tokens) -> None:
    """Takes one value of any kind: words and groups up to the next comma, closing brace or end of the line."""
    if tokens.match(_PLAIN_WORD) is not None:
        return
    while True:
        tokens.skip_value()
        if tokens.sees(",", "}") or tokens.begins_line():
            return


def _first(tokens: Tokens) -> int | None:
    if (match := tokens.match(_NUMBER)) is not None:
        return int(match[1])
    return next(iter(_integers(tokens)), None)


def _pairs(tokens: Tokens) -> tuple[tuple[int, int], ...]:
    groups = read_groups(tokens).groups
    pairs = tuple((pair[0], pair[1]) for pair in groups if len(pair) == 2)
    if len(pairs) != len(groups):
        raise Misunderstood(f"expected pairs of devices such as {{{{0,1}},{{1,0}}}}, got {groups[:3]}")
    return pairs


def _labels(tokens: Tokens) -> str:
    text = tokens.take().text
    return f"{text}->{tokens.take().text}" if tokens.skip("->") else text


def _metadata(tokens: Tokens) -> dict[str, str]:
    """The fields of text such as `{op_name="jit(f)/mul" source_file="kernel.py" source_line=3 stack_frame_id=2}`."""
    if (match := tokens.match(_METADATA)) is not None:
        return {key: word or number for key, word, number in _ENTRY.findall(match[1])}
    inner = Tokens(tokens.group()[1:-1])
    fields: dict[str, str] = {}
    while inner.peek().kind != "end":
        key = inner.name()
        inner.expect("=")
        fields[key] = _word(inner)
    return fields


def _origin(metadata: dict[str, str], source_of: Callable[[int], str]) -> dict[str, str]:
    """Operation name and source of an instruction. Older XLA writes the source line, newer XLA a stack frame."""
    file, frame = metadata.get("source_file", ""), metadata.get("stack_frame_id", "")
    source = f"{file}:{metadata.get('source_line', '')}" if file else ""
    if not file and frame.isdecimal() and len(frame) < 19:
        source = source_of(int(frame))
    return {"op_name": metadata.get("op_name", ""), "source": source}


# By attribute: the field of Instruction that it sets, and the function that reads it.
_FIELDS: dict[str, tuple[str, Callable[[Tokens], object]]] = {
    "dimensions": ("dimensions", _integers),
    "index": ("number", _first),
    "channel_id": ("channel", _first),
    "kind": ("fusion_kind", _word),
    "custom_call_target": ("target", _word),
    "direction": ("direction", _word),
    "backend_config": ("backend", _word),
    "output_to_operand_aliasing": ("aliasing", _word),
    "replica_groups": ("groups", read_groups),
    "source_target_pairs": ("pairs", _pairs),
    "sharding": ("sharding", read_sharding),
    "operand_precision": ("precision", lambda tokens: tuple(tokens.group().strip("{}").split(","))),
}
# Attributes that are parts of a larger field, and attributes that are known but not needed.
_PARTS: dict[str, Callable[[Tokens], object]] = {
    **dict.fromkeys((*_DOT, "batch_group_count", "feature_group_count"), _integers),
    **dict.fromkeys(("dynamic_slice_sizes", "slice_sizes"), _integers),
    "window": lambda tokens: window_dimensions(tokens.group()),
    "dim_labels": _labels,
    "metadata": _metadata,
}
