"""TPU v5e: 1 core, 4 matrix units of 128 x 128 a core.

Calibrated constants and intervals that this row does not set are the defaults in chips/row.py.
"""

from harness.chips.row import BOOK, CLOUD, MIB, Calibrated, Chip, ChipRow, Intervals, Links, Units
from harness.chips.workbench import Workbench

ROW = ChipRow(
    chip=Chip(
        name="v5e",
        device="chip",
        topology="v5e:2x2",
        device_kinds=("TPU v5 lite", "TPU v5e"),
        cores=1,
        peak_bf16_flops_per_second=197e12,
        hbm_bytes_per_second=819e9,
        hbm_bytes=17_200_000_000,
        vmem_bytes=128 * MIB,
        scoped_vmem_bytes=16 * MIB,
        clock_hz=1.5e9,
        mxus_per_core=4,
        mxu_size=128,
        source=CLOUD,
        has_bfloat16_units=False,
        divides_by_exact_reciprocal=False,
        has_narrow_products=True,
        peak_int8_ops_per_second=394e12,
        peak_int4_ops_per_second=788e12,
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
        eup_latency=6,
        narrow_rate=2,
        branch_slots=4,
    ),
    # Fitted to a Pallas matmul in blocks of 128 x 128 x 128: 262,144 steps, each of which fetches two small blocks,
    # take 91.8 ms.
    calibrated=Calibrated(dma_latency_seconds=430e-9),
    intervals=Intervals(dma_latency_seconds=(250e-9, 942e-9), transfer_bytes_per_cycle=(424, 2728)),
    relative_uncertainty=0.02,
    links=Links(one_way_bytes_per_second=5e10, axes=2, ring_size=16, rings_are_multiples=False, source=BOOK),
    workbench=Workbench(),
)
