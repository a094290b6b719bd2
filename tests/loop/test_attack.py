"""The attack: it finds planted faults, finds nothing in an honest kernel, and its file can be repeated."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from harness.loop import draw_text
from harness.loop.scaffold import FORMULA, scaffold
from harness.operators import Attention, AttentionBackward, Matmul, RMSNorm, Space, SwiGLU
from harness.records.attack import Attack, WorstInput
from harness.selftest import planted
from harness.shell.main import main
from harness.verbs.attack import attack_text

pytestmark = pytest.mark.long

SOFTMAX = Path(__file__).parents[1] / "fixtures" / "softmax"
PROBLEMS = (
    Attention(sequence=256, head_dim=64),
    AttentionBackward(sequence=128, head_dim=64),
    Matmul(m=256, n=256, k=256),
    RMSNorm(rows=64, columns=256),
    SwiGLU(tokens=256, model=256, hidden=256, down=True),
)


@pytest.mark.parametrize("space", PROBLEMS, ids=lambda problem: type(problem).__name__)
def test_recipes_are_drawn_and_changed_by_their_seed(space: Space) -> None:
    recipe = space.draw_recipe(np.random.default_rng(3))
    assert recipe == space.draw_recipe(np.random.default_rng(3))
    random = np.random.default_rng(4)
    lineage = [recipe]
    for _ in range(30):
        lineage.append(space.mutate_recipe(lineage[-1], random))
        assert all(np.isfinite(array.astype(np.float32)).all() for array in space.make_inputs(lineage[-1], 1))  # type: ignore[attr-defined]
        assert space.recipe_in_words(lineage[-1])
    assert len(set(lineage)) > 20


MUTATED = """
import numpy as np
from harness.operators import Matmul
random = np.random.default_rng(1)
recipe = Matmul(m=256, n=256, k=256).draw_recipe(random)
for _ in range(20):
    recipe = Matmul(m=256, n=256, k=256).mutate_recipe(recipe, random)
print(recipe)
"""


def test_recipes_are_changed_alike_in_every_process() -> None:
    command = [sys.executable, "-c", MUTATED]
    recipes = {
        subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed}, timeout=60) for seed in "123"
    }
    assert len(recipes) == 1


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    folder = tmp_path / "contest"
    scaffold(folder, "attention", (("SEQUENCE", "512"),))
    return folder


def plant(name: str, folder: Path) -> None:
    (candidate,) = planted.select(planted.kernels(), (name,))
    (folder / "kernel.py").write_bytes(planted.source(candidate))


def attack(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main(["-C", str(folder), "attack", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_a_planted_fault_is_found_and_repeats(contest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plant("guessed_exponents", contest)
    code, document = attack(contest, capsys, "--first", "--minutes", "5", "--seed", "5")
    assert code == 1
    worst = document["worst"]
    assert worst["said"]
    assert (document["exact_outputs"], document["tolerated_outputs"]) == ([], ["o"])
    code, again = attack(contest, capsys, "--repeat", str(document["file"]))
    assert (code, again["worst"]) == (1, worst)
    # The command that revokes such a champion names this input.
    text = attack_text(msgspec.convert(again, Attack), contest, "")
    last = shlex.split(text.splitlines()[-1].partition("revoke its title: ")[2])
    drawn = draw_text.parse(last[last.index("--draw") + 1])
    assert (drawn.family, drawn.seed, list(drawn.shape)) == (worst["family"], worst["seed"], worst["output"])
    # The input on which that kernel is wrong is harmless to another.
    plant("base_two", contest)
    assert main(["-C", str(contest), "attack", "--repeat", str(document["file"])]) == 0
    assert "; no error above the tolerance was found\n" in capsys.readouterr().out


def test_a_find_at_which_the_honest_computation_errs_as_much_is_in_doubt() -> None:
    find = WorstInput(shape="full", title="", family="normal", seed=1, ratio=1.3, words="", honest_ratio=0.9)
    assert find.is_wrong
    assert find.is_doubtful
    assert not replace(find, ratio=2.0).is_doubtful
    assert not replace(find, ratio=None).is_doubtful
    assert not replace(find, honest_ratio=None).is_doubtful


def test_the_text_says_which_outputs_were_compared_exactly() -> None:
    find = WorstInput(shape="full", title="", family="normal", seed=1, ratio=0.5, words="")
    record = Attack(
        problem="scaled",
        kernel_sha256="",
        seed=1,
        tried=3,
        seconds=2.0,
        worst=find,
        file="a.json",
        exact_outputs=("c",),
        tolerated_outputs=("o", "p"),
    )
    assert "outputs compared: c exactly; o, p against the tolerance" in attack_text(record, None, "").splitlines()


def test_a_file_of_another_problem_is_refused(
    contest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.json").write_text("{}")
    assert main(["-C", str(contest), "attack", "--repeat", str(tmp_path / "odd.json")]) == 2
    assert "expected a file written by `attack`" in capsys.readouterr().err
    assert main(["-C", str(contest), "attack", "--minutes", "0"]) == 2


def test_a_kernel_over_several_chips_is_attacked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "contest"
    scaffold(folder, "all-gather-matmul", (("M", "1024"), ("N", "1024"), ("K", "512")))
    kernel = folder / "kernel.py"
    honest = kernel.read_text()
    # Only large values come out wrong.
    wrong = honest.replace("jnp.dot(a_ref[...], ", "jnp.dot(jnp.minimum(a_ref[...], 100), ")
    assert wrong != honest
    kernel.write_text(wrong)
    code, document = attack(folder, capsys, "--first", "--minutes", "5", "--seed", "5")
    assert code == 1
    kernel.write_text(honest)
    code, again = attack(folder, capsys, "--repeat", str(document["file"]))
    assert (code, again["worst"]["said"]) == (0, "")
    assert 0 < again["worst"]["ratio"] < 1


@pytest.mark.slow
def test_a_problem_of_the_contests_own_is_attacked_with_recipes_that_its_child_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    scaffold(folder, FORMULA, (("ROWS", "512"), ("COLUMNS", "256")))
    code, document = attack(folder, capsys, "--minutes", "0.05", "--seed", "5")
    # On a busy machine the time may be over before the first inputs are drawn.
    assert (code, document["worst"] is not None) == (0, document["tried"] != 0)
    kernel = folder / "kernel.py"
    kernel.write_text(kernel.read_text().replace("b_ref[...]", "b_ref[:, :1]"))
    code, document = attack(folder, capsys, "--first", "--minutes", "5", "--seed", "5")
    assert code == 1
    code, again = attack(folder, capsys, "--repeat", str(document["file"]))
    assert (code, again["worst"]) == (1, document["worst"])


def test_a_problem_without_recipes_is_not_attacked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(SOFTMAX, tmp_path / "softmax")
    assert main(["-C", str(tmp_path / "softmax"), "attack", "--minutes", "1"]) == 4
    assert (
        "expected a problem with recipes of inputs (their methods are in docs/OPERATORS.md)" in capsys.readouterr().err
    )
