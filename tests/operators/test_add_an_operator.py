"""The page docs/ADD_AN_OPERATOR.md, followed with the operator that it invents: one new folder, nothing else edited."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_commands import serving
from harness_copies import copy_harness
from loop_fixtures import PROJECT, into_repository, ratchet

pytestmark = pytest.mark.long

PAGE = (Path(PROJECT) / "docs" / "ADD_AN_OPERATOR.md").read_text()
# Each file that the page names at the beginning of a line, with the program that follows.
_NAMED = re.compile(r"^`(harness/operators/activations/[\w/.-]+)`.*?```python\n(.*?)```", re.M | re.S)
FILES = dict(_NAMED.findall(PAGE))
ASKED = """
import json, pathlib, sys
from harness.contest import load
from harness.judge import key
from harness.operators import Space, SquaredReLU, complaints
small = SquaredReLU(rows=512, columns=256)
modules = {name: key.checks_modules(pathlib.Path(name, "prepare.py")) for name in ("mine", "matmul")}
print(json.dumps({
    "complaints": complaints(small),
    "reduced": [one.rows for one in small.reduced()],
    "second": small.second_shape(next(small.reduced())).rows,
    "stated": load(pathlib.Path("mine")).problem.statement().parameters,
    "is space": isinstance(small, Space),
    "others": [name for name, found in modules.items() if "harness.operators.activations.squared_relu" in found],
    "covered": any(path.name == "squared_relu.py" for path in key.judge_files()),
    "matmul": load(pathlib.Path("matmul")).key("simulated").checks,
}))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The harness with the new folder in it, and a contest of the new operator next to it."""
    folder = tmp_path_factory.mktemp("operator")
    copy_harness(folder)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    into_repository(folder, "A project")
    sizes = ("--set", "ROWS=512", "--set", "COLUMNS=256")
    with serving(folder):
        asked(folder, "new", "mine", "--like", "squared-relu", *sizes, expect=0)
        yield folder


def asked(folder: Path, *words: str, expect: int) -> str:
    return ratchet(folder, *words, expect=expect, environment={"PYTHONPATH": str(folder)}).stdout


def test_the_page_has_all_files_of_the_folder() -> None:
    assert {name.removeprefix("harness/operators/activations/") for name in FILES} == {
        "__init__.py",
        "squared_relu.py",
        "templates/squared-relu/prepare.py",
        "templates/squared-relu/kernel.py",
    }


@pytest.mark.slow
def test_it_is_stated_checked_and_in_the_keys_of_its_own_contest_alone(project: Path) -> None:
    # A contest of an old operator.
    asked(project, "new", "matmul", "--like", "matmul", expect=0)
    command = [sys.executable, "-P", "-c", ASKED]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(project), "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["complaints"] == []
    assert (document["reduced"], document["second"]) == ([64, 128, 256], 96)
    assert document["stated"] == [["rows", 512], ["columns", 256], ["dtype", "bfloat16"]]
    assert document["is space"]
    assert document["covered"]
    assert document["others"] == ["mine"]
    # The other contest is still checked by the same code.
    command[-1] = (
        "import pathlib; from harness.contest import load; print(load(pathlib.Path('matmul')).key('simulated').checks)"
    )
    environment["PYTHONPATH"] = PROJECT
    before = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=True)
    assert before.stdout.strip() == document["matmul"]


def test_it_is_judged_and_a_wrong_kernel_is_refused(project: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    assert asked(project, "-C", "mine", "judge", expect=0).startswith("PASSED  squared relu, 512 rows of 256, bfloat16")
    kernel = project / "mine" / "kernel.py"
    kernel.write_text(kernel.read_text().replace("jnp.maximum(x_ref[...].astype(jnp.float32), 0)", "x_ref[...] * 1.0"))
    assert "wrong-" in asked(project, "-C", "mine", "judge", expect=1)
