"""A prepare.py is read as data if possible; otherwise a confined child runs it, and verbs that only read do not."""

import hashlib
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_fixtures import PROJECT, into_repository, ratchet

from harness import contest as contests
from harness.errors import RatchetError
from harness.judge import key as keys
from harness.operators import Suite, prepare_module
from harness.prepare import confined, data
from harness.sandbox import confinement
from harness.shell.catalogue import EVERY

HOUSE = Path(PROJECT)
CONTESTS = sorted({HOUSE, *(path.parent for path in HOUSE.glob("*/*/prepare.py") if "fixtures" not in path.parts)})
SOFTMAX = HOUSE / "tests" / "fixtures" / "softmax"
NEEDS_LANDLOCK = pytest.mark.skipif(confinement.landlock_version() is None, reason="this kernel lacks Landlock")


def problem_of(text: str) -> Any:
    parsed = data.read(text.encode())
    return None if parsed is None else parsed[0]


@pytest.mark.parametrize("folder", CONTESTS, ids=lambda folder: folder.name)
def test_every_contest_here_is_data_and_says_what_running_it_says(folder: Path) -> None:
    source = (folder / "prepare.py").read_bytes()
    stated = data.read(source)
    assert stated is not None
    module = prepare_module.run(source, "prepare.py")
    assert stated == (module.problem(), module.CHIP)


@pytest.mark.parametrize("folder", CONTESTS, ids=lambda folder: folder.name)
def test_every_contest_may_name_the_operators_as_they_were_called_before(folder: Path) -> None:
    source = (folder / "prepare.py").read_bytes()
    before = source.replace(b"harness.operators", b"harness.problems")
    assert before != source
    assert data.read(before) == data.read(source) is not None


def test_former_names_lead_to_the_same_modules() -> None:
    program = (
        "import harness.problems.attention_space as space\n"
        "from harness.problems import Attention, attention, blocks, complaints, tolerance\n"
        "from harness.problems.product_probes import Drawn\n"
        "from harness.operators import blocks as present\n"
        "print(space.__name__, Attention.__module__, attention.__name__, Drawn.__module__, blocks is present)\n"
    )
    # Run as a program, it prints the new name once.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.split() == [
        "harness.operators.attention.space",
        "harness.operators.attention.forward",
        "harness.operators.attention.forward",
        "harness.operators.products.probes",
        "True",
    ]
    assert done.stderr.count("harness.problems is harness.operators now") == 1


@pytest.mark.long
@NEEDS_LANDLOCK
def test_a_problem_of_its_own_may_import_by_the_former_names(tmp_path: Path) -> None:
    source = (SOFTMAX / "prepare.py").read_bytes()
    before = source.replace(b"harness.operators", b"harness.problems")
    assert before != source
    stated = [confined.read(text, "prepare.py")[0].statement() for text in (source, before)]
    assert stated[0] == stated[1]
    modules = []
    for text in (source, before):
        (tmp_path / "prepare.py").write_bytes(text + b"    from harness.problems import attention\n")
        modules.append(keys.checks_modules(tmp_path / "prepare.py"))
    assert modules[0] == modules[1]
    assert {"harness.operators.blocks", "harness.operators.attention.forward"} <= set(modules[0])


ONE = (
    "from harness.operators import Attention, GroupedMatmul, Matmul, Member, PagedAttention, Suite\n"
    "CHIP = 'v5e'\nN = 1024\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "def problem():\n    return Matmul(m=N, n=open('x').read(), k=N)",
        "def problem():\n    import os\n    return Matmul(m=N, n=N, k=N)",
        "def problem():\n    return Matmul(m=N, n=N, k=__import__('os'))",
        "def problem():\n    return Matmul(m=N.__class__, n=N, k=N)",
        "def problem():\n    return (lambda: Matmul(m=N, n=N, k=N))()",
        "def problem():\n    return problem()",
        "BIG = 9**9**9\ndef problem():\n    return Matmul(m=N, n=N, k=N)",
        "BIG = 2**200 * 2**200\ndef problem():\n    return Matmul(m=N, n=N, k=N)",
        "LONG = 'x' * 10**9\ndef problem():\n    return Matmul(m=N, n=N, k=N)",
        "MANY = [[[0 for a in X] for b in X] for c in X]\ndef problem():\n    return Matmul(m=N, n=N, k=N)".replace(
            "X", "(" + "0, " * 100 + ")"
        ),
        "ROUND = round(5, -10**9)\ndef problem():\n    return Matmul(m=N, n=N, k=N)",
        # Each name stands for twice as much as the name before it.
        "A0 = (1, 2)\n" + "".join(f"A{n} = (A{n - 1}, A{n - 1})\n" for n in range(1, 60)) + "SAME = A59 == A58\n",
        "M0 = 1\n" + "".join(f"M{n} = Member(name=M{n - 1}, problem=M{n - 1})\n" for n in range(1, 60)),
        "DEEP = " + "-" * 5000 + "1\ndef problem():\n    return Matmul(m=N, n=N, k=N)",
        "class Own:\n    pass\ndef problem():\n    return Own()",
        "@print\ndef problem():\n    return Matmul(m=N, n=N, k=N)",
        "while True:\n    pass",
        "from harness.operators import complaints\ndef problem():\n    return Matmul(m=N, n=N, k=N)",
        "def problem():\n    return Matmul(m=N, n=N)",
        "if CHIP:\n    open('x')\ndef problem():\n    return Matmul(m=N, n=N, k=N)",
    ],
)
def test_what_is_more_than_data_is_not_read_as_data(text: str) -> None:
    assert problem_of(f"{ONE}{text}\n") is None
    assert problem_of(f"{ONE}def problem():\n    return Matmul(m=N, n=N, k=N)\n") is not None


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "read", "refused"),
    [
        ("Matmul(m=N, n=N, k=SIZE)", 2**31 - 1, 2**31),
        ("GroupedMatmul(m=N, n=N, k=N, groups=SIZE)", 2**22, 2**22 + 1),
        ("Attention(heads=1, sequence=4096, head_dim=128, scale=1, causal=True, segments=8, batch=SIZE)", 2**10, 2**11),
        (
            "PagedAttention(sequences=32, pages=4096, page_size=16, pages_per_sequence=SIZE, heads=8, kv_heads=2, "
            "head_dim=128)",
            2**10,
            2**17,
        ),
        (
            "Suite(members=tuple(Member(name=f'm{i}', problem=GroupedMatmul(m=N, n=N, k=N, groups=SIZE)) "
            "for i in (1, 2, 3, 4)))",
            2**20,
            2**20 + 1,
        ),
    ],
)
def test_a_problem_that_is_large_to_state_is_not_stated_here(text: str, read: int, refused: int) -> None:
    for size, is_read in ((read, True), (refused, False)):
        stated = problem_of(f"{ONE}SIZE = {size}\ndef problem():\n    return {text}\n")
        assert (stated is not None) is is_read
        if stated is not None:
            stated.statement()


# --- a problem of the contest's own ----------------------------------------------------------------


def planted(folder: Path, marker: Path) -> Path:
    """A contest whose prepare.py and kernel.py write a file where they are run, as far as they can."""
    folder.mkdir(parents=True)
    for name in ("prepare.py", "kernel.py"):
        plant = (
            f"try:\n    with open({str(marker)!r}, 'a') as stream:\n        stream.write('{name}')\n"
            "except OSError:\n    pass\n"
        )
        (folder / name).write_text((SOFTMAX / name).read_text() + plant)
    return into_repository(folder, "a contest of its own")


@NEEDS_LANDLOCK
def test_a_problem_of_its_own_is_never_loaded_here(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    contest = contests.load(planted(tmp_path / "own", marker))
    problem = contest.problem
    assert isinstance(problem, confined.Confined)
    assert not marker.exists()
    ours = Path(contest.directory / "prepare.py").read_bytes()
    digest = hashlib.sha256(ours).hexdigest()[:16]
    assert not any(prepare_module.is_prepare(name) and name.endswith(digest) for name in sys.modules)
    with pytest.raises(RuntimeError, match="computes in confined children alone"):
        problem.make_inputs("peaks", 1)
    # The judge's children get the same problem as running it here gives.
    real = pickle.loads(pickle.dumps(problem))
    assert prepare_module.is_prepare(type(real).__module__)
    assert real.statement() == problem.statement()
    assert real.families(True) == problem.families(True)
    assert [shape.statement() for shape in real.reduced()] == [shape.statement() for shape in problem.reduced()]
    first = next(problem.reduced())
    second, other = problem.second_shape(first), real.second_shape(next(real.reduced()))
    assert second is not None
    assert other is not None
    assert second.statement() == other.statement()
    assert [probe.name for probe in problem.probes(True, 0)] == [probe.name for probe in real.probes(True, 0)]


@NEEDS_LANDLOCK
def test_a_suite_of_its_own(tmp_path: Path) -> None:
    folder = planted(tmp_path / "own", tmp_path / "ran")
    text = (folder / "prepare.py").read_text()
    suite = (
        "\n\ndef problem():\n    from harness.operators import Member, Suite\n    return Suite(members=("
        "Member(name='a', problem=Softmax(rows=512, columns=256)), "
        "Member(name='b', problem=Softmax(rows=1024, columns=256), weight=2)))\n"
    )
    (folder / "prepare.py").write_text(text + suite)
    problem = contests.load(folder).problem
    assert isinstance(problem, Suite)
    assert [(member.name, member.weight, type(member.problem)) for member in problem.members] == [
        ("a", 1.0, confined.Confined),
        ("b", 2, confined.Confined),
    ]
    assert problem.statement().members is not None


@pytest.mark.long
@NEEDS_LANDLOCK
def test_large_tables_are_read_and_very_large_ones_are_named() -> None:
    stated = HOUSE / "harness" / "selftest" / "candidates" / "contests" / "first_largest.py"
    text = stated.read_text()
    ours = prepare_module.run(text.replace("ROWS = 256", "ROWS = 2048").encode(), "prepare.py").problem()
    problem, _ = confined.read(text.replace("ROWS = 256", "ROWS = 2048").encode(), "prepare.py")
    assert isinstance(problem, confined.Confined)
    assert np.array_equal(problem.timing_inputs()["any"]["x"], ours.timing_inputs()["any"]["x"])
    larger = text.replace("ROWS = 256", "ROWS = 1 << 18")
    with pytest.raises(RatchetError, match=r"timing inputs .* of at most 67,108,864 bytes, got 134,217,728"):
        confined.read(larger.encode(), "prepare.py")


def test_where_nothing_can_be_confined_it_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "landlock_version", lambda: None)
    with pytest.raises(RatchetError) as caught:
        contests.load(planted(tmp_path / "own", tmp_path / "ran"))
    assert caught.value.kind == "unconfined-prepare"
    assert not (tmp_path / "ran").exists()


# Every verb that only reads, as it is called for a contest without attempts.
READING = ("status", "next", "results", "show 1", "report", "plot", "fsck", "predict", "attack --repeat nothing")
# These judge kernel.py first, in its children.
JUDGING = ("diagnose", "lines", "whatif", "timeline", "hlo", "doctor", "judge")


@pytest.fixture(scope="module")
def contest_with_marker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("planted")
    marker = folder / "ran"
    yield planted(folder / "own", marker), marker
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
@NEEDS_LANDLOCK
@pytest.mark.parametrize("words", [*READING, *(pytest.param(words, marks=pytest.mark.slow) for words in JUDGING)])
def test_no_reading_verb_runs_a_contest(words: str, contest_with_marker: tuple[Path, Path]) -> None:
    assert words.split()[0] in EVERY
    folder, marker = contest_with_marker
    done = ratchet(folder, *words.split())
    assert done.returncode in (0, 1, 2, 4), done.stderr
    assert not marker.exists(), f"{words}: {marker.read_text()} was run"
