"""The shapes of a table: listed one by one, or derived from a model's layers."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import reading_limits
from harness.errors import UsageError

# Keys of a model: its name, and those that make a kernel's problem.
_HEADS = ("heads", "kv_heads", "head_dim")
_EXPERTS = ("hidden", "intermediate", "experts", "experts_per_token", "expert_parallel")
_MODEL = ("model", "layers", *_HEADS, *_EXPERTS, "sequences", "batch", "page_size", "tokens", "dtype", "causal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One problem of a table: constants of the template's prepare.py and their values as Python writes them."""

    name: str
    constants: tuple[tuple[str, str], ...]


def read(path: Path, operation: str, names: frozenset[str]) -> tuple[Shape, ...]:
    """The shapes in this JSON file for problems of `operation`, whose template has the constants `names`.

    The file has a list of shapes and models. Keys of a shape are constants in lower case: `{"name": "prefill", "heads":
    32, "kv_heads": 8, "sequence": 4096, ...}`. A model is described at `of_model`: `{"model": "Llama 3.1 8B", "heads":
    32, "kv_heads": 8, "head_dim": 128, "sequences": [2048, 8192]}`. Raises UsageError `bad-shapes`, which names the
    entry, and RatchetError `too-large`.
    """
    try:
        entries = json.loads(reading_limits.read(path, reading_limits.RECORD), object_pairs_hook=_once)
    except OSError as error:
        raise UsageError("bad-shapes", f"expected a JSON file of shapes, got {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError("bad-shapes", f"{path} is not a JSON file of shapes: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError("bad-shapes", f"{path}: expected a list of objects, one for each shape or model")
    if not entries:
        raise UsageError("bad-shapes", f"{path}: expected at least one shape or model, got an empty list")
    shapes: dict[str, Shape] = {}
    for place, entry in enumerate(entries, 1):
        where = f"{path}, entry {place}"
        for listed in of_model(entry, operation, names, where) if "model" in entry else [entry]:
            shape = _shape(listed, names, where)
            if shape.name in shapes:
                raise UsageError("bad-shapes", f"{path}: {shape.name!r} names two shapes: give each shape its own name")
            shapes[shape.name] = shape
            reading_limits.SHAPES.check(len(shapes), str(path))
    return tuple(shapes.values())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Raises ValueError if a name occurs twice; `json` would take the last value."""
    value_of = dict(pairs)
    if len(value_of) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name!r} occurs twice in one object")
    return value_of


def of_model(entry: Mapping[str, Any], operation: str, names: frozenset[str], where: str) -> Iterator[dict[str, Any]]:
    """The shapes of a model's problems of `operation`.

    - attention: one for each of `sequences`, causal unless `causal` is false.
    - paged_attention: for each length in `sequences`, `batch` sequences of up to that many tokens, in pages of
      `page_size` (default 16); if the kernel takes several queries of a sequence, `tokens` queries in all.
    - grouped_matmul: for each length, the two products of a mixture of experts for `batch` (default 1) times that many
      tokens, each of which goes to `experts_per_token` of `experts`. If `expert_parallel` chips share the experts, the
      shapes are those of one chip, with its share of the tokens.

    `layers` changes no shape. Raises UsageError `bad-shapes`.
    """
    for name in entry:
        if name not in _MODEL:
            raise UsageError("bad-shapes", f"{where}: expected a model's keys, {', '.join(_MODEL)}; got {name!r}")

    def need(name: str, otherwise: int | None = None) -> int:
        value = entry.get(name, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            got = f"got {value!r}" if name in entry else "got none"
            raise UsageError(
                "bad-shapes", f"{where}: expected {name!r} of a model for {operation} as a whole number above 0, {got}"
            )
        return value

    model, dtype = entry["model"], {"dtype": entry["dtype"]} if "dtype" in entry else {}
    lengths = entry.get("sequences")
    if not isinstance(lengths, list) or not lengths or any(type(each) is not int or each < 1 for each in lengths):
        raise UsageError("bad-shapes", f"{where}: expected 'sequences' as a list of lengths, got {lengths!r}")
    for length in lengths:
        if operation == "attention":
            heads, causal = {name: need(name) for name in _HEADS}, entry.get("causal", True)
            yield {"name": f"{model}, {length}", **heads, "sequence": length, "causal": causal, **dtype}
        elif operation == "paged_attention":
            heads = {name: need(name) for name in _HEADS}
            size, sequences = need("page_size", 16), need("batch")
            per_sequence = -(-length // size)
            pages = {"page_size": size, "pages_per_sequence": per_sequence, "pages": sequences * per_sequence}
            tokens = {"tokens": need("tokens")} if "TOKENS" in names else {}
            name = f"{model}, {sequences} x {length}"
            yield {"name": name, **heads, "sequences": sequences, **pages, **tokens, **dtype}
        elif operation == "grouped_matmul":
            experts, chips = need("experts"), need("expert_parallel", 1)
            if experts % chips:
                even = f"expected 'expert_parallel' to divide the {experts} experts"
                raise UsageError("bad-shapes", f"{where}: {even}, got {chips}")
            rows, groups = -(-length * need("batch", 1) * need("experts_per_token") // chips), experts // chips
            part = f", {groups} of {experts} experts" if chips > 1 else ""
            hidden, intermediate = need("hidden"), need("intermediate")
            for way, k, n in (("up", hidden, intermediate), ("down", intermediate, hidden)):
                yield {"name": f"{model}, {length} {way}{part}", "m": rows, "groups": groups, "k": k, "n": n, **dtype}
        else:
            raise UsageError(
                "bad-shapes", f"{where}: a model says nothing about {operation}; give its shapes one by one"
            )


def _shape(entry: Mapping[str, Any], names: frozenset[str], where: str) -> Shape:
    constants = {name.upper(): value for name, value in entry.items() if name != "name"}
    for name, value in constants.items():
        if name not in names:
            allowed = ", ".join(sorted(allowed.lower() for allowed in names))
            raise UsageError("bad-shapes", f"{where}: expected the keys name, {allowed}; got {name.lower()!r}")
        if not isinstance(value, int | float | str | bool) or (isinstance(value, float) and not math.isfinite(value)):
            raise UsageError("bad-shapes", f"{where}: expected a number or a word as {name.lower()}, got {value!r}")
    name_of_shape = str(entry.get("name") or " ".join(f"{name.lower()}={value}" for name, value in constants.items()))
    if not name_of_shape.isprintable():
        raise UsageError(
            "bad-shapes", f"{where}: expected a name on one line that can be printed, got {name_of_shape!a}"
        )
    # By default heads do not share keys.
    if "HEADS" in constants and "KV_HEADS" in names:
        constants.setdefault("KV_HEADS", constants["HEADS"])
    return Shape(name=name_of_shape, constants=tuple((name, repr(value)) for name, value in constants.items()))
