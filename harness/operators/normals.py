"""Normal numbers for large matrices, where drawing every number takes longer than all that is done with them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows of matrices with more elements than this overlap in a pool of as many numbers.
POOL = 1 << 22


def normal(random: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """N(0, 1), `[rows, columns]` float32.

    Up to POOL elements, every element is drawn. Above that, POOL numbers are drawn, or eight rows of numbers if that is
    more, and each row is a stretch of them that begins at a drawn place. Two rows are correlated by chance alone.
    """
    if rows * columns <= POOL:
        return random.standard_normal((rows, columns), dtype=np.float32)
    pool = random.standard_normal(max(POOL, 8 * columns), dtype=np.float32)
    stretches: NDArray[Any] = np.lib.stride_tricks.sliding_window_view(pool, columns)
    # No two rows begin at the same place, as long as there are enough places.
    places = random.choice(len(stretches), rows, replace=rows > len(stretches))
    values: NDArray[np.float32] = stretches[places]
    return values
