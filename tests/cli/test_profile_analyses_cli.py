"""The analyses through the command line: a real capture of a CPU, one that the simulator wrote, and broken files."""

from pathlib import Path
from typing import Any

import pytest
from capture_examples import (
    COPY,
    MODULE,
    PALLAS,
    V6E,
    Ran,
    corrupt_run,
    cpu_run,
    empty_run,
    four_devices_run,
    one_device_run,
    plane,
    run_folder,
    serialized,
    space,
)
from command_line import Shell
from schedule_examples import NEWEST, unpack
from simulated_examples import SMALL, run

from harness.hardware import chip
from harness.shell.catalogue import EVERY
from harness.shell.main import main
from harness.verbs.xprof import COMMANDS

pytestmark = pytest.mark.long

MFU = ["--gbs", "8", "--seq", "1024", "--flops-per-token", "1e6"]
_OTHERS = ("overview", "graph", "report", "url", "export", "memory", "memory diagnose")
NAMES = [command.name for command in COMMANDS if command.places and command.name not in _OTHERS]


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logdir")


@pytest.fixture(scope="module")
def cpu(logdir: Path) -> Path:
    return cpu_run(logdir)


@pytest.fixture(scope="module")
def tpus(logdir: Path) -> tuple[Path, Path]:
    return one_device_run(logdir), four_devices_run(logdir)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captures that `ratchet.sh timeline` writes for a kernel on two cores."""
    folder = tmp_path_factory.mktemp("simulated")
    dumps = unpack(NEWEST, "v5p-512x512-2048", folder / "dump")
    assert main(["timeline", str(dumps), "--chip", "v5p", "-C", str(folder), "--quiet"]) == 0
    (path,) = folder.glob("profile_data/plugins/profile/*/*.xplane.pb")
    return path


def words(name: str, *paths: Path) -> list[str]:
    captures = [str(path) for path in (paths * 2 if name == "compare" and len(paths) == 1 else paths)]
    return ["xprof", name, *captures, *(MFU if name == "mfu" else [])]


def answer(shell: Shell, name: str, *paths: Path) -> dict[str, Any]:
    """Its tables by name, read from --json."""
    document = shell.document(*words(name, *paths))
    assert document["command"] == f"xprof {name}"
    return by_name(document)


def by_name(document: Any) -> dict[str, Any]:
    return {table["name"]: table for table in document["tables"]}


@pytest.mark.parametrize("name", NAMES)
def test_each_command_prints_tables_of_tpu_captures(
    name: str, tpus: tuple[Path, Path], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for path in tpus:
        printed = shell.printed(*words(name, path))
        assert "[measured]" in printed
        assert "None" not in printed
        assert max(map(len, printed.splitlines())) <= 100


@pytest.mark.parametrize("name", NAMES)
def test_each_command_on_a_cpu_says_what_a_cpu_does_not_show(name: str, cpu: Path, shell: Shell) -> None:
    tables = answer(shell, name, cpu)
    assert {table["origin"] for table in tables.values()} == {"measured cpu"}
    for table in ("mfu", "roofline", "utilization"):
        if table in tables:
            assert "of a CPU" in tables[table]["why_empty"]
            assert tables[table]["rows"] == []
    if name == "ops":
        assert all(row["flops_per_second"] is None for row in tables["ops"]["rows"])
        assert {"dot", "fusion"} <= {row["category"] for row in tables["ops"]["rows"]}
    if name == "breakdown":
        assert {"forward", "backward"} <= {row["direction"] for row in tables["directions"]["rows"]}
    if name == "steps":
        assert tables["steps"]["rows"][0]["count"] == 3
    if name == "scopes":
        assert {"  jvp(attention)", "  jvp(mlp)"} <= {row["scope"] for row in tables["scopes"]["rows"]}
    if name == "lines":
        assert {"<string>:8", "<string>:10"} <= {row["source"] for row in tables["lines"]["rows"]}


@pytest.mark.parametrize("name", NAMES)
def test_each_command_says_that_a_simulated_capture_is_simulated(name: str, simulated: Path, shell: Shell) -> None:
    tables = answer(shell, name, simulated)
    assert {table["origin"] for table in tables.values()} == {"simulated"}
    if name == "ops":
        (row,) = tables["ops"]["rows"]
        assert (row["operation"], row["category"], row["count"]) == ("naive.1", "custom-call", 2)
    if name == "gaps":
        assert {row["verdict"] for row in tables["idle"]["rows"]} == {"unknown: kernels fill it; see inside them below"}
        assert {row["device"] for row in tables["inside"]["rows"]} == {"TPU:0", "TPU:1"}
    if name == "roofline":
        assert tables["roofline"]["rows"][1]["verdict"] == "far off: look inside"
    if name in ("lines", "scopes"):
        assert "simulated captures have no" in tables[name]["why_empty"]


def test_the_bubbles_inside_a_simulated_kernel_are_the_simulators(tmp_path: Path, shell: Shell) -> None:
    result = run(SMALL, tmp_path / "dump")
    assert result.breakdown is not None
    assert main(["timeline", str(tmp_path / "dump"), "--chip", "v5e", "-C", str(tmp_path), "--quiet"]) == 0
    (path,) = tmp_path.glob("profile_data/plugins/profile/*/*.xplane.pb")
    tables = answer(shell, "gaps", path)
    (idle,) = tables["idle"]["rows"]
    # Idle time between operations says nothing here: there is only one operation.
    assert idle["idle_fraction"] < 0.01
    assert idle["verdict"].startswith("unknown: kernels fill it")
    bubbles, *parts = tables["inside"]["rows"]
    assert bubbles["share"] == pytest.approx(result.breakdown.bubble_fraction)
    assert (bubbles["part"], bubbles["reading"]) == ("bubbles", "red flag")
    assert sum(row["cycles"] for row in parts) == result.cycles
    stalls = {part.name: part.cycles for part in result.breakdown.parts if part.kind == "unit stall"}
    assert {row["part"].removeprefix("unit stall "): row["cycles"] for row in parts if "stall" in row["part"]} == stalls
    # The time that the bytes need does not count as bubbles.
    assert result.seconds is not None
    floor = (result.hbm_read_bytes + result.hbm_written_bytes) / chip("v5e").hbm_bytes_per_second
    cost = min(bubbles["share"] * result.seconds, result.seconds - floor)
    findings = {row["finding"]: row for row in answer(shell, "diagnose", path)["findings"]["rows"]}
    assert findings["bubbles inside kernels"]["seconds"] == pytest.approx(cost, rel=0.05)


def test_rows_that_a_device_recorded_inside_a_kernel_are_shown(tmp_path: Path, shell: Shell) -> None:
    lines = {
        "XLA Modules": [Ran(MODULE, 0.0, 100.0)],
        "XLA Ops": [Ran(PALLAS, 0.0, 90.0), Ran(COPY, 90.0, 10.0)],
        # Half of one row lies in the kernel, and both rows are busy together for 10 us.
        "matrix unit": [Ran("product", 10.0, 20.0), Ran("product", 80.0, 20.0)],
        "vector unit": [Ran("exp", 20.0, 30.0)],
    }
    path = run_folder(tmp_path, "recorded", serialized(space(plane(1, "/device:TPU:0", lines, V6E))))
    rows = answer(shell, "gaps", path)["inside"]["rows"]
    assert {row["part"]: row["seconds"] for row in rows} == pytest.approx(
        {"matrix unit": 30e-6, "vector unit": 30e-6, "in none of these rows": 40e-6}
    )
    assert rows[0]["share"] == pytest.approx(30 / 90)
    del lines["matrix unit"], lines["vector unit"]
    path = run_folder(tmp_path, "bare", serialized(space(plane(1, "/device:TPU:0", lines, V6E))))
    assert "xla_xprof_enable_custom_call_tracing" in answer(shell, "gaps", path)["inside"]["why_empty"]


@pytest.mark.parametrize("name", NAMES)
def test_each_command_refuses_empty_and_corrupt_files_in_a_sentence(name: str, tmp_path: Path, shell: Shell) -> None:
    for path in (empty_run(tmp_path), corrupt_run(tmp_path)):
        printed = shell.run(*words(name, path), code=4)
        assert printed.out == ""
        assert "[bad-profile]" in printed.err
        assert str(path) in printed.err
        assert "Traceback" not in printed.err


def test_captures_of_two_sources_are_not_compared(
    cpu: Path, simulated: Path, tpus: tuple[Path, Path], shell: Shell
) -> None:
    for other in (cpu, simulated):
        assert "[not-comparable]" in shell.complaint(*words("compare", tpus[0], other), code=4)


def test_options(tpus: tuple[Path, Path], shell: Shell) -> None:
    path = str(tpus[0])
    complaint = shell.complaint("xprof", "ops", path, "--top", "-1", code=2)
    assert "--top: expected a whole number, 0 or more, got '-1'" in complaint
    assert len(shell.document("xprof", "ops", path, "--top", "0")["tables"][0]["rows"]) == 6
    assert len(shell.document("xprof", "framework-ops", path, "--category", "attention,norm")["tables"][1]["rows"]) == 1
    assert "[unknown-category]" in shell.complaint("xprof", "framework-ops", path, "--category", "mlp", code=2)
    assert len(shell.document("xprof", "scopes", path, "--depth", "1", "--at-least", "0.5")["tables"][0]["rows"]) == 1


@pytest.mark.parametrize(
    ("published", "ours"),
    [
        ("xprof memory peak --run-dir D", "xprof memory D"),
        ("xprof compute breakdown --run-dir=D", "xprof breakdown D"),
        ("xprof comm overlap D", "xprof overlap D"),
        ("xprof compare --runs a,b", "xprof compare a b"),
        ("xprof compare --run-dir D --runs=a,b", "xprof compare D/plugins/profile/a D/plugins/profile/b"),
        ("xprof memory diagnose --run-dir D", "xprof memory diagnose D"),
        ("xprof mfu --gbs 8 --num-chips 4 --run-dir D", "xprof mfu D --gbs 8 --num-chips 4"),
        ("audit flags --flags-file f.sh", "audit f.sh"),
        ("audit --flags-file=f.sh", "audit f.sh"),
    ],
)
def test_published_spellings_are_understood(published: str, ours: str) -> None:
    verb, *words = published.split()
    assert EVERY[verb].parse(words) == EVERY[verb].parse(ours.split()[1:])


@pytest.mark.parametrize(
    ("published", "ours"),
    [
        ("memory peak --run-dir D", "xprof memory D"),
        ("compute breakdown", "xprof breakdown"),
        ("comm overlap --run-dir D", "xprof overlap D"),
        ("compare --runs a,b", "xprof compare a b"),
        ("memory diagnose D", "xprof memory diagnose D"),
        ("roofline", "xprof roofline"),
        ("mfu --gbs 8 --num-chips 4", "xprof mfu --gbs 8 --num-chips 4"),
    ],
)
def test_without_xprof_they_get_the_exact_command(published: str, ours: str, shell: Shell) -> None:
    assert f"did you mean `./ratchet.sh {ours}`?" in shell.complaint(*published.split(), code=2)
    EVERY["xprof"].parse(ours.split()[1:])


def test_an_option_without_its_value_is_told(shell: Shell) -> None:
    assert "expected a value after --runs" in shell.complaint("xprof", "compare", "--runs", code=2)


def test_two_runs_are_compared_by_name_and_by_category(logdir: Path, tpus: tuple[Path, Path], shell: Shell) -> None:
    tables = by_name(shell.document("xprof", "compare", "--run-dir", logdir, "--runs", "one-device,four-devices"))
    assert "A = one-device, B = four-devices" in tables["totals"]["title"]
    rows = {row["category"]: row for row in tables["categories"]["rows"]}
    # By step and device: both matmuls take 20 us, one of them 12 more on one device of four.
    assert rows["convolution fusion"]["a_seconds"] == pytest.approx(40e-6)
    assert rows["convolution fusion"]["b_seconds"] == pytest.approx(43e-6)
    assert rows["convolution fusion"]["time_ratio"] == pytest.approx(43 / 40)
    assert (rows["data formatting"]["b_seconds"], rows["data formatting"]["time_ratio"]) == (None, None)
    total = next(row for row in tables["totals"]["rows"] if row["what"] == "all operations")
    assert sum(row["change_seconds"] for row in rows.values()) == pytest.approx(total["change_seconds"])


def test_without_the_models_figures_the_traces_own_count_is_shown(tpus: tuple[Path, Path], shell: Shell) -> None:
    (table,) = shell.document("xprof", "mfu", tpus[1], "--gbs", "8", "--num-chips", "4")["tables"]
    assert [row["from"] for row in table["rows"]] == ["the trace"]
    assert table["rows"][0]["mfu"] == pytest.approx((2 * 2**34 + 2**19) / (918e12 * 150e-6))
    assert "also needs --seq and --flops-per-token" in table["notes"][0]
