"""What `hlo` says: a module, one of its operations or a pasted piece of HLO, explained."""

import difflib
import re
import sys
import zlib
from argparse import Namespace
from collections import defaultdict
from pathlib import Path

from harness import reading_limits
from harness.chips.row import Figures
from harness.errors import RatchetError, UsageError
from harness.hardware import DEFAULT_CHIP, chip
from harness.hlo import parse
from harness.hlo.module import Computation, Instruction, Module
from harness.hlo.sharding import Mesh
from harness.records import Table
from harness.shell.arguments import FUNCTION, directory, mesh_sizes, say
from harness.shell.tables import outcome_of
from harness.shell.verb import Outcome
from harness.verbs.parts.schedules import subject
from harness.workbench.capture.program_run import lower_program
from harness.workbench.hlo import proto
from harness.workbench.hlo.explain import operation_tables, shape_tables
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.levels import kernel_table, level_table
from harness.workbench.hlo.listing import module_tables, not_understood
from harness.workbench.hlo.prediction import figures_of
from harness.workbench.hlo.resharding import with_mesh
from harness.workbench.profiles import reading, remote
from harness.workbench.profiles.places import PROFILE_DATA, RUNS, SUFFIX, refuse_neighbours, resolve
from harness.workbench.profiles.reading import hlo_protos
from harness.workbench.profiles.remote import Source

# So many names are compared with one that is unknown.
_MOST_COMPARED = 5000
# Pasted HLO has a shape in it; the name of a file may have a bracket, but not behind a type.
_PASTED = re.compile(r"\b[a-z]+[a-z0-9]*\[[\d,<=?]*\]")


def hlo(given: Namespace) -> Outcome:
    named = figures_of(given.chip) if given.chip else None
    if given.what and (match := FUNCTION.fullmatch(given.what)) and Path(match[1]).is_file():
        return _function(given, named or figures_of(DEFAULT_CHIP))
    if given.arg:
        raise UsageError("usage", "--arg is for a function, MODULE.py:FUNCTION")
    module, target, inside = _module(given, named)
    module = with_mesh(module, _mesh(given.mesh, module))
    if given.steps > 1 and not module.is_pasted:
        raise UsageError("usage", "--steps is for pasted HLO: a module says itself how often its operations run")
    graph = Graph(module=module, times=given.steps)
    return outcome_of("hlo", (*_tables(graph, given.op, target, given.top), *(() if given.op else inside)))


def _function(given: Namespace, target: Figures) -> Outcome:
    """A function of somebody's own: its jaxpr and its StableHLO as they are, and what XLA makes of them explained."""
    of_chip = chip(target.name)
    sizes = mesh_sizes(given.mesh)
    found = lower_program(given.what, given.arg, of_chip if of_chip.topology else None, mesh=sizes)
    say(f"compiled for {found.compiled_for}")
    module = parse.module(found.hlo, given.what)
    module = with_mesh(module, _mesh(given.mesh, module))
    levels = [
        level_table(name, title, text, given.top)
        for name, title, text in (("jaxpr", "jaxpr", found.jaxpr), ("stablehlo", "StableHLO", found.stablehlo))
    ]
    own = () if given.op else (*levels, level_table("hlo", f"HLO for {found.compiled_for}", found.hlo, given.top))
    return outcome_of("hlo", (*own, *_tables(Graph(module=module), given.op, target, given.top)))


def _module(given: Namespace, named: Figures | None) -> tuple[Module, Figures, tuple[Table, ...]]:
    """The module, the chip that is predicted for, and of a kernel that was simulated what is inside it."""
    what, default = given.what, named or figures_of(DEFAULT_CHIP)
    if what not in (None, "-") and (capture := _capture(what, directory(given.directory).resolve())) is not None:
        return _of_capture(capture, given.module), named or reading.chip_of(capture) or default, ()
    if given.module is not None:
        raise UsageError("usage", "--module is for a capture, which may hold several")
    if what == "-":
        return read(reading_limits.read_stream(sys.stdin.buffer, "stdin"), "stdin"), default, ()
    if what is not None and Path(what).is_file():
        refuse_neighbours(Path(what))
        return read(reading_limits.read(Path(what)), what), default, ()
    if what is not None and _PASTED.search(what):
        return parse.module(what), default, ()
    if what is not None and not re.fullmatch(r"\d+", what):
        raise UsageError(
            "no-file",
            f"expected a file, - for stdin, the number of an attempt, or HLO such as 'f32[3,5]{{1,0:T(2,2)}}', got "
            f"{what!r}: there is no such file",
        )
    meant = subject(given, None)
    texts = (meant.dumps.parent / "kernel.hlo.txt", *sorted(meant.dumps.glob("*TLP-hlo.txt")))
    text = next((path for path in texts if path.is_file()), None)
    if text is None:
        raise RatchetError("no-hlo", f"expected kernel.hlo.txt or a TLP-hlo.txt beside {meant.dumps}, found none")
    run = meant.evidence.simulation if meant.evidence else None
    inside = (kernel_table(run.breakdown, run.chip),) if run and run.breakdown else ()
    return read(reading_limits.read(text), str(text)), named or figures_of(meant.chip.name), inside


def _mesh(text: str | None, module: Module) -> Mesh | None:
    """The mesh that is named; None where none is. Raises UsageError where it has another number of devices."""
    if text is None:
        return None
    found = Mesh(axes=tuple(mesh_sizes(text).items()))
    if module.devices not in (1, found.devices):
        raise UsageError(
            "usage", f"expected --mesh of the module's {module.devices} devices, got {found.devices}: {text}"
        )
    return found


def _capture(what: str, contest: Path) -> tuple[Source, ...] | None:
    """The files of the capture that `what` names: a file, a folder, or a run; None where it is none."""
    is_run = Path(what).name == what and (contest / PROFILE_DATA / RUNS / what).is_dir()
    if remote.server() and not (Path(what).exists() or what.isdecimal() or _PASTED.search(what)):
        return resolve(what, contest, remote.server()).paths
    if not (what.endswith(SUFFIX) or Path(what).is_dir() or is_run) or what.isdecimal():
        return None
    return resolve(what, contest).paths


def _of_capture(paths: tuple[Source, ...], name: str | None) -> Module:
    """The module called `name`, with its number or without; where none is named that on which most time was spent,
    the largest where nothing ran. Raises RatchetError `no-hlo`, UsageError `unknown-module`."""
    protos = hlo_protos(paths)
    if not protos:
        raise RatchetError(
            "no-hlo", f"{paths[0]} holds no modules: they are stored where the profiler's enable_hlo_proto is on"
        )
    known = ", ".join(sorted(protos))
    there = [one for one in protos if name in (None, one, one.partition("(")[0])]
    if not there:
        raise UsageError("unknown-module", f"expected --module, one of {known}, got {name!r}")
    meant = there[0]
    if len(there) > 1:
        spent: defaultdict[str, float] = defaultdict(float)
        for device in reading.read(paths).devices:
            for run in device.executions:
                spent[device.operations[run.operation].module] += run.self_seconds
        meant = max(there, key=lambda one: (spent[one], len(protos[one])))
        why = "where most time was spent" if spent[meant] else "the largest"
        say(f"this is {meant}, {why}; --module names another of {len(there)}: {known}")
    return proto.module(protos[meant], meant)


def read(data: bytes, name: str) -> Module:
    """The module in a file, whether it is text or a proto, compressed or not. Raises RatchetError `bad-hlo`."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = reading_limits.unpacked(data, name)
        except (OSError, EOFError, zlib.error) as error:
            raise RatchetError("bad-hlo", f"{name} begins as gzip and breaks off: {error}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return proto.module(data, name)
    # A small proto may be valid text by chance; HLO text has no control characters.
    return proto.module(data, name) if "\x00" in text or "\x12" in text else parse.module(text, name)


def _tables(graph: Graph, op: str | None, target: Figures, top: int) -> tuple[Table, ...]:
    module = graph.module
    places = [
        (computation, instruction) for computation in module.computations for instruction in computation.instructions
    ]
    if op is not None:
        computation, instruction = _named(places, op)
        return operation_tables(graph, computation, instruction, target)
    if not module.is_pasted:
        return module_tables(graph, target, top)
    found: list[Table] = []
    for computation, instruction in places:
        found += (
            operation_tables(graph, computation, instruction, target)
            if instruction.opcode
            else shape_tables(instruction.shape)
        )
    if module.not_understood:
        found.append(not_understood(graph))
    return tuple(found)


def _named(places: list[tuple[Computation, Instruction]], op: str) -> tuple[Computation, Instruction]:
    """The operation called `op`. Raises UsageError `unknown-op`."""
    name = op.removeprefix("%")
    for place in places:
        if place[1].name == name:
            return place
    names = [instruction.name for _, instruction in places]
    near = difflib.get_close_matches(name, names[:_MOST_COMPARED], 3)
    hint = f"; near it: {', '.join(near)}" if near else ""
    raise UsageError("unknown-op", f"expected --op with one of the module's {len(names)} operations, got {op!r}{hint}")
