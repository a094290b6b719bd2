"""The verb `audit`: find unknown and harmful flags of a program."""

from argparse import Namespace
from collections.abc import Sequence

from harness.shell.arguments import value_of
from harness.shell.parser import Parser
from harness.shell.tables import TABLES
from harness.shell.verb import Verb
from harness.workbench.profiles.places import SUFFIX


class Audit(Verb):
    place = "machine", 60
    line = "find unknown and harmful flags of a program"
    example = "audit run.sh"
    description = (
        "Audits the flags of JAX, XLA and libtpu in a launch script (shell or Python), in the environment, or in a "
        "capture. Lists flags that are unknown, contradict each other, have no effect or distort measurements, and "
        "flags that are missing although a --symptom calls for them. The installed jaxlib and libtpu are started with "
        "the flags, and the flags that they reject are reported. Exit code 1 if the program would not start or two "
        "flags exclude each other."
    )
    examples = "ratchet.sh audit launch.sh --symptom all-reduce-stalls --chip v7x"
    is_watched = True
    document = TABLES
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        from harness.workbench.doctor.flag_rules import SYMPTOMS

        parser.word("file", f"a script, *{SUFFIX}, or - for stdin (default: the environment)", metavar="FILE")
        parser.many("--symptom", "a symptom that you observed; may be repeated", choices=sorted(SYMPTOMS))
        parser.chip("the chip that the program runs on")
        parser.json("the findings as JSON")

    def parse(self, words: Sequence[str]) -> Namespace:
        # Published workflows write `flags --flags-file FILE`; it means the same as FILE alone.
        rest, file = value_of(words, "--flags-file")
        return super().parse(words if file is None else [file, *(rest[1:] if rest[:1] == ["flags"] else rest)])
