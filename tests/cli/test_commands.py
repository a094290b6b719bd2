"""Every verb and option is documented: with words of its own, an example that works, and a place in docs/."""

import ast
import os
import platform
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import forked_commands
import pytest
from command_line import Shell
from loop_fixtures import PROJECT, committed_contest

from harness import __version__
from harness.errors import UsageError
from harness.shell.arguments import command
from harness.shell.catalogue import EVERY, typed_verbs, valued_options
from harness.shell.help_page import overview
from harness.shell.main import place_of_verb
from harness.shell.program_name import OPTION, renamed
from harness.shell.verb import GROUPS, Verb
from harness.verbs.parts.attempts import expectation

DOCS = Path(PROJECT) / "docs"


PARSERS = {name: parser for verb in EVERY.values() for name, parser in verb.parsers()}


def test_every_option_of_every_verb_has_words_of_its_own() -> None:
    for name, parser in PARSERS.items():
        text = " ".join(parser.format_help().split())
        assert parser.description, f"{name}: a verb says what it does"
        for option in parser.options():
            assert option.help, f"{name}: {option.dest} has no help text"
            assert all(word in text for word in option.option_strings), name
        has_subcommands = any(other.startswith(f"{name} ") for other in PARSERS)
        assert has_subcommands or "example: " in text, f"{name}: --help ends with an example"


def test_every_example_is_understood() -> None:
    for name, verb in EVERY.items():
        words = shlex.split(verb.example)
        place = place_of_verb(words)
        assert place is not None, name
        verb.parse(words if name == "experiment" else words[:place] + words[place + 1 :])


def test_every_verb_does_something_and_says_where_it_stands() -> None:
    for name, verb in EVERY.items():
        assert type(verb).run is not Verb.run or callable(import_module(f"harness.verbs.parts.{name}").run)
    places = [verb.place for verb in EVERY.values()]
    assert len(set(places)) == len(places), "two verbs have one place in the overview"


def test_help_prints_and_does_nothing(shell: Shell) -> None:
    for verb in EVERY:
        assert f"usage: ratchet.sh {verb}" in shell.printed(verb, "--help")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_no_library_that_they_do_not_need(option: str) -> None:
    program = (
        "import sys; from harness.shell.main import main; code = main(sys.argv[1:]); "
        "slow = {'jax', 'numpy', 'matplotlib', 'mcp', 'gcsfs', 'xprof', 'git'} & {*sys.modules}; "
        "sys.exit(code or ' '.join(slow) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program, option], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    printed_lines = done.stdout.splitlines()
    if option == "--help":
        assert printed_lines[-1] == f"kernel-ratchet {__version__}"
    else:
        packages = [f"{name} {version(name)}" for name in ("jax", "libtpu")]
        assert printed_lines == [f"kernel-ratchet {__version__}", *packages, f"Python {platform.python_version()}"]


@pytest.mark.parametrize("name", ["ratchet", "kernel-ratchet"])
def test_the_command_that_was_typed_is_the_one_that_is_named(
    name: str, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [f"/somewhere/bin/{name}"])
    assert f"usage: {name} results " in shell.complaint("results", "--limit", "0", code=2)
    commands: tuple[tuple[list[object], int], ...] = (
        (["tune", "--help"], 0),
        (["status", "-C", tmp_path], 4),
        ([], 2),
        (["--help"], 0),
    )
    printed = "".join("".join(shell.run(*words, code=code)) for words, code in commands)
    assert "ratchet.sh" not in printed
    assert f"{name} new DIR --like attention" in printed
    assert renamed("see ./ratchet.sh and experiments/ratchet.sh") == f"see {name} and experiments/ratchet.sh"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("/somewhere/ratchet.sh", "/somewhere/ratchet.sh"),
        ("../ratchet.sh", "../ratchet.sh"),
        ("/two words/ratchet.sh", "'/two words/ratchet.sh'"),
        ("./ratchet.sh", "./ratchet.sh"),
        ("ratchet.sh", "./ratchet.sh"),
    ],
)
def test_commands_name_the_script_where_it_lies(
    typed: str, shown: str, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys._xoptions, OPTION, typed)
    complaint = shell.complaint("status", "-C", tmp_path, code=4)
    assert f"with: {shown.removeprefix('./')} new DIR --like attention" in complaint
    assert command("show 3", Path("mine")) == f"{shown} -C mine show 3"


def test_the_script_says_how_it_was_called() -> None:
    lines = (Path(PROJECT) / "ratchet.sh").read_text().splitlines()
    assert f'exec "$venv/bin/python" -P -X "{OPTION}=$0" -m harness "$@"' in lines


def test_every_verb_takes_quiet_but_the_one_whose_options_are_pytests() -> None:
    assert {name for name, parser in PARSERS.items() if "--quiet" not in parser.option_names()} == {"test"}


@pytest.mark.long
def test_no_parser_loads_a_library_that_it_does_not_need() -> None:
    """All parsers are made in one process, so an import by one verb's --help shows for all."""
    program = (
        "import sys; from harness.shell.catalogue import EVERY; "
        "[parser.format_help() for verb in EVERY.values() for _, parser in verb.parsers()]; "
        "sys.exit(' '.join({'jax', 'numpy', 'matplotlib', 'mcp', 'gcsfs', 'xprof', 'git'} & {*sys.modules}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["results", "--limit", "0"], ["results", "--limit", "many"]])
def test_a_usage_error_shows_the_verbs_own_usage(words: list[str], shell: Shell) -> None:
    assert " [usage]\nusage: ratchet.sh results [-h] [-C DIR] [--all] [--then] " in shell.complaint(*words, code=2)


def test_a_typo_is_told_in_one_line(shell: Shell) -> None:
    assert shell.complaint("reslts", code=2) == (
        "ratchet: expected a verb or a message that begins with `experiment:`, got 'reslts'; did you mean `results`? "
        "[unknown-verb]\n"
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["baseline"], 'did you mean `timeline`, or "experiment: baseline"?'),
        (["raise the block", "--set", "BQ=2"], 'for an attempt: "experiment: raise the block"; '),
        (["larger", "blocks", "--set", "BQ=2"], 'for an attempt: "experiment: larger blocks"; '),
        (["frobnicate"], "`ratchet.sh --help` lists the verbs"),
    ],
)
def test_words_of_a_hypothesis_are_answered_with_an_attempt(words: list[str], hint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(hint)):
        place_of_verb(words)


def test_the_overview_has_every_verb_in_its_group() -> None:
    sections = overview().split("\n\n")
    for verb in typed_verbs():
        (its_section,) = [section for section in sections if section.startswith(GROUPS[verb.place[0]])]
        assert re.search(rf"^  {verb.name} ", its_section, re.M)
    assert all(len(line) <= 120 for line in overview().splitlines())


def test_an_option_before_the_verb_is_understood_with_its_value(tmp_path: Path) -> None:
    assert {"-C", "--chip", "--set", "--limit", "--jobs"} <= valued_options()
    assert not {"--json", "--full", "--quiet"} & valued_options()
    assert place_of_verb(["-C", "show", "results"]) == 2
    assert place_of_verb(["--json", "results"]) == 1
    assert place_of_verb(["--help"]) is None


@pytest.mark.parametrize(
    ("text", "ratio"), [("30%", 0.7), ("-10%", 1.1), ("x0.95", 0.95), (" 5 %", 0.95), (None, None)]
)
def test_an_expectation_says_what_it_is(text: str | None, ratio: float | None) -> None:
    assert expectation(text) == (None if ratio is None else pytest.approx(ratio))


@pytest.mark.parametrize("text", ["30", "0.95", "100%", "fast%", "x", "x0", "nan%", "x-1", "xinf"])
def test_an_expectation_that_could_be_read_two_ways_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"5% .* or --expect x0\.95") as caught:
        expectation(text)
    assert caught.value.kind == "bad-expectation"


@pytest.mark.parametrize("verb", ["show", "checkout", "replay", "lines"])
def test_an_attempt_that_is_no_number_is_told_so(verb: str, shell: Shell) -> None:
    complaint = shell.complaint(verb, "abc", code=2)
    assert "expected the number of an attempt such as 3, got 'abc'" in complaint
    shell.run(verb, "0", code=2)


def test_the_page_of_commands_is_current(shell: Shell) -> None:
    page = (DOCS / "COMMANDS.md").read_text(encoding="utf-8")
    made = shell.printed("help", "--markdown")
    assert page == made, "./ratchet.sh help --markdown >docs/COMMANDS.md brings it up to date"


def test_the_index_names_every_file_and_no_other() -> None:
    index = (DOCS / "INDEX.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((?!\.\./)([^)#]+)\)", index))
    assert linked == {path.name for path in DOCS.iterdir()} - {"INDEX.md"}


def test_a_command_to_copy_names_the_contest_only_where_it_was_named() -> None:
    assert command("show 3", None) == "./ratchet.sh show 3"
    assert command("show 3", Path("my contest")) == "./ratchet.sh -C 'my contest' show 3"


def test_simulate_says_that_it_takes_no_contest(shell: Shell) -> None:
    complaint = shell.complaint("-C", f"{PROJECT}/examples/rmsnorm", "simulate", "dumps", "--chip", "v5e", code=2)
    assert "takes a directory of compiler dumps or a function, and no contest" in complaint


@pytest.mark.long
@pytest.mark.parametrize(("words", "code"), [(("results",), 0), (("next",), 0), (("show", "1"), 4)])
def test_an_empty_contest_says_how_to_begin(
    words: tuple[str, ...], code: int, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder longer than a line would be broken.
    monkeypatch.setenv("COLUMNS", "400")
    folder = committed_contest(tmp_path / "contest")
    printed = shell.run("-C", folder, *words, code=code)
    assert f'./ratchet.sh -C {folder} "experiment: baseline"' in " ".join(f"{printed.out} {printed.err}".split())


def test_the_shell_knows_no_verb_by_name() -> None:
    for path in sorted((Path(PROJECT) / "harness" / "shell").glob("*.py")):
        words = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        # A message is typed instead of `experiment`, and documents have a field `schema`; groups may have these names.
        assert words & {*EVERY} - {*GROUPS} <= {"experiment", "schema"}, path.name


@pytest.mark.long
@pytest.mark.parametrize(
    "words", ["status", "results --json", "show 9999", "show --no-such-option", "judge --chip v9", ""]
)
def test_a_forked_command_is_what_a_process_of_its_own_is(words: str, tmp_path: Path) -> None:
    """tests/support/forked_commands.py runs most commands of the tests; one of each kind of ending is run here."""
    arguments = ("-C", PROJECT, *words.split())
    environment = {**os.environ, "PYTHONPATH": PROJECT}
    assert forked_commands.can_fork(environment)
    assert not forked_commands.can_fork({**environment, "PYTHONPATH": str(tmp_path)})
    forked = forked_commands.run(tmp_path, arguments, environment, timeout=60)
    command = [sys.executable, "-m", "harness", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (forked.returncode, forked.stdout, forked.stderr) == (done.returncode, done.stdout, done.stderr)
    assert done.stdout or done.stderr
