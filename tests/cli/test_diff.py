"""Two kernels compared: real records of this repository's contests, and edits of their texts."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import Shell
from loop_fixtures import git, ratchet
from narrowing import present

from harness.advice.comparison import ComparedSide, compare
from harness.candidate import Candidate
from harness.ledger import Ledger, history
from harness.ledger import lock as locking
from harness.records.comparison import Comparison, LinePair

RMSNORM = Path(__file__).parents[2] / "examples" / "rmsnorm"


def side(number: int, text: bytes | None = None) -> ComparedSide:
    ledger = Ledger.open(RMSNORM)
    candidate = history.candidate(ledger.place, number) if text is None else Candidate(text=text)
    return ComparedSide(name=str(number), candidate=candidate, evidence=history.attempt(ledger.place, number).evidence)


def line_of(comparison: Comparison, text: str) -> LinePair:
    return next(line for line in comparison.programs[0].lines if text in line.text)


def test_time_figures_and_cycles_are_those_of_the_records() -> None:
    before, after = side(3), side(4)
    (program,) = compare(before, after, "").programs
    old, new = present(before.evidence.simulation), present(after.evidence.simulation)
    assert (program.before_seconds, program.after_seconds) == (old.seconds, new.seconds)
    assert program.time_ratio == pytest.approx(0.94575, abs=1e-5)
    figures = {pair.name: (pair.before, pair.after) for pair in program.figures}
    assert figures["cycles"] == (old.cycles, new.cycles)
    assert figures["spills executed"] == (130_944, 131_616)
    assert figures["grid steps"] == (128, 32)
    # Parts and lines each take the whole run apart.
    assert sum(pair.before or 0.0 for pair in program.parts) == pytest.approx(old.cycles, rel=1e-6)
    assert sum(line.after_cycles for line in program.lines) == pytest.approx(new.cycles, rel=1e-6)


def test_a_line_is_held_against_its_like_wherever_it_stands() -> None:
    comparison = compare(side(3), side(4), "")
    moved = line_of(comparison, "y_ref[...] =")
    assert (moved.before_line, moved.after_line) == (28, 29)
    before = side(4)
    shifted = compare(before, side(4, b"# one more line\n" * 3 + before.candidate.text), "").programs[0]
    # The text moved down, the record did not: lines without a counterpart in the record have no cost.
    assert all(
        line.before_line is None or line.before_line + 3 == line.after_line for line in shifted.lines if line.file
    )


def test_a_line_that_one_text_lacks_is_new_or_gone() -> None:
    before, after = side(1), side(5)
    gone = line_of(compare(before, after, ""), "h = h_ref[...]")
    assert (gone.after_line, gone.after_cycles) == (None, 0.0)
    assert gone.before_cycles > 10_000
    new = line_of(compare(after, before, ""), "h = h_ref[...]")
    assert (new.before_line, new.difference) == (None, gone.before_cycles)


def test_a_rewritten_line_stands_beside_the_one_it_is_most_like() -> None:
    """Lines inserted before it, and indentation, do not move its cycles to another line."""
    before = side(4)
    lines = before.candidate.source.splitlines()
    numbers = {line.before_line for line in compare(before, before, "").programs[0].lines if line.file}
    at = next(number for number in sorted(filter(None, numbers)) if "y_ref[...] =" in lines[number - 1])
    rest = f"    {lines[at - 1]}".replace("y_ref[...]", "y_ref[some, :]")
    loop = ["    @pl.loop(0, 2)", "    def walk(strip):", "        some = pl.ds(strip * 8, 8)", rest]
    text = "\n".join([*lines[: at - 1], *loop, *lines[at:]]) + "\n"
    pair = line_of(compare(before, side(4, text.encode()), ""), "y_ref[some, :] =")
    assert (pair.before_line, pair.after_line) == (at, at + 3)
    assert pair.before_cycles > 0
    # A line that resembles none of the lines in its place counts as removed.
    other = "\n".join([*lines[: at - 1], "    pass", "    return", *lines[at:]]) + "\n"
    gone = line_of(compare(before, side(4, other.encode()), ""), "y_ref[...] =")
    assert (gone.before_line, gone.after_line) == (at, None)


def test_times_of_another_key_have_no_ratio() -> None:
    (program,) = compare(side(3), side(4), "", "another timing key").programs
    assert program.source is None
    assert program.time_ratio is None


def test_a_side_without_a_latency_has_no_time() -> None:
    good = side(4)
    bare = dataclasses.replace(good, evidence=dataclasses.replace(good.evidence, simulation=None, latency=None))
    (program,) = compare(good, bare, "").programs
    assert program.before_seconds is not None
    assert program.after_seconds is None
    assert program.time_ratio is None


def test_the_verb_prints_time_cycles_lines_and_the_diff(shell: Shell) -> None:
    text = shell.printed("-C", RMSNORM, "diff", "3", "4")
    assert "time 707.839 us -> 669.439 us, -5.4% [simulated v5e]" in text
    assert "kernel.py:28 -> 29" in text
    assert "\n-BR = 64\n+BR = 256\n" in text
    assert shell.document("-C", RMSNORM, "diff", "3", "4")["programs"][0]["chip"] == "v5e"


def test_attempts_under_different_judges_are_said_to_be(shell: Shell) -> None:
    text = " ".join(shell.printed("-C", RMSNORM, "diff", "4", "7").split())
    assert "times are not comparable: another timing key" in text
    # Both have a time on the champion's scale.
    assert re.search(
        r"on one scale \(`results`\) they take ([\d.]+ us) and \1, 0.0%; the figures below are as recorded", text
    )


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_characters_is_no_bug(encoding: str) -> None:
    environment = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "COLUMNS": "80"}
    done = ratchet(RMSNORM, "results", expect=0, environment=environment)
    assert "\\u2026" in done.stdout
    done = ratchet(RMSNORM, "results", "--json", expect=0, environment=environment)
    assert len(json.loads(done.stdout)["rows"]) >= 18


def test_files_are_judged_by_one_at_a_time(tmp_path: Path, shell: Shell) -> None:
    for name in ("prepare.py", "kernel.py"):
        shutil.copy(RMSNORM / name, tmp_path)
    git(tmp_path, "init", "--quiet")
    kernel = tmp_path / "kernel.py"
    with locking.hold(tmp_path / "profile_data" / "bench.lock", "diff"):
        assert "[busy]" in shell.complaint("-C", tmp_path, "diff", kernel, kernel, code=4)


@pytest.mark.parametrize(
    ("words", "complaint"), [(["99"], "unknown-attempt"), (["3", "nowhere.py"], "got 'nowhere.py'")]
)
def test_what_is_neither_attempt_nor_file(words: list[str], complaint: str, shell: Shell) -> None:
    assert complaint in shell.complaint("-C", RMSNORM, "diff", *words, code=(2, 4))
