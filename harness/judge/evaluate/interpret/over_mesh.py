"""Runs a traced program over a mesh in TPU interpret mode, with one CPU device for each chip, in parallel.

Each check and probe runs the program again. The runs differ in all properties on which a kernel must not rely:

- Transfers end in the order in which they were started, in the reverse order, or in a random order.
- Each run delays another chip: this chip ends a wait only when no other chip can continue.
- Unwritten memory holds NaN, large numbers, or the values that the last run left there.
- A fetched block contains the kernel's earlier writes to the block's array, or lacks them.

A repeated run on the same inputs uses another order of transfers, and starts with the memory that the last run left.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
from jax.sharding import AxisType, Mesh
from numpy.typing import NDArray

from harness.hardware import Chip
from harness.judge.evaluate.draws import unforeseen_number
from harness.judge.evaluate.interpret import interpretation, reshaped, transfers
from harness.judge.evaluate.interpret.as_written import jit_as_written
from harness.judge.evaluate.interpret.left_memory import Left
from harness.judge.evaluate.interpret.watched_run import WatchedRun
from harness.judge.evaluate.trace import meshes, program_codec
from harness.sandbox import asked_device

# The number of runs of each program on the same inputs, and the memory that the last run of each program left.
_runs: Counter[tuple[str, int]] = Counter()
_left: dict[str, Left] = {}


@cache
def _program(
    artifact: str, chip: Chip, results: meshes.Splits, most_under_way: int
) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """A function that interprets the program in the file `artifact`, and the program's `reshaped.lines`.

    Raises Rejected `forged-result`.
    """
    interpretation.get_ready_for(chip)
    with asked_device.aiming_at(chip):
        closed = program_codec.decode(Path(artifact).read_bytes())
    parameters = interpretation.checking_parameters(chip, 1, most_under_way)
    placements = list(meshes.placements(results, _mesh(chip)))
    program = jit_as_written(interpretation.runnable(closed, parameters, chip), out_shardings=placements)
    return program, tuple(reshaped.lines(closed.jaxpr))


@cache
def _mesh(chip: Chip) -> Mesh:
    sizes, names = asked_device.axes(chip)
    return jax.make_mesh(sizes, names, devices=jax.devices(), axis_types=(AxisType.Auto,) * len(names))


def run(
    artifact: str, inputs: Sequence[NDArray[Any]], chip: Chip, splits: meshes.Splits, results: meshes.Splits
) -> tuple[NDArray[Any], ...]:
    """The outputs of the traced program in the file `artifact` for whole inputs, which are split by `splits`.

    Raises Rejected as `WatchedRun.outputs` does.
    """
    digest = 0
    for array in inputs:
        digest = zlib.crc32(array.tobytes(), digest)
    repeats = _runs[artifact, digest]
    _runs[artifact, digest] += 1
    orders: tuple[transfers.Order, ...] = ("last", "first", digest)
    mesh = _mesh(chip)
    placements = meshes.placements(splits, mesh)
    for most_under_way in transfers.MOST_UNDER_WAY:
        program, lines = _program(artifact, chip, results, most_under_way)
        count = _runs.total()
        watched = WatchedRun(
            fill=None,
            number=(None, unforeseen_number(), unforeseen_number(is_negative=True))[count % 3],
            order=orders[(digest + repeats) % len(orders)],
            order_seed=None if repeats else digest,
            reshapes=lines,
            where="in TPU interpret mode: ",
            late_chip=count % mesh.size,
            left=_left.setdefault(artifact, {}),
            finds_left=bool(repeats) or count % 2 == 0,
            comes_early=count % 4 < 2,
            seed=digest,
        )
        call = partial(program, *(jax.device_put(*each) for each in zip(inputs, placements, strict=True)))
        try:
            with jax.set_mesh(mesh):
                return tuple(watched.outputs(call).outputs)
        except transfers.TooManyTransfersError:
            continue
    raise interpretation.not_interpretable(transfers.MOST)
