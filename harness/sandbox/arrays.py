"""Arrays that processes exchange as files of raw bytes. Shapes and dtypes come from the problem, not the candidate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from harness.records import Array
from harness.sandbox.messages import Rejected


def dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype called `name`, which may be a dtype of ml_dtypes (`bfloat16`)."""
    return np.dtype(getattr(ml_dtypes, name, name))


def save(directory: Path, arrays: Sequence[NDArray[Any]]) -> None:
    """Writes each array to `directory`, and makes this folder if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for position, array in enumerate(arrays):
        (directory / f"{position}.bin").write_bytes(np.ascontiguousarray(array).tobytes())


def load(directory: Path, expected: Sequence[Array]) -> tuple[NDArray[Any], ...]:
    """The arrays that `save` wrote, in the `expected` form. Raises Rejected `crash` for a missing or wrong file."""
    arrays = []
    for position, array in enumerate(expected):
        path = directory / f"{position}.bin"
        data = path.read_bytes() if path.is_file() else b""
        size = int(np.prod(array.shape)) * dtype(array.dtype).itemsize
        if len(data) != size:
            raise Rejected("correctness", "crash", f"expected {size} bytes of {array.name}, got {len(data)}")
        arrays.append(np.frombuffer(data, dtype=dtype(array.dtype)).reshape(array.shape))
    return tuple(arrays)
