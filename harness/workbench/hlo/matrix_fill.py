"""The fill of a matrix unit: the share of its cells that a product's weights occupy, and the cost of empty cells."""

import math

from harness.hlo.module import Instruction
from harness.hlo.shapes import Array
from harness.units import percent
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.prediction import MatmulShape
from harness.workbench.hlo.work import matmuls


def fill_fraction(summed: int, columns: int, size: int) -> float:
    """The mean filled share of the `size` x `size` tiles of a weight matrix of `summed` x `columns`.

    A unit keeps a square of the weights while rows of the other operand stream through the unit. So both sizes are
    rounded up to the unit's size: weights of 64 x 64 fill a quarter of a 128 x 128 unit.
    """
    return math.prod(length / (math.ceil(length / size) * size) for length in (summed, columns) if length)


def fill_of_product(product: MatmulShape, mesh: dict[str, int], size: int) -> tuple[float, int, int]:
    """The filled share for a product written by hand, and the two sizes of one device's weights."""
    sizes: dict[str, int] = {}
    for letters, array in zip(product.letters, (product.left, product.right), strict=False):
        for letter, length in zip(letters, array.local(mesh), strict=True):
            # If only one operand is split along the contracted dimension, only the matching part of the other is used.
            sizes[letter] = min(length, sizes.get(letter, length))
    left, right, result = map(set, product.letters)
    summed = math.prod(sizes[letter] for letter in (left & right) - result)
    columns = math.prod(sizes[letter] for letter in right - left)
    return fill_fraction(summed, columns, size), summed, columns


def fill_of_instruction(graph: Graph, instruction: Instruction, size: int | None) -> float | None:
    """The filled share for the matmul of an instruction; None if it has no matmul, or the sizes are unknown.

    The weights are the right operand; in a convolution (XLA also writes matmuls as convolutions) the kernel.
    """
    within = matmuls(graph, instruction) if size else []
    if not within or size is None:
        return None
    left, right = graph.operand_shape(within[0], 0), graph.operand_shape(within[0], 1)
    sizes = _weights(within[0], right) if isinstance(left, Array) and isinstance(right, Array) else None
    return None if sizes is None else fill_fraction(*sizes, size)


def _weights(matmul: Instruction, right: Array) -> tuple[int, int] | None:
    """The summed length, and the number of columns of the result for one set of weights."""
    sizes = [size for size in right.dimensions if size is not None]
    if len(sizes) < len(right.dimensions):
        return None
    if matmul.contraction is not None:
        how = matmul.contraction
        if any(place >= len(sizes) for place in (*how.right, *how.right_batch)):
            return None
        summed = math.prod(sizes[place] for place in how.right)
        batch = math.prod(sizes[place] for place in how.right_batch)
        return summed, math.prod(sizes) // max(1, summed * batch)
    how_convolved = matmul.convolution
    if how_convolved is None or max(how_convolved.kernel_input, how_convolved.kernel_output) >= len(sizes):
        return None
    return sizes[how_convolved.kernel_input], sizes[how_convolved.kernel_output]


def fill_note(share: float, size: int, summed: int, columns: int) -> str:
    """A sentence on weights that leave a part of the unit empty; "" if they fill the unit."""
    if share > 0.995:
        return ""
    return (
        f"Weights of {summed} x {columns} fill {percent(share)} of a {size} x {size} matrix unit: the FLOPs take "
        f"at least {1 / share:.1f}x as long."
    )
