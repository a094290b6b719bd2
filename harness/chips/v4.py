"""TPU v4: 2 cores, 4 matrix units of 128 x 128 a core.

No published times: every calibrated constant has its default in chips/row.py.
"""

from harness.chips.row import BOOK, CLOUD, MIB, Chip, ChipRow, Links, Units
from harness.chips.workbench import Workbench

ROW = ChipRow(
    chip=Chip(
        name="v4",
        device="chip",
        topology="v4:2x2x1",
        device_kinds=("TPU v4",),
        cores=2,
        peak_bf16_flops_per_second=275e12,
        hbm_bytes_per_second=1228e9,
        hbm_bytes=32_000_000_000,
        vmem_bytes=16 * MIB,
        scoped_vmem_bytes=16 * MIB,
        clock_hz=1.05e9,
        mxus_per_core=4,
        mxu_size=128,
        source=CLOUD,
        has_bfloat16_units=False,
        divides_by_exact_reciprocal=False,
        has_narrow_products=False,
    ),
    units=Units(
        granule=512,
        matmul_results=2,
        push=8,
        push_transposed=8,
        push_float32=8,
        push_float32_transposed=8,
        matmul_latency=83,
        matmul_narrow_latency=83,
        xlu=8,
        transpose_packed=16,
        reduce_latency=79,
        permute_latency=69,
        transpose_latency=6,
        transpose_packed_latency=22,
        eup_latency=7,
        narrow_rate=1,
        branch_slots=1,
    ),
    # No times are published for this chip, so this is the largest uncertainty of the chips with published times.
    relative_uncertainty=0.048,
    links=Links(one_way_bytes_per_second=4.5e10, axes=3, ring_size=4, rings_are_multiples=True, source=BOOK),
    workbench=Workbench(),
)
