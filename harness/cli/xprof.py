"""The verb `xprof`: hands a subcommand its captures and prints what it answers, as tables or as JSON."""

import argparse
import difflib
from pathlib import Path

import msgspec

from harness.cli.arguments import directory, verb_parser
from harness.cli.xprof_command import Command
from harness.cli.xprof_commands import COMMANDS
from harness.errors import UsageError
from harness.render import tables
from harness.render.layout import terminal_width
from harness.workbench.profiles import places

_BY_NAME = {command.name: command for command in COMMANDS}


def xprof(words: list[str]) -> int:
    parser = verb_parser("xprof", "Looks into a capture, without a browser.", "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _overview()
    parser.add_argument("subcommand", nargs="?", help="one of those below; SUBCOMMAND --help says more")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its captures and options")
    given = parser.parse_args(words)
    if given.subcommand is None:
        raise UsageError("usage", f"expected a subcommand of xprof, got none\n{_overview()}")
    command = _BY_NAME.get(given.subcommand)
    if command is None:
        near = difflib.get_close_matches(given.subcommand, _BY_NAME, 1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        known = ", ".join(_BY_NAME)
        raise UsageError("usage", f"expected a subcommand of xprof ({known}), got {given.subcommand!r}{hint}")
    return _answer(command, given.rest, given.directory)


def _answer(command: Command, words: list[str], contest: Path | None) -> int:
    sentence = f"{command.sentence[0].upper()}{command.sentence[1:]}."
    parser = verb_parser(f"xprof {command.name}", sentence, command.example)
    parser.set_defaults(directory=contest)
    for name in command.places:
        many = "?" if len(command.places) == 1 else None
        default = " (default: the newest capture of the contest)" if many else ""
        parser.add_argument(name, nargs=many, help=f"{places.EXPECTED}{default}")
    command.arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    given = parser.parse_args(words)
    folder = directory(given.directory).resolve()
    found = tuple(places.resolve(getattr(given, name), folder) for name in command.places)
    answer = command.run(given, found)
    if isinstance(answer, str):
        document = {"schema": tables.SCHEMA, "command": f"xprof {command.name}", "text": answer}
        print(msgspec.json.encode(document).decode() if given.json else answer)
    elif given.json:
        print(tables.json_text(f"xprof {command.name}", answer))
    elif answer:
        print(tables.text(answer, terminal_width()))
    return 0


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {one.name:<{width}}  {one.sentence}\n{'':<{width}}      {one.example}" for one in COMMANDS]
    return "\n".join(
        (
            "subcommands:",
            *lines,
            "",
            "Captures are named by a log directory (with plugins/profile/RUN/), the folder or the name of a run,",
            "an .xplane.pb file, or the number of an attempt; without one it is the newest of the contest.",
            "--json prints JSON, in SI units.",
        )
    )
