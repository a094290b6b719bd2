"""Figures in sentences of README.md and LOG.md pages agree with their sources."""

import itertools
import re
from pathlib import Path

import fidelity_page
import fidelity_statistics as statistics
import pytest
from loop_fixtures import PROJECT
from narrowing import present

from harness.judge.simulate.uncertainty import relative_uncertainty
from harness.judge.verdict import roofline
from harness.ledger import Ledger
from harness.ledger.fsck import audit
from harness.selftest import planted
from harness.selftest.callers import CALLERS

README = " ".join(Path(PROJECT, "README.md").read_text(encoding="utf-8").split())
FIDELITY = Path(PROJECT, "benchmarks", "FIDELITY.md").read_text(encoding="utf-8")


# The log of each contest, by the contest's folder.
LOGS = {Path(PROJECT): Path(PROJECT, "experiments/LOG.md")} | {
    log.parent: log for log in sorted(Path(PROJECT).glob("examples/*/LOG.md"))
}


def tables(page: str) -> list[list[str]]:
    """The cells of each row of each table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]


def test_how_many_candidates_are_planted() -> None:
    stated = re.search(r"plants (\d+) bad kernels, (\d+) cheating callers and (\d+) good", README)
    assert stated
    bad = sum(bool(kernel.expected) for kernel in planted.kernels())
    assert [int(count) for count in stated.groups()] == [bad, len(CALLERS), len(planted.kernels()) - bad]


def test_errors_of_the_simulator_are_the_sentence_that_is_made_with_the_page() -> None:
    assert fidelity_page.readme(statistics.points()) in README


def test_errors_of_the_simulator_are_those_of_the_page() -> None:
    """Both times that a median, a 90th percentile and a worst error are stated, and those of operations."""
    page = " ".join(FIDELITY.split())
    of_all = re.compile(r"([\d.]+) % in the median, ([\d.]+) % at the 90th percentile and ([\d.]+) % at worst")
    of_today, of_sealed = of_all.finditer(README)
    (all_rows,) = (cells for cells in tables(FIDELITY) if cells[:2] == ["all", "all"])
    assert list(of_today.groups()) == [cell.removesuffix(" %") for cell in all_rows[3:6]]
    assert of_sealed[0] in page
    of_operation = re.compile(r"([a-z][a-z0-9 -]+?) ([\d.]+) and ([\d.]+) %")
    # The last row of an operation holds all of its chips.
    by_kind = {cells[0]: cells[3:5] for cells in tables(FIDELITY) if cells[1:2] in (["v7x"], ["all"])}
    stated = of_operation.findall(README[of_today.end() : of_sealed.start()].partition("(")[2].partition(")")[0])
    assert {operation for operation, *_ in stated} == by_kind.keys() - {"all", "other"}
    for operation, *errors in stated:
        assert by_kind[operation] == [f"{error} %" for error in errors]
    for operation in README[of_sealed.end() :].partition("(")[2].partition(")")[0].split(", "):
        assert operation in page


def test_the_uncertainty_that_a_decision_uses() -> None:
    text = " ".join(Path(PROJECT, "docs", "DECIDING.md").read_text(encoding="utf-8").split())
    stated = re.search(r"one sigma: (.+?), and ([0-9.]+) us for each HLO operation", text)
    assert stated
    chips = ("v5e", "v5p", "v6e", "v7x")
    assert stated[1] == ", ".join(f"{100 * relative_uncertainty(chip):.1f} % on {chip}" for chip in chips)
    # If a program's operations take this long, the fixed part equals the chip's part.
    each = float(stated[2]) * 1e-6 / relative_uncertainty("v5e")
    assert relative_uncertainty("v5e", each) == pytest.approx(2**0.5 * relative_uncertainty("v5e"), rel=0.02)


def test_how_far_attention_is_ahead_of_other_kernels() -> None:
    stated = re.search(
        r"take (\d+) % \(full\) and (\d+) % \(causal\) less .+? on v5e, (\d+) % and (\d+) % less on v6e", README
    )
    assert stated
    page = Path(PROJECT, "benchmarks/PEERS.md").read_text(encoding="utf-8")
    measured = []
    for chip, title in itertools.product(("v5e", "v6e"), ("full", "causal")):
        table = page.split(f"### {chip}, {title}, 16 heads, sequence 16384")[1].split("###")[0]
        ours = next(line for line in table.splitlines() if line.startswith("| ours "))
        measured.append(100 * (1 - float(ours.split("|")[-2].split("+/-")[0])))
    for number, value in zip(stated.groups(), measured, strict=True):
        assert float(number) == pytest.approx(value, abs=1)


@pytest.mark.long
@pytest.mark.parametrize("folder", LOGS, ids=lambda folder: folder.name)
def test_the_records_of_each_contest_follow_from_each_other(folder: Path) -> None:
    """Records keep their keys when a statement gets another field."""
    assert audit(Ledger.open(folder)).findings == ()


@pytest.mark.parametrize("folder", LOGS, ids=lambda folder: folder.name)
def test_a_log_ends_with_the_time_of_the_champion_as_it_stands(folder: Path) -> None:
    """An older judge's words on a champion are history; the last section names what binds it now."""
    log, champion = LOGS[folder], present(Ledger.open(folder).champion())
    latency = present(roofline.latency_seconds(champion.evidence))
    ending = log.read_text(encoding="utf-8").rpartition("\n## ")[2]
    stated = re.findall(r"\b(\d+(?:\.(\d+))?)\s(ms|us)\b", ending)
    scale = {"ms": 1e3, "us": 1e6}
    # To three digits or more.
    precise = [number for number, _, _ in stated if len(number.replace(".", "").lstrip("0")) >= 3]
    same = [number for number, decimals, unit in stated if f"{latency * scale[unit]:.{len(decimals)}f}" == number]
    assert set(precise) & set(same)


def test_what_the_fallback_costs_in_the_example_tables() -> None:
    folder = Path(PROJECT, "examples", "tables")
    last_cells = [cells[-1] for cells in tables((folder / "README.md").read_text(encoding="utf-8"))[2:]]
    # A range has a least ratio; a fallback without a time has no ratio.
    stated = [cell.removeprefix("at least ") for cell in last_cells if cell]
    in_tables = [
        times
        for path in folder.glob("*.py")
        for times in re.findall(r"the fallback takes (?:at least )?([\d.]+) times as long", path.read_text("utf-8"))
    ]
    assert sorted(stated) == sorted(in_tables)
    assert len(in_tables) > 20
