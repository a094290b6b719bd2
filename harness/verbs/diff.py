"""The verb `diff`: compare two kernels: time, cycles, VMEM, text."""

from harness.records.comparison import Comparison
from harness.shell.completers import attempts_and_files
from harness.shell.parser import Parser
from harness.shell.verb import Document, Verb


class Diff(Verb):
    place = "look", 30
    line = "compare two kernels: time, cycles, VMEM, text"
    example = "diff 3 7"
    description = (
        "Compares two kernels: times, cycles by kind and by source line, bundles, spills, VMEM, traffic, and text. A "
        "kernel is named by an attempt's number or by its file; a file is judged first and not recorded."
    )
    examples = "ratchet.sh diff (the champion and kernel.py as it stands); ratchet.sh diff 3 7; ratchet.sh diff 3 my.py"
    is_watched = True
    shows_texts = True
    document = Document(1, Comparison)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        for name, metavar, default in (("before", "A", "the champion"), ("after", "B", "kernel.py as it stands")):
            words = f"an attempt's number or a kernel's file (default: {default})"
            parser.word(name, words, metavar=metavar, complete=attempts_and_files)
        parser.flag("--full", "print every figure and line, not only those that changed")
        parser.json("the comparison as JSON")
        parser.quiet()
