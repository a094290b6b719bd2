"""Tables of tuned constants: their shapes, the search, the formats, and one that is filled for real."""

import ast
import json
import re
import shlex
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loop_fixtures import committed_contest, ratchet
from narrowing import present

from harness import contest as contests
from harness.errors import RatchetError, UsageError
from harness.loop import screening, search_space, trace_text
from harness.loop.search import Study, WholeGrid
from harness.loop.tuning_table import fill, formats, shapes
from harness.loop.tuning_table.fill import Filling
from harness.loop.tuning_table.kernels import KERNELS
from harness.loop.tuning_table.row import Row, add_row, rows_in
from harness.operators import Attention, GroupedMatmul
from harness.records import Failure, RefusedSetting, ScreenedSetting
from harness.shell.main import main
from harness.verbs.parts.table import _write, overview
from harness.verbs.parts.table_page import page_of

pytestmark = pytest.mark.long

ATTENTION = frozenset({"BATCH", "HEADS", "KV_HEADS", "SEQUENCE", "HEAD_DIM", "DTYPE", "CAUSAL"})
LLAMA = {"model": "Llama", "heads": 32, "kv_heads": 8, "head_dim": 128, "sequences": [2048, 8192], "batch": 16}
EXPERTS = {"hidden": 4096, "intermediate": 14336, "experts": 8, "experts_per_token": 2}
MIXTRAL = {"model": "Mixtral", **EXPERTS, "sequences": [1024]}
PRODUCT = frozenset({"M", "GROUPS", "K", "N"})
SMALL = {
    "jax:flash": {"heads": 2, "kv_heads": 2, "sequence": 512, "head_dim": 128},
    "jax:splash": {"heads": 2, "kv_heads": 1, "sequence": 512, "head_dim": 128, "causal": True},
    "jax:megablox": {"m": 1024, "groups": 4, "k": 512, "n": 512},
    "jax:paged_attention": {"sequences": 8},
    "jax:ragged_paged_attention": {"sequences": 8},
    "tokamax:flash_attention": {"heads": 2, "kv_heads": 1, "sequence": 512, "head_dim": 128, "causal": True},
    "tokamax:ragged_dot": {"m": 1024, "groups": 4, "k": 512, "n": 512},
}


def shapes_of(folder: Path, entries: Any, operation: str = "attention", names: Any = ATTENTION) -> Any:
    path = folder / "shapes.json"
    path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
    return shapes.read(path, operation, names)


def study(folder: Path, grid: search_space.Grid, trials: int, **changes: Any) -> Study:
    path = folder / "journal"
    return Study(grid, method="tpe", trials=trials, deadline=float("inf"), seed=0, path=path, name="a", **changes)


ROW = Row(
    kernel="tokamax:flash_attention",
    chip="v6e",
    shape="prefill",
    operation="attention",
    parameters=Attention(heads=4, kv_heads=2, sequence=1024, head_dim=128, causal=True).statement().parameters,
    settings=(("BLOCK_Q", "512"), ("BLOCK_KV", "1024")),
    seconds=1e-3,
    plus_minus_seconds=3e-5,
    fallback=(("BLOCK_Q", "128"), ("BLOCK_KV", "128")),
    fallback_seconds=4e-3,
    fallback_failure="",
    checks=30,
    unchecked="",
    failure="",
    tried=10,
    possible=20,
    looked_at=9,
    compiler="jax 1, libtpu 2",
    search="a",
    finished="2026-11-23T00:00:00+00:00",
)


def row(**changes: Any) -> Row:
    return replace(ROW, **changes)


def executed(*rows: Row) -> dict[str, Any]:
    """The names that these rows define as a table in Python."""
    named: dict[str, Any] = {}
    exec(formats.written(rows, "python"), named)
    return named


# --- shapes -----------------------------------------------------------------------------------


def test_a_shape_is_constants_of_the_problem(tmp_path: Path) -> None:
    (shape,) = shapes_of(tmp_path, [{"name": "a", "heads": 8, "sequence": 512, "causal": True, "dtype": "float32"}])
    assert shape.name == "a"
    sizes = {"HEADS": "8", "KV_HEADS": "8", "SEQUENCE": "512"}
    assert dict(shape.constants) == sizes | {"CAUSAL": "True", "DTYPE": "'float32'"}


def test_a_model_has_the_shapes_of_its_layers(tmp_path: Path) -> None:
    shapes = shapes_of(tmp_path, [LLAMA | {"sequences": [2048]}, {"sequence": 512}])
    assert [shape.name for shape in shapes] == ["Llama, 2048", "sequence=512"]
    assert dict(shapes[0].constants)["CAUSAL"] == "True"
    products = shapes_of(tmp_path, [MIXTRAL], "grouped_matmul", PRODUCT)
    assert [dict(product.constants) for product in products] == [
        {"M": "2048", "GROUPS": "8", "K": "4096", "N": "14336"},
        {"M": "2048", "GROUPS": "8", "K": "14336", "N": "4096"},
    ]
    of_two_chips = MIXTRAL | {"expert_parallel": 2, "layers": 32}
    products = shapes_of(tmp_path, [of_two_chips], "grouped_matmul", PRODUCT)
    assert all({("M", "1024"), ("GROUPS", "4")} <= {*product.constants} for product in products)
    assert len(products) == 2
    assert products[0].name.endswith(" up, 4 of 8 experts")
    paged = shapes_of(tmp_path, [LLAMA], "paged_attention", fill.tuned("jax:paged_attention", None, ()).names)
    assert [dict(shape.constants)["PAGES_PER_SEQUENCE"] for shape in paged] == ["128", "512"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ("{", "is not a JSON file of shapes"),
        ('[{"sequence": 256, "sequence": 512}]', "'sequence' occurs twice in one object"),
        ("{}", "expected a list of objects"),
        ("[]", "expected at least one shape"),
        ([{"headz": 2}], "entry 1: expected the keys name, batch, causal"),
        ([{"heads": [2]}], "expected a number or a word as heads"),
        ([{"sequence": 512}, {"sequence": 512}], "names two shapes"),
        ([{"model": "x", "head": 2}], "expected a model's keys"),
        ([{"model": "x", "sequences": [1]}], "expected 'heads' of a model for attention"),
        ([LLAMA | {"sequences": 2048}], "expected 'sequences' as a list"),
        ([LLAMA | {"sequences": []}], "expected 'sequences' as a list"),
        ([LLAMA | {"heads": "many"}], "a whole number above 0, got 'many'"),
        ('[{"sequence": NaN}]', "expected a number or a word as sequence, got nan"),
        *(([{"name": name}], "on one line that can be printed") for name in ("a\x00", "\ud800", "a\nb")),
        ([{"dtype": "\ud800"}], "on one line that can be printed"),
    ],
)
def test_bad_shapes_are_named(tmp_path: Path, entries: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("(", r"\(")) as caught:
        shapes_of(tmp_path, entries)
    assert caught.value.kind == "bad-shapes"


def test_experts_that_chips_cannot_share_evenly_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected 'expert_parallel' to divide the 8 experts, got 3"):
        shapes_of(tmp_path, [MIXTRAL | {"expert_parallel": 3}], "grouped_matmul", PRODUCT)


def test_a_model_of_millions_of_lengths_is_refused_before_they_are_shapes(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RatchetError, match=r"at most 10,000 shapes in a file, got 10,001; .* RATCHET_MAX_SHAPES"):
            shapes_of(tmp_path, [LLAMA | {"sequences": [*range(1, 200_000)]}])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 << 20


def test_shapes_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a JSON file of shapes"):
        shapes.read(tmp_path / "none.json", "attention", ATTENTION)


# --- what is searched --------------------------------------------------------------------------


def test_blocks_divide_what_they_are_blocks_of() -> None:
    problem = dict(Attention(sequence=1536, kv_sequence=640, head_dim=128).statement().parameters)
    grid = dict(KERNELS["jax:flash"].space(problem))
    assert grid["BLOCK_Q"] == ("128", "256", "384", "512", "768", "1536")
    assert grid["BLOCK_K"] == ("128", "640")
    product = dict(GroupedMatmul(m=4096, groups=8, k=7168, n=2048).statement().parameters)
    tiles = dict(KERNELS["jax:megablox"].space(product))
    assert max(map(int, tiles["TILE_M"])) == 1024
    assert "7168" in tiles["TILE_K"]


def test_conditions_leave_settings_out(tmp_path: Path) -> None:
    grid = search_space.space(["A=128..1024:pow2", "B=128..1024:pow2"])
    allowed = search_space.allowed(grid, ["A % B == 0", "A < 1024 or B > 128"])
    left = list(iter(WholeGrid(grid, allowed).ask, None))
    assert search_space.allowed(grid, []) is None
    assert len(left) == 9
    asked = []
    search = study(tmp_path, grid, 100, allowed=allowed)
    while (settings := search.ask()) is not None:
        asked.append(settings)
        search.tell(settings, 1.0)
    assert sorted(asked) == sorted(left)


@pytest.mark.parametrize(
    ("values", "condition", "words"),
    [
        ("A=1,2", "A", "expected a comparison"),
        ("A=1,2", "A <", "is not a condition"),
        ("A=1,2", "C < 1", "expected constants of --set, got C"),
        ("A=1,2", "__import__('os') == 1", "expected comparisons and arithmetic"),
        ("A=1,2", "A.real < 1", "expected comparisons and arithmetic"),
        ("A=1,2", "A ** 9 < 1", "expected comparisons and arithmetic"),
        ("A=0,1", "1 % A == 0", "zero"),
        ("A=1,2", "A > 5", "no setting of the grid fulfils"),
        ("A=1..2048 B=1..2048", "A == B", "at most 65,536 settings"),
    ],
)
def test_a_condition_that_is_none_leaves_nothing_or_cannot_be_computed_is_named(
    values: str, condition: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        search_space.allowed(search_space.space(values.split()), [condition])
    assert caught.value.kind == "bad-condition"


def test_values_may_be_arithmetic() -> None:
    grid = search_space.space(["LIMIT=50*2**20,100*2**20", 'NAME="a",b', "T=-2,(1, 2)"])
    assert search_space.allowed(grid, []) is None
    left = search_space.allowed(grid[:1], ["LIMIT > 2 * 2 * 20000000"])
    assert left == frozenset([(("LIMIT", "100*2**20"),)])
    text = formats.written([row(settings=(("LIMIT", "100*2**20"), ("NAME", '"b"')))], "python")
    assert "{'LIMIT': 104857600, 'NAME': 'b'}" in text


@pytest.mark.parametrize("version", [(3, 11), (3, 12)])
def test_without_tokamax_it_says_how_to_get_it(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(function: str) -> None:
        raise RatchetError("not-installed", function)

    monkeypatch.setattr("harness.loop.find_function.target", missing)
    monkeypatch.setattr(sys, "version_info", version)
    command = f"{re.escape(shlex.quote(sys.executable))} -m pip install tokamax$"
    with pytest.raises(RatchetError, match=command) as caught:
        fill.tuned("tokamax:ragged_dot", None, ())
    assert ("--python 3.12" in str(caught.value)) == (version < (3, 12))


def test_an_unknown_kernel_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="jax:flash, jax:splash") as caught:
        fill.tuned("jax:flush", None, ())
    assert caught.value.kind == "unknown-kernel"
    committed_contest(tmp_path / "contest", 512)
    with pytest.raises(UsageError, match="for constants of the contest's"):
        fill.tuned(str(tmp_path / "contest"), None, ())


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_fallback_of_every_kernel_traces(name: str, tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    if name.startswith("tokamax"):
        pytest.importorskip("tokamax", reason="tokamax needs Python 3.12")
    tuned = fill.tuned(name, None, ())
    (shape,) = shapes_of(tmp_path, [SMALL[name]], tuned.operation, tuned.names)
    parameters = fill.parameters(tuned, shape, "v6e", tmp_path)
    (folder,) = (tmp_path / "work").iterdir()
    contest = contests.load(folder)
    candidate = contest.candidate().set(tuned.fallback(parameters))
    assert trace_text.trace_failure(contest, candidate, lambda *_: None) is None
    grid = tuned.space(parameters)
    allowed = search_space.allowed(grid, tuned.conditions)
    assert WholeGrid(grid, allowed).ask() is not None


# --- how it is written -------------------------------------------------------------------------


def test_a_python_table_is_python_that_says_where_it_is_from() -> None:
    rows = (row(), row(shape="none", settings=None, seconds=None))
    text, named = formats.written(rows, "python"), executed(*rows)
    assert "SIMULATED, not measured: compiled by jax 1, libtpu 2" in text
    assert "# prefill: 1.000 ms simulated +/- 3.0%, the fallback takes 4.00 times as long, best of 10 of 20" in text
    key = tuple(dict(row().parameters)[field] for field in named["FIELDS"])
    assert named["TUNED_BLOCK_SIZES"] == {key: {"BLOCK_Q": 512, "BLOCK_KV": 1024}}


def test_each_format_is_found_by_the_shape_it_was_written_for() -> None:
    mine, other = dict(row().parameters), dict(row().parameters) | {"sequence": 2048}
    for form in formats.FORMATS:
        holds = formats.holds(formats.written([row()], form), "table", "tokamax:flash_attention", "v6e")
        assert holds(mine), form
        assert not holds(other), form


@pytest.mark.parametrize("form", ["json", "python"])
def test_a_table_of_another_chip_or_kernel_is_refused(form: Any) -> None:
    text = formats.written([row()], form)
    for kernel, chip in (("tokamax:flash_attention", "v5e"), ("jax:flash", "v6e")):
        with pytest.raises(UsageError, match="got table, which is for tokamax:flash_attention on v6e"):
            formats.holds(text, "table", kernel, chip)


def test_a_cache_of_tokamax_says_nothing_about_other_kernels() -> None:
    with pytest.raises(UsageError, match="keeps no cache for jax:megablox"):
        formats.holds(formats.written([row()], "tokamax"), "table", "jax:megablox", "v6e")


def test_an_unchecked_row_is_no_entry_and_what_it_says_is_no_code() -> None:
    bad = row(shape="b\nimport os", unchecked="wrong-result: 2.0\nraise SystemExit", checks=0)
    assert len(executed(row(), bad)["TUNED_BLOCK_SIZES"]) == 1
    assert "left out, 1.000 ms simulated" in formats.written([row(), bad], "python")
    assert len(json.loads(formats.written([row(), bad], "tokamax"))) == 1


def test_problems_with_other_parameters_have_keys_of_their_own() -> None:
    windowed = replace(row(), parameters=(*row().parameters, ("window", 256)))
    for form in formats.FORMATS[:2]:
        text = formats.written([row(), windowed], form)
        assert formats.holds(text, "table", row().kernel, "v6e")(dict(windowed.parameters))
        alone = formats.written([row()], form)
        assert formats.holds(alone, "table", row().kernel, "v6e")(dict(row().parameters))
    assert len(executed(row(), windowed)["TUNED_BLOCK_SIZES"]) == 2


def test_an_entry_without_settings_counts_as_missing() -> None:
    for form in formats.FORMATS:
        text = formats.written([row(settings=None, seconds=None)], form)
        assert not formats.holds(text, "table", "tokamax:flash_attention", "v6e")(dict(row().parameters))


@pytest.mark.parametrize("form", formats.FORMATS[:2])
def test_a_parameter_that_a_table_says_nothing_about_is_not_in_it(form: Any) -> None:
    holds = formats.holds(formats.written([row()], form), "table", row().kernel, "v6e")
    assert holds({**dict(row().parameters), "scale": 3.0})
    assert not holds({**dict(row().parameters), "window": 256})


NO_TABLES = ("{", "x = 1", "{]", '{"rows": [{}]}', "FIELDS = (", '{"key": {"a": 1}}')
DEEP = "KERNEL = CHIP = ''\nTUNED_BLOCK_SIZES = " + "-" * 200_000 + "1"
PYTHON = "KERNEL, CHIP = 1, 2\nKERNEL = 'tokamax:flash_attention'\nCHIP = 'v6e'\nTUNED_BLOCK_SIZES = {}\n"


@pytest.mark.parametrize(
    "text",
    [*NO_TABLES, DEEP, PYTHON + "FIELDS = 3", '{"rows": ' + "[" * 200_000, json.dumps({"[" * 200_000: 1})],
    ids=lambda text: text[:12],
)
def test_what_is_no_table_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="is not a table") as caught:
        formats.holds(text, "mine.json", "tokamax:flash_attention", "v6e")
    assert caught.value.kind == "bad-table"


def test_the_cache_of_tokamax_lies_where_it_looks_and_says_simulated() -> None:
    assert formats.file_name("tokamax:ragged_dot", "v6e", "tokamax") == "tpu_v6_lite/pallas_mosaic_tpu_ragged_dot.json"
    ((key, configurations),) = json.loads(formats.written([row()], "tokamax")).items()
    arguments = json.loads(key)
    assert (arguments["q"], arguments["k"]) == ("bf16[1,1024,4,128]", "bf16[1,1024,2,128]")
    assert arguments["mask"]["causal_mask"] == {"offset": 0, "window_size": None}
    ((configuration, data),) = configurations.items()
    assert json.loads(configuration)["block_q"] == 512
    assert data["evaluation_times_ms"] == [1.0]
    assert data["metadata"]["provenance"].startswith("SIMULATED, not measured")
    with pytest.raises(UsageError, match="is for tokamax:flash_attention and tokamax:ragged_dot"):
        formats.file_name("jax:flash", "v6e", "tokamax")


def test_tokamax_finds_its_entries(tmp_path: Path) -> None:
    pytest.importorskip("tokamax", reason="tokamax needs Python 3.12")
    import jax
    from tokamax._src.autotuning.cache import AutotuningCache
    from tokamax._src.ops.attention.pallas_mosaic_tpu import PallasMosaicTpuFlashAttention

    operation = PallasMosaicTpuFlashAttention()
    path = tmp_path / formats.file_name(row().kernel, "v6e", "tokamax")
    path.parent.mkdir()
    path.write_text(
        formats.written([row(settings=(*row().settings, ("BLOCK_KV_COMPUTE", "512")))], "tokamax")  # type: ignore[misc]
    )
    q, k = (jax.ShapeDtypeStruct((1, 1024, heads, 128), "bfloat16") for heads in (4, 2))
    cache = AutotuningCache(operation, [tmp_path])["TPU v6 lite"]
    config = cache[operation.bind(q, k, k, is_causal=True).autotuning_cache_key].fastest_config
    assert (config.block_q, config.block_kv_compute) == (512, 512)
    assert operation.bind(q, k, k).autotuning_cache_key not in cache


def test_nothing_that_a_kernel_or_a_file_says_breaks_a_table() -> None:
    odd = "a\x00b\u2028c\rimport os\x85d\x1be"
    rows = [row(shape=odd), row(shape="b", settings=None, seconds=None, failure=odd, fallback_failure=odd)]
    named = executed(*rows)
    assert list(named["TUNED_BLOCK_SIZES"].values()) == [{"BLOCK_Q": 512, "BLOCK_KV": 1024}]
    assert "os" not in named
    assert len(json.loads(formats.written(rows, "json"))["rows"]) == 2


TRUTH = "a: expected true or false as causal"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        *(({"causal": value}, TRUTH) for value in ("no", "false", 0, 1)),
        ({"heads": 3, "kv_heads": 2}, r"a: .*kv_heads to divide heads"),
    ],
)
def test_a_shape_that_makes_no_problem_is_named(tmp_path: Path, entry: dict[str, object], words: str) -> None:
    tuned = fill.tuned("jax:flash", None, ())
    (shape,) = shapes_of(tmp_path, [{"name": "a", **entry}], names=tuned.names)
    with pytest.raises(UsageError, match=words):
        fill.parameters(tuned, shape, "v5e", tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"fallback_seconds": 0.0},
        {"plus_minus_seconds": -1.0},
        {"checks": 0},
        {"seconds": None},
        {"looked_at": 0},
        {"looked_at": 2**62},
        {"settings": (("BLOCK_Q", "(("),)},
        {"possible": 0},
        {"tried": -1},
        {"trials": (ScreenedSetting(settings=(("BLOCK_Q", "1"),), seconds=-1.0),)},
        {"settings": (("BLOCK_Q", "os.getcwd()"),)},
    ],
)
def test_a_row_that_cannot_be_is_none(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        row(**changes)
    line = msgspec.json.encode({**msgspec.to_builtins(row()), **changes})
    (tmp_path / "rows.jsonl").write_bytes(line + b"\n" + msgspec.json.encode(row()) + b"\n")
    assert rows_in(tmp_path) == (row(),)


def test_rows_that_are_no_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(RatchetError, match=r"rows\.jsonl"):
        rows_in(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"unchecked": "timeout: 600 s"}, {"trials": (ScreenedSetting(settings=(), seconds=None, failure_kind="killed"),)}],
)
def test_what_the_machine_kept_from_its_time_is_tried_again(changes: dict[str, Any]) -> None:
    assert fill._may_pass(row(**changes))
    assert not fill._may_pass(row(trials=(ScreenedSetting(settings=(), seconds=None, failure_kind="vmem-exceeded"),)))


def test_a_search_begins_with_the_best_of_the_nearest_rows() -> None:
    def best(block: str, **changes: Any) -> Row:
        return row(settings=(("BQ", block),), **changes)

    rows = [
        best("1", chip="v5e", parameters=()),
        best("2", parameters=()),
        best("3", chip="v5e"),
        best("4", kernel="another"),
        best("5", unchecked="wrong-result", checks=0),
        best("2", chip="v7x"),
        best("6", chip="v7x", parameters=()),
    ]
    winners = fill._winners(rows, ROW.kernel, dict(ROW.parameters), ROW.chip)
    assert [dict(settings)["BQ"] for settings in winners] == ["3", "2", "1"]


def test_a_kept_row_has_its_new_name_and_the_fallback_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = committed_contest(tmp_path / "contest", 512)
    grid = search_space.space(["BQ=128,256"])
    made: list[str] = []

    def row_made(kernel: Any, shape: Any, bench: Any, how: Any, search: str, others: Any) -> Row:
        parameters = bench.contest.problem.statement().parameters
        made.append(shape.name)
        names = {"kernel": kernel.name, "chip": "v5e", "shape": shape.name, "kernel_digest": kernel.digest}
        settings, fallback = (("BQ", "256"),), kernel.fallback(parameters)
        return row(**names, parameters=parameters, settings=settings, fallback=fallback, search=search)

    monkeypatch.setattr(fill, "_row", row_made)

    def filled_with(*entries: dict[str, Any], conditions: tuple[str, ...] = ()) -> list[Row]:
        tuned = fill.tuned(str(folder), grid, conditions)
        asked = shapes_of(tmp_path, list(entries), names=tuned.names)
        how = Filling(folder=tmp_path / "out", trials=2, places=screening.local(1), seed=0)
        return list(fill.rows(tuned, asked, ("v5e",), how, lambda *_: None))

    def filled(name: str) -> Row:
        (entry,) = filled_with({"name": name, "sequence": 512})
        return entry

    # A shape that states no problem is named before anything is searched.
    with pytest.raises(UsageError, match=r"odd: .*kv_heads to divide heads"):
        filled_with({"name": "a", "sequence": 512}, {"name": "odd", "heads": 3, "kv_heads": 2})
    # So is a condition that leaves no setting for it.
    with pytest.raises(UsageError, match=r"^b: no setting of the grid fulfils --where 'BQ < 256'"):
        filled_with({"name": "b", "sequence": 512}, conditions=("BQ < 256", "BQ > 128"))
    assert made == []
    assert filled("a").shape == "a"
    assert filled("b").shape == filled("b").shape == "b"
    assert made == ["a"]
    assert [entry.shape for entry in rows_in(tmp_path / "out")] == ["a", "b"]
    # An accepted attempt changed the constant, so the fallback has another time.
    kernel = folder / "kernel.py"
    kernel.write_text(kernel.read_text().replace("BQ = 128", "BQ = 256"))
    assert filled("b").fallback == (("BQ", "256"),)
    assert made == ["a", "b"]
    # Two names of one problem share a search.
    two = filled_with({"name": "c", "sequence": 1024}, {"name": "d", "sequence": 1024})
    assert [entry.shape for entry in two] == ["c", "d"]
    assert made == ["a", "b", "c"]


def test_a_table_holds_no_row_of_another_kernel(tmp_path: Path) -> None:
    """If a shape is not asked for again, the checks of an earlier kernel.py say nothing about this one."""
    folder = committed_contest(tmp_path / "contest", 512)
    grid = search_space.space(["BQ=128,256"])
    first = fill.tuned(str(folder), grid, ())
    kernel = folder / "kernel.py"
    kernel.write_text(kernel.read_text().replace("acc_ref[...] * rescale", "acc_ref[...] * 1"))
    second = fill.tuned(str(folder), grid, ())
    assert first.digest != second.digest
    add_row(tmp_path, row(shape="early", parameters=(("a", 1),), kernel_digest=first.digest))
    add_row(tmp_path, row(shape="other", parameters=(("a", 2),), kernel_digest=second.digest))
    _write([row(shape="new", kernel_digest=second.digest)], second, "t.py", tmp_path, "python")
    text = (tmp_path / "t.py").read_text()
    assert [name for name in ("early", "other", "new") if f"# {name}: " in text] == ["other", "new"]
    page, words = page_of(tmp_path)
    assert words == "1 row (left out: 1 of an earlier kernel or judge)"
    assert b"early" not in page


def test_what_was_faster_and_failed_is_said() -> None:
    failure = Failure(kind="wrong-result", message="2.0 times the tolerance", stage="correctness")
    table = overview([row(refused=(RefusedSetting(settings=(("BLOCK_Q", "256"),), failure=failure),))])
    assert "prefill on v6e: BLOCK_Q=256 is faster and fails: wrong-result: 2.0 times" in " ".join(table.notes)
    assert row(settings=row().fallback, fallback_seconds=1e-3).is_certain, "it is the best, whatever its time"


def test_a_contest_lacks_shapes_whatever_is_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = committed_contest(tmp_path / "contest", 512)
    (tmp_path / "t.py").write_text(formats.written([row(kernel="contest", chip="v5e")], "python"))
    shapes_of(tmp_path, [{"name": "a", "sequence": 512}])
    words = ["--kernel", str(folder), "--shapes", str(tmp_path / "shapes.json"), "--missing", str(tmp_path / "t.py")]
    assert main(["table", *words, "--list"]) == 1
    assert ": 1 of 1 shape" in capsys.readouterr().out


def test_what_is_not_certain_or_not_checked_is_said() -> None:
    assert row().is_certain
    near = row(fallback_seconds=1.02e-3)
    assert not near.is_certain
    unchecked = row(unchecked="wrong-result: 2.0 times the tolerance", checks=0)
    without_time = row(shape="lost", settings=None, seconds=None, failure="vmem-exceeded: too large")
    table = overview([row(), near, unchecked, without_time])
    assert table.column("checks") == ("30 passed", "30 passed, uncertain", "unchecked", "-")
    notes = " ".join(table.notes)
    assert "prefill on v6e is unchecked: wrong-result" in notes
    assert "lost on v6e has no entry: vmem-exceeded" in notes


def test_a_range_is_an_entry_that_says_so(tmp_path: Path) -> None:
    ranged = row(
        seconds=None, range_seconds=(1e-3, 1.5e-3), fallback_seconds=None, fallback_range_seconds=(4e-3, 4.5e-3)
    )
    assert ranged.is_entry
    assert ranged.fallback_ratio == pytest.approx(3.0)
    table = overview([ranged, replace(ranged, shape="close", is_best_at_both_ends=False), row()])
    assert table.column("checks") == ("30 passed, range", "30 passed, range, uncertain", "30 passed")
    assert table.column("seconds") == (None, None, 1e-3)
    notes = " ".join(table.notes)
    assert "prefill on v6e has only a range of times: 1.000 ms to 1.500 ms simulated" in notes
    assert "no other setting takes less time at either end" in notes
    assert "close on v6e has only a range" in notes
    assert "another setting takes less time at one end" in notes
    assert "--on-tensorcore" in notes
    assert formats.holds(formats.written([ranged], "python"), "t", ranged.kernel, "v6e")(dict(ranged.parameters))
    stated = "only a range of times: 1.000 ms to 1.500 ms simulated, the fallback takes at least 3.00 times as long"
    assert stated in formats.remark(ranged)
    (entry,) = json.loads(formats.written([ranged], "tokamax")).values()
    assert next(iter(entry.values()))["evaluation_times_ms"] == [pytest.approx(1.25)]
    add_row(tmp_path, ranged)
    assert rows_in(tmp_path) == (ranged,)
    assert b"1.000 ms to 1.500 ms" in page_of(tmp_path)[0]


def test_settings_with_ranges_are_ranked_at_both_ends() -> None:
    ends = [(1.0, 3.0), (1.5, 2.0), (2.0, 4.0)]
    assert [fill._is_least(ends[0], place, ends) for place in (0, 1)] == [True, False]
    assert [fill._is_least((0.5, 0.5), place, ends) for place in (0, 1)] == [True, True]


def test_a_search_that_goes_on_knows_what_was_tried_in_order(tmp_path: Path) -> None:
    grid = search_space.space(["A=1,2,3,4,5,6"])
    first, asked = study(tmp_path, grid, 6, in_all=True), []
    for seconds in (3.0, None, 1.0, 2.0):
        settings = present(first.ask())
        asked.append((settings, seconds))
        first.tell(settings, seconds)
    earlier = study(tmp_path, grid, 6, in_all=True).earlier
    assert list(earlier.items()) == [answer for answer in asked if answer[1] is not None]
    trials = [fill._trial(settings, None, earlier, is_range=False) for settings in earlier]
    assert [trial.seconds for trial in trials] == [3.0, 1.0, 2.0]
    # The recorded middle of a range is no time.
    trials = [fill._trial(settings, None, earlier, is_range=True) for settings in earlier]
    assert [trial.seconds for trial in trials] == [None] * 3
    assert ["1.000 s" in trial.message for trial in trials] == [False, True, False]


def test_rows_of_before_trials_were_kept_are_read_and_tables_stay_short(tmp_path: Path) -> None:
    old = {name: value for name, value in msgspec.to_builtins(row()).items() if name not in ("trials", "refused")}
    (tmp_path / "rows.jsonl").write_bytes(msgspec.json.encode(old) + b"\n")
    assert rows_in(tmp_path) == (row(),)
    assert not {"trials", "refused"} & json.loads(formats.written([row()], "json"))["rows"][0].keys()


def test_rows_are_kept_and_a_torn_line_is_none(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(msgspec.json.encode(row()) + b'\n{"kernel": "tok')
    assert rows_in(tmp_path) == (row(),)
    add_row(tmp_path, row(shape="b"))
    add_row(tmp_path, row(shape="c"))
    assert [entry.shape for entry in rows_in(tmp_path)] == ["prefill", "b", "c"]
    assert rows_in(tmp_path / "none") == ()


# --- filled for real ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_table_is_filled_checked_and_gone_on_with(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps([{"name": "a", "heads": 2, "kv_heads": 1, "sequence": 512, "head_dim": 128}]))
    words = ("table", "--kernel", "jax:splash", "--shapes", str(path), "--out", str(tmp_path / "out"), "--trials", "3")
    done = ratchet(tmp_path, *words, "--format", "python", "--json", expect=0)
    ((table,)) = json.loads(done.stdout)["tables"]
    (entry,) = table["rows"]
    assert entry["fallback_ratio"] > 1
    assert entry["checks"].endswith("passed")
    written = (tmp_path / "out" / "jax-splash.v5e.py").read_text()
    assert ast.parse(written)
    (kept,) = rows_in(tmp_path / "out")
    assert kept.tried >= 3
    assert kept.checks > 20
    assert len(kept.trials) == kept.tried
    assert kept.trials[0].settings == kept.fallback
    assert kept.seconds == min(trial.seconds for trial in kept.trials if trial.seconds is not None)
    assert "wrote" in ratchet(tmp_path, "report", "--table", str(tmp_path / "out"), expect=0).stdout
    assert dict(kept.fallback) == dict.fromkeys(("BLOCK_Q", "BLOCK_KV", "BLOCK_KV_COMPUTE"), "128")
    # The same command finds the row, and a shape in the table is not reported as missing.
    again = json.loads(ratchet(tmp_path, *words, "--format", "json", "--json", expect=0).stdout)["tables"][0]
    assert again["rows"] == table["rows"]
    assert rows_in(tmp_path / "out") == (kept,)
    ours = ("--missing", str(tmp_path / "out" / "jax-splash.v5e.py"))
    missing = ratchet(tmp_path, *words, *ours, expect=0)
    assert ": 0 of 1 shape" in missing.stderr
    assert "every shape has an entry" in missing.stdout
    path.write_text(json.dumps([{"name": "b", "heads": 2, "kv_heads": 1, "sequence": 1024, "head_dim": 128}]))
    assert ": 1 of 1 shape" in ratchet(tmp_path, *words, *ours, "--list", expect=1).stdout
    # Another shape is searched with other settings: the file keeps the first row, and has what is printed.
    more = ratchet(tmp_path, *words, "--format", "python", "--trials", "2", "--set", "BLOCK_Q=256,512", expect=0)
    text = (tmp_path / "out" / "jax-splash.v5e.py").read_text()
    assert "# a: " in text
    assert "# b: " in text
    assert "'BLOCK_Q': 256" in text or "'BLOCK_Q': 512" in text, more.stdout


@pytest.mark.slow
def test_an_entry_that_fails_its_checks_is_unchecked(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    contest = committed_contest(tmp_path / "contest", 512)
    kernel = contest / "kernel.py"
    kernel.write_text(kernel.read_text().replace("acc_ref[...] * rescale", "acc_ref[...] * 1"))
    tuned = fill.tuned(str(contest), search_space.space(["BQ=128,256"]), ())
    how = Filling(folder=tmp_path / "out", trials=2, places=screening.local(2), seed=0)
    (shape,) = shapes_of(tmp_path, [{"sequence": 512}], names=tuned.names)
    (entry,) = fill.rows(tuned, (shape,), ("v5e",), how, lambda *_: None)
    assert entry.settings is not None
    assert entry.checks == 0
    assert entry.unchecked.startswith("wrong-result")
    assert not entry.is_entry
