"""The verb `lines`: kernel.py with the simulated cycles of each line."""

from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.advice.run_parts import RunPart, operations, timing_inputs
from harness.errors import RatchetError, UsageError
from harness.hardware import chip
from harness.records import CycleBreakdown, Evidence, Simulation
from harness.shell.arguments import command, directory
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesDocument:
    """The cycles of a simulated run, line by line of kernel.py; `clock_hz` turns cycles into seconds.

    The cycles are those of one timing input (by default the first of `timing_inputs`) and of all `operations` together.
    Either of these lists is empty if it would have only one entry.
    """

    source: Literal["simulated"]
    chip: str
    clock_hz: float
    cycles: float
    timing_inputs: tuple[RunPart, ...]
    operations: tuple[RunPart, ...]
    breakdown: CycleBreakdown


class Lines(Verb):
    place = "profile", 10
    line = "kernel.py with the simulated cycles of each line"
    example = "lines 3"
    description = "Prints kernel.py with the simulated cycles of each line."
    examples = "ratchet.sh lines; ratchet.sh lines 3"
    is_watched = True
    document = Document(3, LinesDocument)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.attempt("the attempt (default: kernel.py as it stands)")
        parser.chip("judge kernel.py as it stands, for this chip")
        parser.member()
        parser.option("--input NAME", "the timing input, if the problem is timed with several (default: the first)")
        parser.json("the figures as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.advice.source_names import name_lines
        from harness.render.lines import listing
        from harness.verbs.parts.context import judged_kernel, progress_of, with_package_files
        from harness.verbs.parts.schedules import why_none

        kernel = judged_kernel(arguments, arguments.number, arguments.chip, checked=False, with_lines=True)
        evidence, title, again = kernel.evidence, "kernel.py as it stands", ""
        if arguments.number is not None:
            title = f"kernel.py of {kernel.name}"
            back, lines = (command(words, arguments.directory) for words in (f"checkout {arguments.number}", "lines"))
            again = f". Old records are not changed; to see the cycles of its lines: {back}, then {lines}"
        if arguments.member:
            title += f" at {arguments.member}"
        run = evidence.simulation
        if arguments.input is not None:
            with progress_of(arguments) as progress, progress.during("simulation"):
                run = with_input(directory(arguments.directory).resolve(), evidence, title, arguments.input)
            title += f" with timing input {arguments.input}"
        run = name_lines(evidence, run)
        if run is None or run.seconds is None:
            raise RatchetError("no-simulation", f"{title} has no simulated run to break down: {why_none(evidence)}")
        if run.breakdown is None:
            raise RatchetError("no-breakdown", f"{title} was judged before cycles were counted line by line{again}")
        if evidence.failure is not None:
            title += f" (failed: {evidence.failure.kind})"
        elif arguments.number is None and not evidence.all_checks:
            title += " (timed only: correctness was not checked)"
        breakdown, files = run.breakdown, with_package_files(kernel.candidate, evidence)
        document = LinesDocument(
            source="simulated",
            chip=run.chip,
            clock_hz=run.clock_hz,
            cycles=breakdown.cycles,
            timing_inputs=timing_inputs(run),
            operations=operations(run),
            breakdown=breakdown,
        )
        return Outcome(document=document, text=lambda: listing(run, breakdown, files, title))


def with_input(folder: Path, evidence: Evidence, title: str, name: str) -> Simulation:
    """The simulation of the schedule of `evidence` with the timing input `name`.

    Raises RatchetError `no-simulation` or `no-dump`, UsageError `unknown-input`.
    """
    from harness.advice import dump_directory
    from harness.judge.simulate.module import run_module
    from harness.verbs.parts.schedules import dumps_of

    names = [run.name for run in evidence.simulation.runs] if evidence.simulation else []
    if name not in names:
        inputs = f"one of {', '.join(names)}" if names else "no --input: the problem is timed with one input"
        raise UsageError("unknown-input", f"--input {name}: expected {inputs}")
    dumps, target = dumps_of(folder, evidence, title), chip(evidence.chip)
    dump = dump_directory.read(dumps, target)
    dump = replace(dump, timings=tuple(timing for timing in dump.timings if timing.name == name))
    return run_module(dump, target, deadline_seconds=dump_directory.deadline_seconds(dumps))
