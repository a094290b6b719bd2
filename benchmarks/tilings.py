"""Compares the outputs of champions, bit by bit, with those of the same kernel with another block size or buffer depth.

    python benchmarks/tilings.py           writes benchmarks/TILINGS.md
    python benchmarks/tilings.py rmsnorm   prints the rows of one contest; writes nothing

A block of independent rows and the number of buffers do not change the order in which any element is summed, so the
bits must not change either. A difference would be a wrong border, a wrong buffer or a read of unwritten memory. Each
pair runs on a CPU as the judge's reference program does (copies are complete when they are started), at the first
reduced shape at which the constant changes the traced program, on the judge's inputs of two families.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from tabulate import tabulate

from harness import contest as contests
from harness.candidate import Candidate
from harness.contest import Contest
from harness.judge.evaluate.interpret.interpretation import export
from harness.operators import Problem

PROJECT = Path(__file__).parent.parent
PAGE = Path(__file__).parent / "TILINGS.md"
_SEED = 20261130
_SHAPES = 20

# Contest, constant, another value, and the reason for which the bits must stay.
PAIRS = (
    ("attention-llama-v6e", "TQ", "256", "rows of queries are independent"),
    ("attention-llama-v6e", "DEPTH", "1", "buffers"),
    ("attention-gemma-v6e", "BQ", "1024", "rows of queries are independent"),
    ("attention-gemma-v6e", "DEPTH", "1", "buffers"),
    ("attention-backward-llama-v6e", "DEPTH", "1", "buffers"),
    ("ragged-paged-mixed-v6e", "AHEAD", "32", "copies started ahead"),
    ("ragged-paged-mixed-v6e", "BQ", "128", "rows of queries are independent"),
    ("paged-decode-v6e", "SLOTS", "3", "buffers"),
    ("paged-decode-v6e", "GROUP", "16", "sequences are independent"),
    ("grouped-matmul-experts-v6e", "BM", "128", "rows are independent"),
    ("grouped-matmul-experts-v6e", "TILES_IN", "2", "buffers"),
    ("grouped-matmul-256-experts-v7x", "TILES_OUT", "4", "buffers"),
    ("grouped-matmul-256-experts-v7x", "BM", "64", "rows are independent"),
    ("quantized-matmul-int8-v6e", "STRIP", "128", "rows are independent"),
    ("quantized-matmul-fp8-v7x", "STRIP", "128", "rows are independent"),
    ("rmsnorm", "BR", "128", "rows are independent"),
    ("swiglu", "BT", "256", "rows are independent"),
    ("swiglu", "BH", "256", "columns of the weights are independent"),
    ("cross-entropy-v6e", "BT", "512", "tokens are independent"),
)

# A constant that does change the order of sums, to show that a difference would be seen.
CONTROL = "attention-llama-v6e", "TK", "256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One pair of programs: the shape that was run, or "" if none tells them apart, and the elements that differ."""

    shape: str
    elements: int
    differing: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted({name for name, *_ in PAIRS})
    parser.add_argument("contest", nargs="?", choices=names, help="a folder of examples/ (default: all pairs)")
    only = parser.parse_args().contest
    rows, differing = [], 0
    for name, constant, value, why in PAIRS:
        if only in (None, name):
            contest = contests.load(PROJECT / "examples" / name)
            result = compare(contest, constant, value)
            differing += result.differing
            before = dict(contest.candidate().constants)[constant]
            row = (
                f"`{name}`",
                f"`{constant}` {before}, {value}",
                why,
                result.shape or "unknown: no reduced shape tells the programs apart",
                f"{result.differing:,} of {result.elements:,}",
            )
            rows.append(row)
            print("  ".join(row), file=sys.stderr, flush=True)
    headers = ("contest", "constant", "why the bits stay", "shape", "elements that differ")
    table = tabulate(rows, headers=headers, tablefmt="pipe")
    if only is None:
        name, constant, value = CONTROL
        control = compare(contests.load(PROJECT / "examples" / name), constant, value)
        PAGE.write_text(_page(table, control))
    else:
        print(table)
        control = None
    is_blind = control is not None and not control.differing
    sys.exit(1 if differing or is_blind else 0)


def compare(contest: Contest, constant: str, value: str) -> Comparison:
    """The comparison of the champion's program with that in which `constant` is `value`."""
    candidate, problem = contest.candidate(), contest.problem
    assert isinstance(problem, Problem), f"expected one problem, got a suite in {contest.directory}"
    kernels = _kernel(candidate), _kernel(candidate.set(((constant, value),)))
    for small in islice(problem.reduced(), _SHAPES):
        families = small.families(False)[:2]
        shapes = tuple(
            jax.ShapeDtypeStruct(array.shape, array.dtype) for array in small.make_inputs(families[0], _SEED)
        )
        try:
            traced = [jax.make_jaxpr(kernel)(*shapes) for kernel in kernels]
        except ValueError:
            # A block that does not divide so small a shape.
            continue
        if str(traced[0]) == str(traced[1]):
            continue
        programs = [jax.jit(export(closed, shapes, "cpu", contest.chip).call) for closed in traced]
        elements = differing = 0
        for family in families:
            inputs = small.make_inputs(family, _SEED)
            for first, second in zip(*(_outputs(program, inputs) for program in programs), strict=True):
                elements += len(first)
                differing += int(np.sum((first != second).any(axis=-1)))
        return Comparison(shape=small.statement().title, elements=elements, differing=differing)
    return Comparison(shape="", elements=0, differing=0)


def _kernel(candidate: Candidate) -> Callable[..., Any]:
    scope: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(candidate.source, "kernel.py", "exec"), scope)
    return scope["kernel_fn"]  # type: ignore[no-any-return]


def _outputs(program: Callable[..., Any], inputs: Sequence[Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """The bits of the outputs, each `uint8[elements, bytes of an element]`."""
    arrays = (np.asarray(array) for array in jax.tree.leaves(program(*inputs)))
    return tuple(np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, array.itemsize) for array in arrays)


def _page(table: str, control: Comparison) -> str:
    name, constant, value = CONTROL
    return f"""# Champions at two tilings

Written by `python benchmarks/tilings.py`, with jax {jax.__version__}, on a CPU by the judge's reference program.
Each row changes the value of one constant of a champion, and compares the outputs before and after, bit by bit, on
inputs of two families. The constants are sizes of blocks of independent rows and numbers of buffers. They do not
change the order of any sum, so no element may differ. To show that the comparison finds differences, `{constant}` of
`{name}`, the number of keys that are summed at a time, was set to {value}: {control.differing:,} of
{control.elements:,} elements differ.

{table}
"""


if __name__ == "__main__":
    main()
