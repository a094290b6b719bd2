"""docs/ADD_A_CHIP.md followed: a chip that does not exist is added by one file, judged, simulated and explained."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_commands import serving
from harness_copies import copy_harness
from loop_fixtures import PROJECT, into_repository, ratchet

pytestmark = pytest.mark.long

PAGE = Path(PROJECT) / "docs" / "ADD_A_CHIP.md"
NAME = "v9x"
# The page's chip is compiled for in the same way as this one: the programs are the same, and half its time is right.
LIKE = "v5e"
LABEL = f"[simulated {NAME}, not calibrated]"


def printed_by(where: Path, *words: str) -> str:
    """The output of a verb, run by the harness that lies above the contest."""
    home = next(folder for folder in (where, *where.parents) if (folder / "harness").is_dir())
    printed = ratchet(where, *words, expect=0, environment={"PYTHONPATH": str(home)}).stdout
    # Lines are wrapped where the folder's name is long.
    return " ".join(printed.split())


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A contest for the new chip, judged twice; its harness has the page's file in addition, and nothing else new."""
    home = tmp_path_factory.mktemp("new-chip")
    copy_harness(home, "candidates")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (home / "harness" / "chips" / f"{NAME}.py").write_text(block, encoding="utf-8")
    into_repository(home, "A chip")
    with serving(home):
        printed_by(home, "new", "mine", "--like", "rmsnorm", "--chip", NAME, "--set", "ROWS=256")
        assert f'CHIP = "{NAME}"' in (home / "mine" / "prepare.py").read_text()
        yield home / "mine"


@pytest.fixture(scope="module")
def judged(contest: Path) -> Path:
    """The same with a champion, which a change has beaten."""
    assert "ACCEPTED" in printed_by(contest, "experiment: baseline")
    kernel = contest / "kernel.py"
    kernel.write_text(kernel.read_text().replace("BR = 16", "BR = 32"))
    printed = printed_by(contest, "experiment: larger blocks")
    assert "ACCEPTED" in printed
    assert "variations of the simulator" in printed
    assert LABEL in printed
    return contest


@pytest.mark.slow
def test_its_kernels_are_judged_recorded_and_reported(judged: Path) -> None:
    assert f"simulated {NAME}, not calibrated" in printed_by(judged, "results")
    assert LABEL in printed_by(judged, "next")
    printed_by(judged, "report")
    assert f"simulated {NAME}" in (judged / "profile_data" / "report.html").read_text(encoding="utf-8")
    assert "clean" in printed_by(judged, "fsck")


def test_its_times_are_explained(judged: Path) -> None:
    assert LABEL in printed_by(judged, "diagnose")
    assert LABEL in printed_by(judged, "whatif")
    assert LABEL in printed_by(judged, "lines")


def test_the_same_schedule_takes_less_time_by_its_clock_and_bandwidth(judged: Path) -> None:
    dumps = judged / "profile_data" / "0001" / "dumps"
    new, old = (
        json.loads(printed_by(judged, "simulate", str(dumps), "--chip", name, "--json")) for name in (NAME, LIKE)
    )
    assert 0.4 < new["total_seconds"] / old["total_seconds"] < 0.9


def test_it_is_predicted_for(judged: Path) -> None:
    arrays = ("s8[4096,4096]", "s8[4096,4096]", "--chip", NAME)
    (product,) = json.loads(printed_by(judged, "predict", "matmul", *arrays, "--json"))["tables"]
    assert product["rows"][0]["compute_seconds"] == pytest.approx(2 * 4096**3 / 788e12)
    sent = printed_by(
        judged, "predict", "collective", "all-reduce", "--bytes", "128MiB", "--axis", "16", "--chip", NAME
    )
    assert "400.0 GB/s" in sent


def test_flags_are_advised_for_it(judged: Path) -> None:
    script = judged / "launch.sh"
    script.write_text("export JAX_PLATFORMS=tpu\n")
    home = {"PYTHONPATH": str(judged.parent)}
    audit = ratchet(judged, "audit", str(script), "--chip", NAME, "--symptom", "all-gather-stalls", environment=home)
    assert f"or on v7x or {NAME}" in " ".join(audit.stdout.split())
