"""The analyses through the command line: a real capture of a CPU, one that the simulator wrote, and broken files."""

import json
from pathlib import Path
from typing import Any

import pytest
from capture_examples import corrupt_run, cpu_run, empty_run, four_devices_run, one_device_run
from schedule_examples import NEWEST, unpack

from harness.cli import main
from harness.cli.verbs import EVERY
from harness.cli.xprof import OF_CAPTURES

MFU = ["--gbs", "8", "--seq", "1024", "--flops-per-token", "1e6"]
NAMES = [name for name in OF_CAPTURES if name not in ("overview", "graph", "report") and not name.startswith("memory")]


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
    """What `ratchet.sh timeline` writes of a kernel on two cores."""
    folder = tmp_path_factory.mktemp("simulated")
    dumps = unpack(NEWEST, "v5p-512x512-2048", folder / "dump")
    assert main(["timeline", str(dumps), "--chip", "v5p", "-C", str(folder), "--quiet"]) == 0
    (path,) = folder.glob("profile_data/plugins/profile/*/*.xplane.pb")
    return path


def words(name: str, *paths: Path) -> list[str]:
    given = [str(path) for path in (paths * 2 if name == "compare" and len(paths) == 1 else paths)]
    return ["xprof", name, *given, *(MFU if name == "mfu" else [])]


def answer(capsys: pytest.CaptureFixture[str], name: str, *paths: Path) -> dict[str, Any]:
    """Its tables by name, read from --json."""
    capsys.readouterr()
    assert main([*words(name, *paths), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == f"xprof {name}"
    return {table["name"]: table for table in document["tables"]}


@pytest.mark.parametrize("name", NAMES)
def test_each_command_prints_tables_of_tpu_captures(
    name: str, tpus: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for path in tpus:
        assert main(words(name, path)) == 0
        printed = capsys.readouterr().out
        assert "[measured]" in printed
        assert "None" not in printed
        assert max(map(len, printed.splitlines())) <= 100


@pytest.mark.parametrize("name", NAMES)
def test_each_command_on_a_cpu_says_what_a_cpu_does_not_show(
    name: str, cpu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = answer(capsys, name, cpu)
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
def test_each_command_says_that_a_simulated_capture_is_simulated(
    name: str, simulated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = answer(capsys, name, simulated)
    assert {table["origin"] for table in tables.values()} == {"simulated"}
    if name == "ops":
        (row,) = tables["ops"]["rows"]
        assert (row["operation"], row["category"], row["count"]) == ("naive.1", "custom-call", 2)
    if name == "roofline":
        assert tables["roofline"]["rows"][1]["verdict"] == "far off: look inside"
    if name in ("lines", "scopes"):
        assert "simulated captures have none" in tables[name]["why_empty"]


@pytest.mark.parametrize("name", NAMES)
def test_each_command_refuses_empty_and_corrupt_files_in_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (empty_run(tmp_path), corrupt_run(tmp_path)):
        assert main(words(name, path)) == 4
        said = capsys.readouterr()
        assert said.out == ""
        assert "[bad-profile]" in said.err
        assert str(path) in said.err
        assert "Traceback" not in said.err


def test_captures_of_two_sources_are_not_compared(
    cpu: Path, simulated: Path, tpus: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for other in (cpu, simulated):
        assert main(words("compare", tpus[0], other)) == 4
        assert "[not-comparable]" in capsys.readouterr().err


def test_options(tpus: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tpus[0])
    assert main(["xprof", "ops", path, "--top", "-1"]) == 2
    assert "--top: expected a whole number, 0 or more, got '-1'" in capsys.readouterr().err
    assert main(["xprof", "ops", path, "--top", "0", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tables"][0]["rows"]) == 6
    assert main(["xprof", "framework-ops", path, "--category", "attention,norm", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tables"][1]["rows"]) == 1
    assert main(["xprof", "framework-ops", path, "--category", "mlp"]) == 2
    assert "[unknown-category]" in capsys.readouterr().err
    assert main(["xprof", "mfu", path]) == 2
    assert "--gbs" in capsys.readouterr().err
    assert main(["xprof", "scopes", path, "--depth", "1", "--at-least", "0.5", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tables"][0]["rows"]) == 1


@pytest.mark.parametrize(
    ("published", "ours"),
    [
        ("memory peak --run-dir D", "memory D"), ("compute breakdown --run-dir=D", "breakdown D"),
        ("comm overlap D", "overlap D"), ("compare --runs a,b", "compare a b"),
        ("memory diagnose D", "memory diagnose D"),
    ],
)  # fmt: skip
def test_published_spellings_are_understood(published: str, ours: str) -> None:
    assert EVERY["xprof"].parse(published.split()) == EVERY["xprof"].parse(ours.split())
