"""Completion in a shell: verbs, options and their values, attempts' numbers, a kernel's constants, by argcomplete."""

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import argcomplete
from argcomplete.completers import ChoicesCompleter
from argcomplete.shell_integration import shellcode

import harness
from harness.shell import completers
from harness.shell.arguments import attempt_number
from harness.shell.catalogue import EVERY
from harness.shell.parser import Parser
from harness.shell.program_name import INSTALLED

_CLONE = Path(harness.__file__).parents[1]
# A shell waits for the answer. After this time the process ends without an answer.
_MOST_SECONDS = 5
# Paths that a shell reads as one word without quoting, also between double quotes. The code for bash and zsh does not
# split words at blanks.
_ONE_WORD = {"bash": re.compile(r"[\w/.@+ -]+"), "zsh": re.compile(r"[\w/.@+ -]+"), "fish": re.compile(r"[\w/.@+-]+")}


def code(shell: str) -> str:
    """The code that a shell evaluates at its start; this code asks the command itself for completions."""
    program = _program_to_ask(shell)
    # Without a known program, the shell asks the program that is typed.
    names = [*INSTALLED, *(["ratchet.sh"] if program else [])]
    return shellcode(names, shell=shell, argcomplete_script=program).rstrip("\n")


def _program_to_ask(shell: str) -> str | None:
    """The absolute path of the program to ask: in another folder, `./ratchet.sh` may be a stranger's.

    None if this process runs neither an installed script nor the clone's environment, or if a shell would split the
    path.
    """
    program = Path(sys.argv[0]).absolute()
    if program.name not in INSTALLED:
        program = _CLONE / "ratchet.sh"
        environment = Path(os.environ.get("RATCHET_ENVIRONMENT") or _CLONE / ".venv")
        if Path(sys.prefix).resolve() != environment.resolve() or not (environment / ".ratchet-stamp").is_file():
            return None
    return str(program) if program.is_file() and _ONE_WORD[shell].fullmatch(str(program)) else None


def answer() -> None:
    """Answers the shell that asks, and ends the process; a timer ends it if that takes too long."""
    signal.alarm(_MOST_SECONDS)
    argcomplete.autocomplete(joint_parser())


def joint_parser() -> Parser:
    """One parser with all verbs and subcommands, whose arguments have completers."""
    parser = Parser(prog="ratchet.sh", allow_abbrev=False)
    parser.add_argument("-C", dest="directory", type=Path, default=None, metavar="DIR")
    parser.add_argument("--version", action="store_true")
    names: dict[str, list[tuple[Sequence[str], Parser]]] = {}
    for verb in EVERY.values():
        for name, verb_parser in verb.parsers():
            first, *rest = name.split(" ")
            names.setdefault(first, []).append((rest, verb_parser))
    choices = parser.add_subparsers(parser_class=Parser)
    for name, parsers in names.items():
        _add(choices, name, parsers)
    return parser


def _add(choices: "argparse._SubParsersAction[Parser]", name: str, parsers: list[tuple[Sequence[str], Parser]]) -> None:
    """Adds the parser of a name, or parsers of its longer names: `xprof`, `xprof memory`, `xprof memory diagnose`."""
    parents = [parser for rest, parser in parsers if not rest]
    longer: dict[str, list[tuple[Sequence[str], Parser]]] = {}
    for rest, parser in parsers:
        if rest:
            longer.setdefault(rest[0], []).append((rest[1:], parser))
    if longer:
        # A parser that accepts all remaining words would accept the longer names too.
        options = [
            parser for parser in parents if not any(action.nargs == argparse.REMAINDER for action in parser.options())
        ]
        added = choices.add_parser(name, parents=options, add_help=False, conflict_handler="resolve")
        nested = added.add_subparsers(parser_class=Parser)
        for next_name, some in longer.items():
            _add(nested, next_name, some)
        return
    added = choices.add_parser(name, parents=parents, add_help=False, conflict_handler="resolve", allow_abbrev=False)
    for action in added.options():
        _give_completer(action)
        if action.dest == "directory":
            # -C may also stand before the verb; a default here would replace the value that was given there.
            action.default = argparse.SUPPRESS


def _give_completer(action: argparse.Action) -> None:
    completer = getattr(action, "completer", None)
    if isinstance(completer, tuple):
        action.completer = ChoicesCompleter(completer)  # type: ignore[arg-type, attr-defined]
    elif completer is None and action.type is attempt_number:
        action.completer = completers.attempts  # type: ignore[attr-defined]
