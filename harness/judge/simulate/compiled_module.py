"""A module's programs, compiled once for all runs of it, whatever is changed about the machine that runs them."""

from dataclasses import dataclass, field

from harness.dumps.llo import ModuleDump, Schedule
from harness.hlo.module import Computation
from harness.hlo.shapes import Array
from harness.judge.simulate.compiled import Program
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.program import compile_program
from harness.judge.simulate.structure import prefetched_words, result_words


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModule:
    """`programs` of `schedules`, by the names of their HLO ops.

    `top` is the name of the program that calls the others, None where a single op is run. `parameters` are the names
    of the module's parameters in their order, `in_place` those whose memory the caller hands over for results, by the
    results' places among several. `unfit` is why the module cannot be executed at all, else "". `prefetched` are the
    words of scalar memory that say whether an operand has been fetched already, of operands that have not,
    `result_words` those that hold the address of the only result.
    """

    programs: dict[str, Program]
    schedules: dict[str, Schedule]
    unfit: str
    top: str | None = None
    parameters: tuple[str, ...] = ()
    in_place: dict[int, int] = field(default_factory=dict)
    prefetched: frozenset[str] = frozenset()
    result_words: frozenset[str] = frozenset()


def compile_module(
    dump: ModuleDump, machine: Machine, *, traced: bool = False, fetched_before: bool = False
) -> CompiledModule:
    """What the top-level program calls, and that; a `traced` one tells the memory's trace about every stretch.

    It runs on `machine` and on all that have as many branch slots. `fetched_before` says that operands which XLA has
    fetched before a program starts (cross-program prefetch) are there already; else the program fetches its own.
    """
    called, entry = {*dump.calls}, dump.module.entry
    schedules = [*(schedule for schedule in dump.schedules if schedule.name in called), dump.top]
    return CompiledModule(
        programs={schedule.name: compile_program(schedule, machine, traced=traced) for schedule in schedules},
        schedules={schedule.name: schedule for schedule in schedules},
        unfit=next(filter(None, map(_unfit, schedules)), ""),
        top=dump.top.name,
        parameters=tuple(parameter.name for parameter in entry.parameters.values()) if entry is not None else (),
        in_place=dict(dump.module.in_place),
        prefetched=frozenset() if fetched_before else prefetched_words(dump.top),
        result_words=result_words(dump.top) if _has_one_result(entry) else frozenset(),
    )


def _has_one_result(entry: Computation | None) -> bool:
    """Whether what the entry computation returns is no tuple."""
    return entry is not None and entry.root is not None and isinstance(entry.root.shape, Array)


def compile_op(schedule: Schedule, machine: Machine) -> CompiledModule:
    """One HLO op by itself."""
    return CompiledModule(
        programs={schedule.name: compile_program(schedule, machine)},
        schedules={schedule.name: schedule},
        unfit=_unfit(schedule),
    )


def _unfit(schedule: Schedule) -> str:
    """Why a schedule cannot be executed at all, else ""."""
    if not schedule.bundles:
        return f"{schedule.name}: its schedule holds no bundle that can be read"
    for index, bundle in enumerate(schedule.bundles):
        if bundle.address != index:
            return f"{schedule.name}: bundle {index:#x} is missing from its schedule"
    return ""
