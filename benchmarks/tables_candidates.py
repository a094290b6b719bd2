"""The problems of tokamax's tuning data that tables.py tunes, and their configurations, chosen before a time is known.

    python benchmarks/tables_candidates.py < ROWS.json

prints the configurations that tokamax's own autotuner would try for each row's problem, and the untuned one.
"""

import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from math import prod
from typing import Any, Literal

import fidelity_rows
from fidelity_rows import Row

from harness.hardware import chip as chip_named

# Operations that have configurations to choose from.
TUNED = (
    "pallas_mosaic_tpu_flash_attention",
    "pallas_mosaic_tpu_flash_attention_vjp",
    "pallas_mosaic_tpu_splash_attention",
    "pallas_mosaic_tpu_splash_attention_vjp",
    "pallas_mosaic_tpu_ragged_dot",
)
# This operation has no configurations, but is a rival of the older grouped product.
V2 = "pallas_mosaic_tpu_v2_ragged_dot"
KEYS = 60
# Problems with more FLOPs in their matmuls, without a mask, take minutes to simulate.
_MOST_FLOPS = 2e13
# Blocks of more rows times columns take minutes to compile. Most published configurations have as many (Row.cost).
_MOST_COST = 2**21
# A backward pass computes five products for the two of a forward pass.
_BACKWARD = 2.5
_BYTES = 2
# The number of candidates of each kind.
_DRAWN = 2
_NEAR = 3

Role = Literal["published", "default", "near", "drawn", "rival"]
Config = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The configurations that tokamax's autotuner would try for a problem, and the untuned one, as in its files."""

    configs: tuple[str, ...]
    default: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration of a problem and why it is tried: untuned, near the published one, drawn, a rival ..."""

    row: Row
    role: Role


def keys() -> list[Row]:
    """The published rows of the problems that are tuned, in the order of tuning: validation rows only."""
    usable = [
        row
        for operation in TUNED
        for row in fidelity_rows.rows(operation=operation)
        if row.purpose == "validation" and flops(row) <= _MOST_FLOPS
    ]
    return in_turns(usable)[:KEYS]


def in_turns(rows: Iterable[Row]) -> list[Row]:
    """The problem with the least SHA-256 of each chip and operation, then the second ones, and so on."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: _digest(row.key)):
        groups.setdefault((row.chip, row.operation), []).append(row)
    turns = zip_longest(*(groups[name] for name in sorted(groups)))
    return [row for turn in turns for row in turn if row is not None]


def rivals(rows: Iterable[Row]) -> list[list[Row]]:
    """Grouped products published with several configurations or implementations, and with times that may be read.

    Each list has the rows of one problem, one for each operation and configuration, a validation row first. Without an
    activation the residuals are the result, so a problem with residuals equals the one without. A result type equal to
    the operands' makes no difference either.
    """
    groups: dict[str, dict[tuple[str, str], Row]] = {}
    for row in sorted(rows, key=lambda row: (row.purpose != "validation", _digest(row.key))):
        if "ragged_dot" in row.operation and row.purpose != "untouched":
            key = json.loads(row.key)
            plain = key["activation"] is None and str(key["lhs"]).startswith("bf16")
            left = {"return_residuals"} if plain else set()
            left |= {"preferred_element_type"} if plain and key["preferred_element_type"] == "bfloat16" else set()
            same = {name: value for name, value in key.items() if name not in left and value is not None}
            groups.setdefault(row.chip + json.dumps(same, sort_keys=True), {}).setdefault(
                (row.operation, row.config), row
            )
    rival_groups = [list(here.values()) for here in groups.values()]
    return [here for here in rival_groups if len(here) > 1 and here[0].purpose == "validation"]


def flops(row: Row) -> float:
    """The FLOPs of an attention row's matmuls without its mask; 0 for other operations, which are all short."""
    key = json.loads(row.key)
    if "attention" not in row.operation:
        return 0.0
    q, k, v = (_shape(key[name]) for name in ("q", "k", "v"))
    # [batch, sequence, heads, width], or [heads, sequence, width].
    kv_length = k[-3] if "flash" in row.operation else k[-2]
    return 2.0 * prod(q[:-1]) * kv_length * (q[-1] + v[-1]) * (_BACKWARD if row.operation.endswith("vjp") else 1)


def candidates(published: Row, space: Space) -> list[Candidate]:
    """The published configuration, the untuned one, the published one's neighbours, and some drawn by hash."""
    beside = by_hash(published, near(json.loads(published.config), space.configs))
    named: tuple[tuple[Role, list[str]], ...] = (
        ("published", [published.config]),
        ("default", [space.default]),
        ("near", [config_text for config_text in beside if is_possible(_with(published, config_text))][:_NEAR]),
        (
            "drawn",
            [
                config_text
                for config_text in by_hash(published, space.configs)
                if is_likely(_with(published, config_text))
            ],
        ),
    )
    candidate_by_row: dict[str, Candidate] = {}
    for role, configs in named:
        for config in configs:
            row = _with(published, config)
            if len(candidate_by_row) < 2 + _NEAR + _DRAWN and row.name not in candidate_by_row:
                candidate_by_row[row.name] = Candidate(row=row, role=role)
    return list(candidate_by_row.values())


def near(published: Config, configs: Iterable[str]) -> list[str]:
    """The configurations that differ from the published one in one value, by one step among the values of `configs`."""
    space = [json.loads(text) for text in configs]
    steps = {
        name: sorted({tried_config[name] for tried_config in [*space, published]}, key=_order) for name in published
    }
    neighbours = []
    for config in space:
        changed = [name for name in published if config[name] != published[name]]
        if len(changed) == 1:
            values = steps[changed[0]]
            if abs(values.index(config[changed[0]]) - values.index(published[changed[0]])) == 1:
                neighbours.append(text_of(config))
    return neighbours


def by_hash(published: Row, configs: Iterable[str]) -> list[str]:
    """The configurations, ordered by a hash of the problem's text and their own."""
    return sorted(configs, key=lambda text: _digest(published.key + text))


def is_possible(row: Row) -> bool:
    """True if the configuration's tiles fit into VMEM and its blocks are small enough to compile within a minute or
    so.
    """
    return row.cost <= _MOST_COST and vmem_share(row) <= 1


def is_likely(row: Row) -> bool:
    """True if the configuration is possible and may win: small tiles of grouped products cannot."""
    return is_possible(row) and (row.cost > 0 or vmem_share(row) >= 1 / 4)


def vmem_share(row: Row) -> float:
    """The share of a kernel's VMEM limit that the tiles of a grouped product take; 0 for other operations."""
    config = json.loads(row.config)
    if "tile_m" not in config:
        return 0.0
    m, k, n = (config[f"tile_{axis}"] for axis in "mkn")
    bytes_ = _BYTES * config["input_buffer_count"] * (m * k + k * n + m * n)
    return float(bytes_ / chip_named(row.chip).scoped_vmem_bytes)


def text_of(config: Config) -> str:
    """A configuration as tokamax's files write it."""
    return json.dumps(config, separators=(",", ":"))


def _with(row: Row, config: str) -> Row:
    return dataclasses.replace(row, config=config)


def _order(value: Any) -> tuple[bool, Any]:
    return value is not None, value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text[text.index("[") + 1 : -1].split(","))


def space(row: Row) -> Space:
    """tokamax's configurations for the row's problem, in the names and the order of the row's own configuration."""
    import pydantic
    from fidelity_compile import problem, todays_config

    with problem(row) as (operation, spec):
        bound = operation.bind(**spec)
        adapter = pydantic.TypeAdapter(type(operation).config_cls)
        names = json.loads(row.config)

        def written(config: Any) -> str:
            values = adapter.dump_python(config, mode="json")
            return text_of(json.loads(todays_config(_with(row, text_of({name: values[name] for name in names})))))

        configs: Sequence[Any] = sorted(operation._get_autotuning_configs(bound), key=str)
        return Space(
            configs=tuple(written(config) for config in configs),
            default=written(operation._get_heuristics_config(bound)),
        )


if __name__ == "__main__":
    print(json.dumps([dataclasses.asdict(space(Row(**fields))) for fields in json.load(sys.stdin)]))
