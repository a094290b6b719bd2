"""The verb `predict`: the worked examples of the published method, and errors that say what was expected."""

import itertools
import json
import math
import re
from collections import defaultdict
from typing import Any

import pytest

from harness import chips
from harness.errors import UsageError
from harness.hardware import CHIPS, chip
from harness.shell.main import main
from harness.workbench.hlo import prediction
from harness.workbench.hlo.interconnect import (
    COLLECTIVES,
    Collective,
    exact_seconds,
    link_bytes_per_second,
    links,
    published_seconds,
)
from harness.workbench.hlo.prediction import figures_of, roofline


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["predict", *words]) == 0
    return capsys.readouterr().out


def tables(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[dict[str, Any]]]:
    document = json.loads(printed(capsys, *words, "--json"))
    assert document["command"] == f"predict {words[0]}"
    assert all(table["origin"] in ("predicted", "static") for table in document["tables"])
    return {table["name"]: table["rows"] for table in document["tables"]}


def mistaken(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["predict", *words]) == 2
    return capsys.readouterr().err


def test_the_worked_matmul_takes_95_6_ms(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    words = ("matmul", "X[32,1024,8192]", "W[8192,32768]", "--dtype", "bf16", "--chip", "v2", "--chips", "8")
    text = printed(capsys, *words)
    assert text.startswith("matmul on 8 v2 cores: max(FLOPs/peak, bytes/bandwidth) [predicted]")
    assert "95.610 ms" in text
    assert "23.0 TFLOP/s" in text
    (row,) = tables(capsys, *words)["matmul"]
    assert row["seconds"] == pytest.approx(2 * 32 * 1024 * 8192 * 32768 / (23e12 * 8))
    assert row["bound"] == "FLOPs"
    assert all(len(line) <= 100 for line in text.splitlines())


def test_a_sharded_matmul_reads_each_devices_parts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("matmul", "X[32@data,1024,8192]", "W[8192,32768@model]", "--mesh", "data=4,model=2", "--chip", "v2")
    (row,) = tables(capsys, *words)["matmul"]
    assert row["seconds"] == pytest.approx(95.6e-3, rel=1e-3)
    # [8,1024,8192], [8192,16384] and [8,1024,16384] of bfloat16.
    assert row["hbm_bytes_per_device"] == 2 * (8 * 1024 * 8192 + 8192 * 16384 + 8 * 1024 * 16384)


def test_a_split_sum_must_be_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    answer = tables(capsys, "matmul", "X[64,8192@m]", "W[8192@m,4096]", "--mesh", "m=8", "--chip", "v5e")
    array = 64 * 4096 * 2
    assert [(row["kind"], row["devices"], row["array_bytes"]) for row in answer["sum"]] == [
        ("reduce-scatter", 8, array),
        ("all-reduce", 8, array),
    ]
    assert answer["sum"][0]["seconds"] == pytest.approx(array / 1e11)
    assert "sum" not in tables(capsys, "matmul", "X[64,8192]", "W[8192,4096@m]", "--mesh", "m=8")


def test_weights_fill_the_unit_by_what_one_device_sums(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = tables(capsys, "matmul", "X[64,256@m]", "W[256,384]", "--mesh", "m=4", "--chip", "v5e")["matmul"]
    assert row["mxu_fill"] == pytest.approx(64 / 128)


def test_a_batched_matmul_needs_an_einsum(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--einsum bmk,bkn->bmn" in mistaken(capsys, "matmul", "Q[8,64,128]", "K[8,128,64]")
    (row,) = tables(capsys, "matmul", "Q[8,64,128]", "K[8,32,128]", "--einsum", "bqd,bkd->bqk")["matmul"]
    assert row["flops"] == 2 * 8 * 64 * 32 * 128


def test_int8_is_twice_as_fast_on_v5e_and_unknown_on_v2(capsys: pytest.CaptureFixture[str]) -> None:
    arrays = ("matmul", "s8[4096,4096]", "s8[4096,4096]")
    (row,) = tables(capsys, *arrays)["matmul"]
    assert row["compute_seconds"] == pytest.approx(2 * 4096**3 / 394e12)
    assert "no peak of s8 is published for v2" in printed(capsys, *arrays, "--chip", "v2")


def test_the_worked_reduce_scatter_takes_1_1_ms(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("collective", "reduce-scatter", "--bytes", "128MiB", "--chip", "v2", "--axis", "4")
    assert "1.118 ms" in printed(capsys, *words)
    (row,) = tables(capsys, *words)["collective"]
    assert row["bandwidth_bytes_per_second"] == 1.2e11
    assert row["seconds"] == pytest.approx(134217728 / 1.2e11)
    # The result is the same from the array and the mesh, and with the bandwidth given by hand.
    shape = ("--shape", "bf16[32@data,1024,8192]", "--mesh", "data=4", "--chip", "v2")
    assert tables(capsys, "collective", "reduce-scatter", *shape)["collective"][0]["seconds"] == row["seconds"]
    arguments = ("--bytes", "134217728", "--bandwidth", "1.2e11 B/s")
    assert tables(capsys, "collective", "reduce-scatter", *arguments)["collective"][0]["seconds"] == row["seconds"]


def test_what_the_rule_leaves_out_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    ring, line = tables(capsys, "collective", "all-gather", "--bytes", "1G", "--axis", "16", "--chip", "v5e")["bounds"]
    assert ring["seconds"] == pytest.approx(1e9 * 15 / 16 / 1e11)
    assert line["seconds"] == pytest.approx(1e9 * 15 / 16 / 5e10)
    # An axis of 16 closes on v5e, one of 8 does not.
    assert (ring["which"], line["which"]) == ("this axis", "")
    ring, line = tables(capsys, "collective", "all-gather", "--bytes", "1G", "--axis", "8", "--chip", "v5e")["bounds"]
    assert (ring["which"], line["which"]) == ("", "this axis")


@pytest.mark.parametrize("kind", COLLECTIVES)
@pytest.mark.parametrize("size", [2, 4, 16, 64])
def test_the_rule_is_the_limit_of_the_exact_time_on_a_ring(kind: Collective, size: int) -> None:
    rule = published_seconds(kind, 1e9, 2e11)
    exact = exact_seconds(kind, 1e9, size, 1e11, is_ring=True)
    if kind in ("all-gather", "reduce-scatter", "all-reduce"):
        assert exact == pytest.approx(rule * (size - 1) / size)
    else:
        assert exact == pytest.approx(rule)
    assert exact_seconds(kind, 1e9, size, 1e11, is_ring=False) >= exact
    assert exact_seconds(kind, 1e9, 1, 1e11, is_ring=True) == 0


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("is_ring", [False, True])
def test_exact_times_against_counting_every_link(size: int, is_ring: bool) -> None:
    """Sends every piece of an all-to-all along its way and looks at the busiest link direction."""
    load: defaultdict[tuple[int, int], float] = defaultdict(float)
    for source, target in itertools.permutations(range(size), 2):
        ahead = (target - source) % size
        steps = [(1, ahead), (-1, size - ahead)] if is_ring else [(1 if target > source else -1, abs(target - source))]
        shortest = min(length for _, length in steps)
        ways = [way for way, length in steps if length == shortest]
        for way, hop in itertools.product(ways, range(shortest)):
            load[(source + way * hop) % size, way] += 1 / size**2 / len(ways)
    busiest = max(load.values())
    assert exact_seconds("all-to-all", 1.0, size, 1.0, is_ring=is_ring) == pytest.approx(busiest)
    # In an all-gather each device must take in all pieces but its own, over the links it has.
    links = 2 if is_ring else 1
    assert exact_seconds("all-gather", 1.0, size, 1.0, is_ring=is_ring) == pytest.approx((size - 1) / size / links)


def test_the_worked_true_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("shapes", "bf16[8,8192]", "bf16[4096@model,8192]", "--groups", "{{0,16,32,...,112},...}")
    rows = tables(capsys, *words)["true_shapes"]
    assert [(row["whole"], row["parts"]) for row in rows] == [("bf16[8,8192]", 1), ("bf16[32768,8192]", 8)]
    text = printed(capsys, *words)
    assert "The groups have 8 devices each, 16 apart: model is 8-way." in text
    assert "`...` is read as a continuation in equal steps." in text
    by_mesh = tables(capsys, "shapes", "W[4096@a+b,8192@c]", "--mesh", "a=2,b=4,c=3")["true_shapes"]
    assert by_mesh[0]["whole"] == "bf16[32768,24576]"


def test_the_worked_memory_of_7_billion_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tables(capsys, "memory", "--parameters", "7e9")["memory"]
    assert rows[-1] == {"what": "together", "bytes_per_parameter": 16, "bytes": 112_000_000_000, "formula": "16 P"}
    assert sum(row["bytes"] for row in rows[:-1]) == rows[-1]["bytes"]
    text = printed(capsys, "memory", "--parameters", "7G", "--chip", "v5e", "--devices", "16")
    assert "112.0 GB" in text
    assert "with enough memory: 7." in text


MODEL = ("memory", "--batch", "8", "--seq", "4096", "--layers", "32", "--d-model", "4096")
TOKENS, WIDTH, LAYERS = 8 * 4096, 4096, 32


def rows_of(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, dict[str, Any]]:
    """The rows of all tables by their names."""
    answer = tables(capsys, *MODEL, *more)
    return {str(row.get("what") or row.get("remedy")): row for rows in reversed(answer.values()) for row in rows}


def test_the_largest_batch_that_fits_is_the_inverse(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(capsys, *MODEL, "--chip", "v5p", "--devices", "8").split())
    match = re.search(r"The largest batch that fits next to the state: (\d+) sequences", text)
    assert match
    largest = int(match[1])

    def together(batch: int) -> int:
        words = ("memory", "--batch", str(batch), *MODEL[3:])
        return int(next(row["bytes"] for row in tables(capsys, *words)["memory"] if row["what"] == "together"))

    # 95.7 GB on each v5p.
    assert together(largest) <= 8 * chip("v5p").hbm_bytes < together(largest + 1)
    assert "gradient accumulation" not in text
    more = " ".join(printed(capsys, "memory", "--batch", "64", *MODEL[3:], "--chip", "v5p", "--devices", "8").split())
    steps = -(-64 // largest)
    assert f"gradient accumulation over {steps} steps of {-(-64 // steps)} makes a batch of 64" in more
    assert "8 FLOPs per parameter and token instead of 6" in more
    assert "Split the state over more" in " ".join(printed(capsys, *MODEL, "--chip", "v5e", "--devices", "1").split())


def test_activations_follow_the_published_formula(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys)
    layer = 32 * TOKENS * WIDTH
    assert rows["activations"]["bytes"] == LAYERS * layer == 137_438_953_472
    # 12 D^2 parameters a layer, 16 bytes for each.
    assert rows["together"]["bytes"] == LAYERS * layer + 16 * 12 * WIDTH**2 * LAYERS
    recomputed = rows_of(capsys, "--remat")
    assert recomputed["activations, recomputed"]["bytes"] == 2 * TOKENS * WIDTH * LAYERS + layer
    assert rows["rematerialisation"]["saved_bytes"] == LAYERS * layer - 2 * TOKENS * WIDTH * LAYERS - layer
    assert "rematerialisation" not in recomputed
    scores = rows_of(capsys, "--heads", "32")["attention: scores"]["bytes"]
    assert scores == 2 * 32 * 8 * 4096**2
    words = rows_of(capsys, "--vocab", "128256", "--d-ff", "14336")
    assert words["logits"]["bytes"] == 4 * TOKENS * 128256
    assert words["chunked cross entropy"]["saved_bytes"] == 4 * TOKENS * 128256 * 7 // 8
    parameters = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * 14336) + WIDTH * 128256
    assert words["weights"]["bytes"] == 2 * parameters
    assert words["bfloat16 optimizer state"]["saved_bytes"] == 4 * parameters
    assert words["sharding the state"]["saved_bytes"] == 16 * parameters // 2
    rows_of_model = rows_of(capsys, "--parameters", "7e9", "--chip", "v5p", "--devices", "64")
    assert rows_of_model["sharding the state"]["saved_bytes"] == pytest.approx(112e9 * 63 / 64)


def test_figures_given_by_hand_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("matmul", "X[1024,1024]", "W[1024,1024]", "--peak", "1T", "--bandwidth", "100GB/s")
    assert "1.0 TFLOP/s, 100.0 GB/s of HBM (as given)" in printed(capsys, *words)
    (row,) = tables(capsys, *words)["matmul"]
    assert row["compute_seconds"] == pytest.approx(2 * 1024**3 / 1e12)
    assert row["memory_seconds"] == pytest.approx(3 * 2 * 1024**2 / 1e11)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["matmul"], "expected two arrays such as X[32,1024,8192]"),
        (["matmul", "X[32,64]", "W[65,3]"], "got 64 and 65"),
        (["matmul", "X[32,64", "W[64,3]"], "expected an array such as X[32,1024,8192]"),
        (["matmul", "X[0,64]", "W[64,3]"], "a dimension of 0"),
        (["matmul", "X[32@m,64]", "W[64,3]"], "expected the size of the axis m in --mesh m=N, got none"),
        (["matmul", "X[4,4]", "W[4,4]", "--dtype", "half"], "expected --dtype as in HLO"),
        (["matmul", "X[4,4]", "W[4,4]", "--chip", "v9"], "unknown chip 'v9': expected one of v2, v3, v4"),
        (["matmul", "X[4,4]", "W[4,4]", "--mesh", "m"], "expected --mesh as data=4,model=2, got 'm'"),
        (["matmul", "X[4,4]", "W[4,4]", "--mesh", "m=2", "--devices", "3"], "expected --devices 2 with a mesh of 2"),
        (
            ["matmul", "X[4,4]", "W[4,4]", "--devices", "0"],
            "--devices/--chips: expected a whole number, 1 or more, got '0'",
        ),
        (["matmul", "X[4,4]", "W[4,4]", "--peak", "fast"], "--peak: expected a number above zero"),
        (["matmul", "X[4,4]", "W[4,4]", "--einsum", "ab,bc"], "expected --einsum with 2 and 2 letters"),
        (["matmul", "X[4,4]", "W[4,4]", "--einsum", "ab,bc->ad"], "letters of its operands, each once"),
        (["matmul", "X[4,4]", "W[4,4]", "--parameters", "7"], "predict matmul takes --bandwidth"),
        (["collective"], "expected one of all-gather"),
        (["collective", "gather", "--bytes", "1"], "expected one of all-gather, reduce-scatter"),
        (["collective", "all-gather"], "expected --bytes 128MiB or --shape"),
        (["collective", "all-gather", "--bytes", "1", "--shape", "X[2]"], "one of the two"),
        (["collective", "all-gather", "--bytes", "0"], "--bytes: expected a number above zero"),
        (["collective", "all-gather", "--bytes", "3 QB"], "--bytes: expected a number above zero"),
        (["collective", "all-gather", "--bytes", "1", "--axis", "x"], "expected --axis as 4 or 4,2"),
        (["collective", "all-gather", "--bytes", "1", "--axis", "1"], "expected axes of 2 devices or more"),
        (["collective", "all-gather", "--bytes", "1", "--chip", "h100"], "is published for the links of h100"),
        (["memory"], "expected --parameters, such as 7e9 or 7G, or a model: --batch"),
        (["memory", "--batch", "8", "--layers", "3"], "expected --seq and --d-model too"),
        (["memory", "--parameters", "7e9", "--remat"], "expected --batch and --seq and --layers and --d-model too"),
        (["shapes", "X[4]", "--d-model", "3"], "predict shapes takes --dtype, --groups, --mesh; got --d-model"),
        (["memory", "X[2]", "--parameters", "7e9"], "takes no arrays"),
        (["memory", "--parameters", "7e9", "--devices", "4"], "expected --chip with --devices"),
        (["shapes"], "expected per-device shapes of arrays"),
        (["shapes", "X[4@m]"], "expected the size of the axis m of X[4@m]"),
        (["shapes", "X[4]", "--groups", "{{0,1}}"], "expected the arrays to have one axis"),
        (["shapes", "X[4@m]", "--groups", "{{0,1},{2}}"], "expected --groups of one size"),
        (["weather"], "invalid choice"),
    ],
)
def test_bad_requests_say_what_was_expected(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert expected in mistaken(capsys, *words)


def test_every_chip_with_links_can_be_predicted_for() -> None:
    with_links = chips.having(lambda row: row.links is not None)
    assert with_links == ("v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x")
    for name in with_links:
        chip_links = links(figures_of(name))
        assert chip_links is not None
        assert link_bytes_per_second(figures_of(name)) == 2 * chip_links.one_way_bytes_per_second
    assert link_bytes_per_second(figures_of("h100")) is None
    with pytest.raises(UsageError, match=r"did you mean v5p\? expected one of"):
        figures_of("v5pp")


@pytest.mark.parametrize("name", ["v2", "v3"])
def test_what_predictions_alone_are_made_for_is_no_chip_of_a_contest(name: str) -> None:
    assert name not in {judged.name for judged in CHIPS}
    with pytest.raises(UsageError, match=f"unknown chip '{name}': expected one of v4, v5e, v5p, v6e, v7x, h100, h200"):
        chip(name)


def test_unknown_work_has_no_time_unless_its_bytes_do() -> None:
    assert roofline(None, None, 1.0, 1.0).seconds is None
    assert roofline(None, 0, 1.0, 1.0).seconds is None
    assert (roofline(None, 5, 1.0, 1.0).seconds, roofline(None, 5, 1.0, 1.0).bound) == (5, "bytes at least")
    assert (roofline(2.0, 1, 1.0, 1.0).seconds, roofline(2.0, 1, 1.0, 1.0).bound) == (2, "FLOPs")
    assert (roofline(2.0, 3, 1.0, 1.0).seconds, roofline(2.0, 3, 1.0, 1.0).bound) == (3, "bytes")


def test_an_array_by_hand_prints_as_it_was_given() -> None:
    for text in ("X[32@data,1024,8192]", "bf16[4096@a+b]", "W[7]"):
        assert str(prediction.spec(text, "bf16")) == text
    assert prediction.spec_bytes(prediction.spec("s4[3]", "bf16")) == math.ceil(3 * 8 / 8)


def test_the_only_possible_contraction_is_found() -> None:
    x = prediction.spec("X[8,1024,8192]", "int8")
    product = prediction.matmul(x, prediction.spec("int8[8192,64,128]", "bf16"), None, {}, 1)
    assert product.flops == 2 * 8 * 1024 * 8192 * 64 * 128
    assert (x.dtype, prediction.spec("int8[8]", "bf16").dtype) == ("s8", "s8")
    # 8 may be a batch in both.
    with pytest.raises(UsageError, match="shares only its first dimension"):
        prediction.matmul(x, prediction.spec("W[8192,8,128]", "bf16"), None, {}, 1)
