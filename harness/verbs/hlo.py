"""The verb `hlo`: HLO explained: a module, an operation, a shape."""

from harness import chips
from harness.hardware import DEFAULT_CHIP
from harness.shell.arguments import at_least
from harness.shell.parser import Parser
from harness.shell.tables import TABLES
from harness.shell.verb import Verb
from harness.verbs.parts.arguments import add_function_arguments


class Hlo(Verb):
    place = "profile", 70
    line = "HLO explained: a module, an operation, a shape"
    example = "hlo --op fusion.3"
    description = "Explains HLO: shapes, layouts, padding, cost, copies, collectives, sharding."
    examples = (
        "ratchet.sh hlo module.txt; ratchet.sh hlo module.txt --op fusion.3; ratchet.sh hlo 'f32[3,5]{1,0:T(2,2)}'; "
        "ratchet.sh hlo train.py:step --chip v5e"
    )
    is_watched = True
    document = TABLES
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.word(
            "what",
            "a file of HLO text or of a serialized HloProto (also .gz), - for stdin, HLO text in quotes, a "
            "capture (file, folder or run), an attempt's number, or a function of yours, MODULE.py:FUNCTION, whose "
            "jaxpr and StableHLO are shown too (default: the module of kernel.py as it stands)",
        )
        parser.option("--module NAME", "the module of a capture (default: the module that took most time)")
        parser.option("--op NAME", "explain only this operation")
        parser.option("--steps N", "how many times the HLO in quotes runs (1)", type=at_least(1), default=1)
        add_function_arguments(parser)
        parser.option("--mesh A=N,B=M", "axes of the mesh over which the module or the function is split")
        parser.chip(
            f"predict for this chip: {', '.join(chips.names())} (default: that of the capture, attempt or "
            f"contest, else {DEFAULT_CHIP})"
        )
        parser.option("--top N", "rows of each table of a module (12)", type=at_least(1), default=12)
        parser.member()
        parser.json("the tables as JSON")
        parser.quiet()
