"""Constant tables out of a serialized executable: found where they lie, and not at all where that is not certain."""

import struct
from pathlib import Path

import pytest

from harness.dumps.allocations import Allocation, parse_allocations
from harness.dumps.executable import constants

_FILL = b"\xc0\x7f"
_TABLES = ((0, 2, 2, 0, 1, 3, 3, 1), tuple(range(20)))


def allocation(name: str, shape: str, size: int, tag: str = "deduplicated constant") -> Allocation:
    return Allocation(name=name, shape=shape, space="hbm", size=size, address=None, tag=tag)


def table(words: tuple[int, ...]) -> bytes:
    data = struct.pack(f"<{len(words)}i", *words)
    return data + _FILL * (-len(data) % 512 // 2)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16384)


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def executable(stored: bytes, *, more: bytes = b"") -> bytes:
    """A program whose image begins with the constants `stored`, `more` parts listed after them."""
    image = stored + bytes(99) + _FILL * 30
    program = b"\x08" + varint(len(stored)) + b"\x10\x63"
    program = b"\x1a" + bytes([len(program)]) + program
    listed = b"\x1a" + bytes([len(varint(len(stored))) + 1]) + b"\x10" + varint(len(stored))
    parts = [b"\x08\x01\x10\x01" + program, b"\x08\x02\x10\x01" + listed, *([more] if more else [])]
    head = b"".join(b"\x12" + bytes([len(part)]) + part for part in parts)
    return b"head" * 21 + head + b"\x1a" + varint(len(image)) + image + b"tail"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # A constant of floating-point numbers, then two tables.
    floats = struct.pack("<6f", *range(6)) + _FILL * 10
    image = executable(padded(floats) + padded(table(_TABLES[0])) + table(_TABLES[1]))
    (tmp_path / "program.executable").write_bytes(image)
    return tmp_path


_HELD = (
    allocation("#allocation7", "f32[6]{0:T(128)}", 0x2000),
    allocation("#allocation8", "s32[8]{0:T(128)}", 0x200),
    Allocation("#allocation9", "s32[1]{0}", "sflag", 4, None, "scoped memory"),
    allocation("#allocation10", "u32[20]{0:T(128)}", 0x200, "constant literal"),
)


def test_tables_are_found_behind_constants_of_other_kinds(folder: Path) -> None:
    assert constants(folder, _HELD) == {"#allocation8": _TABLES[0], "#allocation10": _TABLES[1]}


def test_tables_that_fill_their_blocks_are_found_and_those_of_the_runtime(tmp_path: Path) -> None:
    routes, neighbours = tuple(range(512)), tuple(range(128))
    memory = b"\x08\x03\x10\x01\x20\x80\x80\x30"
    image = executable(padded(table(routes)) + table(neighbours), more=memory)
    (tmp_path / "program.executable").write_bytes(image)
    stored = (
        allocation("#allocation0", "s32[512]{0:T(512)}", 0x800, "<routing-table-index-mapping-key>"),
        allocation("#allocation5", "s32[128]{0:T(128)}", 0x200),
    )
    assert constants(tmp_path, stored) == {"#allocation0": routes, "#allocation5": neighbours}


def test_tables_are_found_in_a_file_of_blocks_with_headers(folder: Path) -> None:
    """As libtpu 0.0.50 writes it: 24 bytes in front of every block of 64 KiB, in the middle of a table too."""
    path = folder / "program.executable"
    many = tuple(range(3 << 15))
    layout = (*_HELD[:2], allocation("#allocation3", f"s32[{len(many)}]{{0:T(128)}}", 4 * len(many)))
    floats = struct.pack("<6f", *range(6)) + _FILL * 10
    image = executable(padded(floats) + padded(table(_TABLES[0])) + table(many))
    path.write_bytes(image)
    stored = constants(folder, layout)
    assert stored["#allocation3"] == many

    first = bytes.fromhex("83af70d10d884a3f") + bytes(8) + b"\x40" + bytes(7)
    blocks = [image[at : at + 65512] for at in range(0, len(image), 65512)]
    path.write_bytes(b"ahead" + b"".join((first if not i else b"\xff" * 24) + block for i, block in enumerate(blocks)))
    assert constants(folder, layout) == stored


def test_nothing_is_found_where_the_constants_are_not_as_long_as_they_should(folder: Path) -> None:
    assert constants(folder, _HELD[1:]) == {}
    assert constants(folder, (*_HELD, allocation("#allocation11", "s32[8]{0:T(128)}", 0x200))) == {}


def test_nothing_is_found_where_two_places_fit(tmp_path: Path) -> None:
    image = executable(table(_TABLES[0])) + executable(table((9,) * 8))
    (tmp_path / "program.executable").write_bytes(image)
    assert constants(tmp_path, _HELD[1:2]) == {}


def test_nothing_is_found_in_an_executable_that_is_cut_off(folder: Path) -> None:
    path = folder / "program.executable"
    path.write_bytes(path.read_bytes()[:-50])
    assert constants(folder, _HELD) == {}


def test_nothing_is_found_without_a_table_or_an_executable(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert constants(folder, ()) == {}
    assert constants(folder, (allocation("#allocation1", "s32[128]{0:T(128)}", 0x200),)) == {}
    assert constants(tmp_path_factory.mktemp("empty"), _HELD) == {}


def test_the_table_of_allocations_is_read() -> None:
    text = (
        "$region0:\n"
        "  #allocation2 [shape = 's32[1]{0}', space=sflag, size = 0x4, offset = 0x8, scoped, tag = 'scratch operand']\n"
        "  #allocation6 [shape = 's32[]', space=sflag, size = 0x4, offset = 0x20, fixed_abs, tag = 'barrier number']\n"
        "  #allocation3 [shape = 's32[16]{0}', space=sflag, size = 0x40, offset = 0x774, scoped, fixed_abs, tag = '']\n"
        "  #allocation29 [shape = 's32[16]{0:T(128)}', space=hbm, size = 0x200, tag = 'deduplicated constant']\n"
        "  %s0 = smov [#allocation2]\n"
    )
    listed = parse_allocations(text)
    assert [
        (allocation.name, allocation.space, allocation.size, allocation.address, allocation.is_constant)
        for allocation in listed
    ] == [
        ("#allocation2", "sflag", 4, None, False),
        ("#allocation6", "sflag", 4, 0x20, False),
        ("#allocation3", "sflag", 0x40, 0x774, False),
        ("#allocation29", "hbm", 0x200, None, True),
    ]
