"""TPU v3: only for predictions, because the ratchet's compilers do not support it."""

from harness.chips.row import BOOK, PAPER, ChipRow, Figures, Links
from harness.chips.workbench import Workbench

# A chip has 123 TFLOP/s, 900 GB/s, 32 GiB and two cores; each core is a device.
ROW = ChipRow(
    chip=Figures(
        name="v3",
        device="core",
        peak_bf16_flops_per_second=61.5e12,
        hbm_bytes_per_second=450e9,
        hbm_bytes=16 << 30,
        mxu_size=128,
        source=PAPER,
    ),
    links=Links(one_way_bytes_per_second=1e11, axes=2, ring_size=32, rings_are_multiples=False, source=BOOK),
    workbench=Workbench(),
)
