"""TPU v5p: 2 cores, 4 matrix units of 128 x 128 a core.

Calibrated constants and intervals that this row does not set are the defaults in chips/row.py.
"""

from harness.chips.row import BOOK, CLOUD, MIB, Calibrated, Chip, ChipRow, Intervals, Links, Units
from harness.chips.workbench import Workbench

ROW = ChipRow(
    chip=Chip(
        name="v5p",
        device="chip",
        topology="v5p:2x2x1",
        device_kinds=("TPU v5p", "TPU v5"),
        cores=2,
        peak_bf16_flops_per_second=459e12,
        hbm_bytes_per_second=2765e9,
        hbm_bytes=103_000_000_000,
        vmem_bytes=64 * MIB,
        scoped_vmem_bytes=16 * MIB,
        clock_hz=1.75e9,
        mxus_per_core=4,
        mxu_size=128,
        source=CLOUD,
        has_bfloat16_units=False,
        divides_by_exact_reciprocal=False,
        has_narrow_products=True,
        peak_int8_ops_per_second=918e12,
        peak_int4_ops_per_second=1836e12,
    ),
    units=Units(
        granule=32,
        matmul_results=2,
        push=4,
        push_transposed=8,
        push_float32=2,
        push_float32_transposed=4,
        matmul_latency=125,
        matmul_narrow_latency=115,
        xlu=8,
        transpose_packed=16,
        reduce_latency=115,
        permute_latency=114,
        transpose_latency=44,
        transpose_packed_latency=60,
        eup_latency=8,
        narrow_rate=2,
        branch_slots=4,
    ),
    # XLA's copies of large arrays take 1/0.87 of the least time at the published bandwidth. Matmuls take the time of
    # their rows, without a slowdown.
    calibrated=Calibrated(hbm_read_share=0.9, hbm_write_share=0.9, matmul_slowdown=1.0),
    intervals=Intervals(
        hbm_read_share=(0.857, 0.937),
        hbm_write_share=(0.836, 0.937),
        dma_latency_seconds=(725e-9, 938e-9),
        dma_write_latency_seconds=(108e-9, 632e-9),
        wait_seconds=(5.07e-9, 32.3e-9),
        transfer_bytes_per_cycle=(640, 2728),
        matmul_slowdown=(1.0, 66 / 64),
    ),
    relative_uncertainty=0.031,
    links=Links(one_way_bytes_per_second=1e11, axes=3, ring_size=4, rings_are_multiples=True, source=BOOK),
    workbench=Workbench(),
)
