"""The compiler's schedules that a verb is given: of kernel.py as it stands, of an attempt, or of a directory."""

import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness import contest as contests
from harness import reading_limits
from harness.advice import dump_directory
from harness.dumps.llo import ModuleDump
from harness.errors import RatchetError, UsageError
from harness.hardware import TPUS, Chip, chip
from harness.hlo.evaluation import Values
from harness.hlo.tables import Tables
from harness.ledger import history
from harness.loop.suite_member import evidence_of
from harness.records import Evidence, Statement
from harness.shell.arguments import directory
from harness.verbs.parts.given import opened
from harness.verbs.parts.judged import judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a timeline is made of; `problem` and `evidence` are None for dumps that nobody says anything about."""

    name: str
    dumps: Path
    chip: Chip
    problem: Statement | None = None
    evidence: Evidence | None = None


def dumped(given: Namespace, *, runs: int) -> tuple[Subject, ModuleDump, dict[str, Values]]:
    """What is meant, its schedules, which will run so many times, and what `--operand` gives their arguments.

    Raises what finding each raises.
    """
    if given.operand and (given.what is None or re.fullmatch(r"\d+", given.what)):
        raise UsageError("usage", "--operand is for dumps: a contest states itself what its tables hold, in prepare.py")
    meant = subject(given, given.chip)
    dump = dump_directory.read(meant.dumps, meant.chip, runs)
    return meant, dump, operands(given.operand, dump)


def subject(given: Namespace, chip_name: str | None) -> Subject:
    """The schedules meant, and their chip; of a suite those of the member that is named.

    Raises RatchetError `no-simulation`, `no-dump`, `unknown-attempt`; UsageError `usage`, `unknown-chip`,
    `which-member`.
    """
    folder, what, member = directory(given.directory).resolve(), given.what, given.member
    if what is None:
        contest = contests.load(folder, chip_name)
        contest.member(member)
        evidence = evidence_of(judged(contest, given, checked=False), member)
        dumps = _dumps(folder, evidence, "kernel.py")
        return Subject(
            name=_named("kernel.py", member),
            dumps=dumps,
            chip=contest.chip,
            problem=evidence.problem,
            evidence=evidence,
        )
    if re.fullmatch(r"\d+", what):
        if chip_name is not None:
            raise UsageError("usage", "an attempt has its own chip: leave --chip out")
        evidence = evidence_of(history.attempt(opened(folder).place, int(what)).evidence, member)
        dumps = _dumps(folder, evidence, f"attempt {int(what)}")
        return Subject(
            name=_named(f"{int(what):04d}", member),
            dumps=dumps,
            chip=chip(evidence.chip),
            problem=evidence.problem,
            evidence=evidence,
        )
    if member is not None:
        raise UsageError("usage", "--member is for a suite: a directory of dumps is of one program")
    if not Path(what).is_dir():
        raise UsageError("usage", f"expected the number of an attempt or a directory of compiler dumps, got {what!r}")
    if chip_name is None:
        known = ", ".join(candidate.name for candidate in TPUS)
        raise UsageError("usage", f"expected --chip, one of {known}: dumps do not say which chip they are for")
    dumps = Path(what)
    # A folder called `dumps` says nothing; the one above it does.
    name = "-".join(part for part in dumps.resolve().parts[-2:] if part != "dumps")
    return Subject(name=re.sub(r"[^\w.-]", "_", name), dumps=dumps, chip=chip(chip_name))


def _named(name: str, member: str | None) -> str:
    return f"{name}-{member}" if member else name


def _dumps(folder: Path, evidence: Evidence, name: str) -> Path:
    """Where the compiler's schedules of this evidence are. Raises RatchetError `no-simulation` or `no-dump`."""
    if evidence.dump_directory is None:
        raise RatchetError("no-simulation", f"{name} has no schedule: {why_none(evidence)}")
    dumps = dump_directory.of(evidence, folder)
    if dumps is None:
        raise RatchetError(
            "no-dump",
            f"expected the schedules of {name} in {evidence.dump_directory}, where they stay on the machine that "
            "judged it; found nothing. Put its kernel.py into the working tree (ratchet.sh checkout N), then ask "
            "without its number",
        )
    return dumps


def why_none(evidence: Evidence) -> str:
    """Why the evidence has no simulated run."""
    if evidence.failure is not None:
        return f"it failed, {evidence.failure.kind}: {evidence.failure.message}"
    reasons = evidence.latency.reasons if evidence.latency else ()
    return reasons[0] if reasons else "it was not simulated"


def operands(words: list[str], dump: ModuleDump) -> dict[str, Values]:
    """What each `NAME=FILE.npy` gives an argument of the module. Raises UsageError `bad-operand` for anything else."""
    known = Tables(dump.module).parameters
    found: dict[str, Values] = {}
    for word in words:
        name, _, file = word.partition("=")
        if name not in known:
            names = ", ".join(known) or "none: its HLO module is not in the dump"
            raise UsageError("bad-operand", f"--operand {word}: expected NAME=FILE.npy with an argument of {names}")
        try:
            reading_limits.note(reading_limits.check_file(Path(file)))
            # Its header may promise more than the file holds; a map of the file is refused then.
            found[name] = np.array(np.load(file, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError, OverflowError, MemoryError) as error:
            raise UsageError("bad-operand", f"--operand {word}: expected NAME=FILE.npy, got {error}") from error
    return found
