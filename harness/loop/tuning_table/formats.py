"""A table in the formats that users' code reads: our JSON, a Python dictionary, tokamax's cache."""

import ast
import json
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

import msgspec

from harness import __version__
from harness.errors import UsageError
from harness.hardware import chip
from harness.loop.settings import value_of
from harness.loop.tuning_table.kernels import Parameters
from harness.loop.tuning_table.row import Ends, Row
from harness.units import percent, quantity, seconds

Format = Literal["json", "python", "tokamax"]
FORMATS: tuple[Format, ...] = ("json", "python", "tokamax")
_ENDINGS = {"json": "json", "python": "py"}
_KERNEL, _CHIP, _FIELDS, _TUNED = "KERNEL", "CHIP", "FIELDS", "TUNED_BLOCK_SIZES"
# Parameters that keys leave out: a scale does not change the time, and a float in a key would hardly ever match.
_NO_KEY = ("scale",)
# Details of the search that tables leave out, because they are longer than the table. They are in rows.jsonl.
_OF_SEARCH = ("trials", "refused")
# File names of tokamax's own tables, by kernel.
_TOKAMAX = {
    "tokamax:flash_attention": "pallas_mosaic_tpu_flash_attention",
    "tokamax:ragged_dot": "pallas_mosaic_tpu_ragged_dot",
}
_DTYPES = {"bfloat16": "bf16", "float32": "f32", "float16": "f16"}
# The parts of tokamax's key that identify a shape; others differ between releases.
_COMPARED = ("q", "k", "v", "mask", "logits_soft_cap", "lhs", "rhs")


def file_name(kernel: str, chip_name: str, form: Format) -> str:
    """The table's path below its folder. Raises UsageError `no-format` if tokamax has no cache for the kernel."""
    if form == "tokamax":
        if kernel not in _TOKAMAX:
            raise UsageError("no-format", f"--format tokamax is for {' and '.join(_TOKAMAX)}; got {kernel}")
        # tokamax names the folders of its own tables like this.
        return f"{chip(chip_name).device_kinds[0].lower().replace(' ', '_')}/{_TOKAMAX[kernel]}.json"
    return f"{kernel.replace(':', '-')}.{chip_name}.{_ENDINGS[form]}"


def written(rows: Sequence[Row], form: Format) -> str:
    """The rows of one kernel on one chip, at least one, as text.

    Our JSON has all rows, without the details of their searches. The other formats leave out rows without settings and
    unchecked rows.
    """
    if form == "json":
        kept = [
            {name: value for name, value in row.items() if name not in _OF_SEARCH} for row in msgspec.to_builtins(rows)
        ]
        document = {"provenance": provenance(rows), "rows": kept}
        return json.dumps(document, indent=2) + "\n"
    return _python(rows) if form == "python" else _tokamax([row for row in rows if row.is_entry])


def provenance(rows: Sequence[Row]) -> str:
    """The origin of the numbers, in one sentence."""
    compilers = " and ".join(sorted({row.compiler for row in rows}))
    days = sorted({row.finished[:10] for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"SIMULATED, not measured: compiled by {compilers}, executed by the simulator of kernel-ratchet {__version__}, "
        f"{span}"
    )


def remark(row: Row) -> str:
    """The remark on a row of a table: time, the fallback's relative time, number of settings tried, and checks."""
    parts = [f"{seconds(row.seconds)} simulated" if row.seconds is not None else in_words(row.range_seconds)]
    if row.seconds and row.plus_minus_seconds:
        parts[0] += f" +/- {percent(row.plus_minus_seconds / row.seconds)}"
    if row.fallback_ratio is not None:
        at_least = "at least " * (row.seconds is None or row.fallback_seconds is None)
        uncertain = " (uncertain)" * (not row.is_certain)
        parts.append(f"the fallback takes {at_least}{row.fallback_ratio:.2f} times as long{uncertain}")
    else:
        parts.append(f"fallback: {row.fallback_failure.partition(':')[0]}")
    parts.append(f"best of {row.tried} of {quantity(row.possible, 'setting')}")
    parts.append(f"unchecked: {row.unchecked}" if row.unchecked else f"all {quantity(row.checks, 'check')} passed")
    return _in_a_comment(", ".join(parts))


def in_words(ends: Ends | None) -> str:
    """The range of times `ends` of a program that also uses the SparseCore, in words; "no time" for None."""
    return "no time" if ends is None else f"only a range of times: {seconds(ends[0])} to {seconds(ends[1])} simulated"


def _in_a_comment(text: str) -> str:
    """The text on one line, with `?` for unprintable characters, which a kernel's message may have."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))


def holds(text: str, where: str, kernel: str, chip_name: str) -> Callable[[Parameters], bool]:
    """A function that is True for parameters with an entry in the table `text`, in any of the formats.

    Raises UsageError `bad-table`, also for a table of another kernel or chip.
    """
    try:
        if not text.lstrip().startswith("{"):
            value_of_name = {
                node.targets[0].id: ast.literal_eval(node.value)
                for node in ast.parse(text).body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            }
            fields, entries = tuple(value_of_name[_FIELDS]), set(value_of_name[_TUNED])
            _require_same(where, {(value_of_name[_KERNEL], value_of_name[_CHIP])}, (kernel, chip_name))
            # Parameters that the table's fields do not name have no entry.
            return lambda parameters: (
                all(name in (*fields, *_NO_KEY) or value is None for name, value in parameters.items())
                and tuple(parameters.get(field) for field in fields) in entries
            )
        document = json.loads(text)
        if "rows" in document:
            rows = document["rows"]
            _require_same(where, {(row["kernel"], row["chip"]) for row in rows}, (kernel, chip_name))
            keys = {
                _key(dict(row["parameters"])) for row in rows if row["settings"] is not None and not row["unchecked"]
            }
            return lambda parameters: _key(parameters) in keys
        if kernel not in _TOKAMAX:
            raise UsageError("bad-table", f"{where} is a tokamax cache, but tokamax keeps no cache for {kernel}")
        compared = [_compared(json.loads(key)) for key, entry in document.items() if entry]
        return lambda parameters: _compared(json.loads(_tokamax_key(kernel, parameters))) in compared
    except (ValueError, SyntaxError, KeyError, TypeError, AttributeError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else repr(error)
        raise UsageError("bad-table", f"{where} is not a table ({', '.join(FORMATS)}): {reason}") from error
    except (RecursionError, MemoryError) as error:
        raise UsageError("bad-table", f"{where} is not a table ({', '.join(FORMATS)}): nested too deeply") from error


def _require_same(where: str, of: set[tuple[str, str]], wanted: tuple[str, str]) -> None:
    if of - {wanted}:
        kernel, chip_name = sorted(of - {wanted})[0]
        raise UsageError(
            "bad-table",
            f"expected a table of {wanted[0]} on {wanted[1]}, got {where}, which is for {kernel} on {chip_name}",
        )


def _key(parameters: Parameters) -> frozenset[tuple[str, object]]:
    return frozenset((name, value) for name, value in parameters.items() if name not in _NO_KEY)


def _python(rows: Sequence[Row]) -> str:
    of_all = [dict(row.parameters) for row in rows]
    # A parameter that some problems lack is None there.
    fields = tuple(dict.fromkeys(name for parameters_ in of_all for name in parameters_ if name not in _NO_KEY))
    lines = [f"# {_in_a_comment(provenance(rows))}.", f"{_KERNEL} = {rows[0].kernel!r}", f"{_CHIP} = {rows[0].chip!r}"]
    lines += [f"{_FIELDS} = {fields!r}", f"{_TUNED} = {{"]
    for row, parameters in zip(rows, of_all, strict=True):
        name = _in_a_comment(row.shape)
        if not row.is_entry:
            lines.append(f"    # {name}: left out, {remark(row) if row.settings else _in_a_comment(row.failure)}")
            continue
        settings = {constant: value_of(value) for constant, value in row.settings or ()}
        key = tuple(parameters.get(field) for field in fields)
        lines += [f"    # {name}: {remark(row)}", f"    {key!r}: {settings!r},"]
    return "\n".join([*lines, "}", ""])


def _tokamax(rows: Sequence[Row]) -> str:
    """tokamax's cache.

    The cache has bare times, so the metadata of each entry states their origin. If only a range is known, the entry's
    time is the middle of the range, and the metadata states the range.
    """
    entries: dict[str, dict[str, Any]] = {}
    for row in rows:
        settings = {name.lower(): value_of(value) for name, value in row.settings or ()}
        config = json.dumps({**_TOKAMAX_DEFAULTS[row.kernel], **settings}, separators=(",", ":"))
        entries[_tokamax_key(row.kernel, dict(row.parameters))] = {
            config: {
                "compile_time_ms": 0.0,
                "lower_time_ms": 0.0,
                "evaluation_times_ms": [1e3 * fmean(row.best_ends or (0.0,))],
                "metadata": {"provenance": provenance([row]), "remark": remark(row)},
                "peak_memory_mb": None,
            }
        }
    return json.dumps(entries, indent=2) + "\n"


# Parts of a configuration in addition to the tuned constants.
_TOKAMAX_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "tokamax:flash_attention": {
        "q_layout": 1,
        "k_layout": 1,
        "v_layout": 1,
        "use_experimental_scheduler": True,
        "use_base2_exp": True,
    },
    "tokamax:ragged_dot": {"input_buffer_count": 2, "combine_scopes": False},
}


def _tokamax_key(kernel: str, parameters: Parameters) -> str:
    """The arguments of the call as the package writes them down."""
    default = ["DEFAULT", "DEFAULT"]

    def array(*names: str) -> str:
        dtype = str(parameters["dtype"])
        return f"{_DTYPES.get(dtype, dtype)}[{','.join(str(parameters[name]) for name in names)}]"

    arguments: dict[str, Any]
    if kernel == "tokamax:ragged_dot":
        contracted = [[[1], [1]], [[], []]]
        arguments = {
            "lhs": array("m", "k"),
            "rhs": array("groups", "k", "n"),
            "group_sizes": {"num_groups": parameters["groups"], "total_size": parameters["m"]},
            "ragged_dot_dimension_numbers": {
                "dot_dimension_numbers": contracted,
                "lhs_ragged_dimensions": [0],
                "rhs_group_dimensions": [0],
            },
            "precision": default,
            "preferred_element_type": None,
            "return_residuals": False,
            "activation": None,
            "manual_axis_type": None,
            "group_offset": None,
            "zero_initialize": False,
            "fuse_gateup_activation": None,
        }
    else:
        mask: dict[str, Any] = dict.fromkeys(("bool_mask", "q_start", "q_end", "k_start", "k_end", "causal_mask"))
        if parameters["causal"]:
            mask["causal_mask"] = {"offset": 0, "window_size": None}
        scale = float(str(parameters["scale"]))
        usual = 1 / math.sqrt(float(str(parameters["head_dim"])))
        keys = array("batch", "kv_sequence", "kv_heads", "head_dim")
        arguments = {
            "q": array("batch", "sequence", "heads", "head_dim"),
            "k": keys,
            "v": keys,
            "precision": [default, default],
            "logits_dtype": "float32",
            "bias": None,
            # The package computes the usual scale itself, to the last digit.
            "logits_scale": usual if math.isclose(scale, usual) else scale,
            "logits_soft_cap": parameters.get("soft_cap"),
            "mask": mask,
            "dropout_mask": None,
            "dropout_rate": 0.0,
            "paging_info": None,
            "q_indices": None,
            "k_indices": None,
            "normalize_output": True,
            "return_residuals": False,
        }
    return json.dumps(arguments, separators=(",", ":"))


def _compared(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in _COMPARED if name in arguments}
