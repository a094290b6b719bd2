"""Normal numbers for large matrices, where drawing every element would take longer than all later work on it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# If a matrix has more elements than this, its rows overlap in a pool of this many numbers.
POOL = 1 << 22


def normal(random: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """N(0, 1), `[rows, columns]` float32.

    Up to POOL elements, every element is drawn. Above that, only POOL numbers are drawn, or eight rows of numbers if
    that is more. Each row has successive numbers of this pool, from a drawn place on. Two rows are correlated only by
    chance.
    """
    if rows * columns <= POOL:
        return random.standard_normal((rows, columns), dtype=np.float32)
    pool = random.standard_normal(max(POOL, 8 * columns), dtype=np.float32)
    stretches: NDArray[Any] = np.lib.stride_tricks.sliding_window_view(pool, columns)
    # Rows begin at different places if there are enough places.
    places = random.choice(len(stretches), rows, replace=rows > len(stretches))
    return stretches[places]
