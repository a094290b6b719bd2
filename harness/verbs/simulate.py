"""The verb `simulate`: execute the schedules of compiler dumps or of a function."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from harness import units
from harness.errors import UsageError
from harness.hardware import chip
from harness.judge.verdict import roofline
from harness.records import LinkTraffic, Offence, Simulation
from harness.records.report_words import simulated
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb
from harness.verbs.parts.arguments import add_function_arguments, add_operands, refuse_bare_file

if TYPE_CHECKING:
    from harness.hardware import Chip
    from harness.render.progress import Progress
    from harness.render.sections import Block

# Explanations of the floor, by the part that determines it. For any other part, the floor is the time of its operations
# without a pause.
_FLOORS = {
    "HBM": "its bytes at full bandwidth",
    "links": "the bytes of the busiest link direction at the bandwidth that links reach",
}
# At most this many link directions are shown, the busiest first: a slice of 2x2 has eight.
_LINKS_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFigures:
    """One HLO op of a simulated module."""

    name: str
    cycles: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleFigures:
    """A simulated module's cycles by kind."""

    bundles: int
    dma_wait: float
    unit_stall: float
    launch: float
    total: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateDocument:
    """The simulation of a program's compiler dumps; if there is no latency, `unknown` says why.

    - `total_seconds`: the time including the fetches of operands before the program starts.
    - `profile_seconds`: the time that a profile of the chip would show, without these fetches. None if XLA does not let
      the runtime fetch operands before the program starts (cross-program prefetch).
    - `range_seconds`: the shortest and the longest possible time, if there is no latency because the SparseCore does a
      part of the work.
    """

    chip: str
    total_seconds: float | None
    profile_seconds: float | None
    plus_minus_seconds: float | None
    relative_uncertainty: float
    ops: tuple[OpFigures, ...]
    cycles: CycleFigures
    hbm_read_bytes: int
    hbm_written_bytes: int
    dma_transfers: int
    unknown: tuple[str, ...]
    offences: tuple[Offence, ...]
    chips: int
    links: tuple[LinkTraffic, ...]
    link_wait_cycles: float
    range_seconds: tuple[float, float] | None = None


class Simulate(Verb):
    place = "profile", 90
    line = "execute the schedules of compiler dumps or of a function"
    example = "simulate dumps --chip v6e"
    description = (
        "Executes the schedules in any directory of compiler dumps, or the schedules of your function, and prints the "
        "time; for a program on several chips also the traffic of the links."
    )
    examples = (
        "ratchet.sh simulate dumps --chip v6e; ratchet.sh simulate ring.py:permute --chip v5e --mesh x=4 --arg "
        "'f32[4096@x,1024]'"
    )
    takes_contest = False
    is_watched = True
    document = Document(7, SimulateDocument)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "what",
            help="a directory with the compiler's final schedules, or a function of yours, MODULE.py:FUNCTION, which "
            "is compiled first",
        )
        parser.chip("the chip that the schedules are for, such as v6e", required=True)
        add_function_arguments(parser)
        parser.option(
            "--mesh A=N,B=M", "run the function on a mesh of chips with these axes; the last axis varies fastest"
        )
        parser.flag("--on-tensorcore", "compile the function without the SparseCore, whose time is not simulated")
        add_operands(parser)
        parser.choice(
            "--assume",
            ["never", "always"],
            "assume that branches on vector contents, which are not simulated, are never or always taken",
        )
        parser.json("the result as JSON")
        parser.quiet()

    def parse(self, words: Sequence[str]) -> Namespace:
        if "-C" in words:
            raise UsageError(
                "usage", "simulate takes a directory of compiler dumps or a function, and no contest: leave -C out"
            )
        return super().parse(words)

    def run(self, arguments: Namespace) -> Outcome:
        from harness.judge.simulate.sparse_core import ON_TENSORCORE
        from harness.shell.arguments import FUNCTION, mesh_sizes
        from harness.verbs.parts.context import progress_of
        from harness.workbench.capture.program_run import lower_program

        target = chip(arguments.chip)
        if not FUNCTION.fullmatch(arguments.what):
            refuse_bare_file(arguments.what)
            if arguments.arg or arguments.mesh or arguments.on_tensorcore:
                raise UsageError("usage", "--arg, --mesh and --on-tensorcore are for a function, MODULE.py:FUNCTION")
            with progress_of(arguments) as progress:
                return self._simulate(arguments, target, Path(arguments.what), progress)
        with progress_of(arguments) as progress, TemporaryDirectory(prefix="ratchet-") as scratch:
            dumps, mesh = Path(scratch), mesh_sizes(arguments.mesh)
            flags = ON_TENSORCORE if arguments.on_tensorcore else ()
            with progress.during("compilation"):
                lower_program(arguments.what, arguments.arg, target, mesh=mesh, dumps=dumps, flags=flags)
            return self._simulate(arguments, target, dumps, progress)

    def _simulate(self, arguments: Namespace, target: "Chip", directory: Path, progress: "Progress") -> Outcome:
        from harness.advice import dump_directory
        from harness.advice.offloaded import operations
        from harness.judge.simulate.module import run_module
        from harness.judge.simulate.structure import prefetched_words
        from harness.verbs.parts.schedules import operands

        dump = dump_directory.read(directory, target)
        dump = dump if arguments.assume is None else replace(dump, assumption=arguments.assume)
        simulate = partial(
            run_module,
            dump,
            target,
            deadline_seconds=dump_directory.deadline_seconds(directory),
            operands=operands(arguments.operand, dump),
        )
        with progress.during("simulation"):
            simulation = simulate()
            in_profile = simulate(fetched_before=True, with_lines=False).seconds if prefetched_words(dump.top) else None
        in_profile = None if in_profile == simulation.seconds else in_profile
        explained = map(dump_directory.explain_no_end, simulation.unknown)
        by, is_refused = operations(dump.module), arguments.on_tensorcore
        simulation = replace(simulation, unknown=tuple(_with_offer(reason, by, is_refused) for reason in explained))
        return Outcome(
            document=_document(simulation, in_profile),
            text=lambda: _blocks(simulation, in_profile, has_operands=bool(arguments.operand)),
            exit_code=0 if simulation.seconds is not None else 1,
        )


def _with_offer(reason: str, handed: Sequence[str], is_refused: bool) -> str:
    """`reason`; if the SparseCore is the reason, also its operations, and how to compile without the SparseCore.

    `is_refused`: the program was compiled so, but the compiler uses the SparseCore all the same.
    """
    from harness.judge.simulate.channel import SPARSE_CORE
    from harness.judge.simulate.sparse_core import ON_TENSORCORE

    if SPARSE_CORE not in reason:
        return reason
    which = f" (its part: {', '.join(handed)})" if handed else ""
    if is_refused:
        return f"{reason}{which}; this compiler ignores --on-tensorcore here: write this part in another way"
    return (
        f"{reason}{which}; to compile a program without the SparseCore, use simulate MODULE.py:FUNCTION "
        f"--on-tensorcore; if you compile it yourself, set LIBTPU_INIT_ARGS='{' '.join(ON_TENSORCORE)}'"
    )


def _document(simulation: Simulation, in_profile: float | None) -> SimulateDocument:
    return SimulateDocument(
        chip=simulation.chip,
        total_seconds=simulation.seconds,
        profile_seconds=in_profile,
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
        chips=simulation.chips,
        links=simulation.links,
        link_wait_cycles=simulation.link_wait_cycles,
        range_seconds=simulation.mean_range_seconds if simulation.seconds is None else None,
    )


def _links(simulation: Simulation, seconds: float) -> Iterator[str]:
    """Lines on the bytes over each link, and on how long the chip that ends last waits for others."""
    waits = simulation.link_wait_cycles / simulation.clock_hz
    share = units.percent(waits / seconds)
    yield (
        f"{simulation.chips} chips; the one that ends last waits {units.seconds(waits)} for others ({share} of the "
        "time; what collectives compute is not counted)"
    )
    links = sorted(simulation.links, key=lambda link: -link.bytes)
    for link in links[:_LINKS_SHOWN]:
        name, busy = f"link {link.source} to {link.destination}", units.percent(link.busy_seconds / seconds)
        yield f"{name:18} {link.bytes:14,d} bytes, busy {busy} of the time"
    if len(links) > _LINKS_SHOWN:
        more = units.quantity(len(links) - _LINKS_SHOWN, "more link direction")
        yield f"{more}, none with more bytes than those above (--json has all)"


def _cycles(name: str, cycles: float, total: float) -> str:
    return f"{name:18} {cycles:14.0f} cycles {units.percent(cycles / total):>7}"


def _floor(simulation: Simulation, seconds: float, total: float) -> list[str]:
    """Two lines: the least cycles that the same traffic and operations need under any schedule, and the rest."""
    from harness.advice.simulated_rates import LIMIT, hbm_share

    read, written = simulation.hbm_read_bytes, simulation.hbm_written_bytes
    published = roofline.memory_only_seconds(read + written, chip(simulation.chip)) / seconds
    passing = hbm_share(read, written, chip(simulation.chip))
    floors = {"HBM": published / passing}
    for unit in simulation.units:
        busy = unit.busy_cycles / total if unit.busy_cycles is not None else 0.0
        floors[unit.name] = max(unit.executed_slots / unit.offered_slots, busy)
    if simulation.links:
        floors["links"] = max(link.busy_seconds for link in simulation.links) / seconds
    limit = max(floors, key=floors.__getitem__)
    # Rounded counts may exceed the time by a little.
    share = min(1.0, floors[limit])
    why = _FLOORS.get(limit, "its operations without a pause")
    if limit == "HBM" and passing < 1:
        why = (
            f"its bytes at {units.percent(passing)} of the bandwidth, {LIMIT}; at full bandwidth "
            f"{units.percent(published)}"
        )
    return [
        f"{_cycles('floor', share * total, total)} ({limit}: {why})",
        f"{_cycles('rest', (1 - share) * total, total)} (all that a better schedule of the same work can save)",
    ]


def _blocks(simulation: Simulation, in_profile: float | None, *, has_operands: bool = False) -> Iterator["Block"]:
    """The simulation for people: time, cycles by kind, floor, use of each unit, and the reasons for unknowns."""
    from harness.render.sections import Line, Words

    if simulation.seconds is None or simulation.cycles is None or simulation.plus_minus_seconds is None:
        yield Words(f"no latency: {simulation.unknown[0] if simulation.unknown else 'unknown'}")
    else:
        plus_minus = units.seconds(simulation.plus_minus_seconds)
        headline = f"{units.seconds(simulation.seconds)} ± {plus_minus} [{simulated(simulation.chip)}]"
        yield Line(headline, is_whole=True)
        if in_profile is not None:
            yield Words(
                f"a profile of the chip shows {units.seconds(in_profile)}: it leaves out the time in which the "
                "runtime fetches operands before the program starts (cross-program prefetch)",
                lead="  ",
            )
        for line in _figures(simulation, simulation.seconds, simulation.cycles):
            yield Line(f"  {line}", is_whole=True)
    for o in simulation.offences:
        where = " ".join(filter(None, (o.op, o.line)))
        what = "cannot be checked" if o.kind == "check-unknown" else "goes wrong"
        yield Words(f"{what}: {o.what} in {where} ({o.count}x) [{o.kind}]", lead="  ")
    if any("contents are not known" in text for text in simulation.unknown):
        words = "if contents depend on an argument, give the argument: --operand NAME=FILE.npy"
        if has_operands:
            words = (
                "some contents that a program computes from its arguments stay unknown: only integers are evaluated, "
                "and few operations on other numbers; an argument that --operand does not name is unknown too"
            )
        yield Words(words, lead="  ")
    # If there is no latency, the first reason is the headline already.
    for text in simulation.unknown[simulation.seconds is None :]:
        yield Words(f"not understood: {text}", lead="  ")


def _figures(simulation: Simulation, seconds: float, cycles: float) -> Iterator[str]:
    """A line for each kind of cycles, the floor, each unit, each HLO op and each link."""
    yield _cycles("bundles", simulation.bundle_cycles, cycles)
    yield _cycles("waiting for DMA", simulation.dma_wait_cycles, cycles)
    yield _cycles("waiting for units", simulation.unit_stall_cycles, cycles)
    yield _cycles("launch", simulation.launch_cycles, cycles)
    yield from _floor(simulation, seconds, cycles)
    for unit in simulation.units:
        busy = "" if unit.busy_cycles is None else f", busy {units.percent(unit.busy_cycles / cycles)}"
        yield f"{unit.name:18} {units.percent(unit.executed_slots / unit.offered_slots):>7} of its slots{busy}"
    yield from (f"{op.name:18} {op.cycles:14.0f} cycles {units.seconds(op.seconds)}" for op in simulation.ops)
    if simulation.chips > 1:
        yield from _links(simulation, seconds)
