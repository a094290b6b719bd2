"""TPU v6e (Trillium): 1 core, 2 matrix units of 256 x 256 a core.

Calibrated constants and intervals that this row does not set are the defaults in chips/row.py.
"""

from harness.chips.row import BOOK, CLOUD, MIB, Calibrated, Chip, ChipRow, Intervals, Links, Units
from harness.chips.workbench import Workbench

ROW = ChipRow(
    chip=Chip(
        name="v6e",
        device="chip",
        topology="v6e:2x2",
        device_kinds=("TPU v6 lite", "TPU v6e"),
        cores=1,
        peak_bf16_flops_per_second=918e12,
        hbm_bytes_per_second=1640e9,
        hbm_bytes=34_400_000_000,
        vmem_bytes=128 * MIB,
        scoped_vmem_bytes=32 * MIB,
        clock_hz=1.75e9,
        mxus_per_core=2,
        mxu_size=256,
        source=CLOUD,
        has_bfloat16_units=True,
        divides_by_exact_reciprocal=True,
        has_narrow_products=True,
        peak_int8_ops_per_second=1836e12,
        peak_int4_ops_per_second=3672e12,
    ),
    units=Units(
        granule=32,
        matmul_results=4,
        push=4,
        push_transposed=8,
        push_float32=2,
        push_float32_transposed=4,
        matmul_latency=192,
        matmul_narrow_latency=182,
        xlu=4,
        transpose_packed=4,
        reduce_latency=137,
        permute_latency=123,
        transpose_latency=64,
        transpose_packed_latency=70,
        eup_latency=13,
        narrow_rate=2,
        branch_slots=4,
    ),
    calibrated=Calibrated(hbm_read_share=0.9, hbm_write_share=0.82, matmul_slowdown=67 / 64, matmul_queue=1),
    intervals=Intervals(
        hbm_read_share=(0.836, 0.912),
        hbm_write_share=(0.726, 0.83),
        dma_latency_seconds=(658e-9, 866e-9),
        wait_seconds=(5.07e-9, 52.3e-9),
        transfer_bytes_per_cycle=(640, 2728),
        matmul_slowdown=(65 / 64, 69 / 64),
    ),
    relative_uncertainty=0.042,
    # A permutation between neighbours takes 2.29 us plus the time of its bytes (marin-community/marin, issue 6736). The
    # 2.29 us are a hop for the barrier, a hop for the bytes, and the latency of a transfer.
    links=Links(
        one_way_bytes_per_second=1e11, axes=2, ring_size=16, rings_are_multiples=False, source=BOOK, hop_seconds=0.75e-6
    ),
    workbench=Workbench(
        has_counters=True,
        has_unit_counters=True,
        # Measured in a capture of openxla/xprof's tests: 300 transfers of 5.4 GB in each direction on each of four
        # chips of one host. Each figure is the bytes of one direction divided by the time with a transfer in that
        # direction.
        from_host_bytes_per_second=2.71e10,
        to_host_bytes_per_second=2.74e10,
    ),
)
