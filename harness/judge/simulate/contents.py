"""The known words in HBM and in vector memory, by the start addresses of operands and results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from harness.judge.simulate.scalar import ALLOCATION_SPACING, is_in_a_result
from harness.judge.simulate.values import Unknown

# A function that returns words of memory, or None if no word is known. Single words may be unknown.
Words = Callable[[], "tuple[int | Unknown, ...] | None"]
# The bytes of one row of a vector register, the unit of addresses in VMEM.
ROW_BYTES = 512
WORD_BYTES = 4
# The mask of a 32-bit word. A scalar register holds an address of 2^31 granules or more as a negative number.
WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandContents:
    """An operand: its name, the address at which it begins in its memory space, and its words if they are known."""

    name: str
    space: str
    address: int
    words: Words


class Contents:
    """The known words, by the addresses at which they begin. `names` are the names of all addresses.

    At the start, only words of operands in vector memory are known.
    """

    def __init__(self, names: Mapping[int, str], operands: Sequence[OperandContents], granule_bytes: int) -> None:
        self._names = names
        self._granule_bytes = granule_bytes
        self._at: dict[int, Words] = {operand.address: operand.words for operand in operands if operand.space == "vmem"}

    def hold(self, constants: Mapping[int, "tuple[int | Unknown, ...]"]) -> None:
        """Records the words that begin at each of these addresses."""
        self._at.update((address, partial(tuple, words)) for address, words in constants.items())

    def __contains__(self, address: int) -> bool:
        return address in self._at

    def __getitem__(self, address: int) -> Words:
        return self._at[address]

    def handed(self, values: Sequence["int | Unknown"]) -> dict[int, Words]:
        """The known words at the addresses among the `values` of a called op's arguments, by argument index."""
        return {
            place: self._at[value]
            for place, value in enumerate(values)
            if not isinstance(value, Unknown) and value in self._at
        }

    def returned(self, values: Sequence["int | Unknown"], results: Mapping[int, Words]) -> None:
        """Records that a called op's scalar program has written `results[i]` (words) to the address `values[i]`."""
        for index, words in results.items():
            value = values[index] if index < len(values) else None
            if value is not None and not isinstance(value, Unknown):
                self._at[value] = words

    def written_by_call(
        self, addresses: Sequence["int | Unknown"], words: "Callable[[int], tuple[int | Unknown, ...] | None]"
    ) -> None:
        """Records that a called op has written its results to these addresses; `words(i)` returns result i's words."""
        for number, address in enumerate(addresses):
            if not isinstance(address, Unknown):
                self._at[address] = partial(words, number)

    def copied(self, source: "int | Unknown", destination: "int | Unknown", spaces: tuple[str, str]) -> None:
        """Records that a transfer copies from `source` to `destination`, addresses in the two memory `spaces`.

        Both addresses count granules.
        """
        if not isinstance(destination, Unknown):
            words = None if isinstance(source, Unknown) else self.beginning_at(source, spaces[0])
            place = self._place(destination, spaces[1])
            if words is not None:
                self._at[place] = words
            else:
                self._at.pop(place, None)

    def beginning_at(self, source: int, space: str) -> Words | None:
        """The known words that begin at the address `source`, which counts granules; None if no word is known."""
        return self._at.get(self._place(source, space))

    def row(self, address: int) -> int:
        """The row of vector memory that a transfer accesses at `address`."""
        return self._place(address, "vmem")

    def _place(self, address: int, space: str) -> int:
        """The address that loads and stores use for the memory that a transfer accesses at `address`.

        A transfer's address counts granules. So before a transfer, the program multiplies an address that counts rows.
        """
        scale = max(1, ROW_BYTES // self._granule_bytes)
        address &= WORD
        rows = address // scale if address % scale == 0 else address
        likely, other = (address, rows) if space == "hbm" else (rows, address)
        is_result = space == "hbm" and is_in_a_result(address)
        return other if other in self._names and likely not in self._names and not is_result else likely

    def replace(self, address: "int | Unknown", *, is_transfer: bool = False) -> None:
        """Forgets the words of the allocation in vector memory that a store or transfer writes.

        If `address` is unknown, all words are forgotten.
        """
        if isinstance(address, Unknown):
            self._at.clear()
            return
        place = self.row(address) if is_transfer else address
        for start in [start for start in self._at if start <= place < start + ALLOCATION_SPACING]:
            del self._at[start]

    def vector(self, address: "int | Unknown") -> "tuple[Words, int] | None":
        """The words of the array that contains `address`, and the index of the word at `address`; None if unknown."""
        if isinstance(address, Unknown):
            return None
        start = max((start for start in self._at if start <= address), default=None)
        if start is None:
            return None
        return self._at[start], (address - start) * ROW_BYTES // WORD_BYTES
