"""Measures, by operator, how often a few wrong rows of an output are detected, and honest outputs refused.

PYTHONPATH=. .venv/bin/python benchmarks/wrong_rows.py [SEEDS]

Outputs are honest and rounded. Some rows, which are not among the drawn ones, are then made wrong: a tenth too small,
replaced by another row, or zero in half of their columns. A wrong row that equals a right one by chance counts as
missed.
"""

import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from harness.operators import (
    Attention,
    AttentionBackward,
    GroupedMatmul,
    GroupedMatmulTransposed,
    Matmul,
    Problem,
    QuantizedMatmul,
    RMSNorm,
    SwiGLU,
    check,
)
from harness.operators.outputs import row_count, spans
from harness.operators.survey import standing_out

# For each operator, about the smallest problem for which not all rows are compared.
BY_ROWS: tuple[Any, ...] = (
    Matmul(m=24576, n=512, k=512),
    Matmul(m=24576, n=512, k=512, dtype="float32"),
    GroupedMatmul(m=24576, groups=8, k=512, n=512),
    GroupedMatmulTransposed(m=4096, groups=2, k=3072, n=512),
    QuantizedMatmul(m=24576, n=512, k=512),
    QuantizedMatmul(m=24576, n=512, k=512, activations="int8"),
    SwiGLU(tokens=8192, model=512, hidden=512),
    SwiGLU(tokens=8192, model=512, hidden=512, down=True),
    RMSNorm(rows=36864, columns=256),
    RMSNorm(rows=36864, columns=256, residual=False, dtype="float32"),
)
PROBLEMS = (
    *BY_ROWS,
    Attention(sequence=4096, head_dim=128),
    Attention(sequence=4096, head_dim=128, heads=2, kv_heads=1, causal=True),
    Attention(sequence=4096, head_dim=128, causal=True, window=256, soft_cap=30.0),
    Attention(sequence=4096, head_dim=128, causal=True, segments=8),
    AttentionBackward(sequence=2048, head_dim=128),
    AttentionBackward(sequence=2048, head_dim=128, causal=True),
)
WAYS = ("a tenth too small", "another row's", "half zero")


def outputs_of(problem: Problem, whole: NDArray[np.float64]) -> list[NDArray[Any]]:
    """The problem's outputs, each in its type, of all rows `whole` [rows, columns of all outputs]."""
    return [
        whole[:, columns].astype(getattr(ml_dtypes, output.dtype, output.dtype)).reshape(output.shape)
        for _, output, columns in spans(problem.statement().outputs)
    ]


def spoilt(whole: NDArray[np.float64], rows: NDArray[np.int64], way: str) -> NDArray[np.float64]:
    spoilt_outputs = whole.copy()
    if way == "a tenth too small":
        spoilt_outputs[rows] *= 0.9
    elif way == "half zero":
        spoilt_outputs[rows, : whole.shape[1] // 2] = 0
    else:
        spoilt_outputs[rows] = whole[(rows + 128) % len(whole)]
    return spoilt_outputs


def judged(problem: Problem, seeds: int) -> Iterator[tuple[str, bool, bool]]:
    """For each family and seed: the trial (`honest`, or the number of wrong rows), True if a wrong row is found, True
    if the output is refused.
    """
    total = row_count(problem.statement().outputs)
    for family in problem.families(True):
        for seed in range(seeds):
            inputs, sampled = problem.make_inputs(family, seed), problem.sample_rows(seed)
            whole = problem.honest(inputs, np.arange(total))
            failure = check(problem, inputs, outputs_of(problem, whole), family=family, mode="full", seed=seed)[1]
            yield "honest", False, failure is not None
            random = np.random.default_rng((seed, 7))
            for way in WAYS:
                for count in (1, 8):
                    first = 128 * int(random.integers(total // 128)) + 8 * int(random.integers(1, 15))
                    rows = np.setdiff1d(np.arange(first, first + count), sampled)
                    wrong = spoilt(whole, rows, way)
                    # A row of zeros that is made a tenth smaller is still right, so it does not count as wrong.
                    rows = rows[(wrong[rows] != whole[rows]).any(axis=1)]
                    if len(rows):
                        outputs = outputs_of(problem, wrong)
                        is_detected = np.isin(rows, standing_out(problem, inputs, outputs, sampled, seed)).any()
                        yield f"{count} wrong", bool(is_detected), False


def main(seeds: int) -> None:
    rows = []
    for problem in PROBLEMS:
        every = list(judged(problem, seeds))
        cells: list[object] = [problem.statement().title, sum(name == "honest" for name, _, _ in every)]
        cells.append(sum(refused for _, _, refused in every))
        for count in (8, 1):
            detections = [is_detected for name, is_detected, _ in every if name == f"{count} wrong"]
            cells.append(f"{sum(detections)} of {len(detections)}")
        rows.append(cells)
        print(*cells, sep=" | ", file=sys.stderr, flush=True)
    print(tabulate(rows, ["problem", "judgements", "refused", "8 rows found", "1 row found"], tablefmt="github"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
