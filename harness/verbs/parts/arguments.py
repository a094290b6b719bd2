"""Arguments that several verbs share, in addition to those of harness/shell/parser.py."""

import ast
from pathlib import Path

from harness import reading_limits
from harness.errors import UsageError
from harness.hardware import CHIPS
from harness.shell.arguments import at_least
from harness.shell.parser import Parser

# The sources of a latency.
_SOURCES = ("cpu", "tpu", "gpu", "simulated")
# An error names at most this many functions of a file.
_MOST_FUNCTIONS = 5


def add_screening(parser: Parser) -> None:
    """Adds the arguments of `sweep` and `tune`."""
    parser.add_argument("message", help="the hypothesis; begins with `experiment:`")
    parser.settings(
        "NAME=VALUES",
        "the values to try for a constant of kernel.py: a list (512,1024) or a range (128..4096:pow2, 8..64:8); "
        "one --set for each constant",
    )
    add_where(parser)
    add_jobs(parser)
    parser.chip("judge for this chip")
    parser.choice(
        "--on",
        _SOURCES,
        "where the latency of the attempt comes from; settings for a TPU are always screened in the simulator",
    )
    parser.option("--expect 5%", "how much less time you expect the best setting to take")
    parser.flag("--again", "judge the best setting even if it was judged before")
    parser.flag("--full", "print the whole report of the attempt")
    parser.json("the settings' results as JSON")
    parser.quiet()


def add_seed(parser: Parser) -> None:
    # The range of numpy's seeds.
    parser.option(
        "--seed N",
        "seed of the search's random numbers (0); with --jobs 1 the same seed tries the same settings",
        type=at_least(0, (1 << 32) - 1),
        default=0,
    )


def add_where(parser: Parser) -> None:
    parser.many(
        "--where CONDITION",
        "try only settings that meet this condition, such as 'BKV %% BKV_COMPUTE == 0'; may be given more than once",
    )


def add_jobs(parser: Parser) -> None:
    parser.option("--jobs N", "number of settings screened at a time (one for each core, at most 16)", type=at_least(1))
    parser.option(
        "--workers N",
        "settings that Ray screens at a time, each in a worker on this machine or on the cluster of --ray",
        type=at_least(1),
    )
    parser.option(
        "--ray ADDRESS", "screen on this Ray cluster: HOST:PORT if this machine belongs to it, else ray://HOST:10001"
    )


def add_subject(parser: Parser) -> None:
    parser.word("what", "an attempt, or a directory of compiler dumps (default: kernel.py as it stands)")
    parser.chip("the chip that the dumps are for, or that kernel.py is judged for")
    parser.member()
    add_operands(parser)


def add_operands(parser: Parser) -> None:
    parser.many("--operand NAME=FILE.npy", "contents of an argument that the dumped program's control flow reads")


def add_function_arguments(parser: Parser) -> None:
    words = (
        "the shape of an argument of the function, one --arg for each argument; f32[8@x,128] splits the first "
        "dimension over the mesh axis x, f32[8@x@y,128] over x and y"
    )
    parser.many("--arg f32[8,128]", words)


def refuse_bare_file(what: str) -> None:
    """Raises UsageError `unknown-function` if `what` is a Python file; the message names its functions.

    The file is read, not imported. Whatever `reading_limits.read` raises is raised too.
    """
    path = Path(what)
    if path.suffix != ".py" or not path.is_file():
        return
    try:
        body = ast.parse(reading_limits.read(path)).body
    except (SyntaxError, ValueError) as error:
        raise UsageError("unknown-function", f"{what} is a Python file, and is not valid Python: {error}") from None
    names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    names.sort(key=lambda name: name.startswith("_"))
    if not names:
        raise UsageError(
            "unknown-function", f"{what} is a Python file that defines no function; expected {what}:FUNCTION"
        )
    shown = " or ".join(f"{what}:{name}" for name in names[:_MOST_FUNCTIONS])
    more = f" ({len(names) - _MOST_FUNCTIONS} more)" if len(names) > _MOST_FUNCTIONS else ""
    raise UsageError("unknown-function", f"{what} is a Python file; expected a function of it: {shown}{more}")


def add_evaluation(parser: Parser) -> None:
    """Adds the arguments of an attempt and of `judge`."""
    parser.chip(f"judge for this chip: {', '.join(chip.name for chip in CHIPS)}")
    parser.choice(
        "--on",
        _SOURCES,
        "where the latency comes from (default: the chip if it is here, else, for a TPU, the simulator); "
        "cpu is for development and says nothing about a TPU or GPU",
    )
    parser.flag("--deep", "profile with TRACE_COMPUTE_AND_SYNC (on a device)")
    parser.flag("--full", "print the whole report instead of one screen")
    parser.json("the record as JSON instead of the report")
    parser.quiet()
