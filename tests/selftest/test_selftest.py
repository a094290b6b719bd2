"""The judge judged: each planted candidate is caught by its guard, and passes without it."""

import ast
import json
import time
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from weakened import GUARDS, Guard, judge_without, parameter_counts, redefined

from harness import contest as contests
from harness.contest import PACKAGE
from harness.errors import RatchetError, UsageError
from harness.loop.scaffold import scaffold
from harness.records.selftest import Planted, PlantedResult, PlantedVerdict
from harness.render.sections import screen
from harness.render.selftest import selftest_blocks
from harness.selftest import planted, runner, scratch
from harness.selftest.callers import CALLERS, Caller, judgement
from harness.shell.main import main

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")

# One for each way of ending: a stage that a kernel fails in, a crash, and none.
HANDFUL = ("forged_result_line", "patches_block_until_ready", "no_rescale", "base_two")
CHEAP = ("control", "certainty", "checks passed", "controls")


@cache
def everything() -> tuple[Planted, ...]:
    """All planted candidates. The lists of the controls take seconds to make, so the first test makes them."""
    return runner.everything()


def results_of(*names: str, package: Path = PACKAGE) -> tuple[PlantedResult, ...]:
    return tuple(runner.sweep(planted.select(everything(), names), lambda planted_one: None, package))


@pytest.mark.long
def test_every_row_of_the_list_is_planted() -> None:
    bad = [planted_one for planted_one in everything() if not planted_one.is_good]
    assert {str(row) for row in range(1, 23)} <= {planted_one.row for planted_one in bad}
    assert len(planted.kernels()) - len([planted_one for planted_one in everything() if planted_one.is_good]) >= 30
    assert len([planted_one for planted_one in everything() if planted_one.is_good]) >= 6
    assert max(Counter(planted_one.name for planted_one in everything()).values()) == 1


@pytest.mark.long
def test_planted_files_are_no_part_of_the_judge(tmp_path: Path) -> None:
    scaffold(tmp_path / "contest", "attention", ())
    files = [path.as_posix() for path in contests.load(tmp_path / "contest").judge_files()]
    assert files
    assert not [name for name in files if "/candidates/" in name]


def test_a_planted_file_must_say_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "silent.py").write_text('"""Does something wrong."""\n')
    monkeypatch.setattr(planted, "CANDIDATES", tmp_path)
    with pytest.raises(RatchetError, match="Caught by"):
        planted.kernels()


@pytest.mark.long
def test_every_planted_kernel_is_a_program_and_every_base_is_planted_as_it_is() -> None:
    sources = {planted_one.name: planted.source(planted_one) for planted_one in planted.kernels()}
    for name, text in sources.items():
        assert ast.get_docstring(ast.parse(text)), name
    patches = {path: path.read_text() for path in planted.CANDIDATES.glob("*/*.patch")}
    bases = {path: text.rpartition("\nBase: ")[2].split()[0] for path, text in patches.items()}
    # Each base is also planted unchanged, as a good kernel: so a refusal is due to the patch.
    unchanged = {bases[path] for path, text in patches.items() if path.parent.name == "good" and "\n--- " not in text}
    assert unchanged == {*bases.values()} >= {path.stem for path in (planted.CANDIDATES / "bases").glob("*.py")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Wrong.\n\nRow: 1\nCaught by: static race\nBase: nothing\n", "with the name of a file of bases/"),
        (
            "Wrong.\n\nRow: 1\nCaught by: static race\nBase: one\n\n--- a/kernel.py\n+++ b/kernel.py\n"
            "@@ -2 +2 @@\n-x = 2\n+x = 3\n",
            r"does not fit .*one\.py",
        ),
    ],
)
def test_a_patch_that_does_not_fit_its_base_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    for folder in ("bad", "good", "bases"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bases" / "one.py").write_text('"""One."""\nx = 1\n')
    (tmp_path / "bad" / "wrong.patch").write_text(text)
    monkeypatch.setattr(planted, "CANDIDATES", tmp_path)
    with pytest.raises(RatchetError, match=words):
        planted.source(planted.kernels()[0])


def test_names_are_checked() -> None:
    with pytest.raises(UsageError, match="nobody"):
        planted.select(planted.kernels(), ("nobody",))


@pytest.mark.long
@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.planted.name)
def test_a_cheating_caller_gets_nothing(caller: Caller) -> None:
    judged = judgement(caller.ask())
    assert judged.refusal in caller.planted.expected, judged


@pytest.mark.long
def test_a_handful_of_planted_kernels() -> None:
    results = results_of(*HANDFUL)
    assert {result.planted.name: str(result.caught_by) for result in results} == {
        "forged_result_line": "contract/crash",
        "patches_block_until_ready": "static/judge-patched",
        "no_rescale": "correctness/wrong-result",
        "base_two": "None",
    }
    assert all(result.is_right for result in results)
    text = screen(selftest_blocks(results, 12.0), 200)
    assert text.endswith("kill rate 3 of 3, passes 1 of 1")
    assert "!" not in text


def test_contests_of_planted_kernels_are_written_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python 3.11 has one count for all threads that parse, and refuses a program when two of them meet.
    at_once, most = 0, 0

    def write(*_: object) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.01)
        at_once -= 1

    monkeypatch.setattr(scratch, "make", write)
    monkeypatch.setattr(runner, "_answer", lambda *_: PlantedVerdict(outcome="bug", refusal=None, message=""))
    assert len(tuple(runner.sweep(planted.kernels()[:12], lambda planted_one: None, tmp_path))) == 12
    assert most == 1


@pytest.mark.long
def test_what_is_taken_away_is_there() -> None:
    assert {planted_one.name for planted_one in everything()} >= {guard.candidate for guard in GUARDS}
    assert {guard.name for guard in GUARDS} >= {name for guard in GUARDS for name in guard.behind}
    for guard in GUARDS:
        for module, source in guard.without:
            names = {name for name in redefined(source) if not name.startswith("_strict")}
            assert names, guard.name
            original = (PACKAGE / module).read_text()
            assert names <= redefined(original), f"{guard.name}: {module} no longer defines {names}"
            for name, count in parameter_counts(source).items():
                assert parameter_counts(original).get(name, count) == count, (
                    f"{guard.name}: {module}: {name} takes other arguments"
                )


def survivor(guard: Guard, folder: Path) -> PlantedResult:
    (planted_one,) = results_of(guard.candidate, package=judge_without(guard, folder))
    return planted_one


@pytest.mark.long
@pytest.mark.parametrize(
    "guard", [planted_one for planted_one in GUARDS if planted_one.name in CHEAP], ids=lambda guard: guard.name
)
def test_without_a_guard_its_candidate_survives(guard: Guard, tmp_path: Path) -> None:
    planted_one = survivor(guard, tmp_path)
    assert planted_one.judgement.outcome == "accept", planted_one.judgement
    assert not planted_one.is_right
    text = screen(selftest_blocks((planted_one,), 1.0), 200)
    assert "kill rate 0 of 1" in text
    assert f"! {guard.candidate}: " in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "guard", [planted_one for planted_one in GUARDS if planted_one.name not in CHEAP], ids=lambda guard: guard.name
)
def test_without_any_one_guard_something_survives(guard: Guard, tmp_path: Path) -> None:
    judgement = survivor(guard, tmp_path).judgement
    assert judgement.outcome == "accept", judgement


@pytest.mark.long
def test_a_judge_that_does_not_run_catches_nothing(tmp_path: Path) -> None:
    package = judge_without(GUARDS[0], tmp_path)
    (package / "judge" / "verdict" / "decision.py").write_text("raise SystemExit('broken')\n")
    (planted_one,) = results_of("hair_faster", package=package)
    assert planted_one.judgement.outcome == "bug"
    assert "broken" in planted_one.judgement.message
    assert not planted_one.is_right


@pytest.mark.long
def test_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--only", "hair_faster", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)["tried"]
    assert record["planted"]["name"] == "hair_faster"
    assert record["judgement"]["outcome"] == "reject"
    assert main(["selftest", "--only", "hair_fast"]) == 2
    printed = capsys.readouterr().err
    assert "such as hair_faster" in printed
    assert len(printed) < 400, "not the names of all of them"


@pytest.mark.slow
def test_everything_planted() -> None:
    wrong = [
        planted_one for planted_one in runner.sweep(everything(), lambda planted_one: None) if not planted_one.is_right
    ]
    assert not wrong, screen(selftest_blocks(wrong, 0.0), 200)


@pytest.mark.long
def test_one_of_each_class() -> None:
    chosen = planted.one_of_each(everything())
    kinds = [planted_one.kind for planted_one in chosen]
    assert len(set(kinds)) == len(kinds)
    assert {planted_one.kind for planted_one in everything() if not planted_one.is_good} <= {*kinds}
    assert {"accepted: plain", "accepted: paged", "accepted: rmsnorm"} <= {*kinds}
    assert len(chosen) < 70
