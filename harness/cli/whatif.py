"""The verb that asks which resource of the chip a kernel would profit from."""

from dataclasses import fields

from tabulate import tabulate

from harness.advice import dumped
from harness.advice.whatif import SWEEP, Answer, Scale, answers
from harness.cli.arguments import directory, verb_parser
from harness.cli.documents import WhatifDocument, json_text
from harness.cli.insight import subject
from harness.errors import RatchetError, UsageError
from harness.records import Simulation
from harness.units import change, seconds

_FACTORS = tuple(field.name.replace("_", "-") for field in fields(Scale))


def whatif(words: list[str]) -> int:
    parser = verb_parser(
        "whatif",
        "Runs the same schedule on a chip with other resources, in the simulator; without factors each one in turn.",
        "ratchet.sh whatif; ratchet.sh whatif 3 --mxu x2 --bandwidth x2; ratchet.sh whatif dumps --chip v6e",
    )
    parser.add_argument(
        "what", nargs="?", help="an attempt, or a directory of compiler dumps (default: kernel.py as it stands)"
    )
    parser.add_argument("--chip", default=None, help="the chip that the dumps are for, or that kernel.py is judged for")
    for name in _FACTORS:
        parser.add_argument(f"--{name}", default=None, metavar="x2", help=f"factor on the chip's {name}")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    given = parser.parse_args(words)
    words_given = {name.replace("-", "_"): getattr(given, name.replace("-", "_")) for name in _FACTORS}
    factors = {name: _factor(name, word) for name, word in words_given.items() if word is not None}
    meant = subject(directory(given.directory).resolve(), given.what, given.chip, quiet=given.quiet or given.json)
    dump = dumped.read(meant.dumps, meant.chip)
    real, found = answers(dump, meant.chip, _asked(factors) or SWEEP)
    if real.seconds is None:
        raise RatchetError("no-simulation", f"{meant.name} has no latency: {real.unknown[0]}")
    if given.json:
        document = WhatifDocument(source="simulated", chip=real.chip, seconds=real.seconds, answers=found)
        print(json_text("whatif", document))
    else:
        print(_text(f"attempt {int(meant.name)}" if meant.name.isdecimal() else meant.name, real, found))
    return 0


def _asked(factors: dict[str, float]) -> tuple[Scale, ...]:
    """Each factor by itself, and if there are several, all of them together."""
    alone = tuple(Scale(**{name: factor}) for name, factor in factors.items())
    return (*alone, Scale(**factors)) if len(alone) > 1 else alone


def _factor(name: str, word: str) -> float:
    """`x2` or `2` as a number. Raises UsageError `bad-factor`."""
    try:
        return float(word.strip().removeprefix("x"))
    except ValueError as error:
        said = f"--{name.replace('_', '-')}: expected a factor such as x2, got {word!r}"
        raise UsageError("bad-factor", said) from error


def _text(name: str, real: Simulation, found: tuple[Answer, ...]) -> str:
    assert real.seconds is not None
    rows = [
        [answer.scale.words or "nothing changed", seconds(answer.seconds), change(answer.time_ratio)]
        for answer in found
    ]
    # All together are better than any, which says nothing about which one counts.
    alone = [answer for answer in found if len(answer.scale.resources) == 1]
    best = min(alone, key=lambda answer: answer.time_ratio, default=None)
    last = "nothing here would make it notably faster"
    if best is not None and best.profits:
        last = f"it would profit most from {best.scale.words}"
    return "\n".join(
        (
            f"{name}: {seconds(real.seconds)} as it is [simulated {real.chip}]",
            tabulate(rows, headers=["what if", "time", "change"], disable_numparse=True),
            f"{last}; the schedule stays the one made for the real chip, so a gain is a lower bound",
        )
    )
