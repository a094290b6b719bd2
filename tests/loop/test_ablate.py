"""The worth of changes in the champion: planted histories of a real contest, and this repository's own ledgers."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import verb_examples
from ledger_fixtures import commit_all, run_attempt
from loop_fixtures import copy_of, git, into_repository
from narrowing import present
from refusals import refused

from harness import contest as contests
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.judge.verdict import roofline
from harness.ledger import Ledger, history
from harness.ledger.paths import place_of
from harness.loop import pieces as changes
from harness.loop import scaffold
from harness.loop.ablate import ablate, with_worth
from harness.records import Failure
from harness.records.ablation import AblatedChange, Ablation
from harness.render.ablation import ablation_blocks
from harness.render.sections import screen
from harness.shell.main import main

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"
Edit = tuple[str, str]

FEWER_STEPS = ("BK = 128", "BK = 512")
LARGER_BLOCKS = ("BM = 128\nBN = 128", "BM = 512\nBN = 512")
OTHER_WORDS = ("jnp.zeros_like(acc_ref)", "jnp.zeros(acc_ref.shape, acc_ref.dtype)")
# The accumulator is cleared at a second place, then no longer at the first.
CLEAR = (
    "    acc_ref[...] += ",
    "    @pl.when(pl.program_id(2) == 0)\n    def clear():\n        acc_ref[...] = jnp.zeros_like(acc_ref)\n\n"
    "    acc_ref[...] += ",
)
NO_START = ("    @pl.when(step == 0)\n    def start():\n        acc_ref[...] = jnp.zeros_like(acc_ref)\n\n", "")
MORE_ROOM = ("VMEM_LIMIT = None", "VMEM_LIMIT = 64 * 1024 * 1024")


def reverse(edit: Edit) -> Edit:
    return edit[1], edit[0]


def recorded_steps(top: Path, *steps: Sequence[Edit], reworded: bool = False) -> Path:
    """A contest whose baseline, attempt 1, has small blocks; each step is an accepted attempt after it.

    `reworded`: the last attempt is a rebaseline that calls a constant otherwise everywhere.
    """
    folder = top / "matmul"
    scaffold.scaffold(folder, "matmul", (("M", "512"), ("N", "512"), ("K", "512")))
    path = folder / "kernel.py"
    path.write_text(path.read_text(encoding="utf-8").replace(" = 512\n", " = 128\n"), encoding="utf-8")
    into_repository(top, "base")
    for edits in ((), *steps):
        text = path.read_text(encoding="utf-8")
        for old, new in edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
        run_attempt(Ledger.open(folder))
    if reworded:
        path.write_text(path.read_text(encoding="utf-8").replace("BK", "STEP"), encoding="utf-8")
        run_attempt(Ledger.open(folder), kind="rebaseline")
    return folder


def three_steps(top: Path) -> Path:
    return recorded_steps(top, [FEWER_STEPS], [LARGER_BLOCKS], [OTHER_WORDS])


def source_without(made: changes.Pieces, pieces: Sequence[changes.Piece]) -> str | None:
    candidate = made.without(pieces)
    return None if candidate is None else candidate.source


def text_without(folder: Path, *numbers: int) -> str | None:
    made = changes.accepts(Ledger.open(folder))
    return source_without(made, [piece for piece in made.asked if piece.attempt in numbers])


def names(pieces: Sequence[changes.Piece] | None) -> list[str] | None:
    return None if pieces is None else [piece.name for piece in pieces]


def tied_by_lines(folder: Path, number: int) -> list[str] | None:
    made = changes.accepts(Ledger.open(folder))
    piece = next(piece for piece in made.asked if piece.attempt == number)
    return names(changes.companions(piece, made.after(piece), lambda removed: made.without(removed) is not None))


def test_independent_changes_go_one_at_a_time_also_from_lines_side_by_side(tmp_path: Path) -> None:
    folder = copy_of(three_steps, tmp_path / "top")
    champion = (folder / "kernel.py").read_text(encoding="utf-8")
    for number, edit in ((2, FEWER_STEPS), (3, LARGER_BLOCKS), (4, OTHER_WORDS)):
        assert text_without(folder, number) == champion.replace(edit[1], edit[0])
    assert text_without(folder, 2, 3, 4) == history.candidate(place_of(folder), 1).source
    assert text_without(folder) == champion


def test_changes_of_the_same_lines_are_named(tmp_path: Path) -> None:
    folder = recorded_steps(
        tmp_path,
        [("BK = 128", "BK = 256")],
        [OTHER_WORDS],
        [("BK = 256", "BK = 512"), MORE_ROOM],
        [LARGER_BLOCKS],
        [("VMEM_LIMIT = 64", "VMEM_LIMIT = 32")],
    )
    assert text_without(folder, 2) is None
    # Attempt 4 itself is tied to 6 by another line.
    assert text_without(folder, 2, 4) is None
    assert tied_by_lines(folder, 2) == ["attempt 4", "attempt 6"]
    assert tied_by_lines(folder, 4) == ["attempt 6"]
    rest = present(text_without(folder, 2, 4, 6))
    assert "BK = 128" in rest
    assert LARGER_BLOCKS[1] in rest


def test_a_change_that_was_taken_back_is_superseded(tmp_path: Path) -> None:
    folder = recorded_steps(tmp_path, [MORE_ROOM], [FEWER_STEPS], [reverse(MORE_ROOM)])
    champion = (folder / "kernel.py").read_text(encoding="utf-8")
    assert text_without(folder, 2) == champion
    assert text_without(folder, 4) == champion.replace(*MORE_ROOM)


def test_what_a_merged_branch_accepted_and_the_champion_was_not_made_of_is_none_of_its_changes(tmp_path: Path) -> None:
    folder = recorded_steps(tmp_path, [FEWER_STEPS])
    git(tmp_path, "switch", "--quiet", "--create", "side")
    path = folder / "kernel.py"
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(*MORE_ROOM), encoding="utf-8")
    run_attempt(Ledger.open(folder))
    git(tmp_path, "switch", "--quiet", "main")
    path.write_text(before.replace(*LARGER_BLOCKS), encoding="utf-8")
    run_attempt(Ledger.open(folder))
    git(tmp_path, "merge", "--quiet", "--strategy", "ours", "-m", "merge", "side")
    assert Ledger.open(folder).champion_candidate().source == before.replace(*LARGER_BLOCKS)
    made = changes.accepts(Ledger.open(folder))
    assert names(made.asked) == ["attempt 2", "attempt 4"]
    assert text_without(folder, 4) == before


def test_the_hunks_of_an_attempt_go_one_at_a_time(tmp_path: Path) -> None:
    folder = recorded_steps(tmp_path, [("BM = 128", "BM = 512"), FEWER_STEPS, CLEAR], [("BK = 512", "BK = 256")])
    made = changes.hunks(Ledger.open(folder), 2)
    assert names(made.asked) == ["line 16", "line 18", "lines 33-36"]
    assert [piece.title for piece in made.asked] == ["BM = 512", "BK = 512", "@pl.when(pl.program_id(2) == 0)"]
    champion = (folder / "kernel.py").read_text(encoding="utf-8")
    rows, steps, clear = made.asked
    assert source_without(made, [rows]) == champion.replace("BM = 512", "BM = 128")
    assert source_without(made, [rows, clear]) == champion.replace("BM = 512", "BM = 128").replace(*reverse(CLEAR))
    # Changes that touched the second change's line since have to go with it.
    assert made.without([steps]) is None
    assert names(made.after(clear)) == ["attempt 3"]
    assert source_without(made, [steps, *made.later]) == champion.replace("BK = 256", "BK = 128")
    with refused("not-accepted", r"\(2, 3\), got 1"):
        changes.hunks(Ledger.open(folder), 1)


def test_a_contest_without_accepts_says_what_to_do(tmp_path: Path) -> None:
    folder = recorded_steps(tmp_path)
    with pytest.raises(RatchetError, match=r"baseline of contest matmul \(attempt 1\).*next says what to try"):
        changes.accepts(Ledger.open(folder))
    scaffold.scaffold(tmp_path / "other", "matmul", ())
    commit_all(tmp_path, "another contest")
    with refused("no-champion", "makes one"):
        changes.accepts(Ledger.open(tmp_path / "other"))


def test_the_last_change_is_left_out_with_its_text(tmp_path: Path) -> None:
    made = changes.accepts(Ledger.open(recorded_steps(tmp_path, [FEWER_STEPS], [LARGER_BLOCKS], reworded=True)))
    assert [piece.is_experiment for piece in made.asked] == [True, True, False]
    # The constant has another name now.
    assert made.without(made.asked[:1]) is None
    assert made.last_for_itself == made.asked[2]
    before = made.before_last()
    assert before.last_for_itself is None
    assert (before.asked, before.candidate) == (made.asked[:2], made.asked[1].after)
    assert before.without(made.asked[:1]) == made.asked[1].after.set((("BK", "128"),))
    hunks = changes.hunks(made.ledger, 2)
    assert hunks.last_for_itself is not None
    assert changes.hunks(made.ledger, 4).last_for_itself is None
    assert (hunks.before_last().asked, names(hunks.before_last().later)) == (hunks.asked, ["attempt 3"])


def test_of_a_chip_without_a_simulator_nothing_is_judged(tmp_path: Path) -> None:
    folder = copy_of(three_steps, tmp_path / "top")
    made = changes.accepts(Ledger.open(folder))
    with refused("no-simulator", "whose kernels are simulated, got one for h100"):
        ablate(contests.load(folder, "h100"), made, lambda stage, state, seconds: None)


def test_the_fewest_that_have_to_go_too_are_found() -> None:
    empty = Candidate(text=b"")
    every = [changes.Piece(name=str(at), attempt=at, title="", before=empty, after=empty) for at in range(6)]
    first, rest = every[0], every[1:]

    def companions_of(*needed: int) -> list[str] | None:
        return names(
            changes.companions(first, rest, lambda removed: {each.attempt for each in removed} >= {0, *needed})
        )

    assert companions_of(3) == ["3"]
    assert companions_of(2, 5) == ["2", "5"]
    assert companions_of(1, 2, 3, 4, 5) == ["1", "2", "3", "4", "5"]
    assert companions_of(9) is None


def row() -> AblatedChange:
    return AblatedChange(name="attempt 4", attempt=4, title="an idea", effect="unknown")


def test_a_worth_is_told_as_the_decision_tells_it() -> None:
    ledger = Ledger.open(EXAMPLES / "rmsnorm")
    slow, fast = (history.attempt(ledger.place, number).evidence for number in (3, 4))
    before, after = present(roofline.latency_seconds(slow)), present(roofline.latency_seconds(fast))
    gain = with_worth(row(), fast, slow)
    worth = before - after
    assert (gain.effect, gain.worth_seconds, gain.without_seconds) == ("gain", worth, before)
    assert gain.worth_fraction == pytest.approx(worth / before)
    off = max(present(judged.simulation).relative_uncertainty for judged in (slow, fast))
    assert gain.uncertainty_seconds == pytest.approx(off * after)
    loss = with_worth(row(), slow, fast)
    assert (loss.effect, loss.worth_seconds) == ("loss", -worth)
    same = with_worth(row(), fast, fast)
    assert (same.effect, same.worth_seconds, same.uncertainty_seconds) == ("none", 0.0, 0.0)
    for kind, message, effect in (
        ("wrong-result", "it differs", "needed"),
        ("killed", "ended by signal 9", "unknown"),
        ("crash", "the judge process ended with exit code 1", "unknown"),
        ("crash", "TypeError: slice slice_sizes must be less than or equal to operand shape", "needed"),
    ):
        failure = Failure(stage="correctness", kind=kind, message=message, is_of_program=effect == "needed")
        failed = with_worth(row(), fast, replace(slow, failure=failure))
        assert (failed.effect, failed.worth_seconds) == (effect, None)


# The changes are those of the screen; the champion needs as much VMEM as the text without one of them.
SHOWN = replace(verb_examples.ablation(), champion_vmem_bytes=9 << 20)
PAYS, COSTS, TIED, WRONG = SHOWN.changes
COSTS = replace(COSTS, without_seconds=0.58e-3)


def ablation(*ablated: AblatedChange, whole: float | None = 1.0e-3) -> Ablation:
    failure = "" if whole else "wrong-result: it differs"
    return replace(SHOWN, whole_seconds=whole, whole_failure=failure, changes=ablated)


def test_the_table_says_what_each_is_worth_and_what_they_add_up_to() -> None:
    text = screen(ablation_blocks(ablation(PAYS, COSTS, TIED, WRONG, replace(row(), effect="superseded"))), 140)
    assert "4*      700.000 us  +100.000 us  12.000 us       14.3%  +30.000 us        -500  pays" in text
    assert "2       700.000 us  +100.000 us  12.000 us       14.3%                    -500" in text
    assert "5       580.000 us   -20.000 us  12.000 us       -3.4%                    -500  costs" in text
    relied = replace(TIED, failure="wrong-result: it differs")
    both, alone = (ablation(relied), ablation(replace(relied, together=("attempt 5",))))
    which = "which later changed the same lines or"
    assert f"attempts 5 and 7, {which} rely on such changes;" in screen(ablation_blocks(both), 400)
    assert f"attempt 5, {which} relies on such changes;" in screen(ablation_blocks(alone), 400)
    assert "attempt 4: superseded" in text
    # Changes that went together are not added up.
    assert "2 of 5 changes can be taken out alone; their worths add up to +80.000 us, 20.0% of the +400.000 us" in text
    assert "320.000 us come from several changes together" in text.replace("\n", " ")


def test_a_sum_beyond_the_whole_and_a_whole_that_fails() -> None:
    text = screen(ablation_blocks(ablation(PAYS, whole=0.65e-3)), 200)
    assert "+100.000 us, 200.0% of the +50.000 us that all changes are worth since the baseline (attempt 1)" in text
    assert "50.000 us are counted more than once" in text
    assert "is unknown: wrong-result: it differs" in screen(ablation_blocks(ablation(PAYS, whole=None)), 200)


# --- with the judge ------------------------------------------------------------------------------


def judged(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["ablate", "-C", str(folder), "--json", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.slow
def test_what_changes_are_worth_and_which_rely_on_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded_steps(tmp_path, [CLEAR], [NO_START], [FEWER_STEPS], [LARGER_BLOCKS], [("+=", "+= ")])
    before = git(tmp_path, "for-each-ref"), git(tmp_path, "status", "--porcelain")
    document = judged(folder, capsys)
    clear, no_start, steps, blocks, words = document["changes"]
    # Without the new clearing the accumulator is never cleared, unless the old one comes back.
    assert clear["tie"] == "dependence"
    assert clear["together"] == ["attempt 3"]
    assert clear["failure"]
    assert clear["without_seconds"] is not None
    assert clear["own_seconds"] == clear["without_seconds"] - no_start["without_seconds"]
    assert (no_start["together"], no_start["own_seconds"]) == ([], None)
    assert blocks["effect"] == "gain"
    for piece in (steps, blocks):
        assert piece["tie"] == ""
        assert piece["worth_seconds"] == piece["without_seconds"] - document["champion_seconds"] > 0
    assert (words["effect"], words["worth_seconds"]) == ("none", 0.0)
    assert document["whole_seconds"] > blocks["without_seconds"]
    assert (git(tmp_path, "for-each-ref"), git(tmp_path, "status", "--porcelain")) == before


@pytest.mark.slow
def test_what_relies_on_a_change_of_the_same_lines_goes_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded_steps(tmp_path, [("BK = 128", "BK = 256")], [("BK = 256", "BK = 512"), CLEAR], [NO_START])
    first, clear, no_start = judged(folder, capsys)["changes"]
    # Attempt 3 changed the line of 2, and without 3 nothing clears the accumulator as long as 4 stays.
    assert (first["tie"], first["together"]) == ("lines", ["attempt 3", "attempt 4"])
    assert first["effect"] == "gain"
    assert (clear["tie"], clear["together"]) == ("dependence", ["attempt 4"])
    assert (no_start["tie"], no_start["together"]) == ("", [])


@pytest.mark.slow
def test_which_hunks_of_an_attempt_pay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    constant = ("VMEM_LIMIT = None", "VMEM_LIMIT = None\nZERO = 0.0")
    used = ("jnp.zeros_like(acc_ref)", "jnp.full(acc_ref.shape, ZERO, acc_ref.dtype)")
    folder = recorded_steps(tmp_path, [LARGER_BLOCKS, constant, used], [FEWER_STEPS], reworded=True)
    document = judged(folder, capsys, "2")
    assert document["reworded"] == [4]
    blocks, defined, use = document["changes"]
    assert (document["attempt"], blocks["effect"], blocks["together"]) == (2, "gain", [])
    assert (defined["tie"], defined["together"]) == ("dependence", [use["name"]])
    assert "ZERO" in defined["failure"]
    assert (use["effect"], use["worth_seconds"], use["together"]) == ("none", 0.0, [])
    assert document["whole_seconds"] == blocks["without_seconds"]
