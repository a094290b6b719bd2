"""Runs a traced program over a mesh on as many CPU devices in TPU interpret mode, all chips side by side.

Each check and probe runs the program itself. Transfers end in the order in which they were started, in the reverse
order, or in a drawn one; a repeated run on the same inputs uses another order. Each run holds back another chip, which
ends a wait only when no other chip can go on.
"""

import secrets
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
from harness.judge.evaluate.interpret.watched_run import WatchedRun
from harness.judge.evaluate.messages import Fill
from harness.judge.evaluate.trace import meshes, program_codec
from harness.sandbox import asked_device

# How often each program has run on the same inputs.
_runs: Counter[tuple[str, int]] = Counter()


@cache
def _program(
    artifact: str, chip: Chip, results: meshes.Splits, most_under_way: int
) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """A function that interprets the program of that file, and the program's lines that reshape references.

    Raises Rejected `forged-result`.
    """
    interpretation.get_ready_for(chip)
    with asked_device.aiming_at(chip):
        closed = program_codec.decode(Path(artifact).read_bytes())
    parameters = interpretation.checking_parameters(chip, 1, most_under_way)
    placements = list(meshes.placements(results, _mesh(chip)))
    program = jax.jit(interpretation.runnable(closed, parameters, chip), out_shardings=placements)
    return program, tuple(reshaped.lines(closed.jaxpr))


@cache
def _fill(artifact: str) -> Fill:
    """The contents of memory that nothing wrote, for all runs of a program: NaN, or an unforeseen number."""
    return secrets.choice((None, unforeseen_number(), unforeseen_number(is_negative=True)))


@cache
def _mesh(chip: Chip) -> Mesh:
    sizes, names = asked_device.axes(chip)
    return jax.make_mesh(sizes, names, devices=jax.devices(), axis_types=(AxisType.Auto,) * len(names))


def run(
    artifact: str, inputs: Sequence[NDArray[Any]], chip: Chip, splits: meshes.Splits, results: meshes.Splits
) -> tuple[NDArray[Any], ...]:
    """The outputs of the traced program in that file for whole inputs, which are split as the problem states.

    Raises Rejected as `WatchedRun.outputs` does.
    """
    digest = 0
    for array in inputs:
        digest = zlib.crc32(array.tobytes(), digest)
    number = _runs[artifact, digest]
    _runs[artifact, digest] += 1
    orders: tuple[transfers.Order, ...] = ("last", "first", digest)
    mesh = _mesh(chip)
    placements = meshes.placements(splits, mesh)
    for most_under_way in transfers.MOST_UNDER_WAY:
        program, lines = _program(artifact, chip, results, most_under_way)
        watched = WatchedRun(
            fill=_fill(artifact),
            order=orders[(digest + number) % len(orders)],
            order_seed=None if number else digest,
            reshapes=lines,
            where="in TPU interpret mode: ",
            late_chip=_runs.total() % mesh.size,
        )
        call = partial(program, *(jax.device_put(*each) for each in zip(inputs, placements, strict=True)))
        try:
            with jax.set_mesh(mesh):
                outputs, _ = watched.outputs(call)
        except transfers.TooManyTransfersError:
            continue
        return tuple(outputs)
    raise interpretation.not_interpretable(
        f"more than {transfers.MOST_UNDER_WAY[-1]:,} transfers are under way at a time"
    )
