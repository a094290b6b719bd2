"""What the verbs share: the parser, the options of an evaluation, where sentences go, exit codes."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from harness.errors import UsageError
from harness.hardware import CHIPS
from harness.render import terminal

EXIT_OF_OUTCOME = {"accept": 0, "reject": 1, "failed": 1, "inconclusive": 3}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError("usage", f"{message}\n{self.format_usage().strip()}")


def verb_parser(verb: str, description: str, example: str) -> Parser:
    parser = Parser(
        prog=f"ratchet.sh {verb}", description=description, epilog=f"example: {example}", allow_abbrev=False
    )
    parser.add_argument("-C", dest="directory", type=Path, default=None, metavar="DIR", help="the contest's folder")
    return parser


def directory(given: Path | None) -> Path:
    """The contest meant: the one named, else this folder."""
    return given or Path.cwd()


def evaluation_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chip", default=None, help=f"judge for this chip: {', '.join(c.name for c in CHIPS)}")
    parser.add_argument(
        "--on",
        choices=["cpu", "tpu", "gpu", "simulated"],
        default=None,
        help="where the latency comes from; without it the chip if it is here, else (for a TPU) the simulator. "
        "cpu is for development and says nothing about a TPU or GPU",
    )
    parser.add_argument("--deep", action="store_true", help="profile with TRACE_COMPUTE_AND_SYNC (on a device)")
    parser.add_argument("--full", action="store_true", help="print the whole report, not one screen")
    parser.add_argument("--json", action="store_true", help="print the record instead of the report")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def say(sentence: str) -> None:
    print(f"ratchet: {sentence}", file=sys.stderr)


def colour() -> bool:
    return terminal.wants_colour(sys.stdout)
