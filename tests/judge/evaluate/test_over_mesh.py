"""Programs over a mesh as checks run them: right outputs in any order of transfers, and each mistake by its name."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from harness.errors import UsageError
from harness.hardware import Chip, chip, with_mesh
from harness.judge.evaluate.trace import jaxprs, meshes
from harness.judge.evaluate.trace.one_core import refuse_sharded
from harness.judge.verdict import roofline
from harness.operators import (
    AllGather,
    AllGatherMatmul,
    AllReduce,
    Attention,
    MatmulReduceScatter,
    ReduceScatter,
    RingAttention,
)
from harness.records import Array
from harness.sandbox import asked_device, environment
from harness.sandbox.messages import Rejected

MESH = (("x", 4),)
V5E = with_mesh(chip("v5e"), MESH)
PROJECT = Path(__file__).parents[3]
RUNS = PROJECT / "tests" / "support" / "mesh_runs.py"
OUTCOMES = {
    "permuted": "the rows come from chips 3 0 1 2",
    "pairs": "the rows come from chips 1 0 3 2",
    "gathered": "the rows come from chips 0 1 2 3",
    "stuck": "deadlock: in TPU interpret mode: DEADLOCK: a wait for 3 on a semaphore that has 2, on chips 0, 1, 2, 3",
    "beyond": "out-of-bounds: in TPU interpret mode: index 4 is out of bounds",
    "twice_around": "the rows come from chips 2 3 0 1",
    # The race is found in each run, whichever thread is faster, because one chip is held back.
    "ahead": "race: in TPU interpret mode: data race: nothing orders the ",
    # Each direction has one semaphore for all steps, so that a neighbour that is ahead counts for the step before.
    # Which of the two accesses comes second is chance.
    "gathered_by_jax": "race: in TPU interpret mode: data race: nothing orders the ",
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """The result of each program, in a process with as many devices as a check has."""
    done = subprocess.run(
        [sys.executable, str(RUNS), *OUTCOMES],
        env={**environment.checking(1, 4), "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: words for name, _, words in (line.partition(" ") for line in done.stdout.splitlines())}


@pytest.mark.long
@pytest.mark.parametrize("name", OUTCOMES)
def test_a_program_over_a_mesh_is_run_as_its_chips_would(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name].startswith(OUTCOMES[name])


def traced(function: Any, on: Chip = V5E) -> jax.extend.core.ClosedJaxpr:
    with asked_device.aiming_at(on):
        return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((32, 128), jnp.float32))


def over_mesh(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    split = jax.sharding.PartitionSpec("x")
    return lambda x: jax.shard_map(body, in_specs=split, out_specs=split, check_vma=False)(x)


def test_sums_over_chips_are_refused_where_xla_rounds_them_on_their_way() -> None:
    def narrow(part: Any) -> Any:
        return jax.lax.psum(part.astype(jnp.bfloat16), "x")

    with pytest.raises(Rejected, match=r"expected a sum over chips in 32 bits, got psum of bfloat16: XLA rounds"):
        refuse_sharded(traced(over_mesh(narrow)).jaxpr, V5E)
    for collective in (
        lambda part: jax.lax.psum(part, "x"),
        lambda part: jax.lax.psum_scatter(part, "x", tiled=True),
        lambda part: jax.lax.pmax(part, "x"),
        lambda part: jax.lax.ppermute(part, "x", [(0, 1), (1, 0)]),
    ):
        refuse_sharded(traced(over_mesh(collective)).jaxpr, V5E)


def test_what_xla_moves_or_adds_up_counts_as_work_outside_of_kernels() -> None:
    # Each chip has 8 x 128 elements.
    for collective in (lambda part: jax.lax.psum(part, "x"), lambda part: jax.lax.all_gather(part, "x")):
        assert jaxprs.flops(traced(over_mesh(collective)).jaxpr, {}).outside == 8 * 128


def test_a_collective_that_is_not_compared_is_refused_by_name() -> None:
    def ragged(part: Any) -> Any:
        sizes = jnp.ones(4, jnp.int32)
        return jax.lax.ragged_all_to_all(part, part, sizes, sizes, sizes, sizes, axis_name="x")

    with pytest.raises(Rejected, match=r"expected one of the operations all_gather, .*, got ragged_all_to_all"):
        refuse_sharded(traced(over_mesh(ragged)).jaxpr, V5E)


def test_a_program_of_one_chip_talks_to_no_other() -> None:
    moved = traced(over_mesh(lambda part: jax.lax.ppermute(part, "x", [(0, 1), (1, 0)])))
    with pytest.raises(Rejected, match="expected a function of one device, got shard_map"):
        refuse_sharded(moved.jaxpr, chip("v5e"))


def test_another_mesh_than_the_problem_s_is_refused() -> None:
    other = with_mesh(chip("v5e"), (("x", 16),))
    with pytest.raises(Rejected, match="expected shard_map over the mesh x=4, got"):
        refuse_sharded(traced(over_mesh(lambda part: part), other).jaxpr, V5E)


def test_chips_whose_links_are_not_simulated_have_no_mesh() -> None:
    with pytest.raises(UsageError, match="problems on several chips are not judged for v5p"):
        with_mesh(chip("v5p"), MESH)


def test_inputs_are_split_as_the_problem_states() -> None:
    inputs = (Array(name="a", shape=(8, 128), dtype="float32", split=("x", None)),)
    (shape,) = meshes.placed([np.zeros((8, 128), np.float32)], meshes.splits(inputs), V5E)
    assert shape.sharding.spec == jax.sharding.PartitionSpec("x", None)
    (alone,) = meshes.placed([np.zeros((8, 128), np.float32)], ((),), chip("v5e"))
    assert alone.sharding is None


MATMUL: dict[str, Any] = {"m": 2048, "n": 1024, "k": 4096}
# The elements that each chip lacks, by hand: three shards of A; three terms of its own rows; K and V of three chips.
INCOMING = {
    AllGatherMatmul(**MATMUL): 3 * (512 * 4096) * 2,
    MatmulReduceScatter(**MATMUL): 3 * (512 * 1024) * 2,
    AllGather(rows=2048, columns=1024): 3 * (512 * 1024) * 2,
    ReduceScatter(rows=2048, columns=1024): 3 * (512 * 1024) * 4,
    # Each chip is sent three terms of its rows, and the sums of three others.
    AllReduce(rows=2048, columns=1024): 2 * 3 * (512 * 1024) * 4,
    RingAttention(sequence=2048, head_dim=128, heads=4, kv_heads=2): 3 * 2 * (2 * 512 * 128) * 2,
}


@pytest.mark.parametrize("problem", INCOMING, ids=lambda problem: problem.operation)
def test_the_bound_of_the_links_is_the_bytes_that_come_over_both(problem: Any) -> None:
    work = problem.statement().work
    assert work.link_bytes == INCOMING[problem]
    # On a slice of 2x2 each chip has two neighbours, at 50 GB/s each way.
    assert roofline.link_only_seconds(work, V5E) == pytest.approx(INCOMING[problem] / 100e9)
    assert roofline.link_only_seconds(work, chip("v5e")) is None
    (sentence,) = roofline.impossibilities(work, 0.99 * INCOMING[problem] / 100e9, V5E)
    assert "each chip must receive" in sentence


def test_the_work_of_a_problem_on_several_chips_is_that_of_one() -> None:
    assert AllGatherMatmul(**MATMUL).work().matmul_flops == 2 * 2048 * 1024 * 4096 // 4
    summed, everywhere = (problem(rows=2048, columns=1024).work() for problem in (ReduceScatter, AllReduce))
    assert summed.vector_flops == everywhere.vector_flops == 3 * 2048 * 1024 // 4
    # A chip reads its term, and writes a quarter of the sums or all.
    assert summed.minimum_hbm_bytes == 4 * (2048 + 512) * 1024
    assert everywhere.minimum_hbm_bytes == 4 * (2048 + 2048) * 1024
    alone = Attention(sequence=2048, head_dim=128).work()
    assert RingAttention(sequence=2048, head_dim=128).work().exponentials == alone.exponentials // 4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AllReduce(rows=512, columns=128, dtype="bfloat16"), "expected dtype float32, got 'bfloat16'"),
        (lambda: AllGather(rows=510, columns=128), "which divide 510 of x, got 4"),
        (lambda: RingAttention(sequence=512, head_dim=128, causal=True), "expected neither causal, window nor"),
        (lambda: RingAttention(sequence=510, head_dim=128), "which divide 510 of q, 510 of k"),
    ],
)
def test_a_problem_on_several_chips_that_does_not_exist_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()


@pytest.mark.parametrize(("m", "n"), [(510, 512), (512, 510)])
def test_lengths_that_the_chips_do_not_divide_are_no_problem(m: int, n: int) -> None:
    with pytest.raises(UsageError, match="expected 2 chips or more, which divide"):
        AllGatherMatmul(m=m, n=n, k=512)
