"""The verb `new`: make another contest, with its own ledger."""

from argparse import Namespace
from pathlib import Path

from harness.hardware import CHIPS
from harness.loop.scaffold import FORMULA, starts, templates
from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb


class New(Verb):
    place = "loop", 110
    line = "make another contest, with its own ledger"
    example = "new mine --like attention"
    description = "Makes another contest, with its own ledger, and commits it."
    hints_name_contest = False

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "folder", type=Path, help="a new folder; it becomes a git repository if it is not inside one"
        )
        parser.add_argument(
            "--like",
            default="attention",
            complete=starts(),
            help=f"what to start from (attention): {', '.join(templates())}; {FORMULA}, for any other operation, "
            "states the problem in prepare.py as a numpy function. docs/KERNELS.md lists the sizes of each",
        )
        parser.settings("NAME=VALUE", "rewrite this constant of prepare.py, of kernel.py, or of both")
        parser.option(
            "--from WHERE:FUNCTION",
            "make a kernel.py that calls this function of an installed package (package.module:function) or of a file "
            "(file.py:function), which is copied next to kernel.py; the function's options become constants",
            dest="around",
        )
        parser.choice("--chip", [chip.name for chip in CHIPS], "the chip that kernels are judged for")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop.new_contest import new
        from harness.loop.settings import parse
        from harness.verbs.parts.context import progress_of

        base = arguments.directory or Path.cwd()
        settings = [*arguments.settings, *([f"CHIP={arguments.chip}"] if arguments.chip else [])]
        constants = tuple(parse(text) for text in settings)
        with progress_of(arguments) as progress:
            done = new(base / arguments.folder, arguments.like, constants, progress, around=arguments.around, base=base)
        return Outcome(text=lambda: "\n".join(done))
