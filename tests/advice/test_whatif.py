"""Another chip for the same schedule: factors of one change nothing, each resource helps what it limits."""

from pathlib import Path

import pytest
from command_line import Shell
from schedule_examples import NEWEST, unpack

from harness.advice.whatif import SWEEP, answers, scale_machine
from harness.dumps import timing_tables
from harness.dumps.llo import ModuleDump, read_module
from harness.errors import UsageError
from harness.hardware import TPUS, chip
from harness.judge.simulate.machine import machine_of
from harness.records.whatif import Answer, Factors

pytestmark = pytest.mark.long


def dump(case: str, folder: Path) -> ModuleDump:
    return read_module(unpack(NEWEST, case, folder))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleDump:
    """A kernel of attention with two buffers for each block."""
    return dump("v5e-1024x512-2048", tmp_path_factory.mktemp("double"))


def ratio(module: ModuleDump, scale: Factors) -> float:
    _, (answer,) = answers(module, chip("v5e"), (scale,))
    return answer.time_ratio


@pytest.mark.parametrize("tpu", TPUS, ids=lambda tpu: tpu.name)
def test_factors_of_one_change_nothing(tpu: object) -> None:
    machine = machine_of(tpu)  # type: ignore[arg-type]
    assert scale_machine(machine, Factors()) == machine
    assert Factors().words == ""


def test_twice_the_clock_of_everything_halves_the_time_and_factors_of_one_change_nothing(module: ModuleDump) -> None:
    everything = Factors(clock=2, bandwidth=2, dma_latency=0.5, transfer_cost=0.5)
    assert ratio(module, everything) == pytest.approx(0.5, rel=0.02)
    assert ratio(module, Factors()) == 1.0


def test_single_buffers_profit_from_latency_and_a_large_matmul_from_its_matrix_units(
    module: ModuleDump, tmp_path: Path
) -> None:
    no_latency, fast_mxu = Factors(dma_latency=0), Factors(mxu=2)
    single = dump("v5e-1024x512-2048-single", tmp_path / "single")
    assert ratio(single, no_latency) < ratio(module, no_latency) - 0.03
    matmul = dump("v5e-dot-8192", tmp_path / "matmul")
    assert ratio(matmul, fast_mxu) < 0.8
    assert ratio(matmul, no_latency) > 0.99


@pytest.mark.parametrize(
    "worse", [{"clock": 0.5}, {"bandwidth": 0.25}, {"dma_latency": 4}, {"transfer_cost": 4}, {"mxu": 0.5}]
)
def test_less_of_a_resource_never_helps(module: ModuleDump, worse: dict[str, float]) -> None:
    assert ratio(module, Factors(**worse)) >= 1.0


def test_every_timing_input_and_every_operation_has_an_answer_of_its_own(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    folder = unpack(NEWEST, "v5e-twice-1024", tmp_path)
    timing_tables.write(folder, tuple(timing_tables.timing_tables(name, {}) for name in ("mixed", "decode")))
    document = shell.document("whatif", folder, "--chip", "v5e", "--mxu", "x2")
    assert [part["name"] for part in document["timing_inputs"]] == ["mixed", "decode"]
    calls = {part["name"]: part["seconds"] for part in document["operations"]}
    assert len(calls) == 2
    assert sum(calls.values()) == pytest.approx(document["seconds"], rel=0.05)
    (answer,) = document["answers"]
    ratios = dict(answer["parts"])
    assert list(ratios) == ["mixed", "decode", *calls]
    assert ratios["mixed"] == ratios["decode"] == pytest.approx(answer["time_ratio"])
    assert min(ratios[name] for name in calls) <= answer["time_ratio"] <= max(ratios[name] for name in calls)
    printed = shell.printed("whatif", folder, "--chip", "v5e", "--mxu", "x2")
    _title, inputs, operations, columns, *_ = printed.splitlines()
    assert "their mean" in inputs
    assert all(f"{name} " in operations and name in columns for name in calls)


def test_the_sweep_asks_for_one_resource_at_a_time() -> None:
    assert all(len(scale.resources) == 1 for scale in SWEEP)
    assert Answer(scale=Factors(mxu=2), seconds=1.0, time_ratio=0.99).profits
    assert not Answer(scale=Factors(mxu=2), seconds=1.0, time_ratio=0.9999).profits


@pytest.mark.parametrize(
    ("name", "factor"), [("bandwidth", 0.0), ("clock", -1.0), ("mxu", float("nan")), ("dma_latency", float("inf"))]
)
def test_a_factor_that_means_nothing_is_refused(name: str, factor: float) -> None:
    with pytest.raises(UsageError, match=name.replace("_", "-")):
        Factors(**{name: factor})


def test_sentences_fit_the_terminal(tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    folder = unpack(NEWEST, "v5e-twice-1024", tmp_path)
    lines = shell.printed("whatif", folder, "--chip", "v5e", "--mxu", "x2").splitlines()
    assert max(map(len, lines)) <= 70
    assert " ".join(lines).endswith(
        "so an edit that cuts the load of one resource alone by a row's factor gains at most what the row says"
    )


def test_the_command_says_which_resource_counts(tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    folder = unpack(NEWEST, "v5e-dot-8192", tmp_path)
    words = ("whatif", folder, "--chip", "v5e")
    text = shell.printed(*words)
    assert "[simulated v5e]" in text
    assert "the program would profit most from mxu x2" in text
    assert text.splitlines()[-2].startswith("clock x2 ")
    answer = shell.document(*words, "--clock", "x1", "--mxu", "1")
    assert answer["source"] == "simulated"
    assert [scaled["time_ratio"] for scaled in answer["answers"]] == [1.0, 1.0, 1.0]
    bandwidth, mxu, both = shell.document(*words, "--bandwidth", "x2", "--mxu", "x2")["answers"]
    assert both["time_ratio"] <= mxu["time_ratio"] < bandwidth["time_ratio"]
    assert both["scale"] == bandwidth["scale"] | {"mxu": 2.0}
    assert "the program would profit most from mxu x2;" in shell.printed(*words, "--bandwidth", "x2", "--mxu", "x2")
    attention = unpack(NEWEST, "v5e-2048x1024-4096", tmp_path / "attention")
    remark = "mxu x2 would help most, but no single one binds the program: a faster clock"
    assert remark in shell.printed("whatif", attention, "--chip", "v5e")
    assert "bad-factor" in shell.complaint(*words, "--mxu", "fast", code=2)
