"""Normal numbers for large matrices, of which drawing each one takes longer than all that is done with them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Matrices of more elements than this have rows that overlap in it.
POOL = 1 << 22


def normal(random: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """N(0, 1), `[rows, columns]` float32.

    Up to POOL elements each is drawn. Above, a row is a stretch of a pool of so many, or of eight rows where that is
    more, from a drawn place on: rows differ, no two stand in the same order by more than chance, and all else that is
    made of them (scales, outliers, offsets, zeros) is drawn for each as ever.
    """
    if rows * columns <= POOL:
        return random.standard_normal((rows, columns), dtype=np.float32)
    pool = random.standard_normal(max(POOL, 8 * columns), dtype=np.float32)
    stretches: NDArray[Any] = np.lib.stride_tricks.sliding_window_view(pool, columns)
    # Without a second row from the same place, while there are places.
    places = random.choice(len(stretches), rows, replace=rows > len(stretches))
    found: NDArray[np.float32] = stretches[places]
    return found
