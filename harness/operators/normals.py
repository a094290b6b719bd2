"""Normal numbers for large matrices: drawing every element would take longer than all later work on the matrix."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# If a matrix has more elements than this, its rows overlap in a pool of this many numbers.
POOL = 1 << 22


def normal(random: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """N(0, 1), `[rows, columns]` float32.

    Up to POOL elements, every element is drawn. Above that, only a pool is drawn: POOL numbers, or as many as eight
    rows have if that is more. Each row holds successive numbers of the pool, from a randomly drawn place on.
    """
    if rows * columns <= POOL:
        return random.standard_normal((rows, columns), dtype=np.float32)
    pool = random.standard_normal(max(POOL, 8 * columns), dtype=np.float32)
    windows: NDArray[Any] = np.lib.stride_tricks.sliding_window_view(pool, columns)
    # Rows begin at different places if there are enough places.
    return windows[random.choice(len(windows), rows, replace=rows > len(windows))]
