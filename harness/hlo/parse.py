"""Reads HLO text into a module, instruction by instruction. Text that is not understood is recorded, never guessed."""

import re
from dataclasses import dataclass, field
from typing import Any

from harness.errors import RatchetError
from harness.hlo.attributes import read_attributes
from harness.hlo.module import Computation, Instruction, Module, Operand
from harness.hlo.shapes import Shape, read_shape
from harness.hlo.tokens import DEVICES, Misunderstood, Tokens

# The tables of source places after the first line: `1 "kernel.py"`, `1 {file_name_id=1 ... line=16 ...}`.
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_ROW = re.compile(r"(\d{1,18}) (.*)")
# `{1}: (0, {}, may-alias)`: result 1 is in the memory of parameter 0. If the result is not a tuple, its number is left
# out.
_ALIAS = re.compile(r"\{(\d{0,9})\}: \((\d{1,9}), \{\}")
# At most this many parts that could not be read are described; the others are only counted.
_MOST_SENTENCES = 200
_FIELD = re.compile(r"(\w+)=(\d{1,18})")
# An instruction as XLA prints it: `ROOT %name = shape opcode(%a, %b)`. Any other form is read token by token.
_HEAD = re.compile(
    r"\s*+(ROOT )?%?([A-Za-z_][\w.\-]{0,200}) = "
    r"(\w+\[[\d,]*\](?:\{[^{}\s]*\})?|\((?:[^()\n]|\([^()\n]*+\))*+\)) ([a-z][\w\-]*)\(([^()\n\"']*+)\)"
)
# The first line of a computation: `ENTRY %name (a: f32[]) -> f32[] {`.
_OPENING = re.compile(r"\s*+(ENTRY )?%?([A-Za-z_][\w.\-]{0,200}) \((?=[^\n]*\) -> )[^\n]*+(?<= \{)\n")
_OPERANDS = re.compile(r"(?:(?:, )?(?:/\*index=\d+\*/)?%[\w.\-]{1,200})*")
_OPERAND = re.compile(r"%([\w.\-]+)")


@dataclass(slots=True)
class _Places:
    """The tables of source places, which have the file and line of each stack frame."""

    rows: dict[str, dict[int, str]] = field(default_factory=dict)
    sources: dict[int, str] = field(default_factory=dict)

    def source(self, frame: int) -> str:
        """The source line of a stack frame, such as `kernel.py:23`; "" if the tables do not have the frame."""
        if frame not in self.sources:
            location = self._fields("FileLocations", self._fields("StackFrames", frame).get("file_location_id", 0))
            name = self._row("FileNames", location.get("file_name_id", 0)).strip('"')
            self.sources[frame] = f"{name}:{location.get('line', '?')}" if name else ""
        return self.sources[frame]

    def _fields(self, table: str, number: int | str) -> dict[str, str]:
        return dict(_FIELD.findall(self._row(table, number)))

    def _row(self, table: str, number: int | str) -> str:
        return self.rows.get(table, {}).get(int(number), "")


def module(text: str, name: str = "pasted text") -> Module:
    """The module in `text`, which may also be single computations or instructions. Raises RatchetError `bad-hlo`."""
    parsed = read(text, name)
    if not any(computation.instructions for computation in parsed.computations):
        reason = parsed.not_understood[0] if parsed.not_understood else "it is empty"
        raise RatchetError(
            "bad-hlo",
            "expected HLO: a module as compiled.as_text() gives it, or an instruction such as "
            f"`%dot = f32[8,8]{{1,0}} dot(%a, %b), ...`; {name} holds none: {reason}",
        )
    return parsed


def read(text: str, name: str = "") -> Module:
    """The module in `text`, as `module` returns it; an empty module if nothing is understood."""
    return _Reader(text, name).read()


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self._tokens = Tokens(text)
        self._name = name
        self._devices = 1
        self._in_place: tuple[tuple[int, int], ...] = ()
        self._is_module = False
        self._places = _Places()
        self._shapes: dict[str, Shape] = {}
        self._computations: list[Computation] = []
        self._loose: list[Instruction] = []
        self._misunderstood: list[str] = []
        self._unread = 0

    def read(self) -> Module:
        tokens = self._tokens
        while tokens.peek().kind != "end":
            start = tokens.peek().start
            try:
                if (opening := tokens.match(_OPENING)) is not None:
                    self._computation(opening[2], is_entry=opening[1] is not None)
                elif tokens.sees("HloModule"):
                    self._heading()
                elif tokens.sees(*_TABLES):
                    self._table()
                elif self._begins_computation():
                    self._opening()
                else:
                    self._loose.append(self._instruction())
            except Misunderstood as error:
                self._pass_over(start, error)
        if self._unread > _MOST_SENTENCES:
            more = self._unread - _MOST_SENTENCES
            self._misunderstood.append(f"{more:,} more place{'s' if more > 1 else ''} not understood")
        if self._loose:
            self._computations.append(Computation(name="", instructions=tuple(self._loose), is_entry=True))
        return Module(
            name=self._name,
            computations=tuple(self._computations),
            devices=self._devices,
            is_pasted=not self._is_module,
            in_place=self._in_place,
            not_understood=tuple(self._misunderstood),
        )

    def _pass_over(self, start: int, error: Misunderstood) -> None:
        """Continues after the line of `start`, or after the line with the error, whichever is later."""
        self._unread += 1
        if self._unread <= _MOST_SENTENCES:
            self._misunderstood.append(str(error))
        text = self._tokens.text
        end = text.find("\n", max(start, self._tokens.place - 1))
        self._tokens.jump(len(text) if end < 0 else end + 1)

    def _heading(self) -> None:
        tokens = self._tokens
        tokens.take()
        self._name = tokens.name()
        self._is_module = True
        while tokens.skip(","):
            key = tokens.name()
            tokens.expect("=")
            if key in ("num_partitions", "replica_count"):
                self._devices *= tokens.integer()
                DEVICES.check(self._devices, "the module")
            elif key == "input_output_alias":
                parsed = _ALIAS.findall(tokens.group())
                self._in_place = tuple((int(result or 0), int(parameter)) for result, parameter in parsed)
            else:
                tokens.skip_value()

    def _table(self) -> None:
        """Reads a table: a heading, and rows that each begin with a number, up to the first line of another form."""
        tokens = self._tokens
        title = tokens.take().text
        place = tokens.text.find("\n", tokens.place) + 1
        rows = self._places.rows.setdefault(title, {})
        while place and (end := tokens.text.find("\n", place)) >= 0:
            match = _ROW.fullmatch(tokens.text[place:end])
            if match is None:
                break
            rows[int(match[1])] = match[2]
            place = end + 1
        tokens.jump(place or len(tokens.text))

    def _begins_computation(self) -> bool:
        """True if a computation begins here: `%name (x: f32[]) -> f32[] {` or `name {`, with no `=` before the `{`."""
        tokens = self._tokens
        start = tokens.peek().start
        try:
            tokens.skip("ENTRY")
            if tokens.peek().kind != "name" or tokens.sees("ROOT"):
                return False
            tokens.take()
            if tokens.sees("("):
                tokens.group()
                return tokens.sees("->")
            return tokens.sees("{") and tokens.text[tokens.peek().start - 1].isspace()
        except Misunderstood:
            return False
        finally:
            tokens.jump(start)

    def _opening(self) -> None:
        tokens = self._tokens
        is_entry = tokens.skip("ENTRY")
        name = tokens.name()
        if tokens.sees("("):
            tokens.group()
        if tokens.skip("->"):
            read_shape(tokens)
        tokens.expect("{")
        self._computation(name, is_entry=is_entry)

    def _computation(self, name: str, *, is_entry: bool) -> None:
        """Reads a computation after its first line."""
        tokens = self._tokens
        instructions: list[Instruction] = []
        while True:
            start = tokens.place
            try:
                if (instruction := self._plain_instruction()) is None:
                    if tokens.skip("}"):
                        break
                    if tokens.peek().kind == "end":
                        self._misunderstood.append(f"the computation {name} breaks off at the end of the text")
                        break
                    start = tokens.peek().start
                    instruction = self._instruction()
                instructions.append(instruction)
            except Misunderstood as error:
                self._pass_over(start, error)
        while tokens.skip(","):
            tokens.name()
            tokens.expect("=")
            tokens.skip_value()
        self._computations.append(Computation(name=name, instructions=tuple(instructions), is_entry=is_entry))

    def _plain_instruction(self) -> Instruction | None:
        """The next instruction, if its head has XLA's usual form; else None."""
        start = self._tokens.place
        head = self._tokens.match(_HEAD)
        fields = self._head(head) if head is not None else None
        if head is None or fields is None:
            self._tokens.jump(start)
            return None
        self._tokens.jump(head.end())
        return Instruction(**fields, **read_attributes(self._tokens, self._places.source, is_dot=head[4] == "dot"))

    def _instruction(self) -> Instruction:
        """The next instruction, `ROOT %name = shape opcode(operands), key=value, ...`; a name is optional."""
        tokens = self._tokens
        is_root = tokens.skip("ROOT")
        name = self._name_and_sign()
        shape = read_shape(tokens)
        if not name and tokens.begins_line():
            return Instruction(name="", opcode="", shape=shape)
        opcode = tokens.peek()
        if opcode.kind != "name" or opcode.text.startswith("%"):
            raise tokens.misunderstood("an operation such as fusion or dot")
        tokens.take()
        return Instruction(
            name=name,
            opcode=opcode.text,
            shape=shape,
            is_root=is_root,
            **self._arguments(opcode.text),
            **read_attributes(tokens, self._places.source, is_dot=opcode.text == "dot"),
        )

    def _head(self, head: re.Match[str]) -> dict[str, Any] | None:
        """The fields that precede the attributes; None if the shape or the operands have an unusual form."""
        root, name, shape, opcode, inside = head.groups()
        if shape not in self._shapes:
            self._tokens.jump(head.start(3))
            read = read_shape(self._tokens)
            if self._tokens.place != head.end(3):
                return None
            self._shapes[shape] = read
        fields = {"name": name, "opcode": opcode, "shape": self._shapes[shape], "is_root": root is not None}
        if opcode == "constant":
            return fields | {"literal": inside.strip()}
        if opcode == "parameter":
            return fields | {"number": int(inside)} if inside.isdecimal() and len(inside) < 19 else None
        if _OPERANDS.fullmatch(inside) is None:
            return None
        return fields | {"operands": tuple([Operand(name=operand) for operand in _OPERAND.findall(inside)])}

    def _name_and_sign(self) -> str:
        tokens = self._tokens
        start = tokens.peek().start
        if tokens.peek().kind not in ("name", "number"):
            return ""
        name = tokens.name()
        if tokens.skip("="):
            return name
        tokens.jump(start)
        return ""

    def _arguments(self, opcode: str) -> dict[str, Any]:
        tokens = self._tokens
        if opcode == "constant":
            return {"literal": tokens.group()[1:-1].strip()}
        tokens.expect("(")
        if opcode == "parameter":
            number = tokens.integer()
            tokens.expect(")")
            return {"number": number}
        return {"operands": tuple([self._operand() for _ in tokens.items(")")])}

    def _operand(self) -> Operand:
        tokens = self._tokens
        begins_shape = tokens.sees("(") or (
            tokens.peek().kind == "name" and tokens.text.startswith("[", tokens.peek().start + len(tokens.peek().text))
        )
        shape = read_shape(tokens) if begins_shape else None
        if shape is not None and tokens.sees(",", ")"):
            return Operand(name="", shape=shape)
        return Operand(name=tokens.name(), shape=shape)
