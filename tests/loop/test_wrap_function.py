"""A contest around a function that exists: obstacles are named, and removed if possible."""

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
from git import Repo
from loop_fixtures import ratchet

from harness import contest as contests
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.loop import existing, find_function, new_contest, option_types, wrap_function
from harness.operators import GroupedMatmul
from harness.records import Failure

pytestmark = pytest.mark.long

# A norm whose scale is an array of [1, columns], and whose parameters are not in the problem's order.
KERNEL = """
import functools
from dataclasses import dataclass
{imports}
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


@dataclass(frozen=True)
class Sizes:
    rows: int
    eps: float = 1e-6


Alias = tuple[int, ...]


def _body(x_ref, w_ref, y_ref, *, eps):
    x = x_ref[...].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps)
    y_ref[...] = (x * scale * {scale}).astype(y_ref.dtype)


def norm(w, x{options}):
    block = pl.BlockSpec(({rows}, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        functools.partial(_body, eps=1e-6),
        grid=(x.shape[0] // {rows},),
        in_specs=[block, pl.BlockSpec((1, x.shape[1]), lambda i: (0, 0))],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, w){output}
"""
SIZES = (("RESIDUAL", "False"), ("ROWS", "256"), ("COLUMNS", "1024"))


def kernel(folder: Path, **parts: str) -> str:
    """Writes the norm, with some parts replaced, as norms.py in `folder`; returns the words for --from."""
    usual = {"imports": "", "scale": "w_ref[...].astype(jnp.float32)", "options": "", "rows": "128", "output": ""}
    (folder / "norms.py").write_text(KERNEL.format(**usual | parts))
    return "norms.py:norm"


class Stages:
    """The stages of all evaluations, as they end."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, str]] = []

    def __call__(self, stage: str, state: str, seconds: float) -> None:
        if state != "start":
            self.ended.append((stage, state))


def new(folder: Path, around: str, progress: Stages, *, sizes: tuple[tuple[str, str], ...] = SIZES) -> str:
    return "\n".join(new_contest.new(folder / "mine", "rmsnorm", sizes, progress, around=around, base=folder))


def test_arrays_and_outputs_are_brought_into_the_form_that_the_other_side_wants(tmp_path: Path) -> None:
    words = new(tmp_path, kernel(tmp_path, output=".astype(jnp.float32)[:, None], jnp.zeros(3)"), Stages())
    way = "calls norms.py:norm with a first axis of size 1 on w, by name, the first of its 2 outputs, "
    assert f"{way}the output reshaped from [256, 1, 1024] to [256, 1024], the output converted to bfloat16" in words
    assert "; it is right at small shapes" in words
    text = (tmp_path / "mine" / "kernel.py").read_text()
    assert "return existing(x=x, w=w)" in text
    assert 'return call(x, w[None])[0][:, 0, :].astype("bfloat16")' in text


@pytest.mark.parametrize(
    ("kind", "expected", "output"),
    [
        ("wrong-shape", "y of shape [2048, 1], got [2048]", "call(x)[:, None]"),
        ("wrong-shape", "y of shape [2048], got [2048, 1]", "call(x)[:, 0]"),
        ("wrong-shape", "y of shape [2048, 1], got [1, 2048]", "call(x)[0, :][:, None]"),
        ("wrong-shape", "y of shape [2048, 1], got [1024, 2]", None),
        ("wrong-dtype", "y of dtype float32, got bfloat16", 'call(x).astype("float32")'),
        ("wrong-structure", "kernel_fn to return y: float32[8, 1], got tuple of 2", "call(x)[0]"),
        ("wrong-structure", "kernel_fn to return y: float32[8, 1], got dict of 2", None),
        ("wrong-structure", "kernel_fn to return y: float32[8, 1], z: float32[8], got tuple of 3", None),
        ("trace-error", "y of shape [2048, 1], got [2048]", None),
    ],
)
def test_an_output_of_another_form_is_brought_into_the_stated_one(kind: str, expected: str, output: str | None) -> None:
    text = b"def kernel_fn(x):\n    call = f\n    return call(x)\n"
    variant = existing.Variant(candidate=Candidate(text=text), words="as it is")
    failure = Failure(stage="contract", kind=kind, message=f"expected {expected}")
    other = existing.with_stated_output(variant, failure)
    assert (other and other.candidate.text.decode().rpartition("return ")[2].strip()) == output
    if other is not None:
        assert existing.with_stated_output(other, failure) is None


def test_a_file_where_python_imports_from_gets_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = kernel(tmp_path, output="[:, None]")
    assert find_function.target(words, tmp_path).module == "norms"
    # The folder looks like the root of a clone.
    (tmp_path / "harness").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert find_function.target(words, tmp_path).module == "existing_norms"


def test_a_helper_with_the_name_of_a_module_is_to_be_renamed_or_moved(tmp_path: Path) -> None:
    kernel(tmp_path)
    target = find_function.target("norms.py:norm", tmp_path)
    message = "expected a name that no installed module has, got sizes.py: other code imports sizes; rename the file"
    refused = wrap_function._does_not_trace(
        target, [Failure(stage="contract", kind="helper-name", message=message)], {}
    )
    assert refused.kind == "helper-name"
    assert str(refused).startswith(f"{message}; nothing was written. What to do: rename that file; if")


def test_a_constant_of_neither_file_is_refused_with_the_names_of_both() -> None:
    kernel = Candidate.of_files({"kernel.py": b"TILE = 8\n"})
    with pytest.raises(RatchetError, match=r"constants of prepare\.py: COLUMNS, ROWS; constants of kernel\.py: TILE"):
        wrap_function._set(kernel, (("COLS", "512"),), frozenset({"ROWS", "COLUMNS"}))


def test_constants_are_set_in_kernel_py_before_a_helper() -> None:
    kernel = Candidate.of_files({"kernel.py": b"TILE = 8\nROWS = 1\n", "helper.py": b"TILE = 8\nROWS = 1\nDEPTH = 2\n"})
    settings = (("TILE", "16"), ("ROWS", "256"), ("DEPTH", "3"))
    changed = wrap_function._set(kernel, settings, frozenset({"ROWS"})).files
    assert changed == {"kernel.py": b"TILE = 16\nROWS = 256\n", "helper.py": b"TILE = 8\nROWS = 1\nDEPTH = 3\n"}


def test_an_option_that_no_literal_is_comes_with_a_file_that_makes_it(tmp_path: Path) -> None:
    around = kernel(tmp_path, options=", sizes: Sizes", rows="sizes.rows")
    words = ("new", "mine", "--quiet", "--like", "rmsnorm", *(f"--set={name}={value}" for name, value in SIZES))
    refused = ratchet(tmp_path, *words, "--from", around, expect=4).stderr
    assert "norm needs SIZES, which the problem does not state, and SIZES is Sizes, which --set cannot give" in refused
    assert "the problem: kernel_fn(x [256, 1024] bfloat16, w [1024] bfloat16) -> y [256, 1024] bfloat16" in refused
    assert "the function: norm(w, x, sizes: Sizes)" in refused
    # The printed example is complete.
    lines = refused.partition("[missing-option]\n")[2].partition("  the problem:")[0]
    assert "ROWS = ...\nEPS = 1e-06\n" in lines
    assert "sizes=Sizes(rows=ROWS, eps=EPS)" in lines
    (tmp_path / "mine.py").write_text(lines.replace("...", "128"))
    done = ratchet(tmp_path, *words, "--from", "mine.py:mine", expect=0)
    assert "right at small shapes" in done.stdout


@pytest.mark.parametrize(
    ("annotation", "type_name"),
    [
        ("Sizes", "Sizes"),
        ("'Sizes'", "Sizes"),
        ("norms.Sizes", "Sizes"),
        ("tuple[Sizes, ...]", "Sizes"),
        ("Sizes | None", ""),
        ("Optional[Sizes]", ""),
        ("Alias", ""),
        ("int", ""),
        ("tuple[int, int] | int", ""),
        ("Literal['a', 'b']", ""),
        ("jnp.dtype", ""),
        ("anything", ""),
    ],
)
def test_a_literal_is_asked_for_where_one_will_do(tmp_path: Path, annotation: str, type_name: str) -> None:
    target = find_function.target(kernel(tmp_path, options=f", sizes: {annotation}"), tmp_path)
    assert target.node is not None
    assert option_types.made_by_code(target, target.node.args.args[-1]) == type_name


def test_a_type_of_a_package_is_found_where_it_is_defined() -> None:
    target = find_function.target("jax.experimental.pallas.ops.tpu.flash_attention:flash_attention")
    home, node = find_function.definition(target, "BlockSizes")
    assert (home, node is not None) == ("jax.experimental.pallas.ops.tpu.flash_attention", True)
    assert "\nBLOCK_Q = ...\n" in option_types.example(target, ("q", "k"), {"sizes": "BlockSizes"}, is_by_name=False)


def test_a_stand_in_for_a_package_that_the_sandbox_cannot_import_and_a_shape_that_is_not_checked_are_named(
    tmp_path: Path,
) -> None:
    # GitPython runs git when it is imported. The kernel takes its blocks from a table that lacks 192 rows.
    rows = "{256: 64, 128: 64}[x.shape[0]]"
    words = new(tmp_path, kernel(tmp_path, imports="import git", rows=rows), Stages())
    assert "; it is right at small shapes" in words
    where = "in the sandbox with no other processes, no network and no files to write"
    assert f"git, which cannot be imported {where}" in words
    assert "Bad git executable" in words
    assert "pip install" not in words
    assert contests.load(tmp_path / "mine").stubs == ("git",)
    assert re.search(r"^warning: a second shape \(rmsnorm, 192 rows .*\) is not checked: .*KeyError: 192", words, re.M)


def test_the_packages_that_a_kernel_is_of_are_those_that_its_files_use(tmp_path: Path) -> None:
    imports = "import git\nimport tiles.blocks\nfrom maths.norms import scale as factor"
    around = kernel(tmp_path, imports=imports, scale="factor(w_ref, tiles)")
    packages = find_function.packages(find_function.target(around, tmp_path))
    assert {"tiles", "maths"} <= packages
    assert "git" not in packages


def test_what_no_way_of_calling_can_mend_is_reported_after_the_first(tmp_path: Path) -> None:
    stages = Stages()
    with pytest.raises(RatchetError, match=r"1 / 0|division by zero") as refused:
        new(tmp_path, kernel(tmp_path, imports="1 / 0"), stages)
    assert [stage for stage, _ in stages.ended] == ["trace"]
    assert "no other processes, no network" in str(refused.value)
    assert "the function: norm(w, x)" in str(refused.value)


def test_a_name_that_jax_lacks_is_reported_with_the_releases_that_have_it(tmp_path: Path) -> None:
    stages = Stages()
    around = kernel(tmp_path, scale="pltpu.repeat(w_ref[...].astype(jnp.float32), x.shape[0], 0)")
    with pytest.raises(RatchetError, match=r"up to 0\.10\.0, not from 0\.10\.2 on.*write jnp\.tile"):
        new(tmp_path, around, stages)
    # The ways before it fail because of w's shape.
    assert len(stages.ended) <= 4


# libtpu has no product of vectors of eight bits on v5e.
NARROW = "(w_ref[...].astype(jnp.int8) * w_ref[...].astype(jnp.int8)).astype(jnp.float32)"


@pytest.mark.parametrize(
    ("rows", "scale", "sizes", "stage", "kind"),
    [("4096", "1.0", "8192 4096", "trace", "vmem-exceeded"), ("128", NARROW, "256 1024", "compile", "unsupported")],
)
def test_what_the_compiler_refuses_is_not_checked_and_the_contest_is_made(
    tmp_path: Path, rows: str, scale: str, sizes: str, stage: str, kind: str
) -> None:
    stages = Stages()
    shape = tuple(zip(("ROWS", "COLUMNS"), sizes.split(), strict=True))
    around = kernel(tmp_path, rows=rows, scale=scale)
    words = new(tmp_path, around, stages, sizes=(("RESIDUAL", "False"), *shape))
    assert f"which fails: {kind}: " in words
    assert "what to do: " in words
    assert "next: mend the kernel, then " in words
    assert stages.ended.count((stage, kind)) == 1
    assert {stage for stage, _ in stages.ended} <= {"trace", "compile"}
    assert not Repo(tmp_path / "mine").is_dirty(untracked_files=True)


def test_a_package_that_lacks_the_module_is_named_with_its_version_and_by_what_it_is_published_as() -> None:
    version = importlib.metadata.version("PyJWT")
    with pytest.raises(RatchetError) as refused:
        find_function.target("jwt.kernels:norm")
    assert (
        f"PyJWT {version} is installed, but jwt.kernels cannot be imported: No module named 'jwt.kernels'; install "
        "another version" in str(refused.value).replace("pyjwt", "PyJWT")
    )
    with pytest.raises(RatchetError, match="no-such, or the distribution's name if it differs"):
        find_function.target("no_such.kernels:norm")


def test_a_package_of_which_only_the_metadata_is_there_says_that_it_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lone-1.2.dist-info").mkdir()
    (tmp_path / "lone-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lone\nVersion: 1.2\n")
    (tmp_path / "lone-1.2.dist-info" / "top_level.txt").write_text("lone\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = (
        "lone 1.2 is installed, but lone.kernels cannot be imported: No module named 'lone'; install another version"
    )
    with pytest.raises(RatchetError, match=words):
        find_function.target("lone.kernels:norm")
    (tmp_path / "lone" / "kernels").mkdir(parents=True)
    with pytest.raises(RatchetError, match=r"lone\.kernels cannot be imported: its folder has no __init__\.py"):
        find_function.target("lone.kernels:norm")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("jax.experimental.pallas.gpu", r"jax [\d.]+ has no jax\.experimental\.pallas\.gpu; try jax"),
        ("numpy.no_such", "No module named 'numpy.no_such'"),
    ],
)
def test_what_the_judge_itself_imports_never_gets_a_stand_in(tmp_path: Path, module: str, words: str) -> None:
    with pytest.raises(RatchetError, match=words):
        new(tmp_path, kernel(tmp_path, imports=f"import {module}"), Stages())


@pytest.mark.parametrize("module", ["megablox", "megablox.gmm", "megablox.ops", "splash_attention", "paged_attention"])
def test_a_package_and_its_module_get_the_same_wrapper(module: str) -> None:
    name = {"splash_attention": "make_splash_mha", "paged_attention": "paged_attention"}.get(module, "gmm")
    target = find_function.target(f"jax.experimental.pallas.ops.tpu.{module}:{name}")
    (variant,) = existing.variants(target, GroupedMatmul(m=512, groups=2, k=128, n=128).statement(), ())
    assert variant.words == "as the ratchet's wrapper for it does"
