"""What `simulate` does: it executes the schedules in a directory of compiler dumps."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness import limits, units
from harness.advice import dump_directory
from harness.cli.documents import CycleFigures, OpFigures, SimulateDocument
from harness.cli.verb import Outcome
from harness.dumps.llo import ModuleDump
from harness.errors import UsageError
from harness.hardware import chip
from harness.hlo.evaluation import Values
from harness.hlo.tables import Tables
from harness.judge.simulate.module import run_module
from harness.records import Simulation
from harness.records.report_words import simulated


def simulate(given: Namespace) -> Outcome:
    """The simulation; the exit code is 0 with a latency, 1 without. Raises RatchetError."""
    target = chip(given.chip)
    dump = dump_directory.read(given.directory, target)
    simulation = run_module(
        dump,
        target,
        deadline_seconds=dump_directory.deadline_seconds(given.directory),
        operands=operands(given.operand, dump),
    )
    simulation = replace(simulation, unknown=tuple(map(dump_directory.explained, simulation.unknown)))
    return Outcome(
        document=_document(simulation),
        text=lambda: _text(simulation),
        exit_code=0 if simulation.seconds is not None else 1,
    )


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
            limits.note(limits.check_file(Path(file)))
            # Its header may promise more than the file holds; a map of the file is refused then.
            found[name] = np.array(np.load(file, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError, OverflowError, MemoryError) as error:
            raise UsageError("bad-operand", f"--operand {word}: expected NAME=FILE.npy, got {error}") from error
    return found


def _document(simulation: Simulation) -> SimulateDocument:
    return SimulateDocument(
        chip=simulation.chip,
        total_seconds=simulation.seconds,
        plus_minus_seconds=simulation.plus_minus_seconds,
        relative_uncertainty=simulation.relative_uncertainty,
        ops=tuple(OpFigures(name=op.name, cycles=op.cycles, seconds=op.seconds) for op in simulation.ops),
        cycles=CycleFigures(
            bundles=simulation.bundle_cycles,
            dma_wait=simulation.dma_wait_cycles,
            unit_stall=simulation.unit_stall_cycles,
            launch=simulation.launch_cycles,
            total=simulation.cycles,
        ),
        hbm_read_bytes=simulation.hbm_read_bytes,
        hbm_written_bytes=simulation.hbm_written_bytes,
        dma_transfers=simulation.dma_transfers,
        unknown=simulation.unknown,
        offences=simulation.offences,
    )


def _text(simulation: Simulation) -> str:
    """The simulation for a person: the time, where it goes, each unit's use, and what was not understood."""
    lines = []
    if simulation.seconds is None or simulation.cycles is None or simulation.plus_minus_seconds is None:
        lines.append(f"no latency: {simulation.unknown[0] if simulation.unknown else 'unknown'}")
    else:
        plus_minus = units.seconds(simulation.plus_minus_seconds)
        lines.append(f"{units.seconds(simulation.seconds)} ± {plus_minus} [{simulated(simulation.chip)}]")
        for name, cycles in (
            ("bundles", simulation.bundle_cycles),
            ("waiting for DMA", simulation.dma_wait_cycles),
            ("waiting for units", simulation.unit_stall_cycles),
            ("launch", simulation.launch_cycles),
        ):
            lines.append(f"  {name:18} {cycles:14.0f} cycles {units.percent(cycles / simulation.cycles):>7}")
        for unit in simulation.units:
            busy = unit.busy_cycles / simulation.cycles if unit.busy_cycles is not None else None
            used = unit.executed_slots / unit.offered_slots
            remark = f", busy {units.percent(busy)}" if busy is not None else ""
            lines.append(f"  {unit.name:18} {units.percent(used):>7} of its slots{remark}")
        lines += [f"  {op.name:18} {op.cycles:14.0f} cycles {units.seconds(op.seconds)}" for op in simulation.ops]
    lines += [f"  goes wrong: {o.what} in {o.op} {o.line} ({o.count} times) [{o.kind}]" for o in simulation.offences]
    lines += [f"  not understood: {text}" for text in simulation.unknown]
    return "\n".join(lines)
