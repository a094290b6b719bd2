"""The verb `doctor`: check this machine, or how a program uses JAX."""

from harness.shell.parser import Parser
from harness.shell.tables import TABLES
from harness.shell.verb import Verb


class Doctor(Verb):
    place = "machine", 50
    line = "check this machine, or how a program uses JAX"
    example = "doctor run.py:step"
    description = (
        "Checks whether this machine can judge kernels: versions, devices, memory, disk, git and the ledger. With a "
        "program, runs it unconfined in a separate process and prints a checklist with the published targets: "
        "compilations and the argument that caused each, the first call compared with the second, transfers, "
        "precision, the compilation cache. Exit code 1 if there is a problem with the machine."
    )
    examples = "ratchet.sh doctor; ratchet.sh doctor train.py:step"
    document = TABLES
    effect = "reads"
    not_for_tools = frozenset({"module", "--capture", "--limit"})

    def configure(self, parser: Parser) -> None:
        parser.word(
            "module",
            "a program of yours: a function without arguments, which is called twice, or a file, which is run once as "
            "the main program",
            metavar="MODULE.py[:FUNCTION]",
        )
        parser.option("--capture WHERE", "a capture of the program, to show its use of MXU and HBM")
        parser.option("--limit S", "seconds that the program may take (600)", type=float, default=600.0)
        parser.json("the tables as JSON")
        parser.quiet()
