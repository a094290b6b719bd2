"""The compiler's schedules that a verb works on: for kernel.py as it stands, for an attempt, or in a directory."""

import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness import reading_limits
from harness.advice import dump_directory
from harness.dumps.llo import ModuleDump
from harness.errors import RatchetError, UsageError
from harness.hardware import TPUS, Chip, chip
from harness.hlo.evaluation import Values
from harness.hlo.tables import Tables
from harness.records import Evidence
from harness.shell.arguments import directory
from harness.verbs.parts.context import JudgedKernel, judged_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Schedules with a name and a chip; `kernel` is None for dumps of an unknown program."""

    name: str
    dumps: Path
    chip: Chip
    kernel: JudgedKernel | None = None


def dumped(arguments: Namespace, *, runs: int) -> tuple[Subject, ModuleDump, dict[str, Values]]:
    """The subject, its schedules (to be run `runs` times), and the contents of arguments from `--operand`.

    Raises UsageError `usage` if `--operand` is given without a directory of dumps, and the errors of `subject`,
    `dump_directory.read` and `operands`.
    """
    if arguments.operand and (arguments.what is None or re.fullmatch(r"\d+", arguments.what)):
        raise UsageError("usage", "--operand is for dumps: a contest states the contents of its tables in prepare.py")
    chosen = subject(arguments, arguments.chip)
    dump = dump_directory.read(chosen.dumps, chosen.chip, runs)
    return chosen, dump, operands(arguments.operand, dump)


def subject(arguments: Namespace, chip_name: str | None) -> Subject:
    """The schedules that `what` names, and their chip; for a suite those of the named member.

    Raises RatchetError `no-simulation`, `no-dump`, `unknown-attempt`; UsageError `usage`, `unknown-chip`,
    `which-member`.
    """
    what, member = arguments.what, arguments.member
    if what is None or re.fullmatch(r"\d+", what):
        kernel = judged_kernel(arguments, None if what is None else int(what), chip_name, checked=False)
        dumps = dumps_of(directory(arguments.directory).resolve(), kernel.evidence, kernel.name)
        name = "kernel.py" if what is None else f"{int(what):04d}"
        return Subject(name=f"{name}-{member}" if member else name, dumps=dumps, chip=kernel.chip, kernel=kernel)
    if member is not None:
        raise UsageError("usage", "--member is for a suite: a directory of dumps holds one program")
    if not Path(what).is_dir():
        is_program = what.partition(":")[0].endswith(".py")
        way = "; `ratchet.sh simulate MODULE.py:FUNCTION` simulates a function of a file" if is_program else ""
        raise UsageError(
            "usage", f"expected the number of an attempt or a directory of compiler dumps, got {what!r}{way}"
        )
    if chip_name is None:
        chips = ", ".join(candidate.name for candidate in TPUS)
        raise UsageError("usage", f"expected --chip, one of {chips}: dumps do not say which chip they are for")
    dumps = Path(what)
    # A folder called `dumps` is left out of the name, because most folders of schedules have this name.
    name = "-".join(part for part in dumps.resolve().parts[-2:] if part != "dumps")
    return Subject(name=re.sub(r"[^\w.-]", "_", name), dumps=dumps, chip=chip(chip_name))


def dumps_of(folder: Path, evidence: Evidence, name: str) -> Path:
    """The folder of this evidence's schedules. Raises RatchetError `no-simulation` or `no-dump`."""
    if evidence.dump_directory is None:
        raise RatchetError("no-simulation", f"{name} has no schedule: {why_none(evidence)}")
    dumps = dump_directory.of(evidence, folder)
    if dumps is None:
        raise RatchetError(
            "no-dump",
            f"expected the schedules of {name} in {evidence.dump_directory}, found nothing: only the machine that "
            "judged it had them, and old ones are removed. Put its kernel.py into the working tree (ratchet.sh "
            "checkout N), then run this command without a number",
        )
    return dumps


def why_none(evidence: Evidence) -> str:
    """The reason why the evidence has no simulated run."""
    if evidence.failure is not None:
        return f"it failed, {evidence.failure.kind}: {evidence.failure.message}"
    reasons = evidence.latency.reasons if evidence.latency else ()
    return reasons[0] if reasons else "it was not simulated"


def operands(words: list[str], dump: ModuleDump) -> dict[str, Values]:
    """The contents of the module's arguments from words `NAME=FILE.npy`. Raises UsageError `bad-operand`."""
    parameters = Tables(dump.module).parameters
    contents: dict[str, Values] = {}
    for word in words:
        name, _, file = word.partition("=")
        if name not in parameters:
            names = ", ".join(parameters) or "none: its HLO module is not in the dump"
            raise UsageError(
                "bad-operand",
                f"--operand {word}: expected NAME=FILE.npy with an argument of the program as NAME: {names}",
            )
        try:
            reading_limits.note(reading_limits.check_file(Path(file)))
            # The header may state a larger array than the file contains. Mapping such a file raises an error, but
            # reading it would allocate the memory first.
            contents[name] = np.array(np.load(file, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError, OverflowError, MemoryError) as error:
            raise UsageError("bad-operand", f"--operand {word}: expected an array in FILE.npy: {error}") from error
    return contents
