"""Files next to the compiler's dumps that describe the timed calls: contents of tables, and directions of branches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from harness.errors import RatchetError

_FILE = "timing-tables.json"
_ASSUMPTION = "assumption.json"
# The assumed direction of branches whose condition comes from a vector with unknown contents.
Assumption = Literal["never", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingTable:
    """One argument of integers, by its position among the module's arguments; `values` in row-major order."""

    position: int
    dtype: str
    shape: tuple[int, ...]
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingTables:
    """All tables of one timed call; `name` is the name of the timing input."""

    name: str
    tables: tuple[TimingTable, ...]

    @property
    def arguments(self) -> dict[int, npt.NDArray[np.generic]]:
        """The tables as arrays by position, in the form that `Tables` takes."""
        return {table.position: np.array(table.values, dtype=table.dtype).reshape(table.shape) for table in self.tables}


def timing_tables(name: str, arguments: Mapping[int, npt.NDArray[np.generic]]) -> TimingTables:
    """The record of the timing input `name`, whose arrays are `arguments`, by position."""
    return TimingTables(
        name=name,
        tables=tuple(
            TimingTable(
                position=position, dtype=array.dtype.name, shape=array.shape, values=tuple(map(int, array.ravel()))
            )
            for position, array in sorted(arguments.items())
        ),
    )


def write(directory: Path, every: Sequence[TimingTables]) -> None:
    """Writes the tables next to the dumps of the module in `directory`; writes no file if there are no tables."""
    if every:
        (directory / _FILE).write_bytes(msgspec.json.encode(tuple(every)))


def read(directory: Path) -> tuple[TimingTables, ...]:
    """The tables that `write` left in `directory`, or (). Raises RatchetError `no-dump` if the file is unreadable."""
    return _decoded(directory / _FILE, tuple[TimingTables, ...]) or ()


def write_assumption(directory: Path, assumption: Assumption | None) -> None:
    """Writes the assumption next to the dumps of the module in `directory`; writes no file if it is None."""
    if assumption is not None:
        (directory / _ASSUMPTION).write_bytes(msgspec.json.encode(assumption))


def read_assumption(directory: Path) -> Assumption | None:
    """The assumption in `directory`, None if there is none. Raises RatchetError `no-dump` if the file is unreadable."""
    assumption: Assumption | None = _decoded(directory / _ASSUMPTION, Assumption)
    return assumption


def _decoded(path: Path, kind: Any) -> Any:
    """The record in a file, None if there is no file. Raises RatchetError `no-dump` if the file is unreadable."""
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, OSError) as error:
        raise RatchetError("no-dump", f"{path} cannot be read: {error}; compile again") from error
