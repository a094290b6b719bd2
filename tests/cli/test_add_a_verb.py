"""docs/ADD_A_VERB.md followed: a verb that does not exist is added by one file, found everywhere, and runs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from forked_commands import serving
from harness_copies import copy_harness
from loop_fixtures import PROJECT, ratchet

pytestmark = pytest.mark.long

PAGE = Path(PROJECT) / "docs" / "ADD_A_VERB.md"
CONTEST = f"{PROJECT}/examples/rmsnorm"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A harness that has nothing new but the page's file."""
    folder = tmp_path_factory.mktemp("new-verb")
    copy_harness(folder, "candidates")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "harness" / "verbs" / "tally.py").write_text(block, encoding="utf-8")
    with serving(folder):
        yield folder


def printed_by(home: Path, *words: str, **environment: str) -> str:
    """The output of that harness's command line."""
    return ratchet(home, *words, expect=0, environment={"PYTHONPATH": str(home), **environment}).stdout


def test_the_overview_and_the_page_of_commands_have_it(home: Path) -> None:
    overview = printed_by(home, "--help")
    assert re.findall(r"^  (results|tally|show) ", overview, re.M) == ["results", "tally", "show"]
    assert "the number of attempts with each outcome" in overview
    page = printed_by(home, "help", "--markdown")
    assert "### tally\n\nCounts the attempts of the contest by outcome.\n" in page
    assert "| `--least N` | only outcomes of at least N attempts (1) |" in page
    assert "usage: ratchet.sh tally [-h] [-C DIR] [--least N] [--json]" in printed_by(home, "tally", "--help")


def test_a_shell_completes_it(home: Path) -> None:
    answer = home / "answer"
    for line, offered in (("ratchet tal", "tally "), ("ratchet tally --lea", "--least ")):
        question = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
        printed_by(home, _ARGCOMPLETE="1", _ARGCOMPLETE_SHELL="bash", _ARGCOMPLETE_IFS="\n", **question)
        assert answer.read_text() == offered


def test_it_is_a_tool_that_only_reads(home: Path) -> None:
    program = "from harness.shell.tools import tools; print(*(f'{t.name} {t.effect} {[*t.schema]}' for t in tools()))"
    command = [sys.executable, "-P", "-c", program]
    settings = {**os.environ, "PYTHONPATH": str(home)}
    listed = subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout
    assert "tally reads ['type', 'properties'" in listed


def test_it_runs_and_prints_what_its_schema_says(home: Path) -> None:
    printed = printed_by(home, "tally", "-C", CONTEST)
    assert re.search(r"^ +\d+ accept$", printed, re.M)
    document = json.loads(printed_by(home, "tally", "-C", CONTEST, "--json"))
    assert document["schema"] == 1
    jsonschema.Draft202012Validator(json.loads(printed_by(home, "schema", "tally"))).validate(document)
    few = json.loads(printed_by(home, "tally", "-C", CONTEST, "--json", "--least", "1000"))
    assert few["outcomes"] == {}
