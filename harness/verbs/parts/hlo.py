"""The work of `hlo`: a module, one of its operations or pasted HLO, explained."""

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
from harness.hlo.module import Instruction, Module
from harness.hlo.sharding import Mesh
from harness.records import Table
from harness.shell.arguments import FUNCTION, directory, mesh_sizes, say
from harness.shell.tables import outcome_of
from harness.shell.verb import Outcome
from harness.verbs.parts.arguments import refuse_bare_file
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

# The most names that are compared with an unknown name, to suggest a similar one.
_MOST_COMPARED = 5000
# Pasted HLO contains a shape; the name of a file may contain a bracket, but not after a type.
_PASTED = re.compile(r"\b[a-z]+[a-z0-9]*\[[\d,<=?]*\]")


def run(arguments: Namespace) -> Outcome:
    named = figures_of(arguments.chip) if arguments.chip else None
    if arguments.what and (match := FUNCTION.fullmatch(arguments.what)) and Path(match[1]).is_file():
        return _function(arguments, named or figures_of(DEFAULT_CHIP))
    if arguments.what:
        refuse_bare_file(arguments.what)
    if arguments.arg:
        raise UsageError("usage", "--arg is for a function, MODULE.py:FUNCTION")
    module, target, inside = _module(arguments, named)
    module = with_mesh(module, _mesh(arguments.mesh, module))
    if arguments.steps > 1 and not module.is_pasted:
        raise UsageError("usage", "--steps is for pasted HLO: a module states how often its operations run")
    graph = Graph(module=module, times=arguments.steps)
    return outcome_of("hlo", (*_tables(graph, arguments.op, target, arguments.top), *(() if arguments.op else inside)))


def _function(arguments: Namespace, target: Figures) -> Outcome:
    """A user's function: its jaxpr and StableHLO as they are, and the HLO that XLA makes of them, explained."""
    of_chip = chip(target.name)
    sizes = mesh_sizes(arguments.mesh)
    function = lower_program(arguments.what, arguments.arg, of_chip if of_chip.topology else None, mesh=sizes)
    say(f"compiled for {function.compiled_for}")
    module = parse.module(function.hlo, arguments.what)
    module = with_mesh(module, _mesh(arguments.mesh, module))
    levels = (
        ("jaxpr", "jaxpr", function.jaxpr),
        ("stablehlo", "StableHLO", function.stablehlo),
        ("hlo", f"HLO for {function.compiled_for}", function.hlo),
    )
    shown = () if arguments.op else tuple(level_table(*level, arguments.top) for level in levels)
    return outcome_of("hlo", (*shown, *_tables(Graph(module=module), arguments.op, target, arguments.top)))


def _module(arguments: Namespace, named: Figures | None) -> tuple[Module, Figures, tuple[Table, ...]]:
    """The module, the chip to predict for, and, if a kernel was simulated, a table of its inside."""
    what, default = arguments.what, named or figures_of(DEFAULT_CHIP)
    if what not in (None, "-") and (capture := _capture(what, directory(arguments.directory).resolve())) is not None:
        return _of_capture(capture, arguments.module), named or reading.chip_of(capture) or default, ()
    if arguments.module is not None:
        raise UsageError("usage", "--module is for a capture, which may hold several modules")
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
            "expected a file, - for stdin, a capture, an attempt's number, a function (MODULE.py:FUNCTION), or HLO "
            f"such as 'f32[3,5]{{1,0:T(2,2)}}', got {what!r}: there is no such file",
        )
    chosen = subject(arguments, None)
    texts = (chosen.dumps.parent / "kernel.hlo.txt", *sorted(chosen.dumps.glob("*TLP-hlo.txt")))
    text = next((path for path in texts if path.is_file()), None)
    if text is None:
        raise RatchetError(
            "no-hlo", f"expected kernel.hlo.txt next to {chosen.dumps} or *TLP-hlo.txt in it, found neither"
        )
    run = chosen.kernel.evidence.simulation if chosen.kernel else None
    inside = (kernel_table(run.breakdown, run.chip),) if run and run.breakdown else ()
    return read(reading_limits.read(text), str(text)), named or figures_of(chosen.chip.name), inside


def _mesh(text: str | None, module: Module) -> Mesh | None:
    """The mesh that `text` names; None for None.

    Raises UsageError `usage` if the module is for several devices and the mesh has another number of devices.
    """
    if text is None:
        return None
    mesh = Mesh(axes=tuple(mesh_sizes(text).items()))
    if module.devices not in (1, mesh.devices):
        raise UsageError(
            "usage", f"expected --mesh of the module's {module.devices} devices, got {mesh.devices}: {text}"
        )
    return mesh


def _capture(what: str, contest: Path) -> tuple[Source, ...] | None:
    """The files of the capture that `what` names: a file, a folder, or a run; None if `what` names no capture."""
    is_run = Path(what).name == what and (contest / PROFILE_DATA / RUNS / what).is_dir()
    if remote.server() and not (Path(what).exists() or what.isdecimal() or _PASTED.search(what)):
        return resolve(what, contest, remote.server()).paths
    if not (what.endswith(SUFFIX) or Path(what).is_dir() or is_run) or what.isdecimal():
        return None
    return resolve(what, contest).paths


def _of_capture(paths: tuple[Source, ...], name: str | None) -> Module:
    """The module called `name`, with or without its number; by default the module with most time, or else the largest.

    Raises RatchetError `no-hlo`, UsageError `unknown-module`.
    """
    protos = hlo_protos(paths)
    if not protos:
        raise RatchetError(
            "no-hlo", f"{paths[0]} holds no modules: they are stored if the profiler's option enable_hlo_proto is on"
        )
    names = ", ".join(sorted(protos))
    matching = [module for module in protos if name in (None, module, module.partition("(")[0])]
    if not matching:
        raise UsageError("unknown-module", f"expected --module, one of {names}, got {name!r}")
    chosen = matching[0]
    if len(matching) > 1:
        spent: defaultdict[str, float] = defaultdict(float)
        for device in reading.read(paths).devices:
            for run in device.executions:
                spent[device.operations[run.operation].module] += run.self_seconds
        chosen = max(matching, key=lambda module: (spent[module], len(protos[module])))
        why = "where most time was spent" if spent[chosen] else "the largest"
        say(f"this is module {chosen}, {why}; --module names another of {len(matching)}: {', '.join(sorted(matching))}")
    return proto.module(protos[chosen], chosen)


def read(data: bytes, name: str) -> Module:
    """The module in a file of text or of a proto, compressed or not. Raises RatchetError `bad-hlo`."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = reading_limits.unpacked(data, name)
        except (OSError, EOFError, zlib.error) as error:
            raise RatchetError("bad-hlo", f"{name} begins like a gzip file and cannot be unpacked: {error}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return proto.module(data, name)
    # The bytes of a small proto may be valid UTF-8 by chance. They are recognised by control characters, which HLO text
    # does not have.
    return proto.module(data, name) if "\x00" in text or "\x12" in text else parse.module(text, name)


def _tables(graph: Graph, op: str | None, target: Figures, top: int) -> tuple[Table, ...]:
    module = graph.module
    every = [instruction for computation in module.computations for instruction in computation.instructions]
    if op is not None:
        return operation_tables(graph, _named(every, op), target)
    if not module.is_pasted:
        return module_tables(graph, target, top)
    tables: list[Table] = []
    for instruction in every:
        tables += (
            operation_tables(graph, instruction, target) if instruction.opcode else shape_tables(instruction.shape)
        )
    if module.not_understood:
        tables.append(not_understood(graph))
    return tuple(tables)


def _named(every: list[Instruction], op: str) -> Instruction:
    """The operation called `op`. Raises UsageError `unknown-op`."""
    names = [instruction.name for instruction in every]
    if (name := op.removeprefix("%")) in names:
        return every[names.index(name)]
    near = difflib.get_close_matches(name, names[:_MOST_COMPARED], 3)
    hint = f"; similar names: {', '.join(near)}" if near else ""
    raise UsageError("unknown-op", f"expected --op with one of the module's {len(names)} operations, got {op!r}{hint}")
