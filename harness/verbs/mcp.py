"""The verb `mcp`: the commands as tools of the Model Context Protocol."""

from argparse import Namespace
from pathlib import Path

from harness.shell.arguments import directory
from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb

# The text about all tools, which a client gives to its model. AGENTS.md is a longer text, for programs that use the
# command line.
_INSTRUCTIONS = """\
A ratchet for accelerator kernels: kernel.py is edited, judged, and kept only if it is correct and faster.
Loop: next says where the search stands and whether to go on; diagnose says what to try. Change one thing in kernel.py;
run_experiment judges and records it (sweep tries all settings of a grid, tune searches; both record the best).
results shows all attempts. evaluate judges without recording; without a number, diagnose, lines, whatif and hlo are
about kernel.py as it stands, once evaluate has judged it.
xprof_* tools read profiles of XLA programs. Numbers are in SI base units; `origin` or `source` says whether they are
measured or simulated; the two are never compared. Where an answer is too long, `cut` says how to ask for the rest."""


class Mcp(Verb):
    place = "machine", 40
    line = "the commands as tools of the Model Context Protocol"
    description = (
        "Offers the ratchet's commands as MCP tools over stdin and stdout; an MCP client starts this verb. Tools open "
        "only contests, captures and other files below the folders of --root (symbolic links are resolved first). "
        "Tools marked read-only write nothing."
    )
    examples = 'ratchet.sh mcp -C /path/to/contest; for a client: {"command": "/path/to/ratchet.sh", "args": ["mcp"]}'

    def configure(self, parser: Parser) -> None:
        parser.many(
            "--root DIR",
            "let tools open files below this folder; may be given more than once (default: the contest's folder)",
            type=Path,
        )

    def run(self, arguments: Namespace) -> Outcome:
        from harness.shell.mcp_server import serve

        contest = directory(arguments.directory)
        serve(contest, arguments.root or [contest], _INSTRUCTIONS)
        return Outcome()
