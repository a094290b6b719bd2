"""The scalar instructions as Python expressions: the effect of each opcode of the schedule's scalar program."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.dumps.llo import Op
from harness.judge.simulate.values import float_word

# The distance between two allocations in the made-up address space, in units of the address (words or rows). It is the
# number of rows in the largest VMEM. The dump does not have the true addresses, and only comparisons within one
# allocation matter. Allocations of spilled scalars are closer together, because there can be thousands.
ALLOCATION_SPACING = 1 << 18
_SPILL_SPACING = 1 << 8
_FIRST_SPILL = 1 << 28
# Operands in HBM are above the allocations. The distance to the next operand is at least the operand's size.
FIRST_OPERAND = 1 << 26
# Results that do not reuse a parameter's memory are 64 MiB apart, above the operands, which can take 14 GiB. Until the
# results are written, XLA stores other arrays there, including tables.
_FIRST_RESULT = 1 << 29
_RESULT_SPACING = 1 << 21
_MOST_RESULTS = 1 << 8
# The reason why a scalar that one core of a chip sends to the other core is unknown. Such scalars serve only for
# checks.
CROSS_CORE = "a word from the other core"

_SIGNED = "(({0}) + 2147483648 & 4294967295) - 2147483648"
_U = "({0} & 4294967295)"
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TEMPLATES = {
    "sadd.s32": _SIGNED.format("{0} + {1}"),
    "ssub.s32": _SIGNED.format("{0} - {1}"),
    "smul.u32": _SIGNED.format("{0} * {1}"),
    "smul.s32": _SIGNED.format("{0} * {1}"),
    "smulhi.u32": _SIGNED.format("({0} & 4294967295) * ({1} & 4294967295) >> 32"),
    "sand.u32": "{0} & {1}",
    "sor.u32": "{0} | {1}",
    "sxor.u32": "{0} ^ {1}",
    "sshll.u32": _SIGNED.format("{0} << ({1} & 31)"),
    # This operation shifts ones in: v7x applies it to 0 and n for a mask of n rows; v6e computes (1 << n) - 1 instead.
    "sshllo.u32": _SIGNED.format("{0} << ({1} & 31) | (1 << ({1} & 31)) - 1"),
    "sshrl.u32": _SIGNED.format("({0} & 4294967295) >> ({1} & 31)"),
    "sshra.s32": "{0} >> ({1} & 31)",
    "smin.s32": "smaller({0}, {1})",
    "smax.s32": "larger({0}, {1})",
    "smin.u32": _SIGNED.format("smaller({0} & 4294967295, {1} & 4294967295)"),
    "smax.u32": _SIGNED.format("larger({0} & 4294967295, {1} & 4294967295)"),
    "scalar_select": "pick({0}, {1}, {2})",
    "sc.u32": "(({0} & 4294967295) + ({1} & 4294967295)) > 4294967295",
    "por": "{0} | {1}",
    "pand": "{0} & {1}",
    "pxor": "{0} ^ {1}",
    "pnand": "({0} & {1}) ^ True",
    "pnor": "({0} | {1}) ^ True",
    "pneg": "{0} ^ True",
    "pmov": "{0}",
    "smov": "{0}",
    "sphi": "{1}",
    "reloc": "{0}",
}
# XLA defines the result of a shift by 32 or more. No source states that a core gives the same result.
_SHIFTS = ("sshll.u32", "sshllo.u32", "sshrl.u32", "sshra.s32")
_ALLOCATION = re.compile(r"#allocation[\w.]*")
_MOVE = re.compile(r"\((!?)(p\d+), ([^)]+)\), (.+)", re.DOTALL)
_COMPARISON = re.compile(r"scmp\.(eq|ne|lt|le|gt|ge)\.(s32|u32)(\.\w+)?")
_FLOATS = re.compile(r"scmp\.(eq|ne|lt|le|gt|ge)\.f32(?:\.\w+)?|(sadd|ssub|smul|smin|smax)\.f32")
_INDEX = re.compile(r"\bindex: (\d+)")
_SHAPE = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")


def operand_index(description: str) -> int:
    """The index of a called HLO op's operand, from the text `[shape: ..., index: 3, ...]`; -1 if it has no index."""
    match = _INDEX.search(description)
    return int(match[1]) if match else -1


@dataclass(frozen=True, slots=True)
class Write:
    """A register that an operation writes: `value` is a Python expression."""

    register: str
    value: str


# Chip i of a program is at place i of its slice.
_IDENTITY = {"core id": "memory.core", "logical chip id": "memory.chip", "physical chip id": "memory.chip"}


class Names:
    """Addresses for the symbols of one schedule, assigned in the order of first appearance.

    `flags` are the numbers of sync flags by their symbols, in a program whose chips raise each other's flags by number.
    """

    def __init__(self, flags: Mapping[str, int] | None = None) -> None:
        self.bases: dict[str, int] = {**(flags or {})}
        # Memory space and address of each operand that the schedule names, by the operand's index.
        self.operands: dict[int, tuple[str, int]] = {}
        # The indices of the operands that the op writes.
        self.outputs: set[int] = set()
        # The number of allocations, except those of spilled registers. 32-bit addresses limit this number.
        self.allocations = 0
        self._next_operand = FIRST_OPERAND

    def base(self, symbol: str) -> int:
        """The address at which the allocation called `symbol` begins."""
        if symbol not in self.bases:
            if "spill" in symbol:
                self.bases[symbol] = _FIRST_SPILL + (len(self.bases) + 1) * _SPILL_SPACING
            else:
                self.allocations += 1
                self.bases[symbol] = self.allocations * ALLOCATION_SPACING
        return self.bases[symbol]

    def operand(self, space: str, description: str) -> int:
        """The address at which an operand begins.

        In HBM, addresses count granules of 32 bytes, and the next operand begins after the end of this operand.
        """
        index = operand_index(description)
        if "kind: output" in description:
            self.outputs.add(index)
        address = self._next_operand if space == "hbm" else self.base(f"operand {index}")
        self.operands[index] = space, address
        if space != "hbm":
            return address
        granules = 0
        for kind, bits, dimensions in _SHAPE.findall(description):
            elements = 1
            sizes = [int(dimension) for dimension in filter(None, dimensions.split(","))]
            # Sizes are rounded up to tiles of 8 or 32 rows of 128 elements, so that no array overlaps the next array.
            # There is no further gap. A program that counts rows of 512 bytes shifts addresses left by four, and the
            # result must stay below 2^31.
            is_narrow = bits.isdigit() and int(bits) >= 16 and len(sizes) > 1 and sizes[-2] <= 8
            for place, size in enumerate(reversed(sizes)):
                tile = (128, 8 if is_narrow else 32)[place] if place < 2 else 1
                elements *= -(-size // tile) * tile
            granules += -(-elements * (8 if kind == "pred" else int(bits)) // 256)
        self._next_operand += max(granules, ALLOCATION_SPACING)
        return address

    def by_address(self) -> dict[int, str]:
        """The allocations' names by their addresses."""
        return {address: name for name, address in self.bases.items()}


def result_places(count: int) -> list[int]:
    """The addresses at which the results of a program begin; fewer than `count` if there is no room for more."""
    return [_FIRST_RESULT + number * _RESULT_SPACING for number in range(min(count, _MOST_RESULTS))]


def is_in_a_result(address: int) -> bool:
    """True if an address in HBM is in a result. Not reliable if the program's operands take more than 14 GiB."""
    return _FIRST_RESULT <= address < _FIRST_RESULT + _MOST_RESULTS * _RESULT_SPACING


def expression(text: str, names: Names) -> str:
    """One operand as a Python expression over registers; an Unknown if the operand is not an integer.

    Examples of operands are `[#allocation5 + $0x1]`, `s3`, `4294967295` and `$region`.
    """
    terms = []
    for part in re.sub(r"\[(?:[a-z]+:)?|\]", " ", text).split("+"):
        term = part.strip()
        if match := _ALLOCATION.match(term):
            terms.append(str(names.base(match[0])))
            continue
        term = term.split(" ")[0].lstrip("$")
        if re.fullmatch(r"[sp]\d+", term):
            terms.append(term)
        elif re.fullmatch(r"-?\d+|-?0x[0-9a-f]+", term):
            number = int(term, 0) & 0xFFFFFFFF
            terms.append(str(number - (1 << 32) if number >> 31 else number))
        else:
            return f"Unknown({f'the operand {text}'!r})"
    return terms[0] if len(terms) == 1 else "(" + " + ".join(terms) + ")"


def _float_operand(text: str, names: Names) -> str:
    """The word of a floating-point operand as a Python expression: a register, or the word of a literal number."""
    try:
        return str(float_word(float(text)))
    except (ValueError, OverflowError):
        return expression(text, names)


def write_of(op: Op, names: Names) -> Write | None:
    """The scalar or predicate register that an instruction writes, with its value; None if it changes no such register.

    An unknown opcode writes Unknown, which is harmless if no decision depends on it.
    """
    if op.destination[:1] not in ("s", "p") or not op.destination[1:].isdigit():
        return None
    name = op.opcode
    register = op.destination
    if name in ("sphi", "pphi") or name.startswith("int_to_ptr."):
        # Nothing happens if both sides are the same physical register. In a phi, they always are.
        source = op.operands[-1].split(" ")[-1] if op.operands else register
        return None if name in ("sphi", "pphi") or source == register else Write(register, expression(source, names))
    if name == "smov" and op.operands == (register,):
        # A move from a register to itself does nothing. Another operation of the bundle may write the register.
        return None
    if name == "sld":
        if op.note:
            # The note names the word: the number of the core or chip, or an offset. The offset is 0, because the
            # module's constants are at the addresses that the program expects.
            word = _IDENTITY.get(op.note, "0")
            return Write(register, word)
        place = expression(op.arguments, names)
        # Nearly all loads from a constant address read a spilled scalar.
        is_spill = place.isdigit()
        return Write(
            register, f"(words[{place}] if {place} in words else load({place}))" if is_spill else f"load({place})"
        )
    if name == "smov" and (match := _MOVE.fullmatch(op.arguments)):
        # `smov (p, a), b`: the register becomes b if p holds, otherwise a.
        chosen, otherwise = expression(match[4], names), expression(match[3], names)
        if match[1]:
            chosen, otherwise = otherwise, chosen
        return Write(register, f"pick({match[2]}, {chosen}, {otherwise})")
    if name.startswith("inlined_call_operand."):
        space = name.partition(".")[2]
        if space in ("hbm", "vmem", "smem"):
            return Write(register, str(names.operand(space, op.arguments)))
        # An operand without a memory space is a value that the caller passes in a register.
        return Write(register, f"memory.argument({operand_index(op.arguments)})")
    if name == "scalar_parameter_address":
        operand_place = names.operands.get(int(op.arguments)) if op.arguments.strip().isdigit() else None
        return Write(
            register, str(operand_place[1] if operand_place else names.operand("hbm", f"index: {op.arguments}"))
        )
    values = [expression(operand, names) for operand in op.operands]
    if (float_operation := _FLOATS.fullmatch(name)) and len(op.operands) == 2:
        words = ", ".join(_float_operand(operand, names) for operand in op.operands)
        if float_operation[1]:
            return Write(register, f"floats_compared({float_operation[1]!r}, {words})")
        return Write(register, f"floats_computed({float_operation[2]!r}, {words})")
    if name == "scvt.s32.f32" and len(values) == 1:
        return Write(register, f"float_of({values[0]})")
    if name.startswith("scalar_lea.") and len(values) >= 2:
        return Write(register, _SIGNED.format(f"{values[0]} + {values[1]}"))
    if (match := _COMPARISON.fullmatch(name)) and len(values) == 2:
        form = _U if match[2] == "u32" else "{0}"
        return Write(register, f"{form.format(values[0])} {_COMPARE[match[1]]} {form.format(values[1])}")
    if name in _SHIFTS and len(values) == 2 and not values[1].isdigit():
        shifted = _TEMPLATES[name].format(*values)
        return Write(register, f"pick(({values[1]} & -32) == 0, {shifted}, Unknown('a shift by 32 or more'))")
    if name in _TEMPLATES and len(values) == (1 + _TEMPLATES[name].count("{1}") + _TEMPLATES[name].count("{2}")):
        if register[0] == "p" and name == "pmov":
            values = [f"{values[0]} != 0"] if not values[0].startswith("p") else values
        return Write(register, _TEMPLATES[name].format(*(f"({v})" if v[0] == "-" else v for v in values)))
    if name == "spop.drf":
        # Pops give the quotient and the remainder of the preceding division, in this order.
        return Write(register, "divisions.popleft() if divisions else Unknown('a quotient that nothing computed')")
    if name == "vpop.sfrf":
        return Write(register, "flags.popleft() if flags else Unknown('a sync flag that nothing read')")
    if name.startswith("spop"):
        return Write(register, "Unknown('a scalar taken from a vector register (spop)')")
    return Write(register, f"Unknown({f'the result of the unknown operation {name}'!r})")


def is_known(op: Op) -> bool:
    """True if a scalar instruction's effect on its register is understood."""
    write = write_of(op, Names())
    return write is None or "unknown operation" not in write.value
