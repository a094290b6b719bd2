"""What the simulator believes about each chip: one record of constants per chip, each with meaning, unit and source."""

from dataclasses import dataclass

from harness.errors import UsageError
from harness.hardware import Chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The constants of one chip's TensorCore. Marked CALIBRATED: fitted to published times.

    cores: cores that run the program together. Source: hardware.py.
    clock_hz: cycles per second; one bundle issues per cycle. Source: hardware.py.
    hbm_bytes_per_cycle: bandwidth of HBM seen by one core, reads and writes together. Source: hardware.py.
    hbm_read_share, hbm_write_share: how much of that bandwidth reads and writes reach. CALIBRATED, per chip.
    granule_bytes: what the size of a transfer counts. Found by comparing transfers with their operands' sizes.
    dma_latency_cycles: from issuing an HBM transfer to its flag, beyond its bytes. CALIBRATED.
    transfer_cycles: for how long each HBM transfer keeps the way to HBM busy beyond its bytes. CALIBRATED.
    wait_cycles: what waiting for a transfer costs the core even where it has arrived. CALIBRATED.
    mxus: matrix units per core; mxu_size: rows and columns of one. Source: hardware.py.
    matmul_rows_per_cycle: rows of the left operand that one MXU takes in per cycle. It follows
        from peak = 2 x size^2 x rows x mxus x cores x clock, and is 1 on every 128-wide MXU and 2 on the
        256-wide ones; the compiler spaces 16-row matmuls by 16 / this many cycles.
    matmul_slowdown: how much longer than its rows a matmul keeps its unit, in a stream of them. CALIBRATED, per chip.
    narrow_rate: how many times faster rows of 8-bit values go in, per byte of a register: 2 where the published peak
        for them is twice that of bfloat16, 1 where it is the same. Source: the chips' published peaks.
    matmul_results: vectors popped per 16-row (packed) matmul.
    push_cycles, push_transposed_cycles: one MXU's weight port per pushed register pair.
    prep_early_cycles: how long before the weight port is free the first half of the next row pair may go to
        a 256-wide unit. CALIBRATED: 2. The compiler's own spacing does not make it wait at all (8).
    matmul_latency_cycles: from a matmul's issue to its first result.
    xlu_cycles, xlu_latency_cycles: the cross-lane units, per operation.
    eup_latency_cycles: the transcendental unit (one operation per cycle).
    eup_packed_cycles: for how long an operation on a register of packed halves keeps it, which takes two turns.
    branch_slots: bundles issued between a branch and its target; branch_slots_vary: the compiler may
        leave empty ones out, and the core waits in their place when it jumps. Seen in the schedules.

    Where a unit's cycles and latencies come from: the spacing of its operations in the
    compiler's own schedule before it removes the empty bundles that the hardware's interlocks
    replace (pass `packed-bundles-post-ra` of libtpu 0.0.50, a 128 x 256 attention kernel).
    """

    chip: str
    cores: int
    clock_hz: float
    hbm_bytes_per_cycle: float
    hbm_read_share: float
    hbm_write_share: float
    granule_bytes: int
    dma_latency_cycles: int
    transfer_cycles: int
    wait_cycles: int
    mxus: int
    mxu_size: int
    matmul_rows_per_cycle: float
    matmul_slowdown: float
    narrow_rate: int
    matmul_results: int
    push_cycles: int
    push_transposed_cycles: int
    prep_early_cycles: int
    matmul_latency_cycles: int
    xlu_cycles: int
    xlu_latency_cycles: int
    eup_latency_cycles: int
    eup_packed_cycles: int
    branch_slots: int
    branch_slots_vary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Units:
    """Unit timings as the compiler's schedule shows them, in cycles: see Machine."""

    granule: int
    matmul_results: int
    push: int
    push_transposed: int
    matmul_latency: int
    xlu: int
    xlu_latency: int
    eup_latency: int


_UNITS = {
    "v4": _Units(
        granule=512,
        matmul_results=2,
        push=4,
        push_transposed=8,
        matmul_latency=83,
        xlu=8,
        xlu_latency=79,
        eup_latency=7,
    ),
    "v5e": _Units(
        granule=32,
        matmul_results=2,
        push=4,
        push_transposed=8,
        matmul_latency=125,
        xlu=8,
        xlu_latency=91,
        eup_latency=6,
    ),
    "v5p": _Units(
        granule=32,
        matmul_results=2,
        push=4,
        push_transposed=8,
        matmul_latency=125,
        xlu=8,
        xlu_latency=91,
        eup_latency=8,
    ),
    "v6e": _Units(
        granule=32,
        matmul_results=4,
        push=4,
        push_transposed=8,
        matmul_latency=192,
        xlu=4,
        xlu_latency=137,
        eup_latency=13,
    ),
    "v7x": _Units(
        granule=32,
        matmul_results=4,
        push=4,
        push_transposed=8,
        matmul_latency=166,
        xlu=4,
        xlu_latency=141,
        eup_latency=10,
    ),
}

# CALIBRATED. Many small transfers in flight take some nanoseconds each (v7x, rotary embedding: 4163 transfers and 49
# waits in 53 us), while attention in short steps, with three waits each, takes far longer than its schedule: a wait
# costs the core something, which overlaps nothing. Latency: a Pallas matmul in 128-cubed blocks on v5e.
_DMA_LATENCY_SECONDS = 350e-9
_TRANSFER_SECONDS = 5e-9
_WAIT_SECONDS = 30e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calibrated:
    """What published times of a chip say that its data sheet does not: see Machine and benchmarks/FIDELITY.md."""

    hbm_read_share: float = 1.0
    hbm_write_share: float = 1.0
    matmul_slowdown: float = 1.0


_CALIBRATED = {
    "v5e": _Calibrated(matmul_slowdown=33 / 32),
    "v6e": _Calibrated(hbm_read_share=0.95, hbm_write_share=0.82),
    "v7x": _Calibrated(hbm_read_share=0.93, hbm_write_share=0.67, matmul_slowdown=33 / 32),
}
# int8 on v5e to v6e, fp8 on v7x: twice the bfloat16 peak (Google Cloud TPU documentation); v4 has no faster type.
_NARROW_RATE = {"v4": 1}
_FASTER_NARROW_RATE = 2


def machine_of(chip: Chip) -> Machine:
    """The constants for `chip`. Raises UsageError `no-machine` for a chip without a record."""
    units = _UNITS.get(chip.name)
    if units is None or chip.mxu_size is None:
        raise UsageError("no-machine", f"no simulator constants for {chip.name}: expected one of {', '.join(_UNITS)}")
    # Rounded, because the published peaks are; for v7x 2.3 comes out, and its compiler spaces matmuls as for 2.
    flops_per_row = 2 * chip.mxu_size**2 * chip.mxus_per_core * chip.cores
    calibrated = _CALIBRATED.get(chip.name, _Calibrated())
    rows_per_cycle = round(chip.peak_bf16_flops_per_second / (flops_per_row * chip.clock_hz))
    return Machine(
        chip=chip.name,
        cores=chip.cores,
        clock_hz=chip.clock_hz,
        hbm_bytes_per_cycle=chip.hbm_bytes_per_second / chip.cores / chip.clock_hz,
        hbm_read_share=calibrated.hbm_read_share,
        hbm_write_share=calibrated.hbm_write_share,
        granule_bytes=units.granule,
        transfer_cycles=round(_TRANSFER_SECONDS * chip.clock_hz),
        wait_cycles=round(_WAIT_SECONDS * chip.clock_hz),
        dma_latency_cycles=round(_DMA_LATENCY_SECONDS * chip.clock_hz),
        mxus=chip.mxus_per_core,
        mxu_size=chip.mxu_size,
        matmul_rows_per_cycle=rows_per_cycle,
        matmul_slowdown=calibrated.matmul_slowdown,
        narrow_rate=_NARROW_RATE.get(chip.name, _FASTER_NARROW_RATE),
        matmul_results=units.matmul_results,
        push_cycles=units.push,
        push_transposed_cycles=units.push_transposed,
        prep_early_cycles=2,
        matmul_latency_cycles=units.matmul_latency,
        xlu_cycles=units.xlu,
        xlu_latency_cycles=units.xlu_latency,
        eup_latency_cycles=units.eup_latency,
        eup_packed_cycles=2,
        branch_slots=6 if chip.name == "v7x" else 4,
        branch_slots_vary=chip.name == "v7x",
    )
