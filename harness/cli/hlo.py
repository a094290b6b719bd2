"""What `hlo` says: a module, one of its operations or a pasted piece of HLO, explained."""

import difflib
import re
import sys
import zlib
from argparse import Namespace
from pathlib import Path

from harness import limits
from harness.cli.arguments import DEFAULT_CHIP, directory, say
from harness.cli.documents import TablesDocument, figures
from harness.cli.lines import subject
from harness.cli.verb import Outcome
from harness.errors import RatchetError, UsageError
from harness.records import Table
from harness.render import tables
from harness.render.layout import terminal_width
from harness.workbench.hlo import chips, parse, proto
from harness.workbench.hlo.chips import Target
from harness.workbench.hlo.explain import operation_tables, shape_tables
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.listing import module_tables, not_understood
from harness.workbench.hlo.module import Computation, Instruction, Module
from harness.workbench.profiles.places import PROFILE_DATA, SUFFIX, resolve
from harness.workbench.profiles.reading import hlo_protos

# What stands beside a capture and is asked about by mistake.
_NO_MODULE = ("memory_viewer.json", "trace.json.gz")

# So many names are compared with one that is unknown.
_MOST_COMPARED = 5000
# Pasted HLO has a shape in it; the name of a file may have a bracket, but not behind a type.
_PASTED = re.compile(r"\b[a-z]+[a-z0-9]*\[[\d,<=?]*\]")


def hlo(given: Namespace) -> Outcome:
    named = chips.target(given.chip) if given.chip else None
    module, target = _module(given, named)
    found = _tables(module, given.op, target, given.top)
    return Outcome(
        document=TablesDocument(command="hlo", tables=figures(found)),
        text=lambda: tables.text(found, terminal_width()),
    )


def _module(given: Namespace, named: Target | None) -> tuple[Module, Target]:
    what, default = given.what, named or chips.target(DEFAULT_CHIP)
    if what == "-":
        return read(limits.read_stream(sys.stdin.buffer, "stdin"), "stdin"), default
    if what is not None and (capture := _capture(what, directory(given.directory).resolve())) is not None:
        return _of_capture(capture, given.module), default
    if given.module is not None:
        raise UsageError("usage", "--module is for a capture, which may hold several")
    if what is not None and what.endswith(_NO_MODULE):
        raise UsageError(
            "no-module",
            f"{what} holds times or buffers and no HLO: give the .xplane.pb beside it, a run, or an .hlo_proto.pb",
        )
    if what is not None and Path(what).is_file():
        return read(limits.read(Path(what)), what), default
    if what is not None and _PASTED.search(what):
        return parse.module(what), default
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
    return read(limits.read(text), str(text)), named or chips.target(meant.chip.name)


def _capture(what: str, contest: Path) -> tuple[Path, ...] | None:
    """The files of the capture that `what` names: a file, a folder, or a run of the contest; None where it is none."""
    is_run = Path(what).name == what and (contest / PROFILE_DATA / "plugins" / "profile" / what).is_dir()
    if not (what.endswith(SUFFIX) or Path(what).is_dir() or is_run) or what.isdecimal():
        return None
    return resolve(what, contest).paths


def _of_capture(paths: tuple[Path, ...], name: str | None) -> Module:
    """The module called `name`, without one the largest. Raises RatchetError `no-hlo`, UsageError `unknown-module`."""
    protos = hlo_protos(paths)
    if not protos:
        raise RatchetError(
            "no-hlo", f"{paths[0]} holds no modules: they are stored where the profiler's enable_hlo_proto is on"
        )
    known = ", ".join(sorted(protos))
    if name is not None and name not in protos:
        raise UsageError("unknown-module", f"expected --module, one of {known}, got {name!r}")
    meant = name or max(protos, key=lambda one: len(protos[one]))
    if name is None and len(protos) > 1:
        say(f"this is {meant}, the largest of {len(protos)} modules; --module names another: {known}")
    return proto.module(protos[meant], meant)


def read(data: bytes, name: str) -> Module:
    """The module in a file, whether it is text or a proto, compressed or not. Raises RatchetError `bad-hlo`."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = limits.unpacked(data, name)
        except (OSError, EOFError, zlib.error) as error:
            raise RatchetError("bad-hlo", f"{name} begins as gzip and breaks off: {error}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return proto.module(data, name)
    # A small proto may be valid text by chance; HLO text has no control characters.
    return proto.module(data, name) if "\x00" in text or "\x12" in text else parse.module(text, name)


def _tables(module: Module, op: str | None, target: Target, top: int) -> tuple[Table, ...]:
    graph = Graph(module=module)
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
