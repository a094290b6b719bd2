"""The TPU compiler's final schedule as records: bundles, their operations, and the use of each bundle's slots.

The form of the text is known from dumps of libtpu 0.0.42 and 0.0.50. Text of an unknown form becomes an unreadable
operation, which is counted instead of ignored.
"""

import gc
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from harness.dumps import executable, timing_tables
from harness.dumps.allocations import Allocation, parse_allocations
from harness.dumps.timing_tables import Assumption, TimingTables
from harness.errors import RatchetError
from harness.hlo import parse
from harness.hlo.evaluation import Values
from harness.hlo.module import Module


class Op(NamedTuple):
    """One operation of a bundle; a tuple, because a schedule may have a million operations.

    - `destination`: the physical register that the operation writes (`s12`, `p3`, `v7`, `vm2`), or "".
    - `predicate`: `p3` or `!p3` if the operation takes effect only under that predicate, otherwise "".
    - `text`: the rest, with comments and predicate removed.
    - `source`: a source line such as `kernel.py:23`, or "" if the compiler names none.
    - `note`: information that only the operation's comment has, or "".

    The note of each opcode:
    - `inlined_call`: the called HLO instruction.
    - `sld`: the meaning of a scalar memory word that the runtime writes (`core id`).
    - `sdivrem`: the results (`kRem`).
    - `shalt.err`: the check (`BoundsCheck 3`).
    - `dma`: a transfer's direction (`hbm-to-vmem`), or the purpose of a wait (`all-reduce-megacore`,
      `enhanced-barrier`).
    - `vwait`: the kind of barrier: with the other core (`barrier-megacore`), or with other chips at launch
      (`global-barrier`).
    """

    destination: str
    opcode: str
    predicate: str = ""
    text: str = ""
    source: str = ""
    note: str = ""

    @property
    def arguments(self) -> str:
        """`text` in which each register has only its physical name: `%v12_v7` becomes `v7`."""
        return _REGISTER.sub(r"\1", self.text).strip(" ,\n")

    @property
    def operands(self) -> tuple[str, ...]:
        """`arguments` split at the commas outside brackets."""
        return tuple(part.strip() for part in _OUTSIDE_BRACKETS.split(self.arguments) if part.strip())


class Bundle(NamedTuple):
    """One very long instruction word; `address` is the word's address in the program.

    `regions` are the numbers of the regions that start with this bundle. `ends` is True if a region ends with it.
    """

    address: int
    ops: tuple[Op, ...]
    regions: tuple[int, ...]
    ends: bool = False


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The final schedule of one HLO op, with its bundles in order of address.

    - `grid_exit`: the index of the bundle with the exit test of a Pallas kernel's grid loop; None without a grid loop.
    - `pipeline_depth`: the number of runs of that test minus the number of runs of the kernel's body.
    - `is_kernel`: True for a custom call, False for XLA's own operations.
    - `allocations`: empty, except in programs of several chips, which raise each other's sync flags by number.
    """

    name: str
    bundles: tuple[Bundle, ...]
    grid_exit: int | None = None
    pipeline_depth: int = 0
    is_kernel: bool = False
    allocations: tuple[Allocation, ...] = ()

    @cached_property
    def empty(self) -> tuple[int, ...]:
        """The indices of the bundles without an operation."""
        return tuple(index for index, bundle in enumerate(self.bundles) if not bundle.ops)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """The operations of all bundles, in order."""
        return tuple(chain.from_iterable(bundle.ops for bundle in self.bundles))

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """For each of `ops`, the index of its bundle."""
        return tuple(chain.from_iterable([index] * len(bundle.ops) for index, bundle in enumerate(self.bundles)))

    @cached_property
    def places(self) -> Mapping[str, Sequence[int]]:
        """For each opcode, its places in `ops`; a million operations have about a hundred opcodes."""
        by_opcode: defaultdict[str, list[int]] = defaultdict(list)
        for place, op in enumerate(self.ops):
            by_opcode[op.opcode].append(place)
        return dict(by_opcode)

    def places_where(self, wanted: Callable[[str], bool]) -> list[int]:
        """The places in `ops` of the wanted opcodes, in order; `wanted` is called once for each opcode."""
        return sorted(chain.from_iterable(places for opcode, places in self.places.items() if wanted(opcode)))

    def ops_where(self, wanted: Callable[[str], bool]) -> list[tuple[int, Op]]:
        """The operations whose opcode is wanted, each with the index of its bundle."""
        return [(self.homes[place], self.ops[place]) for place in self.places_where(wanted)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """Issue slots of the units: every bundle offers `slots[unit]` slots and uses `rows[bundle][unit]` of them."""

    units: tuple[str, ...]
    slots: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ModuleDump:
    """The contents of one dump directory: the HLO ops' schedules, and the top-level program `top` that calls them.

    - `hlo`: the text of the scheduled HLO module, empty if the compiler did not dump it.
    - `digest`: equal for equal schedules, even if names of values and kernels differ.
    - `timings`: sets of tables. The module is simulated once with each set. Without sets, its arguments are unknown.
    - `assumption`: the stated direction of branches that depend on a vector's contents.
    - `constants`: words in HBM from the executable of a program of several chips, by their names in `top`.
    """

    schedules: tuple[Schedule, ...]
    utilisations: tuple[Utilisation | None, ...]
    top: Schedule
    hlo: str
    remarks: tuple[str, ...]
    digest: str = ""
    timings: tuple[TimingTables, ...] = ()
    assumption: Assumption | None = None
    constants: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def module(self) -> Module:
        """The HLO module, empty if the compiler did not dump it."""
        return parse.read(self.hlo)

    @property
    def arguments(self) -> dict[int, Values]:
        """The tables of the first of `timings`, by the positions of the module's arguments."""
        return self.timings[0].arguments if self.timings else {}

    @property
    def calls(self) -> tuple[str, ...]:
        """The HLO ops that the top-level program calls, with one entry for each call in the program."""
        return tuple(name for op in self.top.ops if (name := called_name(op)))


# The region of the last bundle if the bundle is marked as a jump target but its comment names no region.
EXIT_REGION = -1
# The opcode for text between separators that does not look like an operation.
UNREADABLE = "(unreadable)"

# The pattern begins with a line break, because `^` would be tried at every character. Possessive quantifiers (`*+`,
# `++`) in this and later patterns avoid useless backtracking.
_BUNDLE = re.compile(r"\n *+(0x[0-9a-f]++|0) ++([A-Z]{2}[A-Z, ]*+)?: *+[> ]*+\{")
_NAMED = re.compile(r"%[\w.-]++")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_REGION = re.compile(r"Start(?:/End empty)? region (\d+)")
_END = re.compile(r"End region \d")
_SOURCE = re.compile(r'loc\("([\w.+\-]*:\d+)')
_OP = re.compile(
    r"%[a-z]*\d+(?:_([a-z]+\d+))? = (inlined_call_operand\.<[^>]*>|[a-z][\w.\-]*(?:\[\d+\][\w.]*)*)(.*)", re.DOTALL
)
_PREDICATE = re.compile(r"\((!?)%p\d+_(p\d+)\)")
_REGISTER = re.compile(r"%[a-z]+\d+_([a-z]+\d+)")
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[(]*[\])])")
_STAGE = re.compile(r"iteration index, stage = (\d+)")
_ENTRY = re.compile(r"entry bundle: %[\w.\-]+ = (?:[^*]*? )?([\w\-]+)\(")
_SCHEDULE_FILE = re.compile(r"(\d+)-(.+)-\d+-final_bundles\.txt")
_UTILISATION_FILE = re.compile(r"(\d+)-(.+)-\d+-final_hlo-static-per-bundle-utilization\.txt")
# The last compiler pass whose text has the addresses of allocations.
_ALLOCATIONS_FILE = re.compile(r"(\d+)-(.+)-\d+-post-delay-converter\.txt")
# The longest name of a file. In a longer name, libtpu 0.0.41 and later cut off the op's name and append a number.
_LONGEST_FILE_NAME = 250
_CUT_NAME = re.compile(r"(.+)-\d+")
_INSTRUCTION = re.compile(r"%([\w.\-]+) = ")
# The first line of a module contains this text if the module runs on several devices.
_SEVERAL_DEVICES = re.compile(r"\b(?:num_partitions|replica_count)=(?!1\b)\d")
_TOP = "TLP"
_CALLED = re.compile(r"/\* (%[\w.\-]+ = [\w\-]+\([^)]*\))")
# In the comment of a load from scalar memory: the meaning of a word that the runtime or the loader wrote.
_RUNTIME_WORD = re.compile(r"/\*[^*]*\b(core id|(?:logical|physical) chip id|hbm offset)\b")
# A comment is a list of remarks: `/* loc("kernel.py":23:4) :: kRem */`, in any order.
_RESULTS = re.compile(r"(?:/\*|::) (k[A-Z]\w*)(?= \*/| ::)")
# In the comment of a check that the compiler added: the name of the check or, at the kernel's end, the semaphore.
_CHECKED = re.compile(r"/\* (BoundsCheck \d+|Semaphore \([\w ]+\) has a nonzero value upon exit)")
# The direction of a transfer, if the opcode lacks it; or the purpose of a wait, which is a transfer from or to the
# other core, or the barrier at which several chips begin a program.
_DIRECTION = re.compile(r"/\* ([a-z]+-to-[a-z]+(?= )|(?:all-reduce-megacore|enhanced-barrier)(?=-wait))[a-z-]* \*/")
# A wait for the other core of the chip, or for other chips at launch. Each core signals the other core directly before
# it waits.
_MEETING = re.compile(r"/\* (barrier-megacore|global-barrier)-wait \*/")
# Patterns for comments with information that the rest of the operation lacks, by the first word of its opcode.
_NOTES = {
    "inlined_call": _CALLED,
    "sld": _RUNTIME_WORD,
    "sdivrem": _RESULTS,
    "shalt": _CHECKED,
    "dma": _DIRECTION,
    "vwait": _MEETING,
}
# The form of nearly all operations of a long schedule: a vector operation without a predicate, followed by at most one
# comment, which is not a note. Groups are the fields of Op; `_op` reads all other forms. The slash allows transposes,
# whose operands begin with `[1/8]`.
_PLAIN = re.compile(
    r"(?:\A|(?<=;;))\s*+%[a-z]*+\d++(?:_([a-z]+\d+))? = (v(?!wait)[\w.\-]*+(?:\[\d+\][\w.]*+)*+)()"
    r"([^/(){};]*+(?:/\d[^/(){};]*+)?)"
    r'(?:/\* (?:loc\("([\w.+\-]*:\d+)[^*;]*+|[^*;(]*+)\*/)?()[\s}]*+(?=;;|\Z)'
)
_as_op: Callable[[Iterable[str]], Op] = partial(tuple.__new__, Op)
# A label that some operations have before their operands: `/*vst_source=*/`.
_LABEL = re.compile(r"/\*\w+=\*/")
# A file's name in a location. The author of a kernel can choose the name, so the name could end the comment that
# contains it. The compiler writes a quotation mark as \22.
_FILE = re.compile(r'loc\("([^"]*)"(:?)')
_STRANGE = re.compile(r"[^\w.+\-]")


def called_name(op: Op) -> str:
    """The name of the HLO op that `op` calls; "" if `op` is no `inlined_call`."""
    return op.note[1:].partition(" = ")[0] if op.opcode == "inlined_call" else ""


def called_operands(op: Op) -> tuple[str, ...]:
    """The names of the HLO instructions that an `inlined_call` passes to the called op, in order."""
    return tuple(re.findall(r"%([\w.\-]+)", op.note.partition("(")[2])) if op.opcode == "inlined_call" else ()


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Runs its body without Python's cyclic garbage collector.

    The collector would take half of the time, because it searches a million records for cycles. The records have none.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@garbage_kept()
def _without_names(text: str) -> str:
    """A schedule without comments, with its values and callees numbered in the order in which they appear."""
    numbers: dict[str, str] = {}
    return _NAMED.sub(lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), _COMMENT.sub("", text))


def read_module(directory: Path) -> ModuleDump:
    """The final schedules of one compiled module, as the compiler dumped them into `directory`.

    Raises RatchetError `no-dump` if the folder has no schedule. The runtime's start and stop (`late-*`) are left out,
    because they are not part of the module.
    """
    files = sorted(directory.iterdir()) if directory.is_dir() else []
    schedules: dict[str, Schedule] = {}
    tables: dict[str, Utilisation] = {}
    hlo = "".join(_text(path) for path in files if path.name.endswith("-TLP-hlo.txt"))
    ops = _ops_of_program(files) if any(len(path.name) == _LONGEST_FILE_NAME for path in files) else frozenset()
    remarks: list[str] = []
    digest = hashlib.sha256()
    for path in files:
        if match := _SCHEDULE_FILE.fullmatch(path.name):
            name = _whole_name(match, ops)
            if not name.startswith("<"):
                text = _text(path)
                digest.update(_without_names(text).encode())
                schedules[name] = parse_schedule(name, text)
        elif match := _UTILISATION_FILE.fullmatch(path.name):
            try:
                tables[_whole_name(match, ops)] = parse_utilisation(_text(path))
            except ValueError as error:
                remarks.append(f"{path.name} is not read: {error}")
    if _SEVERAL_DEVICES.search(hlo.partition("\n")[0]):
        for path in files:
            match = _ALLOCATIONS_FILE.fullmatch(path.name)
            if match and (name := _whole_name(match, ops)) in schedules:
                schedules[name] = replace(schedules[name], allocations=parse_allocations(_text(path)))
    top = schedules.pop(_TOP, None)
    if not schedules:
        raise RatchetError(
            "no-dump",
            f"expected a schedule to simulate (files `*-final_bundles.txt`) in {directory}, got "
            f"{f'{len(files)} other files' if files else 'no files'}; compile the program with LIBTPU_INIT_ARGS="
            '"--xla_jf_dump_to=FOLDER --xla_jf_dump_llo_text=true", then name that folder',
        )
    if top is None:
        remarks.append("the dump has no top-level program: every schedule in it is assumed to run once")
        top = _one_call_each(schedules)
    called = set(map(called_name, top.ops))
    uncalled = [name for name in schedules if name not in called]
    remarks += [f"the top-level program does not call {name}: it is not counted" for name in uncalled]
    return ModuleDump(
        schedules=tuple(schedules.values()),
        utilisations=tuple(tables.get(name) for name in schedules),
        top=top,
        hlo=hlo,
        remarks=tuple(dict.fromkeys(remarks)),
        digest=digest.hexdigest(),
        timings=timing_tables.read(directory),
        assumption=timing_tables.read_assumption(directory),
        constants=executable.constants(directory, top.allocations),
    )


def _ops_of_program(files: Iterable[Path]) -> frozenset[str]:
    """The HLO ops that the module and its top-level program name."""
    return frozenset(op for path in files if f"-{_TOP}-" in path.name for op in _INSTRUCTION.findall(_text(path)))


def _whole_name(file_name: re.Match[str], ops: Collection[str]) -> str:
    """The HLO op that a file of a dump describes. A cut-off name that fits several ops is returned unchanged."""
    name, cut = file_name[2], _CUT_NAME.fullmatch(file_name[2])
    if len(file_name[0]) != _LONGEST_FILE_NAME or cut is None:
        return name
    fitting = [op for op in ops if op.startswith(cut[1])]
    return fitting[0] if len(fitting) == 1 else name


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _one_call_each(schedules: Iterable[str]) -> Schedule:
    """A made-up top-level program that calls each HLO op once, for a dump that has none."""
    ops = (Op("", "inlined_call", note=f"%{name} = unknown()") for name in schedules)
    return Schedule(name=_TOP, bundles=tuple(Bundle(address, (op,), ()) for address, op in enumerate(ops)))


def parse_schedule(name: str, text: str) -> Schedule:
    """The schedule of the HLO op `name` from the text of its `*final_bundles.txt`."""
    text = _LABEL.sub("", _with_short_locations(text))
    stages = [int(number) for number in _STAGE.findall(text)]
    entry = _ENTRY.search(text)
    # The text before the first bundle, then for each bundle its address, its mark and its text.
    _, *parts = _BUNDLE.split("\n" + text)
    bodies = parts[2::3]
    bundles = tuple(_bundle(*parts[i : i + 3], is_last=i + 3 == len(parts)) for i in range(0, len(parts), 3))
    grid_exit = None
    is_kernel = entry is not None and entry[1] == "custom-call"
    if stages and is_kernel:
        # The grid's loop is the outermost loop, so its exit test is the last exit test.
        grid_exit = max((i for i, body in enumerate(bodies) if "/* loop exit test" in body), default=None)
    return Schedule(
        name=name, bundles=bundles, grid_exit=grid_exit, pipeline_depth=max(stages, default=0), is_kernel=is_kernel
    )


def _with_short_locations(text: str) -> str:
    """The text with `loc("kernel.py:23` in place of `loc("/a/kernel.py":23`; unusual characters of names become `_`."""

    @cache
    def short(path: str, colon: str) -> str:
        name = _STRANGE.sub("_", path.rpartition("/")[2])
        return f'loc("{name}{colon or chr(34)}'

    return _FILE.sub(lambda match: short(match[1], match[2]), text)


def _bundle(address: str, mark: str | None, body: str, *, is_last: bool) -> Bundle:
    regions = tuple(int(number) for number in _REGION.findall(body)) if "Start" in body else ()
    if is_last and not regions and "PF" in (mark or ""):
        regions = (EXIT_REGION,)
    return Bundle(int(address, 16), _ops(body), regions, "End region" in body and _END.search(body) is not None)


def _ops(body: str) -> tuple[Op, ...]:
    plain = _PLAIN.findall(body)
    if len(plain) == body.count(";;") + 1:
        return tuple(map(_as_op, plain))
    return tuple(op for part in body.split(";;") if (op := _op(part)) is not None)


def _op(part: str) -> Op | None:
    """The operation between two separators; None if there is no text."""
    if (usual := _PLAIN.fullmatch(part)) is not None:
        return _as_op(usual.groups(""))
    source = _SOURCE.search(part)
    plain = _COMMENT.sub("", part) if "/*" in part else part
    match = _OP.search(plain)
    if match is None:
        rest = plain.strip(" \n{}>")
        return Op("", UNREADABLE, text=rest[:80]) if rest else None
    destination, opcode, text = match.groups()
    # If arrays are larger than 4 GiB, the compiler uses this opcode for the ops that it calls.
    opcode = "inlined_call" if opcode == "call" else opcode
    predicate = _PREDICATE.search(text) if "(" in text else None
    if predicate is not None:
        text = text[: predicate.start()] + text[predicate.end() :]
    end = text.rfind("}")
    if end >= 0 and text.count("{") < text.count("}"):
        text = text[:end]
    return Op(
        destination=destination or "",
        opcode=opcode,
        predicate="".join(predicate.groups()) if predicate is not None else "",
        text=text,
        source=source[1] if source is not None else "",
        note=_note(opcode, part),
    )


def _note(opcode: str, text: str) -> str:
    pattern = _NOTES.get(opcode.partition(".")[0])
    match = pattern.search(text) if pattern is not None else None
    return match[1] if match is not None else ""


def parse_utilisation(text: str) -> Utilisation:
    """The table of `*final_hlo-static-per-bundle-utilization.txt`: unit names, slots offered, one row per bundle.

    Raises ValueError if the text is not such a table.
    """
    head, _, body = text.partition("UTILIZATION:")
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith("==")]
    if len(lines) != 2:
        raise ValueError(f"expected a line of unit names and one of slots, got {len(lines)} lines")
    rows = [line for line in body.splitlines() if line.strip()]
    # Most rows are equal to another row.
    parsed = {line: tuple(map(int, line.split())) for line in set(rows)}
    table = Utilisation(
        units=tuple(name.strip() for name in lines[0].split(",")),
        slots=tuple(int(word) for word in lines[1].split()),
        rows=tuple(parsed[line] for line in rows),
    )
    if any(len(row) != len(table.units) for row in (table.slots, *parsed.values())):
        raise ValueError(f"expected {len(table.units)} numbers in each row")
    return table
