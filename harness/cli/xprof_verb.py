"""The verb `xprof`: a word for the subcommand, then the subcommand's own captures and options."""

import argparse
from argparse import Namespace
from collections.abc import Iterator, Sequence

from harness.cli.arguments import Parser, did_you_mean
from harness.cli.verb import Outcome, Verb
from harness.cli.xprof_commands import COMMANDS
from harness.errors import UsageError

_BY_NAME = {command.name: command for command in COMMANDS}


class Xprof(Verb):
    name = "xprof"
    group = "profile"
    line = "look into a capture, without a browser"
    example = "xprof list-runs"
    description = "Looks into a capture, without a browser."

    def configure(self, parser: Parser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = _overview()
        parser.add_argument("subcommand", nargs="?", help="one of those below; SUBCOMMAND --help says more")
        parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its captures and options")

    def parsers(self) -> Iterator[tuple[str, Parser]]:
        yield from super().parsers()
        for command in COMMANDS:
            yield f"{self.name} {command.name}", command.parser()

    def parse(self, words: Sequence[str]) -> Namespace:
        given = super().parse(words)
        name = given.subcommand
        if name is None:
            raise UsageError("usage", f"expected a subcommand of xprof, got none\n{_overview()}")
        if name not in _BY_NAME:
            hint = did_you_mean(name, _BY_NAME, "`ratchet.sh xprof --help` lists them")
            raise UsageError("usage", f"expected a subcommand of xprof, got {name!r}; {hint}")
        parser = _BY_NAME[name].parser()
        parser.set_defaults(directory=given.directory, subcommand=name)
        return parser.parse_args(given.rest)

    def usage(self, given: Namespace) -> str:
        return _BY_NAME[given.subcommand].parser().format_usage().strip()

    def run(self, given: Namespace) -> Outcome:
        from harness.cli.xprof import xprof

        return xprof(_BY_NAME[given.subcommand], given)


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
