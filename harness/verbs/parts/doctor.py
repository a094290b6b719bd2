"""The work of `doctor`: a check of this machine, or the checklist of a user's program."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from harness import contest as contests
from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.ledger import Ledger
from harness.loop import machine_check, status
from harness.records import Table
from harness.records.doctor import Line
from harness.render.progress import Progress
from harness.sandbox import confinement, environment
from harness.shell.arguments import directory
from harness.shell.tables import outcome_of
from harness.shell.verb import Outcome
from harness.units import quantity
from harness.verbs.parts.context import progress_of
from harness.workbench.capture import program_run
from harness.workbench.doctor import devices, findings, program
from harness.workbench.profiles import analysis, ceilings, reading
from harness.workbench.profiles.places import resolve
from harness.workbench.profiles.timeline import idle_in_steps

_LOCK = "ratchet/lock"


def run(arguments: Namespace) -> Outcome:
    folder = directory(arguments.directory).resolve()
    with progress_of(arguments) as progress:
        if arguments.module:
            tables: tuple[Table, ...] = _program(arguments.module, arguments.limit, arguments.capture, folder, progress)
            ill = False
        else:
            table, ill = machine_check.table(tuple(_machine(folder, progress)))
            tables = (table,)
    for_people = {"findings": findings.for_people, "machine": machine_check.for_people}
    shown = [for_people[table.name](table) if table.name in for_people else table for table in tables]
    return outcome_of("doctor", tables, shown, exit_code=1 if ill else 0)


def _program(module: str, limit: float, capture: str | None, folder: Path, progress: Progress) -> tuple[Table, ...]:
    seen = program.InUse() if capture is None else _in_use(capture, folder)
    progress("run", "start", 0.0)
    run = program_run.run_program(module, limit)
    progress("run", "done", run.total_seconds)
    return program.checklist(run, Path(module).name, seen)


def _in_use(capture: str, folder: Path) -> program.InUse:
    """The use of MXU and HBM by the module that ran longest in the capture, and the idle share of the steps."""
    read = reading.read(resolve(capture, folder).paths)
    idle = idle_in_steps(read)
    (table,) = analysis.tables(read, (ceilings.UTILIZATION,))
    if not table.rows:
        return program.InUse(idle=idle)
    names = [column.name for column in table.columns]
    longest = max(table.rows, key=lambda row: row[names.index("seconds")] or 0.0)
    tc, hbm = (longest[names.index(name)] for name in ("tc_fraction", "hbm_fraction"))
    return program.InUse(
        tc=tc if isinstance(tc, float) else None, hbm=hbm if isinstance(hbm, float) else None, idle=idle
    )


def _machine(folder: Path, progress: Progress) -> Iterator[Line]:
    versions = environment.environment()
    yield from machine_check.software(versions, PACKAGE.parent / "requirements.lock")
    contest, why = None, ""
    try:
        contest = contests.load(folder)
    except RatchetError as error:
        why = str(error)
    progress("devices", "start", 0.0)
    kinds, failure = devices.visible_devices()
    progress("devices", "done", 0.0)
    yield from machine_check.devices(kinds, failure, contest.chip if contest else None)
    yield from machine_check.room(folder)
    yield from machine_check.isolation(confinement.isolation(True))
    yield machine_check.browser()
    yield from machine_check.repository(folder, _LOCK)
    yield from _ledger(contest, why)


def _ledger(contest: Contest | None, why: str) -> Iterator[Line]:
    """The state of the log. An interrupted attempt is left as it is, because `doctor` only reads."""
    if contest is None:
        yield from machine_check.log(None, (why,))
        return
    try:
        ledger = Ledger.open(contest.directory)
        if ledger.is_unfinished():
            yield from machine_check.log(None, ("an attempt did not end: ratchet.sh status finishes or undoes it",))
            return
        state = status.status(contest)
    except RatchetError as error:
        yield from machine_check.log(None, (str(error),))
        return
    yield from machine_check.log(state.log, state.messages, ledger.place.repository)
    if state.dirty_judge_files:
        yield Line(
            what="judge",
            value=f"differs from HEAD in {quantity(len(state.dirty_judge_files), 'file')}",
            state="note",
            remedy="Attempts are refused until these files are committed or restored",
        )
