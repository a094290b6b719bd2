"""A module's programs, compiled once for all runs, including runs on variations of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.dumps.llo import ModuleDump, Schedule
from harness.hardware import chip, why_not_several
from harness.hlo.shapes import Array, Tuple
from harness.judge.simulate.compiled import Program
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.program import compile_program
from harness.judge.simulate.several_chips import flag_numbers
from harness.judge.simulate.structure import prefetched_words, result_words


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModule:
    """The compiled `programs` of a module and their `schedules`, by the names of their HLO ops.

    - `unfit`: the reason why the module cannot be executed, or "".
    - `top`: the name of the program that calls all other programs.
    - `parameters`: the names of the module's parameters, in their order.
    - `in_place`: for each result that reuses a parameter's memory, the parameter's index by the result's index.
    - `results`: the number of results in the tuple that is returned; 0 if the result is not a tuple.
    - `prefetched`: the words of scalar memory that are set to 0 to show that no operand was fetched before the start;
      empty if operands were fetched.
    - `result_words`: the words of scalar memory that hold the address of the result; empty unless the module returns
      exactly one array.
    - `chips`: the number of chips that run the program together.
    - `constants`: the words of the module's constants, by their addresses in the top-level program.
    """

    programs: dict[str, Program]
    schedules: dict[str, Schedule]
    unfit: str
    top: str
    parameters: tuple[str, ...]
    in_place: dict[int, int]
    results: int
    prefetched: frozenset[str]
    result_words: frozenset[str]
    chips: int
    constants: Mapping[int, tuple[int, ...]]


def compile_module(
    dump: ModuleDump, machine: Machine, *, traced: bool = False, fetched_before: bool = False
) -> CompiledModule:
    """The top-level program and all programs that it calls, compiled.

    The programs run on `machine` and on all machines with the same number of branch slots. If `traced`, the programs
    report every stretch to the memory's trace. XLA may fetch some operands before a program starts (cross-program
    prefetch). If `fetched_before`, these operands are in place at the start; otherwise the program fetches them.
    """
    called, entry = {*dump.calls}, dump.module.entry
    shape = entry.root.shape if entry is not None and entry.root is not None else None
    schedules = [*(schedule for schedule in dump.schedules if schedule.name in called), dump.top]
    flags = flag_numbers(schedules) if dump.module.devices > 1 else {}
    programs = {
        schedule.name: compile_program(schedule, machine, traced=traced, flags=flags.get(schedule.name))
        for schedule in schedules
    }
    addresses = {name: address for address, name in programs[dump.top.name].names.items()}
    return CompiledModule(
        programs=programs,
        schedules={schedule.name: schedule for schedule in schedules},
        unfit=next(filter(None, map(_unfit, schedules)), "") or _unfit_for_several(dump, machine),
        chips=dump.module.devices,
        constants={addresses[name]: words for name, words in dump.constants.items() if name in addresses},
        top=dump.top.name,
        parameters=tuple(parameter.name for parameter in entry.parameters.values()) if entry is not None else (),
        in_place=dict(dump.module.in_place),
        results=len(shape.members) if isinstance(shape, Tuple) else 0,
        prefetched=frozenset() if fetched_before else prefetched_words(dump.top),
        result_words=result_words(dump.top) if isinstance(shape, Array) else frozenset(),
    )


def _unfit_for_several(dump: ModuleDump, machine: Machine) -> str:
    """The reason why a program of several chips cannot be executed, or "". Always "" for a program of a single chip."""
    if dump.module.devices == 1:
        return ""
    if trouble := why_not_several(chip(machine.chip)):
        return trouble
    if not dump.top.allocations:
        return (
            f"the program runs on {dump.module.devices} chips, but the dump does not name the sync flags that chips "
            "raise on each other: also dump the pass `post-delay-converter` (--xla_jf_dump_llo_pass_label_regex)"
        )
    for schedule in dump.schedules:
        if schedule.ops_where(lambda opcode: opcode.startswith("inlined_call_operand.sflag")):
            return f"{schedule.name}: semaphores that one kernel passes to another are not modelled on several chips"
    return ""


def _unfit(schedule: Schedule) -> str:
    """The reason why a schedule cannot be executed at all, or ""."""
    if not schedule.bundles:
        return f"{schedule.name}: its schedule has no readable bundle"
    for index, bundle in enumerate(schedule.bundles):
        if bundle.address != index:
            return f"{schedule.name}: bundle {index:#x} is missing from its schedule"
    return ""
