"""docs/PROTOCOL.md and docs/PROFILING.md show what their commands print, and agree with each other."""

import itertools
import re
import shlex
from importlib.metadata import version
from pathlib import Path

import command_line
import pytest
from protocol_page import COLUMNS, PAGE, PAGES, Shell, answered, commands, outputs, stand

TEXT = PAGE.read_text(encoding="utf-8")
# These commands are quick enough to run each time; all others run only in the slow test.
QUICK = ("./ratchet.sh predict ", "./ratchet.sh hlo '")
HOW = ".venv/bin/python tests/support/protocol_page.py brings docs/PROTOCOL.md up to date"


def test_every_item_is_numbered_and_has_what_its_command_printed() -> None:
    items = re.findall(r"^\*\*(\d+)\.\*\* ", TEXT, re.MULTILINE)
    assert [int(number) for number in items] == list(range(1, len(items) + 1))
    # A paragraph is one item, or several items that share the commands below it.
    for paragraph, following in itertools.pairwise(TEXT.split("\n\n")):
        if re.match(r"\*\*\d+\.", paragraph) and "*Not run here:" not in paragraph:
            assert following.startswith(("```\n$ ", "```measured\n$ ")), f"nothing was run for: {paragraph}"
    assert all(printed for command, _, printed in outputs(TEXT) if " | " in command)


@pytest.mark.parametrize("command", [command for command in commands(TEXT) if command.startswith(QUICK)])
def test_quick_commands_print_what_the_page_shows(
    command: str, shell: command_line.Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", COLUMNS)
    (shown,) = [printed for text, _, printed in outputs(TEXT) if text == command]
    first, _, filters = command.partition(" | ")
    printed = shell.printed(*shlex.split(first)[1:]).rstrip().splitlines()
    assert set(filter(None, shown)) <= set(printed) if filters else shown == printed, HOW


def comparable(lines: list[str], *, is_measured: bool) -> list[str]:
    """Lines without trailing blanks; for measured output only the words, because lines wrap where figures differ."""
    if not is_measured:
        return [line.rstrip() for line in lines]
    # Text that a narrow column cuts off ends in an ellipsis.
    return sorted(set(re.findall(r"[A-Za-z_]{3,}+(?!…)", "\n".join(lines))))


def test_what_both_pages_show_of_one_run_is_the_same() -> None:
    """The contest `mine` is made anew for each page, and simulated times do not depend on when."""
    protocol, profiling = (page.read_text(encoding="utf-8") for page in PAGES)

    def baselines(text: str) -> set[str]:
        printed = [
            line
            for command, is_measured, lines in outputs(text)
            if "mine" in command and not is_measured
            for line in lines
        ]
        first = {match[1] for line in printed if (match := re.search(r"against ([\d.]+) of attempt 1", line))}
        results = {line for line in printed if line.startswith("RESULT") and "util=12.5%" in line}
        return first | {re.sub(r" +", " ", line.strip()) for line in results}

    assert baselines(protocol) == baselines(profiling)
    assert len(baselines(protocol)) == 2
    # Figures in sentences of the walk also stand in an output or a command next to them.
    prose = re.sub(r"```.*?```", "", profiling, flags=re.DOTALL)
    shown = " ".join(re.findall(r"```.*?```", profiling, flags=re.DOTALL))
    for number in re.findall(r"(?<![\w.])\d+\.\d+(?= (?:us|ms|%|GB/s|s\b))", prose):
        assert number in shown, f"{number} stands in no output"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_references_to_sections_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("http") or (page.parent / target).exists(), target
    sections = {int(number) for number in re.findall(r"^## (\d+)\.", TEXT, re.MULTILINE)}
    for source in sorted((Path(PAGE).parents[1] / "harness").rglob("*.py")):
        for number in re.findall(r"(?i)protocol, section (\d+)", source.read_text(encoding="utf-8")):
            assert int(number) in sections, f"{source}: docs/PROTOCOL.md has no section {number}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_is_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    made_with = re.search(r"jax ([\d.]+) and libtpu ([\d.]+\d)", TEXT)
    assert made_with
    if made_with.groups() != (version("jax"), version("libtpu")):
        pytest.skip(f"the page shows what {made_with[0]} give")
    text = page.read_text(encoding="utf-8")
    now = answered(text, Shell(stand(tmp_path / "project")))
    for (command, is_measured, before), (_, _, after) in zip(outputs(text), outputs(now), strict=True):
        assert comparable(after, is_measured=is_measured) == comparable(before, is_measured=is_measured), (
            f"{command}: {HOW}"
        )
