"""A new contest: in a repository or where there is none, with constants that make a problem or leave nothing behind."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from git import Repo
from loop_fixtures import PROJECT, ratchet

from harness import contest as contests
from harness.candidate import Candidate, constants, names
from harness.errors import RatchetError
from harness.loop import find_function, scaffold
from harness.shell.main import main

pytestmark = pytest.mark.long

FILES = ["prepare.py", "kernel.py", ".gitignore"]


def test_the_page_has_the_sizes_of_every_template() -> None:
    page = Path(PROJECT, "docs", "KERNELS.md").read_text()
    table = page.partition("## Sizes of the templates")[2].partition("\n## ")[0]
    rows = [re.findall(r"`([\w-]+)`", line) for line in table.splitlines()[4:] if line.startswith("|")]
    stated = {
        name: {word for word in row if word not in scaffold.templates()}
        for row in rows
        for name in row
        if name in scaffold.templates()
    }
    needed = {
        name: set(names(scaffold.text(name, "prepare.py"))) - {"OPERATION", "CHIP"} for name in scaffold.templates()
    }
    assert stated == needed


@pytest.mark.parametrize("template", scaffold.starts())
def test_a_comment_on_a_constant_is_true_of_every_value(template: str) -> None:
    """`--set` changes the value, not the comment: a comment has no numbers, and a flag's names the value it is about.

    The number of a type (float32) does not count, nor does 0, or a negative number.
    """
    text = scaffold.text(template, "prepare.py").decode()
    for name, value, comment in re.findall(r"^(?!OPERATION)([A-Z_]+) = (.+?)  # (.*)$", text, re.M):
        numbers = re.findall(r"(?<![\w-])[1-9]\d*\b", comment)
        assert not numbers, f"{name}: {comment}"
        if value in ("True", "False"):
            assert comment.startswith(("True: ", "False: ")), f"{name}: {comment}"


def sets(**constants_: object) -> list[str]:
    return [f"--set={name}={value}" for name, value in constants_.items()]


def committed(repository: Path) -> list[str]:
    """The paths that HEAD has; nothing else lies in the working tree."""
    repo = Repo(repository)
    assert not repo.is_dirty(untracked_files=True)
    return sorted(str(blob.path) for blob in repo.head.commit.tree.traverse() if blob.type == "blob")  # type: ignore[union-attr]


def test_a_folder_in_no_repository_becomes_one(tmp_path: Path) -> None:
    small = ("--chip", "v6e", "--set", "HEADS=8", "--set", "SEQUENCE=512")
    done = ratchet(tmp_path, "new", "deep/mine", "--like", "attention-causal", *small, expect=0)
    assert "made a git repository" in done.stdout
    assert "does not trace" not in done.stdout
    folder = tmp_path / "deep" / "mine"
    assert committed(folder) == sorted(FILES)
    assert contests.load(folder).chip.name == "v6e"
    # Key/value heads follow the heads unless they are set.
    assert dict(contests.load(folder).problem.statement().parameters)["kv_heads"] == 8


def test_a_repository_without_a_commit_gets_its_first(tmp_path: Path) -> None:
    Repo.init(tmp_path).close()
    done = ratchet(tmp_path, "new", "mine", "--like", "rmsnorm", "--set", "COLUMNS=4*2**8")
    assert "git repository" not in done.stdout
    assert committed(tmp_path) == sorted(f"mine/{name}" for name in FILES)
    assert ("COLUMNS", "4 * 2 ** 8") in constants((tmp_path / "mine" / "prepare.py").read_bytes())


def test_a_repository_that_ignores_the_files_of_judgements_needs_no_second_gitignore(tmp_path: Path) -> None:
    Repo.init(tmp_path).close()
    (tmp_path / ".gitignore").write_text("/mine/profile_data/\n__pycache__/\n")
    done = ratchet(tmp_path, "new", "mine", "--like", "rmsnorm", expect=0)
    assert "made prepare.py, kernel.py in" in done.stdout
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["kernel.py", "prepare.py"]
    # There, only one of the two folders is ignored.
    ratchet(tmp_path, "new", "other", "--like", "rmsnorm", expect=0)
    assert (tmp_path / "other" / ".gitignore").is_file()
    # Other clones do not have this file.
    (tmp_path / ".git" / "info" / "exclude").write_text("/third/profile_data/\n")
    ratchet(tmp_path, "new", "third", "--like", "rmsnorm", expect=0)
    assert (tmp_path / "third" / ".gitignore").is_file()


FLASH = "jax.experimental.pallas.ops.tpu.flash_attention:flash_attention"


def test_a_function_is_not_called_for_a_problem_that_is_yet_to_be_written(tmp_path: Path) -> None:
    done = ratchet(tmp_path, "new", "mine", "--from", FLASH, "--like", "formula", expect=4)
    assert f"expected --like to name the operation of {FLASH}, got `formula`, whose" in done.stderr
    assert not (tmp_path / "mine").exists()


def test_a_contest_around_a_published_kernel(tmp_path: Path) -> None:
    small = ["--set", "SEQUENCE=512", "--set", "HEADS=2", "--set", "BLOCK_Q=256", "--set", "BLOCK_K=256"]
    done = ratchet(tmp_path, "new", "mine", "--quiet", "--from", FLASH, "--like", "attention-causal", *small, expect=0)
    assert "right at small shapes" in done.stdout
    assert "[simulated v5e]" in done.stdout
    folder = tmp_path / "mine"
    assert committed(folder) == sorted(FILES)
    values = dict(constants((folder / "kernel.py").read_bytes()))
    assert (values["BLOCK_Q"], values["CAUSAL"], values["SCALE"]) == ("256", "True", repr(128**-0.5))
    # The reference is the problem's.
    assert "jax.experimental" not in (folder / "prepare.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "like", "block"),
    [
        ("paged_attention:paged_attention", "paged-attention", "PAGES_PER_COMPUTE_BLOCK"),
        ("ragged_paged_attention:ragged_paged_attention", "ragged-paged-attention", "NUM_KV_PAGES_PER_BLOCK"),
    ],
)
def test_a_contest_around_a_published_kernel_with_tables(tmp_path: Path, name: str, like: str, block: str) -> None:
    tokens = {"TOKENS": 64} if "ragged" in like else {}
    small = sets(SEQUENCES=8, PAGES=64, PAGES_PER_SEQUENCE=8, **{block: 2}, **tokens)
    wanted = f"jax.experimental.pallas.ops.tpu.{name}"
    done = ratchet(tmp_path, "new", "mine", "--quiet", "--from", wanted, "--like", like, *small, expect=0)
    assert "right at small shapes" in done.stdout
    assert "[simulated v5e]" in done.stdout
    values = dict(constants((tmp_path / "mine" / "kernel.py").read_bytes()))
    assert (values[block], values["SCALE"]) == ("2", repr(1 / math.sqrt(128)))


@pytest.mark.slow
def test_state_is_changed_where_it_lies(tmp_path: Path) -> None:
    small = sets(TOKENS=64, SEQUENCES=6, PAGES=400, PAGES_PER_SEQUENCE=4)
    ratchet(tmp_path, "new", "mine", "--quiet", "--like", "ragged-paged-attention-update", *small, expect=0)
    done = ratchet(tmp_path / "mine", "judge", "--quiet", "--json", expect=0)
    evidence = json.loads(done.stdout)["evidence"]
    assert {check["family"] for check in evidence["checks"] if check["criterion"] == "state"}
    assert all(check["passed"] for check in evidence["checks"])
    moved = sum(evidence["simulation"][name] for name in ("hbm_read_bytes", "hbm_written_bytes"))
    # Unchanged data are not moved: the pages alone are 26 MB.
    assert moved < 400 * 64 * 4 * 128 * 2 / 4


def test_a_function_without_a_wrapper_gets_its_options_as_constants(tmp_path: Path) -> None:
    product = "jax.experimental.pallas.ops.tpu.matmul:matmul"
    small = sets(M=512, N=512, K=512)
    arguments = ("new", "mine", "--quiet", "--from", product, "--like", "matmul", *small)
    refused = ratchet(tmp_path, *arguments, expect=4)
    assert "needs BLOCK_SHAPE" in refused.stderr
    assert not (tmp_path / "mine").exists()
    done = ratchet(tmp_path, *arguments, "--set", "BLOCK_SHAPE=(256,256)", expect=0)
    assert "with the arrays as they are; it is right at small shapes" in done.stdout
    values = dict(constants((tmp_path / "mine" / "kernel.py").read_bytes()))
    assert (values["BLOCK_SHAPE"], values["BLOCK_K"]) == ("(256, 256)", "256")


NORM = """
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from sizes import ROWS


def _body(x_ref, w_ref, y_ref, *, eps):
    x = x_ref[...].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps)
    y_ref[...] = (x * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)


def norm(x, w, eps=1e-5, rows=ROWS):
    block = pl.BlockSpec((rows, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        functools.partial(_body, eps=eps),
        grid=(x.shape[0] // rows,),
        in_specs=[block, pl.BlockSpec((1, x.shape[1]), lambda i: (0, 0))],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, w[None])
"""
NORM_SIZES = tuple(word for size in ("RESIDUAL=False", "ROWS=256", "COLUMNS=1024") for word in ("--set", size))


def test_a_function_of_a_file_is_copied_with_the_files_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(NORM)
    (tmp_path / "sizes.py").write_text("ROWS = 128\n")
    (tmp_path / "other.py").write_text("raise SystemExit('never imported')\n")
    like = ("new", "mine", "--quiet", "--like", "rmsnorm", *NORM_SIZES)
    refused = ratchet(tmp_path, *like, "--from", "kernel.py:nrm", expect=4)
    assert "no function nrm; it has _body, norm" in refused.stderr
    assert not (tmp_path / "mine").exists()
    done = ratchet(tmp_path, *like, "--from", "kernel.py:norm", expect=0)
    assert "kernel.py calls norm.py:norm with the arrays as they are; it is right at small shapes" in done.stdout
    assert "copied norm.py, sizes.py to the folder of kernel.py" in done.stdout
    folder = tmp_path / "mine"
    assert committed(folder) == sorted((*FILES, "norm.py", "sizes.py"))
    assert (folder / "norm.py").read_text() == NORM
    values = dict(constants((folder / "kernel.py").read_bytes()))
    # The helper has a constant ROWS, which `--set` finds by its name.
    assert (values["EPS"], values["NORM_ROWS"]) == ("1e-06", "256")
    Candidate.in_folder(folder).set((("ROWS", "64"),))


def test_a_function_that_a_file_brings_from_another_and_a_linked_file_are_taken(tmp_path: Path) -> None:
    (tmp_path / "norms.py").write_text(NORM)
    (tmp_path / "sizes.py").write_text("ROWS = 128\n")
    (tmp_path / "api.py").write_text("from norms import norm as ours\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.py").symlink_to(tmp_path / "norms.py")
    brought = find_function.target("api.py:ours", tmp_path)
    assert (brought.name, brought.node is not None) == ("api.py:ours", True)
    assert sorted(brought.helpers) == ["api.py", "norms.py", "sizes.py"]
    linked = find_function.target("elsewhere/link.py:norm", tmp_path)
    assert sorted(linked.helpers) == ["norms.py", "sizes.py"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("norms.py", "norms.py:FUNCTION; it has _body, norm"),
        ("norms.py:nrm", "no function nrm; it has _body, norm"),
        ("norms:norm", "write --from norms.py:norm"),
        ("nowhere.py:norm", "found no file"),
        ("broken.py:norm", "broken.py is not valid Python: invalid syntax (broken.py, line 1)"),
        ("folder:norm", "write --from folder/FILE.py:norm"),
        ("relative.py:norm", "got a relative one in relative.py line 1"),
        ("inside.py:norm", "inside.py line 1 imports from the folder folder, but only files next to inside.py"),
        ("back.py:norm", "back.py line 1 imports kernel, but kernel.py has the name of one of the contest's own files"),
        ("shadow.py:norm", "shadow.py line 1 imports random, but random.py has the name of an installed module"),
        ("far.py:norm", "far.py line 1 imports linked, but linked.py is a symbolic link: replace it by a copy"),
        ("jax.experimental.pallas.ops.tpu.flash_attention", "package.module:function"),
        ("jax.experimental.pallas.ops.tpu.flash_attention:flash_attentio", "it has flash_attention"),
        ("no_such_package.kernels:attention", "an installed package, found none"),
        ("json:dumps", "an installed package, found none"),
        ("harness.shell.main:main", "an installed package, found none"),
        ("..jax:jit", "package.module:function"),
    ],
)
def test_what_is_no_function_of_a_file_or_package_is_refused_and_never_imported(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "norms.py").write_text(NORM)
    (tmp_path / "broken.py").write_text("def norm(:\n")
    (tmp_path / "folder").mkdir()
    for name, line in (
        ("relative", "from .sizes import ROWS"),
        ("inside", "from folder.sizes import ROWS"),
        ("back", "import kernel"),
        ("shadow", "from random import ROWS"),
        ("far", "import linked"),
        ("kernel", ""),
        ("random", ""),
    ):
        (tmp_path / f"{name}.py").write_text(f"{line}\n{NORM}")
    (tmp_path / "linked.py").symlink_to(tmp_path / "norms.py")
    with pytest.raises(RatchetError, match=re.escape(words)):
        find_function.target(text, tmp_path)


def test_a_name_that_a_package_hands_on_is_followed() -> None:
    target = find_function.target("jax.experimental.pallas.ops.tpu.splash_attention:make_splash_mha")
    assert (target.path.name, target.module.rpartition(".")[2]) == ("splash_attention_kernel.py", "splash_attention")


def test_a_class_may_be_what_is_called() -> None:
    target = find_function.target("jax.experimental.pallas.ops.tpu.splash_attention:CausalMask")
    assert (target.path.name, target.node) == ("splash_attention_mask.py", None)


def test_sizes_at_which_a_template_does_not_trace_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    refused = ratchet(tmp_path, "new", "mine", "--quiet", "--like", "attention", "--set", "SEQUENCE=1000", expect=4)
    assert "the kernel.py of attention does not trace with these constants" in refused.stderr
    assert "expected BQ to divide the sequence of 1000" in refused.stderr
    assert "set the kernel's own constants too (--set BQ=..., --set BKV=...)" in refused.stderr
    assert "start from another template of the operation (--like attention-causal, attention-gqa, " in refused.stderr
    assert not list(tmp_path.iterdir())
    blocks = ("--set", "SEQUENCE=1000", "--set", "BQ=200", "--set", "BKV=200")
    ratchet(tmp_path, "new", "mine", "--quiet", "--like", "attention", *blocks, expect=0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["--set", "HEADS=8", "--set", "KV_HEADS=3"], "expected kv_heads to divide heads, got heads=8, kv_heads=3"),
        (["--set", "CHIP=v9"], "v9"),
        (["--set", "NOTHING=1"], "NOTHING is not assigned"),
    ],
)
@pytest.mark.parametrize("is_repository", [True, False])
def test_constants_that_make_no_problem_leave_nothing(
    settings: list[str], expected: str, is_repository: bool, tmp_path: Path
) -> None:
    if is_repository:
        Repo.init(tmp_path).close()
    before = sorted(path.name for path in tmp_path.iterdir())
    refused = ratchet(tmp_path, "new", "deep/mine", "--like", "attention", *settings, expect=None)
    assert refused.returncode in (2, 4)
    assert expected in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "page.md").write_text("a page")
    (folder / "other.md").write_text("a page")
    assert main(["new", str(folder), "--like", "matmul"]) == 4
    assert f"got {folder}, which holds other.md and 1 more; nothing was written" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["other.md", "page.md"]


def test_what_templates_have_in_common_is_told_apart() -> None:
    text = "#: for a b c\nall\n#: a\none\n#: b c\nothers\n#: not c\n\n#: end\nend\n"
    for name, lines in (("a", "all\none\n\nend\n"), ("b", "all\nothers\n\nend\n"), ("c", "all\nothers\nend\n")):
        assert scaffold._of_template(text, name) == lines


def test_the_files_of_new_contests_are_in_order(tmp_path: Path) -> None:
    for like in scaffold.templates():
        for path in scaffold.scaffold(tmp_path / like, like, ()):
            assert "#: " not in path.read_text()
    # Templates share lines: a list of one operand is laid out like a list of several.
    as_they_share = ["--config", "format.skip-magic-trailing-comma=false"]
    for words in (["check"], ["format", "--check", *as_they_share]):
        command = [sys.executable, "-m", "ruff", *words, "--config", f"{PROJECT}/pyproject.toml", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("like", scaffold.templates())
def test_a_new_contest_refers_to_nothing_that_its_repository_lacks(tmp_path: Path, like: str) -> None:
    for path in scaffold.scaffold(tmp_path / "mine", like, ()):
        assert not re.search(r"top\s+of\s+the\s+repository|\bdocs/|\bexamples/", path.read_text())


def test_the_next_steps_of_a_problem_of_ones_own_commit_it_before_the_first_attempt(tmp_path: Path) -> None:
    done = ratchet(tmp_path, "new", "my contest", "--like", "formula", expect=0)
    folder = tmp_path / "my contest"
    first, second, third = done.stdout.splitlines()[-3:]
    assert first.endswith(f"until this passes: ./ratchet.sh -C '{folder}' judge")
    assert third == f"then: ./ratchet.sh -C '{folder}' \"experiment: baseline\""
    prepare = folder / "prepare.py"
    prepare.write_text(prepare.read_text().replace("ROWS = 4096", "ROWS = 512"))
    (folder / "shapes.py").write_text("# a module that prepare.py may import\n")
    command = second.removeprefix("then commit both, because an attempt needs a committed prepare.py: ")
    subprocess.run(command, cwd=tmp_path, shell=True, check=True)
    assert committed(folder) == sorted([*FILES, "shapes.py"])
    other = ratchet(tmp_path, "new", "other", "--like", "matmul", expect=0).stdout.splitlines()
    assert other[-2] == f'next: ./ratchet.sh -C {tmp_path}/other "experiment: baseline"'
    assert other[-1].startswith("after a change of prepare.py, commit it before the next attempt: git -C ")
