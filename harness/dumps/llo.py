"""The TPU compiler's final schedule as records: bundles, their operations, and how full each bundle is.

What the text looks like was found out by reading dumps of libtpu 0.0.42 and 0.0.50; a form that
is not known is kept as text, so that the reader of the records can count it instead of missing it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RatchetError


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a bundle.

    `destination` is the register it writes (`s12`, `p3`, `v7`, `vm2`: the physical one) or "".
    `predicate` is `p3` or `!p3` where the operation only takes effect under it, else "".
    `arguments` is the rest of the text, comments and predicate removed. `source` is
    `kernel.py:23` where the compiler says which line it comes from, else "".
    """

    opcode: str
    destination: str
    predicate: str
    arguments: str
    source: str

    @property
    def operands(self) -> tuple[str, ...]:
        """`arguments` split at the commas outside brackets."""
        return tuple(part.strip() for part in _OUTSIDE_BRACKETS.split(self.arguments) if part.strip())


@dataclass(frozen=True, slots=True)
class Bundle:
    """One very long instruction word: `address` is its place in the program, `regions` those that start here."""

    address: int
    ops: tuple[Op, ...]
    regions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The final schedule of one HLO op, its bundles in order of their address.

    `grid_exit` is the bundle (its index) with the exit test of a Pallas kernel's grid loop, which
    runs `pipeline_depth` times more often than the kernel's body; None for anything else.
    """

    name: str
    bundles: tuple[Bundle, ...]
    grid_exit: int | None = None
    pipeline_depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """Issue slots per bundle: `slots` are offered by every bundle, `rows[bundle][unit]` are used."""

    units: tuple[str, ...]
    slots: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleDump:
    """All of one dump directory that a simulation needs; `calls` names the HLO ops in the order they are called."""

    schedules: tuple[Schedule, ...]
    utilisations: tuple[Utilisation | None, ...]
    calls: tuple[str, ...]
    top_level_bundles: int
    remarks: tuple[str, ...]


# The opcode of an operation that has none: text between separators that does not look like an operation.
UNREADABLE = "(unreadable)"

_BUNDLE = re.compile(r"^ *(0x[0-9a-f]+|0) +(?:[A-Z]{2}[A-Z, ]*)?: *[> ]*\{", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_REGION = re.compile(r"Start(?:/End empty)? region (\d+)")
_SOURCE = re.compile(r'loc\("([^"]*)":(\d+)')
_OP = re.compile(r"%(?:([a-z]+)?\d+(?:_([a-z]+\d+))?) = ([a-z][\w.\-]*(?:\[\d+\][\w.]*)*)(.*)", re.DOTALL)
_PREDICATE = re.compile(r"\((!?)%p\d+_(p\d+)\)")
_REGISTER = re.compile(r"%[a-z]+\d+_([a-z]+\d+)")
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[(]*[\])])")
_STAGE = re.compile(r"iteration index, stage = (\d+)")
_KERNEL_ENTRY = re.compile(r"entry bundle: %[\w.\-]+ = [^*]*?custom-call\(")
_SCHEDULE_FILE = re.compile(r"(\d+)-(.+)-\d+-final_bundles\.txt")
_UTILISATION_FILE = re.compile(r"(\d+)-(.+)-\d+-final_hlo-static-per-bundle-utilization\.txt")
_CALL = re.compile(r"= inlined_call\b[^\n;]*?/\* %([\w.\-]+) = ")


def read_module(directory: Path) -> ModuleDump:
    """The final schedules of one compiled module, as the compiler dumped them into `directory`.

    Raises RatchetError `no-dump` if there is no schedule in it. Runtime start and stop
    (`late-*`) is left out: it is not the module's work.
    """
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    schedules: dict[str, Schedule] = {}
    tables: dict[str, Utilisation] = {}
    calls: list[str] = []
    top_level_bundles = 0
    remarks: list[str] = []
    for path in files:
        if match := _SCHEDULE_FILE.fullmatch(path.name):
            name = match[2]
            if name.startswith("<"):
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            if name == "TLP":
                top = parse_schedule(name, text)
                calls += [call[1] for call in _CALL.finditer(text)]
                top_level_bundles += len(top.bundles)
                remarks += _loops_around_calls(top)
            else:
                schedules[name] = parse_schedule(name, text)
        elif match := _UTILISATION_FILE.fullmatch(path.name):
            try:
                tables[match[2]] = parse_utilisation(path.read_text(encoding="utf-8", errors="replace"))
            except ValueError as error:
                remarks.append(f"{path.name} is not read: {error}")
    if not schedules:
        raise RatchetError(
            "no-dump",
            f"no schedule to simulate: expected files `*-final_bundles.txt` in {directory}, found "
            f"{f'{len(files)} other files' if files else 'nothing'}; compile with the compiler's dump flags first",
        )
    for name in calls:
        if name not in schedules:
            remarks.append(f"the top-level program calls {name}, whose schedule is not in the dump")
    if not calls:
        remarks.append("the dump has no top-level program: every schedule in it is taken to run once")
    return ModuleDump(
        schedules=tuple(schedules.values()),
        utilisations=tuple(tables.get(name) for name in schedules),
        calls=tuple(name for name in calls if name in schedules) or tuple(schedules),
        top_level_bundles=top_level_bundles,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def parse_schedule(name: str, text: str) -> Schedule:
    """The schedule of the HLO op `name` from the text of its `*final_bundles.txt`."""
    grid_exit = None
    stages = [int(number) for number in _STAGE.findall(text)]
    if stages and _KERNEL_ENTRY.search(text):
        # The grid's loop is the outermost one, so its exit test is the last.
        before = text[: max(0, text.rfind("/* loop exit test"))]
        grid_exit = len(_BUNDLE.findall(before)) - 1 if before else None
    return Schedule(
        name=name,
        bundles=tuple(_bundles(text)),
        grid_exit=grid_exit,
        pipeline_depth=max(stages, default=0),
    )


def _bundles(text: str) -> Iterator[Bundle]:
    starts = list(_BUNDLE.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    for match, end in zip(starts, ends, strict=False):
        body = text[match.end() : end]
        regions = tuple(int(number) for number in _REGION.findall(body)) if "Start" in body else ()
        yield Bundle(int(match[1], 16), tuple(_ops(body)), regions)


def _ops(body: str) -> Iterator[Op]:
    for part in body.split(";;"):
        source = _SOURCE.search(part)
        plain = _COMMENT.sub("", part) if "/*" in part else part
        match = _OP.search(plain)
        if match is None:
            if rest := plain.strip(" \n{}>"):
                yield Op(UNREADABLE, "", "", rest[:80], "")
            continue
        _, destination, opcode, arguments = match.groups()
        predicate = _PREDICATE.search(arguments) if "(" in arguments else None
        if predicate is not None:
            arguments = arguments[: predicate.start()] + arguments[predicate.end() :]
        end = arguments.rfind("}")
        if end >= 0 and arguments.count("{") < arguments.count("}"):
            arguments = arguments[:end]
        yield Op(
            opcode,
            destination or "",
            "".join(predicate.groups()) if predicate is not None else "",
            _REGISTER.sub(r"\1", arguments).strip(" ,\n"),
            f"{source[1].rsplit('/', 1)[-1]}:{source[2]}" if source is not None else "",
        )


def parse_utilisation(text: str) -> Utilisation:
    """The table of `*final_hlo-static-per-bundle-utilization.txt`: unit names, slots offered, one row per bundle.

    Raises ValueError if it is no such table.
    """
    head, _, body = text.partition("UTILIZATION:")
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith("==")]
    if len(lines) != 2:
        raise ValueError(f"expected a line of unit names and one of slots, got {len(lines)} lines")
    table = Utilisation(
        units=tuple(name.strip() for name in lines[0].split(",")),
        slots=tuple(int(word) for word in lines[1].split()),
        rows=tuple(tuple(map(int, line.split())) for line in body.splitlines() if line.strip()),
    )
    if any(len(row) != len(table.units) for row in (table.slots, *table.rows)):
        raise ValueError(f"expected {len(table.units)} numbers in each row")
    return table


def _loops_around_calls(top: Schedule) -> Iterator[str]:
    """What makes the number of calls unknowable: a backward branch of the top-level program over a call."""
    start_of = {region: index for index, bundle in enumerate(top.bundles) for region in bundle.regions}
    for index, bundle in enumerate(top.bundles):
        for op in bundle.ops:
            target = re.search(r"region(\d+)", op.arguments) if op.opcode.startswith("sbr") else None
            first = start_of.get(int(target[1]), index) if target else index
            inside = top.bundles[first:index]
            if any(call.opcode == "inlined_call" for inner in inside for call in inner.ops):
                yield "the top-level program calls HLO ops in a loop, and how often is not known"
