"""Completion in a shell: verbs, options and their values, attempts' numbers, a kernel's constants, by argcomplete."""

import argparse
import os
import re
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import harness
from harness import files
from harness.cli.arguments import Parser, attempt_number, directory
from harness.cli.program_name import INSTALLED
from harness.cli.verb import Outcome, Verb
from harness.errors import RatchetError
from harness.hardware import CHIPS

_CLONE = Path(harness.__file__).parents[1]
# A shell waits for the answer: what takes longer is ended, and offers nothing.
_MOST_SECONDS = 5
# Paths that a shell takes for one word as they are, also between double quotes: the code for bash and zsh splits no
# words at blanks.
_ONE_WORD = {"bash": re.compile(r"[\w/.@+ -]+"), "zsh": re.compile(r"[\w/.@+ -]+"), "fish": re.compile(r"[\w/.@+-]+")}
# So many attempts are offered, the newest.
_ATTEMPTS = 200
# Arguments that name an attempt, a commit or a file.
_ATTEMPTS_TOO = ("before", "after", "first", "last")


def completion(given: Namespace) -> Outcome:
    """The code that a shell evaluates at its start; it asks the command itself for what fits."""
    from argcomplete.shell_integration import shellcode

    program = _own_program(given.shell)
    # Without a program to ask, a shell asks the one that is typed.
    names = [*INSTALLED, *(["ratchet.sh"] if program else [])]
    return Outcome(text=lambda: shellcode(names, shell=given.shell, argcomplete_script=program).rstrip("\n"))


def _own_program(shell: str) -> str | None:
    """The program that answers, whatever folder `./ratchet.sh` is typed in: that one may be a stranger's.

    None where this process was begun otherwise than by a program, or a shell would not take its path for one word.
    """
    found = Path(sys.argv[0]).absolute()
    if found.name not in INSTALLED:
        found = _CLONE / "ratchet.sh"
        environment = Path(os.environ.get("RATCHET_ENVIRONMENT") or _CLONE / ".venv")
        if Path(sys.prefix).resolve() != environment.resolve() or not (environment / ".ratchet-stamp").is_file():
            return None
    return str(found) if found.is_file() and _ONE_WORD[shell].fullmatch(str(found)) else None


def answer(verbs: Mapping[str, Verb]) -> None:
    """Answers the shell that asks, and ends the process, which ends itself where that takes too long."""
    import argcomplete

    signal.alarm(_MOST_SECONDS)
    argcomplete.autocomplete(whole(verbs))


def whole(verbs: Mapping[str, Verb]) -> Parser:
    """All parsers as one, whose arguments know what fits."""
    parser = Parser(prog="ratchet.sh", allow_abbrev=False)
    parser.add_argument("-C", dest="directory", type=Path, default=None, metavar="DIR")
    parser.add_argument("--version", action="store_true")
    names: dict[str, list[tuple[Sequence[str], Parser]]] = {}
    for verb in verbs.values():
        for name, own in verb.parsers():
            first, *rest = name.split(" ")
            names.setdefault(first, []).append((rest, own))
    choices = parser.add_subparsers(parser_class=Parser)
    for name, parsers in names.items():
        _add(choices, name, parsers)
    return parser


def _add(choices: "argparse._SubParsersAction[Parser]", name: str, parsers: list[tuple[Sequence[str], Parser]]) -> None:
    """The parser of a name, or the names that follow it: `xprof`, `xprof memory`, `xprof memory diagnose`."""
    own = [parser for rest, parser in parsers if not rest]
    longer: dict[str, list[tuple[Sequence[str], Parser]]] = {}
    for rest, parser in parsers:
        if rest:
            longer.setdefault(rest[0], []).append((rest[1:], parser))
    if longer:
        # A parser that takes all that follows would take the longer names too.
        options = [
            parser for parser in own if not any(action.nargs == argparse.REMAINDER for action in parser.options())
        ]
        added = choices.add_parser(name, parents=options, add_help=False, conflict_handler="resolve")
        nested = added.add_subparsers(parser_class=Parser)
        for next_name, some in longer.items():
            _add(nested, next_name, some)
        return
    added = choices.add_parser(name, parents=own, add_help=False, conflict_handler="resolve", allow_abbrev=False)
    for action in added.options():
        _give_completer(action)
        if action.dest == "directory":
            # Where it is not given behind the verb, it may be before it.
            action.default = argparse.SUPPRESS


def _give_completer(action: argparse.Action) -> None:
    if action.type is attempt_number:
        action.completer = _attempts  # type: ignore[attr-defined]
    elif action.dest in _ATTEMPTS_TOO:
        action.completer = _attempts_and_files  # type: ignore[attr-defined]
    elif action.choices is None and action.dest in _VALUES:
        action.completer = _VALUES[action.dest]  # type: ignore[attr-defined]


def _attempts(parsed_args: Namespace, **_: object) -> dict[str, str]:
    """The newest attempts of the contest, each with its outcome and hypothesis."""
    from harness.ledger import history
    from harness.ledger.paths import place_of
    from harness.render.layout import clean

    try:
        rows, _skipped = history.rows(place_of(directory(parsed_args.directory)), _ATTEMPTS)
    except (RatchetError, OSError, ValueError, RecursionError, MemoryError):
        return {}
    return {str(row.number): clean(f"{row.outcome}: {row.hypothesis}") for row in rows}


def _attempts_and_files(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return [*_attempts(parsed_args), *FilesCompleter()(prefix)]


def _constants(parsed_args: Namespace, **_: object) -> dict[str, str]:
    """The constants of the contest's kernel.py, each with its value."""
    from harness.candidate import constants
    from harness.render.layout import clean

    try:
        folder = directory(parsed_args.directory)
        files.refuse_links(folder)
        kernel = folder / "kernel.py"
        # Of a pipe or a device there is no end.
        source = kernel.read_bytes() if kernel.is_file() else b""
        return {f"{name}=": clean(value) for name, value in constants(source)}
    except (RatchetError, OSError, ValueError, RecursionError, MemoryError):
        return {}


def _members(parsed_args: Namespace, **_: object) -> list[str]:
    """The members of the contest's suite, where prepare.py can be read without running it."""
    from harness.operators.suite import Suite
    from harness.prepare import data
    from harness.render.layout import clean

    try:
        folder = directory(parsed_args.directory)
        files.refuse_links(folder)
        prepare = folder / "prepare.py"
        stated = data.read(prepare.read_bytes()) if prepare.is_file() else None
        suite = stated[0] if stated else None
        return [clean(member.name) for member in suite.members] if isinstance(suite, Suite) else []
    except (RatchetError, OSError, ValueError, RecursionError, MemoryError):
        return []


def _templates(**_: object) -> list[str]:
    from harness.loop.scaffold import templates

    return list(templates())


def _chips(**_: object) -> list[str]:
    return [chip.name for chip in CHIPS]


def _failing(prefix: str, **_: object) -> list[str]:
    """What `ci` may fail on, behind what was typed before the last comma."""
    from harness.cli.gate import POLICY

    before, comma, _last = prefix.rpartition(",")
    chosen = before.split(",")
    return [f"{before}{comma}{word}" for word in POLICY if word not in chosen] + ["nothing"] * (not comma)


# What completes the value of an option, by its name.
_VALUES: Mapping[str, Callable[..., Iterable[str]]] = {
    "settings": _constants,
    "member": _members,
    "like": _templates,
    "chip": _chips,
    "fail_on": _failing,
}
