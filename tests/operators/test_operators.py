"""A problem of a contest's own, as docs/OPERATORS.md prints it: judged end to end, and refused where it is wrong."""

import ast
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from loop_fixtures import PROJECT, into_repository, ratchet
from planted import request

from harness import contest as contests
from harness.candidate import constants
from harness.errors import RatchetError
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.trace.imports import flags
from harness.loop import scaffold
from harness.operators import Problem, complaints, prepare_module
from harness.operators.probes import Part
from harness.records import ExpectedCount, Work
from harness.sandbox.messages import Rejected

pytestmark = pytest.mark.long

PAGE = (Path(PROJECT) / "docs" / "OPERATORS.md").read_text(encoding="utf-8")
PROGRAMS = [text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if text.startswith('"""')]
FIRST_PREPARE, FIRST_KERNEL, PREPARE, KERNEL = PROGRAMS
FILES = ("prepare.py", "kernel.py")
# A problem of one page without tables, to break in all ways.
SOFTMAX = Path(PROJECT) / "tests" / "fixtures" / "softmax"
SMALL = (SOFTMAX / "prepare.py").read_text().replace("ROWS = 4096", "ROWS = 512").replace("= 2048", "= 256")


def contest(folder: Path, prepare: str = SMALL, kernel: str = (SOFTMAX / "kernel.py").read_text()) -> Path:
    """A contest of this prepare.py and kernel.py."""
    folder.mkdir(parents=True)
    (folder / "prepare.py").write_text(prepare)
    (folder / "kernel.py").write_text(kernel)
    return folder


def committed(folder: Path) -> Path:
    return into_repository(folder, "A contest of its own")


# --- End to end --------------------------------------------------------------------------------


def test_the_problem_of_the_page_is_judged(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    small = PREPARE.replace("= 4096, 8, 1024, 1024", "= 512, 4, 256, 256")
    assert small != PREPARE
    folder = committed(contest(tmp_path / "grouped", small, KERNEL))
    printed = ratchet(folder, "judge", expect=0).stdout
    assert printed.startswith("PASSED  grouped matmul of 512 rows in 4 groups, 256 x 256, bfloat16")
    assert re.search(r"Timing inputs: +balanced [\d.]+ us · skewed [\d.]+ us \[simulated v5e", printed)


@pytest.mark.slow
def test_the_formula_of_the_page_is_judged_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    sizes = (("ROWS", "512"), ("COLUMNS", "256"))
    scaffold.scaffold(tmp_path / "mine", scaffold.FORMULA, sizes)
    folder = committed(tmp_path / "mine")
    assert ratchet(folder, "judge", expect=0).stdout.startswith("PASSED  bias gelu, rows 512, columns 256")
    (folder / "kernel.py").write_text(FIRST_KERNEL.replace("b_ref[...]", "b_ref[:, :1]"))
    assert "wrong-result" in ratchet(folder, "judge", expect=1).stdout


def test_the_page_prints_what_new_writes() -> None:
    assert [scaffold.text(scaffold.FORMULA, name).decode() for name in FILES] == [FIRST_PREPARE, FIRST_KERNEL]


def test_the_problem_of_the_page_is_stated_in_sixty_lines() -> None:
    for page, name, most in ((FIRST_PREPARE, "class BiasGelu", 15), (PREPARE, "class Grouped", 60)):
        body = page[page.index(name) : page.index("def problem()")].splitlines()
        assert len([line for line in body if line.strip() and not line.strip().startswith(("#", '"""'))]) <= most


@pytest.mark.slow
def test_a_wrong_kernel_of_the_page_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    wrong = KERNEL.replace("(row >= start_ref[group]) & ", "")
    assert wrong != KERNEL
    small = PREPARE.replace("= 4096, 8, 1024, 1024", "= 512, 4, 256, 256")
    done = ratchet(committed(contest(tmp_path / "grouped", small, wrong)), "judge", expect=1)
    assert "wrong-dependence" in done.stdout or "wrong-result" in done.stdout


@pytest.mark.slow
def test_a_wrong_softmax_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    kernel = (SOFTMAX / "kernel.py").read_text()
    wrong = kernel.replace("jnp.exp(x - x.max(axis=1, keepdims=True))", "jnp.exp(x)")
    assert wrong != kernel
    done = ratchet(committed(contest(tmp_path / "softmax", kernel=wrong)), "judge", expect=1)
    assert "non-finite" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("like", "settings", "title"),
    [
        ("attention-causal", {"SEQUENCE": 2048}, "sequence 2048, head_dim 128, bfloat16, causal"),
        ("attention-causal", {"SEQUENCE": 1024, "HEADS": 8}, "8 heads, sequence 1024, head_dim 128, bfloat16, causal"),
        ("attention", {"SEQUENCE": 512, "HEADS": 4, "KV_HEADS": 2, "BATCH": 2}, "batch 2, 4 heads over 2 key/value"),
        ("attention-gqa", {"SEQUENCE": 1024, "HEADS": 8, "KV_HEADS": 2}, "8 heads over 2 key/value heads"),
        ("attention-gqa", {"BATCH": 1, "SEQUENCE": 1024, "HEADS": 4, "KV_HEADS": 2}, "4 heads over 2 key/value heads"),
        ("matmul", {"M": 2048, "N": 1024, "K": 2048}, "matmul C = A B, 2048 x 1024 x 2048"),
        (
            "attention-backward",
            {"SEQUENCE": 1024},
            "attention backward, 2 heads, sequence 1024, head_dim 128, bfloat16",
        ),
        ("attention-backward", {"SEQUENCE": 512, "HEADS": 1, "CAUSAL": True}, "1 head, sequence 512, head_dim 128"),
        ("attention-training", {"SEQUENCE": 512, "HEADS": 4, "KV_HEADS": 2}, "suite of 2: forward"),
        ("grouped-matmul", {"M": 1024, "GROUPS": 4, "K": 1024, "N": 1024}, "grouped matmul, 1024 rows in 4 groups"),
        (
            "grouped-matmul-transposed",
            {"M": 1024, "GROUPS": 4, "K": 1024, "N": 1024},
            "transposed grouped matmul, 1024 rows in 4 groups",
        ),
        ("rmsnorm", {"ROWS": 1024, "COLUMNS": 1024}, "rmsnorm of a sum with a residual, 1024 rows of 1024"),
        ("rmsnorm", {"ROWS": 1024, "COLUMNS": 1024, "RESIDUAL": False, "EPS": 1e-5}, "rmsnorm, 1024 rows of 1024"),
        ("swiglu", {"TOKENS": 1024, "MODEL": 1024, "HIDDEN": 1024}, "swiglu silu(X Wg) * (X Wu), 1024 tokens"),
        ("swiglu", {"TOKENS": 1024, "MODEL": 1024, "HIDDEN": 1024, "DOWN": True}, "swiglu (silu(X Wg) * (X Wu)) Wd"),
    ],
)
def test_every_template_is_right_as_it_comes(
    like: str, settings: dict[str, object], title: str, tmp_path: Path
) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    folder = tmp_path / like
    scaffold.scaffold(folder, like, tuple((name, str(value)) for name, value in settings.items()))
    printed = ratchet(committed(folder), "judge", "--full", expect=0).stdout
    assert title in printed.splitlines()[0]
    # The kernel's claims on its tiling agree with its trace, and every counter is as expected.
    assert "get_tiling_meta" not in printed
    if like == "rmsnorm":
        # At this size latency binds; at every size, bytes take far more time than arithmetic.
        assert "(memory side: " in printed
        assert "none in matmuls" in printed


def test_a_constant_of_both_files_of_a_template_is_the_same_thing() -> None:
    # `new --set` rewrites it in both: a block's rows called ROWS would become the problem's.
    for like in scaffold.templates():
        prepare, kernel = (dict(constants(scaffold.text(like, name))) for name in FILES)
        for name in prepare.keys() & kernel.keys():
            assert kernel[name] == prepare[name], f"{like}: {name}"


def test_templates_state_the_same_constants_in_both_files(tmp_path: Path) -> None:
    assert {"attention", "grouped-matmul", "matmul", "rmsnorm", "swiglu"} <= set(scaffold.templates())
    scaffold.scaffold(tmp_path / "norm", "rmsnorm", (("EPS", "1e-3"), ("COLUMNS", "512")))
    assert "EPS = 1e-3\n" in (tmp_path / "norm" / "kernel.py").read_text()
    statement = contests.load(tmp_path / "norm").problem.statement()
    assert dict(statement.parameters)["eps"] == 1e-3
    with pytest.raises(RatchetError, match="BATCH is not assigned"):
        scaffold.scaffold(tmp_path / "other", "rmsnorm", (("BATCH", "2"),))
    assert not (tmp_path / "other").exists()


# --- The judge's hash and the children ---------------------------------------------------------


def test_the_judges_hash_covers_the_problem(tmp_path: Path) -> None:
    first = contests.load(contest(tmp_path / "a"))
    easier = contests.load(contest(tmp_path / "b", SMALL.replace("+ tiny**2", "+ tiny**2 + 1")))
    assert first.problem.statement() == easier.problem.statement()
    assert first.key("simulated").judge != easier.key("simulated").judge
    assert contests.load(contest(tmp_path / "c")).key("simulated") == first.key("simulated")


def test_another_process_computes_the_same_problem(tmp_path: Path) -> None:
    pickled = pickle.dumps(contests.load(contest(tmp_path / "softmax")).problem)
    problem = pickle.loads(pickled)
    assert type(problem).__name__ == "Softmax"
    (tmp_path / "problem.pickle").write_bytes(pickled)
    (tmp_path / "softmax" / "prepare.py").unlink()
    code = (
        "import pickle, sys; p = pickle.load(open(sys.argv[1], 'rb')); s = next(p.reduced());"
        "print(p.statement().title, s.statement().inputs[0].shape, float(s.make_inputs('peaks', 3)[0][0, 0]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "problem.pickle")],
        cwd=tmp_path,
        env={"PYTHONPATH": PROJECT},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    small = next(problem.reduced())
    first = float(small.make_inputs("peaks", 3)[0][0, 0])
    assert done.stdout.split("\n")[0] == f"softmax of 512 rows of 256, bfloat16 (64, 256) {first}"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("def honest(self", "def candid(self"), "a Softmax without honest"),
        (("return Softmax(rows=ROWS, columns=COLUMNS)", "return 5"), "a int without statement, families"),
        (('CHIP = "v5e"', "CHIP = 5"), "expected CHIP to be a name such as 'v5e', got 5"),
        (('CHIP = "v5e"', "CHIP = colour"), "NameError: name 'colour' is not defined"),
        (("import ml_dtypes\n", "import beside_it\nimport ml_dtypes\n"), "No module named 'beside_it'"),
        (('CHIP = "v5e"', "CHIP = open(__file__).read()"), "NameError: name '__file__' is not defined"),
        (("return Softmax(rows=ROWS", "return dict(rows=ROWS"), "a dict without statement"),
    ],
)
def test_a_prepare_that_is_no_judge_is_refused_by_name(
    edit: tuple[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert edit[0] in SMALL
    folder = contest(tmp_path / "own", SMALL.replace(*edit))
    (folder / "beside_it.py").write_text("SIZE = 4\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "beside_it", raising=False)
    # It is refused the second time too, when Python has already loaded what it imports.
    for _ in range(2):
        with pytest.raises(RatchetError) as caught:
            contests.load(folder)
        assert caught.value.kind == "bad-prepare"
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("edits", "kind", "words"),
    [
        ({"timing_inputs": "timings"}, "bad-problem", "to state the contents of sizes"),
        ({"_rng(0))} for": "_rng(0))[1:]} for"}, "bad-problem", "balanced: expected sizes of shape [8], got [7]"),
        (
            {"_rng(0))} for": "_rng(0)) - 999} for"},
            "bad-problem",
            "expected sizes to hold numbers from 0 to 4096, got -",
        ),
        ({"high=self.m": "high=None"}, "bad-problem", "expected sizes, which holds integers, to state its smal"),
    ],
)
def test_tables_that_cannot_be_are_refused_before_anything_is_compiled(
    edits: dict[str, str], kind: str, words: str, tmp_path: Path
) -> None:
    prepare = PREPARE
    for old, new in edits.items():
        assert old in prepare
        prepare = prepare.replace(old, new)
    folder = committed(contest(tmp_path / "own", prepare, KERNEL))
    done = ratchet(folder, "judge", expect=4)
    assert f"[{kind}]" in done.stderr
    assert words in done.stderr
    assert not list((folder / "profile_data").rglob("dumps"))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_dtype_that_the_chip_lacks_is_refused_before_anything_is_compiled(dtype: str, tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match=rf"kernel on v5e can load, got x: {dtype}, y: {dtype}") as caught:
        evaluation.evaluate(request(tmp_path, "", of_dtype(dtype)))
    assert caught.value.kind == "dtype-not-on-chip"
    assert not list(tmp_path.iterdir())


def test_a_class_from_elsewhere_is_refused() -> None:
    module = ModuleType("contest_prepare_0")
    with pytest.raises(ValueError, match=r"expected the class of problem\(\) to be defined in prepare.py"):
        prepare_module.require_home(module, Plain(rows=512, columns=256))


def test_a_kernel_may_not_import_the_prepare_it_is_judged_by(tmp_path: Path) -> None:
    problem = pickle.loads(pickle.dumps(contests.load(contest(tmp_path / "softmax")).problem))
    home = type(problem).__module__
    with pytest.raises(Rejected) as caught:
        flags(ast.parse(f"import jax\nfrom {home} import Softmax\n"))
    assert caught.value.failure.kind == "forbidden-import"


# --- What is checked of a problem --------------------------------------------------------------

_OWN: dict[str, Any] = {"__name__": __name__}
exec(compile(SMALL, "prepare.py", "exec"), _OWN)
Plain: Any = _OWN["Softmax"]
Softmax: Any = type("Softmax", (Plain,), {"__module__": __name__})
PLAIN = Softmax(rows=512, columns=256)


def of_dtype(dtype: str) -> Any:
    """The problem with another dtype in its arrays; its inputs are still bfloat16, which is not looked at."""

    def statement(self: Any) -> Any:
        arrays = {
            name: tuple(replace(array, dtype=dtype) for array in getattr(Plain.statement(self), name))
            for name in ("inputs", "outputs")
        }
        return replace(Plain.statement(self), **arrays)

    return type("OfDtype", (Softmax,), {"statement": statement})(rows=512, columns=256)


def test_the_problem_of_the_page_keeps_the_rules() -> None:
    assert complaints(PLAIN) == ()


def stated(**changes: Any) -> Any:
    return lambda self: replace(Plain.statement(self), **changes)


def split(axes: tuple[str | None, ...], **changes: Any) -> Any:
    """The problem with all its arrays split so."""

    def statement(self: Any) -> Any:
        plain = Plain.statement(self)
        arrays = {
            name: tuple(replace(array, split=axes) for array in getattr(plain, name)) for name in ("inputs", "outputs")
        }
        return replace(plain, **arrays, **{"work": INCOMING, **changes})

    return statement


def still(self: Any, full: bool, seed: int) -> Any:
    """Probes that promise that changed rows do not move."""
    return tuple(replace(probe, stays=probe.moves) for probe in Plain.probes(self, full, seed))


def promising(self: Any, full: bool, seed: int) -> Any:
    """Probes that promise that all rows move."""
    every = (Part(rows=range(self.rows), columns=range(self.columns)),)
    return tuple(replace(probe, moves=every, stays=()) for probe in Plain.probes(self, full, seed))


NOTHING = Work(matmul_flops=0, vector_flops=0, minimum_hbm_bytes=1)
MUCH = Work(matmul_flops=1, vector_flops=0, minimum_hbm_bytes=1 << 40)
CHIPS: dict[str, Any] = {"mesh": (("x", 4),)}
INCOMING = Work(matmul_flops=0, vector_flops=1, minimum_hbm_bytes=1, link_bytes=1)
UNSPLIT = Work(matmul_flops=0, vector_flops=1, minimum_hbm_bytes=524_288, link_bytes=1)
TWICE = (ExpectedCount(counter="exp", low=1, high=1, more=""),) * 2


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"statement": stated(work=NOTHING)}, "expected useful work of more than 0 FLOPs"),
        ({"statement": stated(work=MUCH)}, "expected minimum_hbm_bytes of at most 524,288"),
        ({"statement": split(("x", None), **CHIPS, work=UNSPLIT)}, "of at most 131,072 on each chip"),
        ({"statement": stated(outputs=())}, "expected inputs and outputs whose names are Python identifiers"),
        ({"statement": stated(work=INCOMING)}, "expected no link_bytes without a mesh, got 1"),
        ({"statement": stated(**CHIPS)}, "expected link_bytes of at least 1"),
        ({"statement": stated(**CHIPS, work=INCOMING)}, "expected an input or output that is split over the mesh, x=4"),
        ({"statement": stated(mesh=(("x", 1),), work=INCOMING)}, "expected a mesh of 2 chips or more"),
        ({"statement": split(("x", None))}, "expected x to be split over axes of the mesh, no mesh, got x"),
        ({"statement": split(("y", None), **CHIPS)}, "expected x to be split over axes of the mesh, x=4, got y"),
        ({"statement": split(("x", "x"), **CHIPS)}, "expected x to be split over each axis once, got x, x"),
        ({"statement": split(("x",), **CHIPS)}, "expected x to name an axis, or None, for each of 2 dimensions"),
        ({"statement": split((None, "x"), mesh=(("x", 3),))}, "expected the chips, x=3, to divide x, [512, 256]"),
        ({"statement": split(("x", None), mesh=(("x", 128),))}, "to divide x, [64, 256] at a reduced shape"),
        ({"statement": stated(expected=TWICE)}, "expected each counter once, got exp, exp"),
        ({"statement": lambda self: self.nothing}, "the statement cannot be tried: AttributeError"),
        ({"reduced": lambda self: iter((self,))}, "expected reduced shapes to be smaller than the whole"),
        ({"second_shape": lambda self, small: small}, "expected second_shape() to give another shape"),
        ({"families": lambda self, full: ()}, "expected families(full=False) to name families"),
        ({"make_inputs": lambda self, family, seed: Plain.make_inputs(self, "normal", seed)}, "to raise ValueError"),
        ({"make_inputs": lambda self, family, seed: Plain.make_inputs(self, family, 1)}, "got the same: a kernel"),
        ({"make_inputs": lambda self, family, seed: (np.ones(3),)}, "normal: expected inputs x [64, 256]"),
        ({"sample_rows": lambda self, seed: np.array([3, 1])}, "sorted and distinct"),
        ({"sample_rows": lambda self, seed: np.arange(self.rows - 1)}, "to have the first and the last row, 0 and 511"),
        ({"rounding": lambda self, inputs, rows: 4 * Plain.rounding(self, inputs, rows)}, "rounded too coarsely"),
        ({"reference": lambda self, inputs, rows: np.zeros((1, 1))}, "expected reference() to give float64[64, 256"),
        ({"honest": lambda self, inputs, rows: 1.1 * Plain.honest(self, inputs, rows)}, "rounding() leaves something"),
        ({"rounding": lambda self, inputs, rows: 1 + Plain.rounding(self, inputs, rows)}, "filled with zeros passes"),
        ({"rounding": lambda self, inputs, rows: 0 * Plain.rounding(self, inputs, rows)}, "to be positive everywhere"),
        ({"probes": lambda self, full, seed: ()}, "expected probes at a reduced shape"),
        ({"probes": still}, "moved, and should not have"),
        ({"probes": promising}, "should have moved, and did not"),
    ],
)
def test_a_problem_that_breaks_a_rule_is_told_which(broken: dict[str, Any], words: str) -> None:
    problem: Problem = type("Broken", (Softmax,), {"__module__": __name__, **broken})(rows=512, columns=256)
    globals()["Broken"] = type(problem)
    sentences = complaints(problem)
    assert any(words in complaint for complaint in sentences), sentences
