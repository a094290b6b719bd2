"""Normal numbers for large matrices, of which drawing each one takes longer than all that is done with them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Matrices of more elements than this have rows that overlap in it.
POOL = 1 << 22


def normal(random: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """N(0, 1), `[rows, columns]` float32.

    Up to POOL elements each is drawn. Above that, POOL numbers are drawn, or as many as eight rows have where that is
    more, and each row is a stretch of them that begins at a drawn place. Two rows are correlated by chance alone.
    """
    if rows * columns <= POOL:
        return random.standard_normal((rows, columns), dtype=np.float32)
    pool = random.standard_normal(max(POOL, 8 * columns), dtype=np.float32)
    stretches: NDArray[Any] = np.lib.stride_tricks.sliding_window_view(pool, columns)
    # Without a second row from the same place, while there are places.
    places = random.choice(len(stretches), rows, replace=rows > len(stretches))
    values: NDArray[np.float32] = stretches[places]
    return values
