"""Builders of realistic records for tests: one head of attention on v5e, with figures near those of real runs."""

from dataclasses import replace
from typing import Any

from harness.advice.report import advise, report
from harness.hardware import chip
from harness.judge.key import key_digest
from harness.operators import Attention
from harness.records import (
    NOMINAL,
    Array,
    Attempt,
    Champion,
    Check,
    Claims,
    Environment,
    Evidence,
    Failure,
    Hint,
    HloCounts,
    Judgement,
    Key,
    Latency,
    MosaicCounts,
    OpTime,
    PallasCall,
    Policy,
    Resimulation,
    Row,
    Samples,
    Scratch,
    Simulation,
    StageTime,
    Statement,
    Trace,
    Unit,
    Verdict,
    Window,
    Work,
)

V5E = chip("v5e")
ENVIRONMENT = Environment(
    python="3.11.9", jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.42", machine="x86_64, 2 cores", platform="Linux"
)
KEY = Key(
    judge="0123456789abcdef",
    problem="fedcba9876543210",
    chip="v5e",
    source="simulated",
    jax="0.10.2",
    jaxlib="0.10.2",
    libtpu="0.0.42",
)


def statement(sequence: int = 16384, head_dim: int = 128, *, causal: bool = False) -> Statement:
    """One head of attention in bfloat16; a causal one is credited with its unmasked pairs."""
    pairs = sequence * (sequence + 1) // 2 if causal else sequence * sequence
    query = Array(name="q", shape=(sequence, head_dim), dtype="bfloat16")
    return Statement(
        operation="attention",
        title=f"attention forward, 1 head, sequence {sequence}, head_dim {head_dim}, bfloat16",
        parameters=(("sequence", sequence), ("head_dim", head_dim), ("causal", causal)),
        inputs=(query, replace(query, name="k"), replace(query, name="v")),
        outputs=(replace(query, name="o"),),
        work=Work(
            matmul_flops=4 * pairs * head_dim, vector_flops=5 * pairs, minimum_hbm_bytes=4 * sequence * head_dim * 2
        ),
        expected=Attention(sequence=sequence, head_dim=head_dim).statement().expected,
    )


def window(array: Array, role: Any, block: tuple[int, int], fetches: int) -> Window:
    """A window of a bfloat16 array, with two buffers in VMEM."""
    size = 2 * block[0] * block[1]
    return Window(
        name=array.name,
        role=role,
        array=array,
        block_shape=block,
        memory_space="vmem",
        buffers=2,
        fetches=fetches,
        hbm_bytes=fetches * size,
        vmem_bytes=2 * size,
    )


def pallas_call(bq: int = 128, bkv: int = 256, sequence: int = 16384, head_dim: int = 128) -> PallasCall:
    """The naive kernel's call: grid (q blocks, kv blocks), three float32 scratch buffers of (BQ, d)."""
    grid = (sequence // bq, sequence // bkv)
    q, k, v, o = (Array(name=name, shape=(sequence, head_dim), dtype="bfloat16") for name in "qkvo")
    scratch = Scratch(shape=(bq, head_dim), dtype="float32", memory_space="vmem", vmem_bytes=bq * head_dim * 4)
    steps = grid[0] * grid[1]
    return PallasCall(
        name="naive",
        grid=grid,
        dimension_semantics=("parallel", "arbitrary"),
        windows=(
            window(q, "input", (bq, head_dim), grid[0]),
            window(k, "input", (bkv, head_dim), steps),
            window(v, "input", (bkv, head_dim), steps),
            window(o, "output", (bq, head_dim), grid[0]),
        ),
        scratch=(scratch, scratch, scratch),
        vmem_limit_bytes=None,
    )


def simulation(seconds: float | None = 2.16e-3, *, chip_name: str = "v5e", **changes: Any) -> Simulation:
    """A run of `seconds` at 1.5 GHz: 90 % bundles, 3 % DMA waits, 6 % unit stalls, 1 % launch."""
    clock = 1.5e9
    cycles = None if seconds is None else seconds * clock
    counted = cycles or 1e6
    slots = {"MXU": 2, "VALU": 4, "EUP": 1, "VLOAD": 3, "VSTORE": 1}
    used = {"MXU": 0.30, "VALU": 0.41, "EUP": 0.12, "VLOAD": 0.20, "VSTORE": 0.25}
    whole = Simulation(
        chip=chip_name,
        seconds=seconds,
        plus_minus_seconds=None,
        cycles=cycles,
        bundle_cycles=round(0.90 * counted),
        dma_wait_cycles=0.03 * counted,
        unit_stall_cycles=0.06 * counted,
        launch_cycles=0.01 * counted,
        clock_hz=clock,
        ops=(OpTime(name="naive.1", bundles=650, executed_bundles=3_000_000, cycles=counted, seconds=counted / clock),),
        units=tuple(
            Unit(
                name=name,
                slots_per_bundle=count,
                static_slots=100,
                executed_slots=round(used[name] * counted * count),
                offered_slots=round(counted * count),
                busy_cycles=0.65 * counted if name == "MXU" else None,
            )
            for name, count in slots.items()
        ),
        static_bundles=650,
        empty_bundles=12,
        static_spills=0,
        static_fills=0,
        executed_spills=0,
        executed_fills=0,
        # The bytes that blocks of 128 x 256 read, or fewer if the time is too short for them.
        hbm_read_bytes=min(1_077_936_128, round(0.95 * V5E.hbm_bytes_per_second * (seconds or 1.0))),
        hbm_written_bytes=4_194_304,
        dma_transfers=16_640,
        unknown=(),
    )
    return replace(whole, **changes)


def evidence(seconds: float | None = 2.16e-3, *, bq: int = 128, bkv: int = 256, **changes: Any) -> Evidence:
    """A complete, passing candidate with the simulated latency `seconds` (None: the simulator gave up)."""
    problem = changes.pop("problem", statement())
    run = simulation(seconds)
    latency = Latency(
        source="simulated",
        seconds=seconds,
        plus_minus_seconds=None,
        reasons=() if seconds is not None else ("opcode vfrobnicate at bundle 0x1a is not known",),
    )
    check = Check(
        family="composite",
        mode="full",
        shape=problem.outputs[0].shape,
        seed=7,
        elements=65_536,
        error=2.1e-3,
        honest_error=1.9e-3,
        tolerance=5.7e-3,
        passed=True,
    )
    call = pallas_call(bq, bkv, problem.inputs[0].shape[0], problem.inputs[0].shape[1])
    whole = Evidence(
        problem=problem,
        chip="v5e",
        environment=ENVIRONMENT,
        claims=Claims(kernel_name="naive", problem_description="attention", flops=problem.work.flops, tiling=None),
        trace=Trace(
            fingerprint="a1b2c3", pallas_calls=(call,), pallas_flops=problem.work.flops, outside_flops=0, seconds=0.4
        ),
        checks=(check, replace(check, family="dominating key", mode="interpret", shape=(512, 128), error=1.2e-3)),
        hlo=HloCounts(
            copy=0, transpose=0, fusion=0, dot=0, exponential=0, reduce=0, custom_call=1, instructions=5, text_lines=69
        ),
        mosaic=MosaicCounts(matmul=2, exp=2, reduction=2, load=9, store=7, dma=0, operations=61),
        simulation=run,
        latency=latency,
        dump_directory="profile_data/0001/dumps",
        stages=(
            StageTime(stage="trace", start_seconds=0.0, seconds=1.1),
            StageTime(stage="compile", start_seconds=1.1, seconds=3.4),
            StageTime(stage="correctness", start_seconds=1.1, seconds=6.0),
        ),
    )
    return replace(whole, **changes)


def measured(seconds: float = 2.16e-3, **changes: Any) -> Evidence:
    """The same candidate, timed on a device."""
    latency = Latency(source="measured", seconds=seconds, plus_minus_seconds=None)
    samples = Samples(device_kind="TPU v5 lite", host_seconds=(seconds,) * 3, device_seconds=(seconds,) * 3)
    return evidence(seconds, latency=latency, samples=samples, **changes)


def resimulated(candidate: Evidence, champion: Evidence, **ratios: float | None) -> tuple[Resimulation, ...]:
    """The pair on three other machines, each with the nominal ratio, except for the named machines."""
    times = [evidence_of.latency.seconds if evidence_of.latency else None for evidence_of in (champion, candidate)]
    theirs, ours = times

    def run(name: str, scale: float) -> Resimulation:
        scaled = None if ours is None else scale * ours
        if name in ratios:
            ratio = ratios[name]
            scaled = None if ratio is None or theirs is None else scale * theirs * ratio
        return Resimulation(
            name=name, champion_seconds=None if theirs is None else scale * theirs, candidate_seconds=scaled
        )

    return (run(NOMINAL, 1.0), run("slow_transfers", 1.2), run("fast_transfers", 0.8), run("eager_pushes", 0.9))


def failed(stage: Any = "compile", kind: str = "vmem-exceeded", detail: str = "") -> Evidence:
    """A candidate that did not get past `stage`."""
    failure = Failure(
        stage=stage, kind=kind, message="the kernel needs 18.2 MiB of VMEM, 16 MiB are there", detail=detail
    )
    nothing: dict[str, Any] = dict.fromkeys(("hlo", "mosaic", "simulation", "latency", "dump_directory"))
    return evidence(failure=failure, checks=(), **nothing)


def attempt(judged: Evidence, verdict: Verdict, **changes: Any) -> Attempt:
    """Attempt 2, an experiment against attempt 1."""
    whole = Attempt(
        number=2,
        contest="root",
        hypothesis="BQ 128 -> 2048",
        started="2026-01-02T03:04:05+00:00",
        finished="2026-01-02T03:04:17+00:00",
        judged_against="0123456789abcdef0123456789abcdef01234567",
        kernel_sha256="ab" * 32,
        key=KEY,
        policy=Policy(),
        evidence=judged,
        verdict=verdict,
        champion=Champion(attempt=1, commit="fedcba9876543210", score=1509.9, seconds=2.16e-3),
    )
    return replace(whole, **changes)


def table_row(number: int, **changes: Any) -> Row:
    """The row of an accepted experiment, without a time."""
    plain = Row(
        number=number,
        kind="experiment",
        outcome="accept",
        failure_kind="",
        hypothesis=f"idea {number}",
        source="simulated",
        chip="v5e",
        key_digest=key_digest(KEY),
        kernel_sha256="",
        fingerprint="",
    )
    return replace(plain, **changes)


def judgement(**changes: Any) -> Judgement:
    """An accepted kernel, judged again or for the first time."""
    plain = Judgement(
        outcome="accept",
        reasons=(),
        failure_kind="",
        source="simulated",
        seconds=1e-3,
        plus_minus_seconds=None,
        score=1.0,
        time_ratio=0.95,
        checks_passed=2,
        checks=2,
        tightest=None,
        fingerprint="a1",
    )
    return replace(plain, **changes)


def advised(candidate: Evidence) -> tuple[Hint, ...]:
    """The advice on the evidence, for its own chip."""
    return advise(candidate, report(candidate, chip(candidate.chip)))
