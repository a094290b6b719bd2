"""What `lines` and `timeline` say of a run: what each line of kernel.py costs, what happens when."""

import gzip
import re
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness import contest as contests
from harness.advice import dump_directory
from harness.advice.source_names import named_lines
from harness.advice.timeline import timeline_with_parts
from harness.cli.arguments import colour, command, directory
from harness.cli.documents import LinesDocument
from harness.cli.judged import judged
from harness.cli.ledger import known_candidate, opened, tidy, with_packages
from harness.cli.simulate import operands
from harness.cli.verb import Outcome
from harness.dumps.llo import ModuleDump
from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.hardware import TPUS, Chip, chip
from harness.hlo.evaluation import Values
from harness.ledger import history
from harness.loop.suite_member import evidence_of
from harness.records import Evidence, Statement
from harness.render.layout import terminal_width
from harness.render.lines import listing, narrowest
from harness.render.operands import in_problem_names
from harness.render.traces.perfetto import trace_json
from harness.render.traces.summary import summary
from harness.render.traces.xspace import xspace_text
from harness.workbench.capture import xspace
from harness.workbench.profiles import pruning
from harness.workbench.profiles.places import PROFILE_DATA, RUNS


def lines(given: Namespace) -> Outcome:
    if given.number is not None and given.chip is not None:
        raise UsageError("usage", "an attempt has its own chip: leave --chip out, or the number")
    if given.number is None:
        contest = contests.load(directory(given.directory), given.chip)
        contest.member(given.member)
        title, candidate = "kernel.py as it stands", contest.candidate()
        evidence, again = judged(contest, given), ""
    else:
        ledger = opened(directory(given.directory))
        title, candidate = f"kernel.py of attempt {given.number}", known_candidate(ledger, given.number)
        evidence = history.attempt(ledger.place, given.number).evidence
        back = command(f"checkout {given.number}", given.directory)
        again = f". Records stay as they were made; to see its lines: {back}, then {command('lines', given.directory)}"
    evidence = evidence_of(evidence, given.member)
    if given.member:
        title += f" at {given.member}"
    run = named_lines(evidence, evidence.simulation)
    if run is None or run.seconds is None:
        raise RatchetError("no-simulation", f"{title} has no simulated run to take apart: {_why_none(evidence)}")
    if run.breakdown is None:
        raise RatchetError("no-breakdown", f"{title} was judged before cycles were counted line by line{again}")
    if evidence.failure is not None:
        title += f" (failed: {evidence.failure.kind})"
    breakdown, files = run.breakdown, with_packages(candidate, evidence)
    document = LinesDocument(
        source="simulated", chip=run.chip, clock_hz=run.clock_hz, cycles=breakdown.cycles, breakdown=breakdown
    )
    width = terminal_width(narrowest(files))
    return Outcome(document=document, text=lambda: listing(run, breakdown, files, title, width, colour=colour()))


def timeline(given: Namespace) -> Outcome:
    folder = directory(given.directory).resolve()
    meant, dump, contents = dumped(given, runs=2)
    deadline = dump_directory.deadline_seconds(meant.dumps)
    try:
        found, parts = timeline_with_parts(dump, meant.chip, given.steps, deadline, contents)
    except RatchetError as error:
        raise RatchetError(error.kind, dump_directory.explained(str(error))) from error
    if meant.problem is not None:
        found = in_problem_names(found, meant.problem)
    title = f"{meant.name} simulated {meant.chip.name}"
    run = title.replace(" ", "-")
    kept = pruning.made(folder / PROFILE_DATA)
    perfetto = kept / f"{run}.trace.json.gz"
    write_atomically(perfetto, gzip.compress(trace_json(found, title), mtime=0))
    profile = kept / RUNS / run / f"simulated-{meant.chip.name}.xplane.pb"
    instructions = {name: str(instruction) for name, instruction in dump.module.instructions.items()}
    xspace.write(xspace_text(found, meant.chip, title, instructions, parts), profile)
    tidy(folder)
    return Outcome(text=lambda: summary(found, perfetto, profile, partial(command, given=given.directory)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a timeline is made of; `problem` is None for dumps of which nobody says what they compute."""

    name: str
    dumps: Path
    chip: Chip
    problem: Statement | None = None


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
        evidence = evidence_of(judged(contest, given), member)
        dumps = _dumps(folder, evidence, "kernel.py")
        return Subject(name=_named("kernel.py", member), dumps=dumps, chip=contest.chip, problem=evidence.problem)
    if re.fullmatch(r"\d+", what):
        if chip_name is not None:
            raise UsageError("usage", "an attempt has its own chip: leave --chip out")
        evidence = evidence_of(history.attempt(opened(folder).place, int(what)).evidence, member)
        dumps = _dumps(folder, evidence, f"attempt {int(what)}")
        return Subject(
            name=_named(f"{int(what):04d}", member), dumps=dumps, chip=chip(evidence.chip), problem=evidence.problem
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
        raise RatchetError("no-simulation", f"{name} has no schedule: {_why_none(evidence)}")
    dumps = dump_directory.of(evidence, folder)
    if dumps is None:
        raise RatchetError(
            "no-dump",
            f"expected the schedules of {name} in {evidence.dump_directory}, where they stay on the machine that "
            "judged it; found nothing. Put its kernel.py into the working tree (ratchet.sh checkout N), then ask "
            "without its number",
        )
    return dumps


def _why_none(evidence: Evidence) -> str:
    if evidence.failure is not None:
        return f"it failed, {evidence.failure.kind}: {evidence.failure.message}"
    reasons = evidence.latency.reasons if evidence.latency else ()
    return reasons[0] if reasons else "it was not simulated"
