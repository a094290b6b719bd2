"""PEERS.md as it stands agrees with what it is made of: the ledgers, the kept peers, its own times."""

import re
from pathlib import Path

import peers_page as pages
import pytest
from peers_problems import OPERATOR_AIMS
from peers_titles import champion_seconds, kept

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "benchmarks" / "PEERS.md").read_text(encoding="utf-8")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}
# The contests whose problem is one of attention forward, and what the page calls it.
ATTENTION = {
    ".": ("v5e", "full, 1 head, sequence 16384"),
    "examples/attention-causal": ("v5e", "causal, 1 head, sequence 16384"),
    "examples/attention-v6e": ("v6e", "full, 1 head, sequence 16384"),
    "examples/attention-causal-v6e": ("v6e", "causal, 1 head, sequence 16384"),
    "examples/attention-gqa-v6e": ("v6e", "full, 32 query heads over 8 key/value heads, sequence 4096"),
}


def rows(text: str) -> list[list[str]]:
    """The cells of each line of the tables, without heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def seconds(text: str) -> float | None:
    """`747.367 us`; None of `not run`."""
    number, _, unit = text.partition(" ")
    return float(number) * UNITS[unit] if unit in UNITS else None


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.long
def test_other_operators_and_remarks_are_as_they_would_be_written_now() -> None:
    """A champion that was accepted since changes its row, and a peer that was timed since has one."""
    assert pages.operators() in PAGE
    assert PAGE.endswith(pages.NOTES.read_text(encoding="utf-8").strip() + "\n")


@pytest.mark.parametrize("contest", sorted(set(kept()) & set(OPERATOR_AIMS)))
def test_kept_ratios_are_those_of_the_champions(contest: str) -> None:
    ours = champion_seconds(ROOT / contest)
    assert ours is not None
    assert f"{ours / float(kept()[contest]['seconds']):.3f}" == kept()[contest]["ratio"]


def test_every_kept_peer_is_one_of_a_problem_on_the_page() -> None:
    assert set(kept()) == set(ATTENTION) | (set(kept()) & set(OPERATOR_AIMS))


def test_every_contest_of_a_chip_in_its_name_is_beside_others() -> None:
    contests = {f"examples/{folder.name}" for folder in (ROOT / "examples").glob("*-v[67]?")}
    # Their peers were compiled by another libtpu than their champions: their LOG.md have them.
    alone = {"examples/cross-entropy-v6e", "examples/cross-entropy-gemma-v6e"}
    assert contests - alone <= set(kept())


@pytest.mark.parametrize("contest", ATTENTION)
def test_kept_peers_of_attention_are_those_of_the_page(contest: str) -> None:
    (row,) = [row for row in rows(section("Against the aims")) if (row[0], row[1]) == ATTENTION[contest]]
    peer = kept()[contest]
    assert float(peer["seconds"]) == pytest.approx(seconds(row[4]), rel=1e-6)
    assert (peer["peer"], peer["ratio"]) == (row[5], row[6].split()[0])


@pytest.mark.parametrize("table", re.findall(r"### (.+ sequence \d+)\n", PAGE))
def test_ratios_are_those_of_the_times(table: str) -> None:
    times = [(seconds(row[2]), row[-1]) for row in rows(PAGE.partition(f"### {table}\n")[2].partition("\n#")[0])]
    contenders = [(time, float(ratio.split()[0])) for time, ratio in times if time is not None]
    best = min(time for time, _ in times[1:] if time is not None)
    for time, ratio in contenders:
        # Times are rounded as well, to microseconds above one millisecond.
        assert time / best == pytest.approx(ratio, abs=0.0011)
