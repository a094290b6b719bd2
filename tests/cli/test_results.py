"""The verb results on the ledgers of this repository: widths, filters, sentences for bad input, JSON and CSV."""

import csv
import io
from pathlib import Path

import pytest
from command_line import Shell
from loop_fixtures import PROJECT
from rich.cells import cell_len

ROOT = Path(PROJECT)
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/attempts.jsonl"))
# The quick run looks at one example: the others run the same code with other numbers.
CONTESTS = [ROOT, EXAMPLES[0], *(pytest.param(path, marks=pytest.mark.long) for path in EXAMPLES[1:])]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe without a word about columns."""
    monkeypatch.delenv("COLUMNS", raising=False)


def printed(shell: Shell, *words: str, contest: Path = ROOT) -> str:
    return shell.printed("results", "-C", contest, *words)


@pytest.mark.parametrize("contest", CONTESTS, ids=lambda path: path.name)
def test_no_table_is_wider_than_a_terminal_of_100_columns(
    contest: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for words in ((), ("--all",), ("--then",)):
        lines = printed(shell, *words, contest=contest).splitlines()
        assert max(map(cell_len, lines)) <= 100


@pytest.mark.long
def test_a_pipe_has_every_hypothesis_whole_with_all(shell: Shell) -> None:
    text = printed(shell, "--all")
    rows = shell.document("results", "-C", ROOT)["rows"]
    assert "…" not in text
    assert all(" ".join(entry["row"]["hypothesis"].split()) in text for entry in rows)
    assert "… cut: --csv and --json have all of it" in printed(shell)


@pytest.mark.parametrize("contest", CONTESTS, ids=lambda path: path.name)
def test_every_contest_is_told_in_30_lines(contest: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a person calls it: the folder's name is in the command that a sentence names.
    monkeypatch.chdir(ROOT)
    lines = shell.printed("results", *(["-C", f"examples/{contest.name}"] if contest != ROOT else [])).splitlines()
    assert len(lines) <= 30
    assert "attempt" in lines[-1], "the story is the last line, whole"
    assert " ms [simulated v" in lines[-1]


def test_the_root_contest_tells_its_story(shell: Shell) -> None:
    text = printed(shell)
    assert "24-46" in text
    assert "23 attempts, 8 accepted" in text
    assert "--all lists them" not in text, "each attempt has a line"


@pytest.mark.long
def test_filters(shell: Shell) -> None:
    def rows(*words: str) -> list[int]:
        return [entry["row"]["number"] for entry in shell.document("results", "-C", ROOT, *words)["rows"]]

    assert rows("--accepted") == [1, 2, 3, 9, 13, 14, 15, 23]
    assert rows("--grep", "vmem") == [8, 11]
    assert rows("--limit", "2")[-1] == max(rows())
    assert len(rows("--limit", "2")) == 2
    assert rows("--since", "23")[:2] == [23, 24]
    assert rows("--since", "2020-01-01") == rows()
    assert rows("--since", "2100-01-01") == []


def test_filters_that_match_nothing_say_so(shell: Shell) -> None:
    text = printed(shell, "--grep", "no such words", "--accepted")
    first, *rest = text.splitlines()
    assert first.startswith("none of ")
    assert first.endswith("attempts matches --accepted and --grep 'no such words'")
    assert any("23 attempts, 8 accepted" in line for line in rest)


def test_bad_input_is_answered_in_a_sentence(shell: Shell) -> None:
    for words, complaint in (
        ("--since 999999", "expected --since to name one of the attempts 1 to "),
        ("--since yesterday", "or a day such as 2026-03-31, got 'yesterday'"),
        ("--since 2026-02-31", "expected a day such as 2026-03-31, got '2026-02-31'"),
        ("--json --csv", "expected --json or --csv, got both"),
    ):
        assert complaint in shell.complaint("results", "-C", ROOT, *words.split(), code=2)


def test_json_and_csv_say_the_same(shell: Shell) -> None:
    whole = shell.document("results", "-C", ROOT)
    parsed = list(csv.DictReader(io.StringIO(printed(shell, "--csv"))))
    attempts = [entry for entry in parsed if entry["record"] == "attempt"]
    assert len(parsed) == len(whole["rows"]) + len(whole["notes"])
    for line, entry in zip(attempts, whole["rows"], strict=True):
        assert int(line["number"]) == entry["row"]["number"]
        assert (float(line["seconds"]) if line["seconds"] else None) == entry["row"]["seconds"]
        assert (float(line["then_seconds"]) if line["then_seconds"] else None) == entry["then"]["seconds"]
        assert line["why_unknown"] == entry["why_unknown"]
    assert whole["gain"]["accepted"] == 8
    assert whole["scale"]["chip"] == "v5e"
