"""The effect of a change on a repository's contests: real commits of small contests, judged by the real compiler."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import verb_examples
from git import Repo
from ledger_fixtures import commit_all
from loop_fixtures import copy_of, git, into_repository
from narrowing import present
from pages import details

from harness.advice.comparison import ComparedSide, compare
from harness.errors import RatchetError, UsageError
from harness.ledger import Ledger, history
from harness.loop import gate as gating
from harness.loop import scaffold
from harness.records import Failure
from harness.records.gate import Gate, GateOutcome
from harness.render.gate import annotations, compilers, gate_blocks, markdown, workflow_text
from harness.render.sections import screen
from harness.shell.main import main

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[2]
RMSNORM = PROJECT / "examples" / "rmsnorm"
SMALL = (("M", "512"), ("N", "512"), ("K", "512"))


def two_contests(top: Path) -> Path:
    """Two contests on `main`; the change is to be committed on a branch of its own."""
    scaffold.scaffold(top / "kernels" / "matmul", "matmul", SMALL)
    scaffold.scaffold(top / "kernels" / "norm", "rmsnorm", (("ROWS", "256"), ("COLUMNS", "256")))
    into_repository(top, "base")
    git(top, "switch", "--quiet", "--create", "change")
    return top


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return copy_of(two_contests, tmp_path / "repository")


def edit(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    git(folder, "commit", "--quiet", "--all", "-m", f"edit {name}")


def touched(top: Path) -> list[tuple[str, tuple[str, ...]]]:
    return list(gating.touched_contests(gating.change(top, "main", "HEAD")))


def test_only_contests_whose_own_files_differ_are_touched(repository: Path) -> None:
    assert touched(repository) == []
    (repository / "kernels" / "matmul" / "notes.md").write_text("nothing that a kernel is made of")
    (repository / "README.md").write_text("a page")
    commit_all(repository, "pages")
    assert touched(repository) == []
    edit(repository / "kernels" / "matmul", "kernel.py", "BK = 512", "BK = 128")
    assert touched(repository) == [("kernels/matmul", ("kernel.py",))]
    edit(repository / "kernels" / "norm", "prepare.py", "EPS = 1e-6", "EPS = 1e-5")
    assert touched(repository)[1] == ("kernels/norm", ("prepare.py",))
    below = gating.touched_contests(gating.change(repository, "main", "HEAD"), "kernels/norm")
    assert [folder for folder, _ in below] == ["kernels/norm"]


def test_helpers_are_part_of_a_kernel_and_links_are_not(repository: Path) -> None:
    folder = repository / "kernels" / "matmul"
    kernel = (folder / "kernel.py").read_text(encoding="utf-8")
    (folder / "blocks.py").write_text("SIZE = 1\n")
    git(repository, "add", "--all")
    (folder / "kernel.py").write_text("import blocks\n" + kernel, encoding="utf-8")
    git(repository, "commit", "--quiet", "--all", "-m", "with a helper")
    git(repository, "switch", "--quiet", "--create", "helper")
    (folder / "blocks.py").write_text("SIZE = 2\n")
    git(repository, "commit", "--quiet", "--all", "-m", "another helper")
    change = gating.change(repository, "change", "HEAD")
    assert list(gating.touched_contests(change)) == [("kernels/matmul", ("blocks.py",))]
    (folder / "blocks.py").unlink()
    (folder / "blocks.py").symlink_to("/etc/hostname")
    git(repository, "commit", "--quiet", "--all", "-m", "a link")
    candidate = present(gating.candidate_at(change.repository, "HEAD", "kernels/matmul"))
    assert b"hostname" not in candidate.text


def test_what_has_been_merged_into_the_base_since_is_no_part_of_the_change(repository: Path) -> None:
    edit(repository / "kernels" / "matmul", "kernel.py", "BK = 512", "BK = 128")
    git(repository, "switch", "--quiet", "main")
    edit(repository / "kernels" / "norm", "kernel.py", "BR = 16", "BR = 32")
    git(repository, "switch", "--quiet", "change")
    assert touched(repository) == [("kernels/matmul", ("kernel.py",))]


def test_links_and_submodules_are_not_taken_for_removed_contests(repository: Path, tmp_path: Path) -> None:
    kernels = repository / "kernels"

    def outcomes() -> dict[str, str]:
        change = gating.change(repository, "main", "HEAD")
        judged = [
            gating.judge(change, folder, names, tmp_path / folder, 0.01, lambda *_: None).gated
            for folder, names in gating.touched_contests(change)
            # The contest that a link leads to is new, and would be judged three times.
            if folder != "elsewhere"
        ]
        return {entry.contest: f"{entry.outcome}: {entry.reason}" for entry in judged}

    (kernels / "norm" / "kernel.py").rename(kernels / "norm" / "slow.py")
    (kernels / "norm" / "kernel.py").symlink_to("slow.py")
    (kernels / "matmul").rename(repository / "elsewhere")
    (kernels / "matmul").symlink_to("../elsewhere")
    commit_all(repository, "links")
    changed = outcomes()
    assert changed["kernels/norm"].startswith("inconclusive: kernels/norm/kernel.py is a symbolic link")
    assert changed["kernels/matmul"].startswith("inconclusive: kernels/matmul is a symbolic link")
    (kernels / "matmul").unlink()
    commit = git(repository, "rev-parse", "HEAD").strip()
    git(repository, "rm", "--quiet", "--cached", "kernels/matmul")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},kernels/matmul")
    git(repository, "commit", "--quiet", "-m", "a submodule")
    assert outcomes()["kernels/matmul"].startswith("inconclusive: kernels/matmul is a submodule")
    git(repository, "rm", "--quiet", "--cached", "kernels/matmul")
    git(repository, "commit", "--quiet", "-m", "nothing")
    assert outcomes()["kernels/matmul"].startswith("removed")


def test_a_contest_that_was_moved_is_held_against_where_it_was(repository: Path, tmp_path: Path) -> None:
    kernels = repository / "kernels"
    (kernels / "norm").rename(repository / "fast")
    git(repository, "add", "--all")
    edit(repository / "fast", "kernel.py", "BR = 16", "BR = 8")
    edit(kernels / "matmul", "prepare.py", "K = 512", "K = 1024")
    (kernels / "matmul").rename(repository / "matmul")
    commit_all(repository, "another problem")
    change = gating.change(repository, "main", "HEAD")
    touched = dict(gating.touched_contests(change))
    origins = gating.origins_of_moved(change, tuple(touched), tmp_path / "moved")
    assert origins == {"fast": "kernels/norm"}
    judged = gating.judge(
        change, "fast", touched["fast"], tmp_path / "fast", 0.01, lambda *_: None, origin="kernels/norm"
    )
    assert judged.gated.outcome == "slower"
    assert judged.gated.reason.endswith("more simulated time; moved from kernels/norm")


def test_what_a_merge_took_back_is_not_hidden_behind_another_merge(repository: Path) -> None:
    folder = repository / "kernels" / "matmul"
    (repository / "notes.md").write_text("a note")
    commit_all(repository, "a note")
    git(repository, "branch", "first")
    git(repository, "switch", "--quiet", "main")
    edit(folder, "kernel.py", "BK = 512", "BK = 256")
    git(repository, "branch", "improved")
    git(repository, "merge", "--quiet", "-m", "merge the note", "first")
    git(repository, "switch", "--quiet", "change")
    git(repository, "merge", "--quiet", "--strategy", "ours", "-m", "merge, but not its kernel", "improved")
    with pytest.raises(RatchetError, match="got 2, since both were merged into each other"):
        gating.change(repository, "main", "HEAD")
    git(repository, "merge", "--quiet", "-m", "merge main", "main")
    assert gating.change(repository, "main", "HEAD")


def test_commits_that_are_not_there(repository: Path) -> None:
    with pytest.raises(UsageError, match="'nowhere', which is not in this clone"):
        gating.change(repository, "nowhere", "HEAD")
    git(repository, "switch", "--quiet", "--orphan", "other")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "another root")
    with pytest.raises(RatchetError, match="--unshallow"):
        gating.change(repository, "main", "HEAD")


def side(number: int) -> ComparedSide:
    ledger = Ledger.open(RMSNORM)
    return ComparedSide(
        name=str(number),
        candidate=history.candidate(ledger.place, number),
        evidence=history.attempt(ledger.place, number).evidence,
    )


@pytest.mark.parametrize(
    ("before", "after", "threshold", "outcome"),
    [(3, 4, 0.01, "faster"), (4, 3, 0.01, "slower"), (4, 3, 0.06, "same"), (4, 4, 0.01, "same")],
)
def test_times_are_told_apart_by_the_threshold(before: int, after: int, threshold: float, outcome: GateOutcome) -> None:
    old, new = side(before), side(after)
    assert gating._outcome(compare(old, new, ""), old.evidence, new.evidence, threshold)[0] == outcome


def test_a_failure_outranks_the_time_and_a_machines_failure_is_no_verdict() -> None:
    old, new = side(3), side(4)
    for kind, outcome in (("wrong-result", "wrong"), ("killed", "inconclusive")):
        evidence = replace(new.evidence, failure=Failure(stage="correctness", kind=kind, message="it differs"))
        decided = gating._outcome(compare(old, replace(new, evidence=evidence), ""), old.evidence, evidence, 0.01)
        assert decided == (outcome, f"{kind}: it differs")
        broken = gating._outcome(compare(old, new, ""), replace(old.evidence, failure=evidence.failure), evidence, 0.01)
        assert broken[1].endswith("; the base fails too")


@pytest.mark.parametrize(("kind", "outcome"), [("wrong-result", "fixed"), ("killed", "inconclusive")])
def test_where_only_the_base_fails_the_change_mends_it_unless_the_machine_failed(
    kind: str, outcome: GateOutcome
) -> None:
    old, new = side(3), side(4)
    evidence = replace(old.evidence, failure=Failure(stage="correctness", kind=kind, message="it differs"))
    comparison = compare(replace(old, evidence=evidence), new, "")
    decided = gating._outcome(comparison, evidence, new.evidence, 0.01)
    assert decided == (outcome, f"the base fails ({kind}: it differs), the change does not")
    assert comparison.programs[0].time_ratio is None


def gate(outcome: GateOutcome, reason: str, contest: str = "kernels/norm") -> Gate:
    made = verb_examples.gate()
    return replace(made, contests=(replace(made.contests[0], contest=contest, outcome=outcome, reason=reason),))


def test_lines_that_cost_more_are_annotated_where_they_stand() -> None:
    first, *lines = annotations(gate("slower", "5.74 % more simulated time"))
    assert first.startswith("::warning file=kernels/norm/kernel.py,line=1,title=kernels/norm is slower::5.74 %25 more")
    assert 0 < len(lines) < 10
    assert re.match(r"::warning file=kernels/norm/kernel\.py,line=\d+,title=more cycles::83,553 -> 85,127 ", lines[0])
    assert [line.split(" ")[0] for line in annotations(gate("wrong", "wrong-result"))] == ["::error"]
    assert list(annotations(gate("same", "the same program"))) == []


def test_nothing_in_a_change_is_markup_or_a_command() -> None:
    hostile = gate("wrong", "a\n::error::b <img src=x> [l](u) @team %0A", contest="k,x:1\n::stop-commands::t")
    assert [line for line in annotations(hostile) if line.startswith("::error file=k%2Cx%3A1 %3A%3Astop")]
    assert sum(line.startswith("::") for text in annotations(hostile) for line in text.split("\n")) == 1
    text = markdown(hostile)
    assert "<img" not in text
    assert "](u)" not in text
    assert "@team" not in text
    assert "touches prepare.py" in screen(gate_blocks(hostile), 100)


def test_no_line_of_a_workflows_log_is_a_strangers_command() -> None:
    hostile = gate("wrong", f"{'long ' * 6}::stop-commands::t {'long ' * 12}##[add-mask]t")
    assert any(line.lstrip().startswith("::stop") for line in screen(gate_blocks(hostile), 60).split("\n"))
    lines = workflow_text(hostile, 60).split("\n")
    assert [line.partition(" ")[0] for line in lines if line.lstrip().startswith("::")] == ["::error"]
    assert not any("##[" in line for line in lines if not line.startswith("::error"))


def test_a_prepare_that_cannot_be_loaded_is_no_verdict(repository: Path, tmp_path: Path) -> None:
    folder = repository / "kernels" / "new"
    scaffold.scaffold(folder, "matmul", SMALL)
    commit_all(repository, "a contest of its own")
    edit(folder, "prepare.py", 'CHIP = "v5e"', 'CHIP = "v99"')
    change = gating.change(repository, "main", "HEAD")
    judged = gating.judge(change, "kernels/new", ("kernel.py",), tmp_path / "into", 0.01, lambda *_: None)
    assert judged.gated.outcome == "inconclusive"
    assert "v99" in judged.gated.reason


def test_what_cannot_be_read_is_one_finding_among_others(
    repository: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line_break, no_utf8 = (
        repository / "kernels" / "two\nlines",
        Path(os.fsdecode(bytes(repository / "kernels") + b"/\xff")),
    )
    for folder in (line_break, no_utf8):
        scaffold.scaffold(folder, "matmul", SMALL)
    norm = repository / "kernels" / "norm"
    (norm / "kernel.py").write_text(f"import sizes\n{(norm / 'kernel.py').read_text()}")
    (norm / "sizes.py").write_text("ROWS = 8\n")
    commit_all(repository, "three more")
    git(repository, "branch", "--force", "main")
    for folder in (line_break, no_utf8):
        (folder / "kernel.py").unlink()
    (norm / "sizes.py").write_text("# ---- beside kernel.py: tiles.py ----\n")
    git(repository, "commit", "--quiet", "--all", "-m", "what cannot be read")
    out = tmp_path / "out"
    words = ["--base", "main", "--json", "--quiet", "--out", str(out), "--fail-on", "inconclusive"]
    assert main(["ci", "-C", str(repository), *words]) == 3
    gate_document = msgspec.json.decode(capsys.readouterr().out, type=Gate)
    assert [(entry.contest, entry.outcome) for entry in gate_document.contests] == [
        ("kernels/norm", "inconclusive"),
        ("kernels/two\nlines", "removed"),
        ("kernels/\\xff", "removed"),
    ]
    expected = "expected sizes.py without the line `# ---- beside kernel.py: NAME.py ----`"
    assert expected in gate_document.contests[0].reason


def test_another_compiler_is_held_against_the_first() -> None:
    with_default = gate("same", "the same program")
    slower = replace(with_default.contests[0], seconds=1.1 * (with_default.contests[0].seconds or 0.0))
    both = replace(with_default, other=replace(with_default, compiler="jax 1, libtpu 1", contests=(slower,)))
    assert list(compilers(with_default)) == []
    (sentence,) = compilers(both)
    assert sentence.endswith("by jax 1, libtpu 1, +10.0% [simulated v5e]")
    assert "jax 1, libtpu 1" in markdown(both)


def test_no_word_of_a_change_is_a_command_on_the_other_stream(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaffold.scaffold(repository / "::stop-commands::t" / "##[add-mask]u", "matmul", SMALL)
    commit_all(repository, "a contest")
    out = tmp_path / "out"
    out.mkdir()
    (out / "::stop-commands::t").symlink_to(tmp_path)
    code = main(["ci", "-C", str(repository), "--base", "main", "--annotations", "--out", str(out)])
    printed = capsys.readouterr()
    assert code == 4
    assert "trace" in printed.err
    assert "where a symbolic link leads elsewhere" in printed.err
    assert not [
        line for line in (printed.out + printed.err).split("\n") if line.lstrip().startswith("::") or "##[" in line
    ]


def test_what_fails_the_gate_is_chosen() -> None:
    assert main(["ci", "--base", "HEAD", "--fail-on", "sometimes"]) == 2
    assert main(["ci", "--base", "HEAD", "--fail-on", "nothing,wrong"]) == 2
    assert main(["ci", "--base", "HEAD", "--threshold", "0"]) == 2
    assert main(["ci", "--base", "HEAD", "--annotations", "--json"]) == 2


@pytest.mark.slow
def test_a_change_is_judged_in_a_workflow(repository: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    edit(repository / "kernels" / "matmul", "kernel.py", "BK = 512", "BK = 128")
    edit(repository / "kernels" / "norm", "kernel.py", "jnp.mean(h * h", "2 * jnp.mean(h * h")
    action = yaml.safe_load((PROJECT / "action.yml").read_text(encoding="utf-8"))
    inputs = {name: str(value["default"]) for name, value in action["inputs"].items()} | {"base": "main"}
    summary = tmp_path / "summary.md"
    runner = {
        "GITHUB_ACTION_PATH": str(PROJECT),
        "GITHUB_WORKSPACE": str(repository),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    for step in action["runs"]["steps"]:
        variables = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: inputs[m[1]], text)
            for name, text in step["env"].items()
        }
        done = subprocess.run(
            [step["shell"], "-e", "-c", step["run"]],
            env=os.environ | runner | variables,
            capture_output=True,
            text=True,
            cwd=repository,
        )
    assert done.returncode == 1, done.stderr
    assert "::error file=kernels/norm/kernel.py,line=1,title=kernels/norm is wrong::" in done.stdout
    assert "**wrong**" in summary.read_text(encoding="utf-8")
    out = repository / "kernel-gate"
    page = (out / "kernels" / "matmul" / "report.html").read_text(encoding="utf-8")
    shown = details(page)
    for place, name in (("1", "before.trace.json.gz"), ("2", "after.trace.json.gz")):
        assert (out / "kernels" / "matmul" / name).is_file()
        assert shown[place]["timeline"] == name
    assert "more simulated time" in json.dumps(shown["2"])
    names = [series["name"] for series in json.loads((out / "benchmark.json").read_text(encoding="utf-8"))]
    assert "kernels/matmul" in names
    assert not Repo(repository).is_dirty()


def test_what_is_not_committed_is_said_not_to_be_judged(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = repository / "kernels" / "matmul" / "kernel.py"
    kernel.write_text(kernel.read_text(encoding="utf-8") + "# later\n", encoding="utf-8")
    assert main(["ci", "-C", str(repository), "--base", "main", "--quiet"]) == 0
    printed = capsys.readouterr().err
    assert "not committed, so not judged: kernels/matmul/kernel.py" in printed
    assert "the gate passes: exit code 0" in printed
    assert main(["ci", "-C", str(repository), "--base", "main", "--out", str(kernel)]) == 2
    assert "expected --out to name a folder" in capsys.readouterr().err
