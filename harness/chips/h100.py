"""NVIDIA H100 SXM: 132 multiprocessors."""

from harness.chips.row import MIB, NVIDIA, Chip, ChipRow
from harness.chips.workbench import Workbench

# At this clock, 4096 FLOP per cycle and multiprocessor give the published peak.
ROW = ChipRow(
    chip=Chip(
        name="h100",
        device="GPU",
        topology=None,
        device_kinds=("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        cores=132,
        peak_bf16_flops_per_second=989.4e12,
        hbm_bytes_per_second=3350e9,
        hbm_bytes=80_000_000_000,
        vmem_bytes=228 * 1024,
        scoped_vmem_bytes=227 * 1024,
        clock_hz=1.83e9,
        mxus_per_core=4,
        mxu_size=None,
        source=NVIDIA,
        has_bfloat16_units=False,
        divides_by_exact_reciprocal=False,
        has_narrow_products=True,
        platform="cuda",
        cache_bytes=50 * MIB,
        peak_int8_ops_per_second=1978.9e12,
        peak_fp8_flops_per_second=1978.9e12,
    ),
    workbench=Workbench(),
)
