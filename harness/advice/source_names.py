"""Names of source files that distinguish a package's kernel.py from the candidate's, because dumps have no folders."""

from dataclasses import replace
from pathlib import PurePosixPath

from harness.candidate import KERNEL
from harness.records import Evidence, Simulation


def shown_name(source: str) -> str:
    """The name shown for a package's file: the last part of its path, with its folder if that part is kernel.py."""
    path = PurePosixPath(source)
    return f"{path.parent.name}/{path.name}" if path.name == KERNEL and path.parent.name else path.name


def name_lines(evidence: Evidence, run: Simulation | None) -> Simulation | None:
    """`run` of `evidence`, with lines named so that the package's kernel.py is not mistaken for the candidate's.

    If any operation comes from a package's kernel.py, all lines that the schedule attributes to `kernel.py` get the
    package's name, because a candidate that calls a package's kernel usually has none of its own.
    """
    sources = evidence.trace.sources if evidence.trace else ()
    packaged = {shown_name(source.name) for source in sources if PurePosixPath(source.name).name == KERNEL}
    if run is None or run.breakdown is None or not packaged:
        return run
    name = packaged.pop() if len(packaged) == 1 else f"a package's {KERNEL}"
    lines = tuple(replace(line, file=name) if line.file == KERNEL else line for line in run.breakdown.lines)
    return replace(run, breakdown=replace(run.breakdown, lines=lines))
