"""Compares champions of operators other than attention forward with JAX's own kernels and XLA's fusions, all simulated.

.venv/bin/python benchmarks/peers_operators.py --jobs 2 --write

in the environment that the contests were judged in. Each peer computes the contest's problem at its shape, with the
best of the configurations listed here; the time is that of the whole module. Tables (group sizes) have the contents
that the contest's problem states for timed calls, and the mean over these calls counts, as for our kernels. Our time is
the champion's newest one (`rescale`). Peers are compiled to stay on the TensorCore: by default XLA hands scatters
before megablox's kernel to the SparseCore of v6e, which has no simulated time. Dumps are kept in benchmarks/.cache or
`--cache`: a run that was stopped can be continued. `--write` puts each contest's best peer into data/peers.tsv, which
`report --all --peers` and PEERS.md show. `--again` times only the peers that are listed there, after a change of the
simulator: some minutes instead of hours.
"""

import argparse
import inspect
import itertools
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from fidelity_compile import ON_TENSORCORE, environment
from jax import lax
from jax.experimental.pallas.ops.tpu import flash_attention, matmul
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm, tgmm
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding
from peers_paged import PAGED, RAGGED, RAGGED_MIXED, as_ragged, paged, ragged_paged
from peers_titles import KEPT, champion_seconds, kept
from tabulate import tabulate

from harness import contest as contests
from harness import units
from harness.advice.dump_directory import read
from harness.errors import RatchetError
from harness.judge.evaluate.compile.topology import described_device
from harness.judge.simulate.module import run_module
from harness.operators import Suite
from harness.operators.timing import timing_inputs

ROOT = Path(__file__).parents[1]
CACHE = Path(__file__).parent / ".cache" / "operators"

Configuration = tuple[int, ...]
Kernel = Callable[..., Any]


def _as_given(problem: Any) -> Any:
    return problem


@dataclass(frozen=True, slots=True)
class Peer:
    """A kernel of others: `call(*inputs, configuration)` gives the contest's outputs; the configuration () means that
    there is nothing to choose.

    `operands` gives the problem whose inputs the kernel takes: the contest's contents, perhaps in another layout; the
    change of layout is not timed. `flags` are further compiler flags, each after a space.
    """

    name: str
    call: Kernel
    configurations: tuple[Configuration, ...] = ((),)
    operands: Callable[[Any], Any] = _as_given
    flags: str = ""


def _matmul(a: jax.Array, b: jax.Array, _: Configuration) -> jax.Array:
    return jnp.dot(a, b)


def _rmsnorm(x: jax.Array, r: jax.Array, w: jax.Array, _: Configuration) -> Any:
    h = x.astype(jnp.float32) + r.astype(jnp.float32)
    y = h * lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6) * w.astype(jnp.float32)
    return y.astype(x.dtype), h.astype(x.dtype)


def _swiglu(x: jax.Array, gate: jax.Array, up: jax.Array, _: Configuration) -> jax.Array:
    gates, ups = (jnp.dot(x, w, preferred_element_type=jnp.float32) for w in (gate, up))
    return (jax.nn.silu(gates) * ups).astype(x.dtype)


def _quantized(a: jax.Array, q: jax.Array, scales: jax.Array, _: Configuration) -> jax.Array:
    return (jnp.dot(a, q.astype(a.dtype), preferred_element_type=jnp.float32) * scales).astype(a.dtype)


def _narrow(
    a: jax.Array, q: jax.Array, scales: jax.Array, row_scales: jax.Array, _: Configuration, *, sums: Any = jnp.int32
) -> jax.Array:
    """XLA's program: one dot of eight bits with sums of type `sums`, both scales in its epilogue."""
    total = jnp.dot(a, q, preferred_element_type=sums).astype(jnp.float32)
    return (total * scales * row_scales).astype(jnp.bfloat16)


def _narrow_transposed(
    a: jax.Array, q: jax.Array, scales: jax.Array, row_scales: jax.Array, _: Configuration, *, sums: Any = jnp.int32
) -> jax.Array:
    """XLA's program for C^T = Q^T A^T, otherwise as `_narrow`."""
    total = lax.dot_general(q, a, (((0,), (1,)), ((), ())), preferred_element_type=sums).astype(jnp.float32)
    return (total * scales.T * row_scales.T).astype(jnp.bfloat16).T


def _narrow_pallas(
    a: jax.Array,
    q: jax.Array,
    scales: jax.Array,
    row_scales: jax.Array,
    blocks: Configuration,
    *,
    sums: Any = jnp.int32,
) -> jax.Array:
    """JAX's own Pallas matmul, which has no scales: its sums are scaled by XLA."""
    rows, columns, depth = blocks
    total = matmul.matmul(a, q, block_shape=(rows, columns), block_k=depth, out_dtype=sums)
    return (total.astype(jnp.float32) * scales * row_scales).astype(jnp.bfloat16)


def _ragged_dot(lhs: jax.Array, rhs: jax.Array, sizes: jax.Array, _: Configuration) -> jax.Array:
    return lax.ragged_dot(lhs, rhs, sizes, preferred_element_type=jnp.float32).astype(lhs.dtype)


def _gmm(lhs: jax.Array, rhs: jax.Array, sizes: jax.Array, tiling: Configuration) -> Any:
    return gmm(lhs, rhs, sizes, lhs.dtype, tiling)


def _tgmm(lhs: jax.Array, rhs: jax.Array, sizes: jax.Array, tiling: Configuration) -> Any:
    return tgmm(lhs.T, rhs, sizes, lhs.dtype, tiling)


def _splash_forward(q: jax.Array, k: jax.Array, v: jax.Array, blocks: Configuration, window: int | None = None) -> Any:
    """JAX's causal forward pass. It has no softmax scale of its own: the queries are scaled before it."""
    of_q, of_kv, compute = blocks
    heads, sequence, d = q.shape
    sizes = splash_attention.BlockSizes(block_q=of_q, block_kv=of_kv, block_kv_compute=compute)
    square = (sequence, sequence)
    mask = masks.LocalMask(square, (window - 1, 0), 0) if window else masks.CausalMask(square)
    kernel = splash_attention.make_splash_mha_single_device(masks.MultiHeadMask([mask] * heads), block_sizes=sizes)
    return kernel(q * d**-0.5, k, v)


def _flash_backward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    o: jax.Array,
    lse: jax.Array,
    do: jax.Array,
    blocks: Configuration,
    causal: bool = False,
) -> Any:
    """JAX's backward pass from what its forward pass keeps: with l = 1 its m is the log of the sum of exponentials."""
    major, inner, of_q = blocks
    sizes = flash_attention.BlockSizes(
        block_q=512,
        block_k_major=512,
        block_k=512,
        block_b=1,
        block_q_major_dkv=major,
        block_k_major_dkv=major,
        block_k_dkv=inner,
        block_q_dkv=inner,
        block_k_major_dq=major,
        block_k_dq=inner,
        block_q_dq=of_q,
    )
    batched = [array[None] for array in (q, k, v, o, lse, do)]
    q, k, v, o, lse, do = batched
    residuals = (q, k, v, None, None, o, jnp.ones_like(lse), lse)
    gradients = flash_attention._flash_attention_bwd(  # what JAX's custom_vjp calls
        False, causal, q.shape[-1] ** -0.5, sizes, False, residuals, do
    )
    return tuple(array[0] for array in gradients[:3])


def _splash_backward(
    q: jax.Array, k: jax.Array, v: jax.Array, o: jax.Array, lse: jax.Array, do: jax.Array, blocks: Configuration
) -> Any:
    """JAX's causal backward pass, one kernel or two. Scaling q and dq around it is left out, which favours it."""
    of_q, of_kv, compute, fused = blocks
    heads, sequence, _ = q.shape
    sizes = splash_attention.BlockSizes(
        block_q=512,
        block_kv=512,
        block_q_dkv=of_q,
        block_kv_dkv=of_kv,
        block_kv_dkv_compute=compute,
        block_q_dq=None if fused else of_q,
        block_kv_dq=None if fused else of_kv,
        use_fused_bwd_kernel=bool(fused),
    )
    mask = masks.MultiHeadMask([masks.CausalMask((sequence, sequence))] * heads)
    kernel = splash_attention.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)
    residuals = (q, k, v, None, None, o, lse, kernel.dq_mask_info, kernel.dkv_mask_info)
    gradients = splash_attention._splash_attention_bwd(  # what JAX's custom_vjp calls
        False,
        splash_attention.DEFAULT_MASK_VALUE,
        False,
        sizes,
        None,
        kernel.kwargs["mask_function"],
        None,
        False,
        residuals,
        do,
    )
    return gradients[3:6]


def _grid(*values: Sequence[int]) -> tuple[Configuration, ...]:
    return tuple(itertools.product(*values))


_TILINGS = _grid((128, 256, 512, 1024), (512, 1024, 2048), (256, 512, 1024, 2048))
_FLASH_BACKWARD = tuple(
    (major, inner, of_q)
    for major, inner, of_q in _grid((512, 1024, 2048), (256, 512, 1024), (512, 1024, 2048))
    if inner <= major
)
# Queries, keys, and keys at a time.
_SPLASH_FORWARD = tuple(
    blocks
    for blocks in _grid((512, 1024, 2048), (512, 1024, 2048, 4096), (256, 512, 1024))
    if blocks[2] <= blocks[1] <= 4 * blocks[0]
)
# The best blocks of attention-llama-v6e and their neighbours, for the same sequence and head_dim.
_SPLASH_FORWARD_SHARED = _grid((1024, 2048), (1024, 2048), (512, 1024))
# Queries, keys, keys at a time, and whether one kernel makes all three gradients.
_SPLASH_BACKWARD = tuple(
    blocks
    for blocks in _grid((512, 1024, 2048), (512, 1024, 2048, 4096), (256, 512, 1024, 2048), (1, 0))
    if blocks[2] <= blocks[1] and blocks[0] * blocks[2] <= 1024 * 2048 and (blocks[3] or blocks[2] > 256)
)
# With head_dim 256 a block is twice as large.
_SPLASH_BACKWARD_WIDE = tuple(blocks for blocks in _SPLASH_BACKWARD if max(blocks) <= 1024 and blocks[2] >= 512)
_FLASH_BACKWARD_WIDE = tuple(blocks for blocks in _FLASH_BACKWARD if max(blocks) <= 1024 and blocks[1] >= 512)
# One kernel for all three gradients, which was the best choice for heads that do not share keys.
_SPLASH_BACKWARD_SHARED = tuple(blocks for blocks in _SPLASH_BACKWARD_WIDE if blocks[3])
# Of matrices of 2048 x 768.
_EXPERTS = _grid((64, 128, 256, 512, 1024), (256, 512, 1024, 2048), (256, 384, 768))
# Of matrices of 2048 x 512.
_SMALL_EXPERTS = _grid((64, 128, 256, 512), (1024, 2048), (256, 512))
_DEPTHS = (256, 512, 1024, 2048, 3584, 7168, 14336)
_XLA = "XLA"
# With XLA's own 32 MiB, XLA fetches all of Q before the product begins.
_MORE_VMEM = " --xla_tpu_scoped_vmem_limit_kib=98304"
# By the contest's folder.
PEERS: dict[str, tuple[Peer, ...]] = {
    "examples/matmul": (Peer(_XLA, _matmul),),
    "examples/rmsnorm": (Peer(_XLA, _rmsnorm),),
    "examples/rmsnorm-v6e": (Peer(_XLA, _rmsnorm),),
    "examples/rmsnorm-v7x": (Peer(_XLA, _rmsnorm),),
    "examples/swiglu": (Peer(_XLA, _swiglu),),
    "examples/swiglu-v6e": (Peer(_XLA, _swiglu),),
    "examples/swiglu-v7x": (Peer(_XLA, _swiglu),),
    "examples/quantized-matmul": (Peer(_XLA, _quantized),),
    "examples/quantized-matmul-int8-v6e": (
        Peer(_XLA, _narrow),
        Peer("XLA, 96 MiB of VMEM", _narrow, flags=_MORE_VMEM),
        Peer("XLA, float32 asked for", partial(_narrow, sums=jnp.float32)),
        Peer("XLA, transposed", _narrow_transposed),
        Peer("JAX Pallas matmul", _narrow_pallas, _grid((256, 512, 1024), (512, 1024, 2048), _DEPTHS)),
    ),
    "examples/quantized-matmul-fp8-v7x": (
        Peer(_XLA, partial(_narrow, sums=jnp.float32)),
        Peer("XLA, transposed", partial(_narrow_transposed, sums=jnp.float32)),
        Peer(
            "JAX Pallas matmul",
            partial(_narrow_pallas, sums=jnp.float32),
            _grid((512, 1024), (512, 1024, 2048), (1024, 2048, 4096, 8192)),
        ),
    ),
    "examples/grouped-matmul": (Peer("JAX megablox", _gmm, _TILINGS), Peer("XLA ragged_dot", _ragged_dot)),
    "examples/grouped-matmul-experts-v6e": (Peer("JAX megablox", _gmm, _EXPERTS), Peer("XLA ragged_dot", _ragged_dot)),
    "examples/grouped-matmul-256-experts-v7x": (
        Peer("JAX megablox", _gmm, _SMALL_EXPERTS),
        Peer("XLA ragged_dot", _ragged_dot),
    ),
    "examples/grouped-matmul-transposed": (Peer("JAX megablox tgmm", _tgmm, _TILINGS),),
    "examples/paged-decode-v6e": (
        Peer("JAX paged attention", paged, PAGED),
        Peer("JAX ragged paged attention", ragged_paged, RAGGED, as_ragged),
    ),
    "examples/ragged-paged-mixed-v6e": (Peer("JAX ragged paged attention", ragged_paged, RAGGED_MIXED),),
    "examples/attention-backward": (Peer("JAX flash attention", _flash_backward, _FLASH_BACKWARD),),
    "examples/attention-backward-causal-v6e": (
        Peer("JAX splash attention", _splash_backward, _SPLASH_BACKWARD),
        Peer("JAX flash attention", partial(_flash_backward, causal=True), _FLASH_BACKWARD),
    ),
    "examples/attention-backward-gemma-v6e": (
        Peer("JAX splash attention", _splash_backward, _SPLASH_BACKWARD_WIDE),
        Peer("JAX flash attention", partial(_flash_backward, causal=True), _FLASH_BACKWARD_WIDE),
    ),
    "examples/attention-backward-llama-v6e": (Peer("JAX splash attention", _splash_backward, _SPLASH_BACKWARD_SHARED),),
    "examples/attention-llama-v6e": (Peer("JAX splash attention", _splash_forward, _SPLASH_FORWARD),),
    "examples/attention-llama-70b-v7x": (Peer("JAX splash attention", _splash_forward, _SPLASH_FORWARD_SHARED),),
    "examples/attention-qwen3-v6e": (Peer("JAX splash attention", _splash_forward, _SPLASH_FORWARD_SHARED),),
    "examples/attention-gemma-v6e": (
        Peer("JAX splash attention", partial(_splash_forward, window=1024), _SPLASH_FORWARD),
    ),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One peer in one configuration at the problem of one contest."""

    folder: str
    peer: Peer
    configuration: Configuration

    @property
    def words(self) -> str:
        """The configuration as people read it; empty if there is nothing to choose."""
        return "/".join(map(str, self.configuration))

    @property
    def title(self) -> str:
        """The contender's name in tables."""
        return f"{self.peer.name} {self.words}".strip()

    @property
    def place(self) -> str:
        """The name of the trial's folder of dumps."""
        return "-".join((Path(self.folder).name, *self.peer.name.split(), *map(str, self.configuration)))


def compile_trial(trial: Trial) -> None:
    """Compiles for the contest's chip; the environment says where the schedules go."""
    contest = contests.load(ROOT / trial.folder, None)
    device = described_device(contest.chip)
    arrays = trial.peer.operands(contest.problem).statement().inputs
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=SingleDeviceSharding(device)) for array in arrays]

    def program(*inputs: jax.Array) -> Any:
        return trial.peer.call(*inputs, trial.configuration)

    # The contents of tables are passed to the simulator by these names.
    named = [inspect.Parameter(array.name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for array in arrays]
    program.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    # Kernels ask which chip they are compiled for.
    kind = AbstractDevice(device_kind=device.device_kind, num_cores=device.num_cores, platform="tpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=kind)):
        jax.jit(program).lower(*shapes).compile()


def seconds(trial: Trial, cache: Path) -> float | str:
    """The simulated time of one call, or the reason why there is none."""
    contest = contests.load(ROOT / trial.folder, None)
    directory = cache / trial.place
    if not any(directory.glob("*-TLP-*final_bundles.txt")):
        directory.mkdir(parents=True, exist_ok=True)
        names = [str(place) for place in (trial.folder, trial.peer.name, *trial.configuration)]
        flags = ON_TENSORCORE + trial.peer.flags
        done = subprocess.run(
            [sys.executable, __file__, "--compile", *names],
            env=environment(directory, flags=flags) | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "rror" in line] or [done.stderr.strip()[-90:]]
            return f"not compiled: {lines[-1][:150]}"
    assert not isinstance(contest.problem, Suite)
    stated = timing_inputs(trial.peer.operands(contest.problem)) or {"": {}}
    times = []
    for contents in stated.values():
        operands = {name: np.asarray(values) for name, values in contents.items()}
        try:
            simulation = run_module(
                read(directory, contest.chip), contest.chip, deadline_seconds=600, operands=operands
            )
        except RatchetError as error:
            return f"not read: {error}"
        if simulation.seconds is None or simulation.unknown:
            return f"no latency: {simulation.unknown[0]}"
        times.append(simulation.seconds)
    return statistics.fmean(times)


def trials(folders: Sequence[str]) -> Iterator[Trial]:
    """Every configuration of every peer at these contests."""
    for folder in folders:
        for peer in PEERS[folder]:
            for configuration in peer.configurations:
                yield Trial(folder, peer, configuration)


def best(outcomes: Mapping[Trial, float | str], folder: str) -> tuple[Trial, float] | None:
    """The fastest trial of the contest, with its seconds."""
    timed = [(value, trial) for trial, value in outcomes.items() if trial.folder == folder and isinstance(value, float)]
    return None if not timed else (lambda pair: (pair[1], pair[0]))(min(timed, key=lambda pair: pair[0]))


def main() -> int:
    """Prints the table of the best peers, and with --write keeps them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="contests whose folder contains this")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where dumps are kept")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the best peers into data/peers.tsv")
    parser.add_argument("--again", action="store_true", help="only the peers that data/peers.tsv names")
    parser.add_argument("--compile", nargs="+", metavar="WORD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        folder, name, *numbers = options.compile
        peer = next(peer for peer in PEERS[folder] if peer.name == name)
        compile_trial(Trial(folder, peer, tuple(map(int, numbers))))
        return 0
    folders = [folder for folder in PEERS if options.only in folder]
    before = kept()
    asked = [
        asked_trial
        for asked_trial in trials(folders)
        if not options.again or asked_trial.title == before.get(asked_trial.folder, {}).get("peer")
    ]
    outcomes: dict[Trial, float | str] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        values = pool.map(partial(seconds, cache=options.cache), asked)
        for count, (trial, value) in enumerate(zip(asked, values, strict=True), 1):
            outcomes[trial] = value
            words = value if isinstance(value, str) else units.seconds(value)
            print(f"{count}/{len(asked)} {trial.place}: {words}", file=sys.stderr, flush=True)
    table, rows = [], {}
    for folder in folders:
        mine, first = champion_seconds(ROOT / folder), best(outcomes, folder)
        trial_count = sum(trial.folder == folder for trial in asked)
        timed = sum(trial.folder == folder and isinstance(value, float) for trial, value in outcomes.items())
        if first is None or mine is None:
            table.append([folder, units.seconds(mine) if mine else "none", "none", "", "", f"0 of {trial_count}"])
            continue
        trial, peers = first
        table.append(
            [
                folder,
                units.seconds(mine),
                trial.title,
                units.seconds(peers),
                f"{mine / peers:.3f}",
                f"{timed} of {trial_count}",
            ]
        )
        choice = "its only configuration" if timed == 1 else f"best of {timed} configurations"
        note = f"both simulated, libtpu {version('libtpu')}; {choice}"
        if trial.peer.operands is not _as_given:
            note += ", operands in the peer's own layout"
        if options.again:
            note = before[folder]["note"]
        rows[folder] = "\t".join((folder, trial.title, f"{peers:.6g}", f"{mine / peers:.3f}", note))
    headers = ["contest", "ours", "best peer", "its time", "ours / peer", "configurations with a time"]
    print(tabulate(table, headers=headers, disable_numparse=True))
    if options.write:
        others = [line for line in KEPT.read_text(encoding="utf-8").splitlines() if line.split("\t")[0] not in rows]
        KEPT.write_text("\n".join([*others, *rows.values()]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
