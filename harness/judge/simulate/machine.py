"""The machine on which the simulator runs a program: constants of one chip, each with meaning, unit and source."""

from dataclasses import dataclass

from harness import chips
from harness.chips.row import Calibrated, Links
from harness.errors import UsageError
from harness.hardware import Chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The constants of one chip's TensorCore. Constants marked CALIBRATED were fitted to published times.

    The whole program (source: harness/chips):
    - cores: the number of cores that run the program together.
    - clock_hz: cycles per second; one bundle issues per cycle.

    Transfers:
    - hbm_bytes_per_cycle: the HBM bandwidth of one core while all cores run, reads and writes together (source:
      harness/chips).
    - hbm_read_share, hbm_write_share: the shares of that bandwidth that reads and writes reach. CALIBRATED, per chip.
    - transfer_bytes_per_cycle: the most bytes per cycle that a single transfer moves, whatever the HBM bandwidth.
      CALIBRATED.
    - granule_bytes: the unit of a transfer's size (found by comparing transfers with the sizes of their operands).
    - dma_latency_cycles: cycles from the issue of a transfer from HBM until its flag is raised, without the time for
      its bytes. CALIBRATED. dma_write_latency_cycles is the latency of a transfer to HBM. CALIBRATED.
    - transfer_cycles: cycles for which each HBM transfer occupies the path to HBM, in addition to the time for its
      bytes. CALIBRATED.
    - wait_cycles: the cost of a wait for a transfer, even if the transfer has already arrived. CALIBRATED.

    Matrix units (MXU):
    - mxus: the number of units per core. mxu_size: rows and columns of a unit (source: harness/chips).
    - matmul_rows_per_cycle: rows of the left operand that one unit takes in per cycle: 1 for a 128-wide unit, 2 for a
      256-wide unit. Source: peak = 2 x size^2 x rows x mxus x cores x clock. The compiler issues 16-row matmuls
      16 / matmul_rows_per_cycle cycles apart.
    - matmul_slowdown: in a stream of matmuls, the time for which a matmul occupies its unit, divided by the time that
      its rows need. CALIBRATED, per chip.
    - matmul_queue: the number of matmuls that can be queued for a unit while the core continues; one more stalls the
      core. CALIBRATED, per chip.
    - narrow_rate: the rate at which rows of 8-bit values go in, relative to rows of 16-bit values. It is 2 if the
      published peak for 8-bit values is twice that of bfloat16 (int8 on v5e to v6e, fp8 on v7x), and 1 if the peaks are
      equal. Source: published peaks (Google Cloud TPU documentation).
    - matmul_results: the number of vectors popped per 16-row (packed) matmul.
    - push_cycles, push_transposed_cycles, push_float32_cycles, push_float32_transposed_cycles: cycles for which a
      pushed register (or pair of registers) occupies a unit's weight port. A register of float32 has half as many rows.
    - prep_early_cycles: a 256-wide unit takes the first half of the next row pair this many cycles before its weight
      port is free. With the value 8 this half never stalls, because the compiler places it directly after the previous
      push.
    - matmul_latency_cycles: cycles from a matmul's issue to its first result. matmul_narrow_latency_cycles is the
      latency of a matmul of 8-bit values.

    Cross-lane units (XLU):
    - xlu_cycles: cycles for which an operation occupies a unit.
    - transpose_packed_cycles: cycles for which each row of 16-bit values occupies the unit in a transpose. The results
      come out at the rate of `xlu_cycles`.
    - reduce_latency_cycles, permute_latency_cycles: cycles from issue to result, for reductions over lanes and for
      operations that move lanes.
    - transpose_latency_cycles, transpose_packed_latency_cycles: cycles from the last row in to the first row out.
    - third_xlu_early_cycles, third_xlu_transpose_early_cycles: the number of cycles by which the third unit finishes
      earlier than the first two, in reductions and permutations, and in transposes.

    Transcendental unit (EUP):
    - eup_latency_cycles: the latency of an operation; one operation issues per cycle.
    - eup_packed_cycles: cycles for which an operation on a register of packed 16-bit values occupies the unit, which
      needs two passes.

    Branches (source: the schedules):
    - branch_slots: the number of bundles issued between a branch and its target.
    - branch_slots_vary: True if the compiler may leave out empty slots. The core waits for these slots when it jumps.

    The cycles and latencies of the units come from the spacing of operations in the compiler's schedule before empty
    bundles are removed (pass `packed-bundles-post-ra` of libtpu 0.0.50); in the final schedule, the hardware's
    interlocks replace these bundles. The measured kernels are chains in which each operation waits for the previous
    operation (`benchmarks/compiler_latencies.py`).
    """

    chip: str
    cores: int
    clock_hz: float
    hbm_bytes_per_cycle: float
    hbm_read_share: float
    hbm_write_share: float
    transfer_bytes_per_cycle: int
    granule_bytes: int
    dma_latency_cycles: int
    dma_write_latency_cycles: int
    transfer_cycles: int
    wait_cycles: int
    mxus: int
    mxu_size: int
    matmul_rows_per_cycle: float
    matmul_slowdown: float
    matmul_queue: int
    narrow_rate: int
    matmul_results: int
    push_cycles: int
    push_transposed_cycles: int
    push_float32_cycles: int
    push_float32_transposed_cycles: int
    prep_early_cycles: int
    matmul_latency_cycles: int
    matmul_narrow_latency_cycles: int
    xlu_cycles: int
    transpose_packed_cycles: int
    reduce_latency_cycles: int
    permute_latency_cycles: int
    transpose_latency_cycles: int
    transpose_packed_latency_cycles: int
    third_xlu_early_cycles: int
    third_xlu_transpose_early_cycles: int
    eup_latency_cycles: int
    eup_packed_cycles: int
    branch_slots: int
    branch_slots_vary: bool
    links: Links | None = None


def machine_of(chip: Chip, calibrated: Calibrated | None = None) -> Machine:
    """The constants for `chip`. If given, `calibrated` replaces the chip's own fitted constants.

    Raises UsageError `no-machine` for a chip that has no simulator constants.
    """
    facts = chips.row(chip.name) if chip.name in chips.names() else None
    if facts is None or facts.units is None or chip.mxu_size is None:
        names = ", ".join(name for name in chips.names() if chips.row(name).units is not None)
        raise UsageError("no-machine", f"expected a chip with simulator constants, got {chip.name}; use one of {names}")
    units, calibrated = facts.units, calibrated or facts.calibrated or Calibrated()
    # The quotient is rounded, because published peaks are rounded. It is 2.3 for v7x, but the compiler's spacing of
    # matmuls on v7x corresponds to 2.
    flops_per_row = 2 * chip.mxu_size**2 * chip.mxus_per_core * chip.cores
    rows_per_cycle = round(chip.peak_bf16_flops_per_second / (flops_per_row * chip.clock_hz))
    return Machine(
        chip=chip.name,
        links=facts.links,
        cores=chip.cores,
        clock_hz=chip.clock_hz,
        hbm_bytes_per_cycle=chip.hbm_bytes_per_second / chip.cores / chip.clock_hz,
        hbm_read_share=calibrated.hbm_read_share,
        hbm_write_share=calibrated.hbm_write_share,
        transfer_bytes_per_cycle=calibrated.transfer_bytes_per_cycle,
        granule_bytes=units.granule,
        transfer_cycles=round(calibrated.transfer_seconds * chip.clock_hz),
        wait_cycles=round(calibrated.wait_seconds * chip.clock_hz),
        dma_latency_cycles=round(calibrated.dma_latency_seconds * chip.clock_hz),
        dma_write_latency_cycles=round(calibrated.dma_write_latency_seconds * chip.clock_hz),
        mxus=chip.mxus_per_core,
        mxu_size=chip.mxu_size,
        matmul_rows_per_cycle=rows_per_cycle,
        matmul_slowdown=calibrated.matmul_slowdown,
        matmul_queue=calibrated.matmul_queue,
        narrow_rate=units.narrow_rate,
        matmul_results=units.matmul_results,
        push_cycles=units.push,
        push_transposed_cycles=units.push_transposed,
        push_float32_cycles=units.push_float32,
        push_float32_transposed_cycles=units.push_float32_transposed,
        prep_early_cycles=8,
        matmul_latency_cycles=units.matmul_latency,
        matmul_narrow_latency_cycles=units.matmul_narrow_latency,
        xlu_cycles=units.xlu,
        transpose_packed_cycles=units.transpose_packed,
        reduce_latency_cycles=units.reduce_latency,
        permute_latency_cycles=units.permute_latency,
        transpose_latency_cycles=units.transpose_latency,
        transpose_packed_latency_cycles=units.transpose_packed_latency,
        third_xlu_early_cycles=24,
        third_xlu_transpose_early_cycles=11,
        eup_latency_cycles=units.eup_latency,
        eup_packed_cycles=2,
        branch_slots=units.branch_slots,
        branch_slots_vary=units.branch_slots_vary,
    )
