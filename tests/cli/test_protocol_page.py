"""docs/PROTOCOL.md is what running its commands gives, and nothing on it was not run."""

import itertools
import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest
from protocol_page import COLUMNS, PAGE, Shell, answered, commands, outputs, stand

from harness.shell.main import main

TEXT = PAGE.read_text(encoding="utf-8")
# Quick enough to run here each time; all others only in the slow test.
QUICK = ("./ratchet.sh predict ", "./ratchet.sh hlo '")
HOW = ".venv/bin/python tests/support/protocol_page.py brings docs/PROTOCOL.md up to date"


def test_every_item_is_numbered_and_has_what_its_command_printed() -> None:
    items = re.findall(r"^\*\*(\d+)\.\*\* ", TEXT, re.MULTILINE)
    assert [int(number) for number in items] == list(range(1, len(items) + 1))
    # A paragraph is an item, or several that share what is run for them below.
    for paragraph, following in itertools.pairwise(TEXT.split("\n\n")):
        if re.match(r"\*\*\d+\.", paragraph) and "*Not run here:" not in paragraph:
            assert following.startswith(("```\n$ ", "```measured\n$ ")), f"nothing was run for: {paragraph}"
    assert all(printed for command, _, printed in outputs(TEXT) if " | " in command)


@pytest.mark.parametrize("command", [one for one in commands(TEXT) if one.startswith(QUICK)])
def test_quick_commands_print_what_the_page_shows(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", COLUMNS)
    (shown,) = [printed for text, _, printed in outputs(TEXT) if text == command]
    first, _, filters = command.partition(" | ")
    assert main(shlex.split(first)[1:]) == 0
    printed = capsys.readouterr().out.rstrip().splitlines()
    assert set(filter(None, shown)) <= set(printed) if filters else shown == printed, HOW


def comparable(lines: list[str], *, is_measured: bool) -> list[str]:
    """Lines without blanks at their ends; of measured ones the words: lines wrap where figures differ."""
    if not is_measured:
        return [line.rstrip() for line in lines]
    # What a narrow column cuts off ends in an ellipsis.
    return sorted(set(re.findall(r"[A-Za-z_]{3,}+(?!…)", "\n".join(lines))))


@pytest.mark.slow
def test_the_page_is_what_its_commands_print(tmp_path: Path) -> None:
    made_with = re.search(r"jax ([\d.]+) and libtpu ([\d.]+\d)", TEXT)
    assert made_with
    if made_with.groups() != (version("jax"), version("libtpu")):
        pytest.skip(f"the page shows what {made_with[0]} give")
    now = answered(TEXT, Shell(stand(tmp_path / "project")))
    for (command, is_measured, before), (_, _, after) in zip(outputs(TEXT), outputs(now), strict=True):
        assert comparable(after, is_measured=is_measured) == comparable(before, is_measured=is_measured), (
            f"{command}: {HOW}"
        )
