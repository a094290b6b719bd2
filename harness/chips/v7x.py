"""TPU v7x (Ironwood): 2 cores, each a device of JAX with 2 matrix units of 256 x 256.

Calibrated constants and intervals that this row does not set are the defaults in chips/row.py.
"""

from harness.chips.row import CLOUD, MIB, Calibrated, Chip, ChipRow, Intervals, Links, Units
from harness.chips.workbench import Workbench

ROW = ChipRow(
    chip=Chip(
        name="v7x",
        device="core",
        topology="tpu7x:2x2x1",
        device_kinds=("TPU7x", "TPU v7x", "TPU v7"),
        cores=1,
        peak_bf16_flops_per_second=1153.5e12,
        hbm_bytes_per_second=3690e9,
        hbm_bytes=103_000_000_000,
        vmem_bytes=64 * MIB,
        scoped_vmem_bytes=32 * MIB,
        clock_hz=1.9e9,
        mxus_per_core=2,
        mxu_size=256,
        source=CLOUD,
        has_bfloat16_units=True,
        divides_by_exact_reciprocal=True,
        has_narrow_products=True,
        peak_fp8_flops_per_second=2307e12,
    ),
    units=Units(
        granule=32,
        matmul_results=4,
        push=4,
        push_transposed=8,
        push_float32=2,
        push_float32_transposed=4,
        matmul_latency=211,
        matmul_narrow_latency=204,
        xlu=4,
        transpose_packed=4,
        reduce_latency=141,
        permute_latency=127,
        transpose_latency=68,
        transpose_packed_latency=74,
        eup_latency=10,
        narrow_rate=2,
        branch_slots=6,
        branch_slots_vary=True,
    ),
    calibrated=Calibrated(hbm_write_share=0.67),
    intervals=Intervals(
        hbm_read_share=(0.952, 1.0),
        hbm_write_share=(0.634, 0.721),
        dma_latency_seconds=(725e-9, 849e-9),
        dma_write_latency_seconds=(108e-9, 443e-9),
        transfer_seconds=(1.85e-9, 5.17e-9),
        wait_seconds=(12e-9, 30.2e-9),
        transfer_bytes_per_cycle=(966, 1230),
        matmul_slowdown=(65 / 64, 69 / 64),
    ),
    relative_uncertainty=0.048,
    links=Links(
        one_way_bytes_per_second=1e11,
        axes=3,
        ring_size=4,
        rings_are_multiples=True,
        source="Google Cloud TPU7x page: 1200 GB/s over six links of a 3-D torus, both directions together",
    ),
    workbench=Workbench(
        offloads_collectives=True, has_counters=True, has_periodic_counters=True, has_unit_counters=True
    ),
)
