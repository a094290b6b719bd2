"""A module's programs, compiled once for all runs of it, whatever is changed about the machine that runs them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.dumps.llo import ModuleDump, Schedule
from harness.hardware import chip, why_not_several
from harness.hlo.module import Computation
from harness.hlo.shapes import Array, Tuple
from harness.judge.simulate.compiled import Program
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.program import compile_program
from harness.judge.simulate.several_chips import flag_numbers
from harness.judge.simulate.structure import prefetched_words, result_words


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModule:
    """`programs` of `schedules`, by the names of their HLO ops.

    `top` is the name of the program that calls the others, None where a single op is run. `parameters` are the names
    of the module's parameters in their order, `in_place` those whose memory the caller hands over for results, by the
    results' places among several, of which there are `results`. `unfit` is why the module cannot be executed at all,
    else "". `prefetched` are the words of scalar memory that say whether an operand has been fetched already, of
    operands that have not, `result_words` those that hold the address of the only result. `chips` run the program
    together; `constants` are words in HBM by the addresses that the top-level program has for them.
    """

    programs: dict[str, Program]
    schedules: dict[str, Schedule]
    unfit: str
    top: str | None = None
    parameters: tuple[str, ...] = ()
    in_place: dict[int, int] = field(default_factory=dict)
    results: int = 0
    prefetched: frozenset[str] = frozenset()
    result_words: frozenset[str] = frozenset()
    chips: int = 1
    constants: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def compile_module(
    dump: ModuleDump, machine: Machine, *, traced: bool = False, fetched_before: bool = False
) -> CompiledModule:
    """What the top-level program calls, and that; a `traced` one tells the memory's trace about every stretch.

    It runs on `machine` and on all that have as many branch slots. `fetched_before` says that operands which XLA has
    fetched before a program starts (cross-program prefetch) are there already; else the program fetches its own.
    """
    called, entry = {*dump.calls}, dump.module.entry
    schedules = [*(schedule for schedule in dump.schedules if schedule.name in called), dump.top]
    flags = flag_numbers(schedules) if dump.module.devices > 1 else {}
    programs = {
        schedule.name: compile_program(schedule, machine, traced=traced, flags=flags.get(schedule.name))
        for schedule in schedules
    }
    return CompiledModule(
        programs=programs,
        schedules={schedule.name: schedule for schedule in schedules},
        unfit=next(filter(None, map(_unfit, schedules)), "") or _unfit_for_several(dump, machine),
        chips=dump.module.devices,
        constants=_constants(dump, programs[dump.top.name]),
        top=dump.top.name,
        parameters=tuple(parameter.name for parameter in entry.parameters.values()) if entry is not None else (),
        in_place=dict(dump.module.in_place),
        results=_results(entry),
        prefetched=frozenset() if fetched_before else prefetched_words(dump.top),
        result_words=result_words(dump.top) if _has_one_result(entry) else frozenset(),
    )


def _constants(dump: ModuleDump, top: Program) -> dict[int, tuple[int, ...]]:
    """The words of the module's constants by their addresses."""
    addresses = {name: address for address, name in top.names.items()}
    return {addresses[name]: words for name, words in dump.constants.items() if name in addresses}


def _has_one_result(entry: Computation | None) -> bool:
    """Whether what the entry computation returns is no tuple."""
    return entry is not None and entry.root is not None and isinstance(entry.root.shape, Array)


def _results(entry: Computation | None) -> int:
    """How many arrays the entry computation returns in a tuple."""
    shape = entry.root.shape if entry is not None and entry.root is not None else None
    return len(shape.members) if isinstance(shape, Tuple) else 0


def compile_op(schedule: Schedule, machine: Machine) -> CompiledModule:
    """One HLO op by itself."""
    return CompiledModule(
        programs={schedule.name: compile_program(schedule, machine)},
        schedules={schedule.name: schedule},
        unfit=_unfit(schedule),
    )


def _unfit_for_several(dump: ModuleDump, machine: Machine) -> str:
    """Why a program of several chips cannot be executed, else "" (also for one of a single chip)."""
    if dump.module.devices == 1:
        return ""
    if trouble := why_not_several(chip(machine.chip)):
        return trouble
    if not dump.top.allocations:
        return (
            f"the program runs on {dump.module.devices} chips, and the dump does not say which sync flags they raise "
            "of each other: dump the pass `post-delay-converter`, too (--xla_jf_dump_llo_pass_label_regex)"
        )
    for schedule in dump.schedules:
        if schedule.ops_where(lambda opcode: opcode.startswith("inlined_call_operand.sflag")):
            return f"{schedule.name}: semaphores that one kernel hands to another are not modelled on several chips"
    return ""


def _unfit(schedule: Schedule) -> str:
    """Why a schedule cannot be executed at all, else ""."""
    if not schedule.bundles:
        return f"{schedule.name}: its schedule holds no bundle that can be read"
    for index, bundle in enumerate(schedule.bundles):
        if bundle.address != index:
            return f"{schedule.name}: bundle {index:#x} is missing from its schedule"
    return ""
