"""TPU v2: only for predictions, because the ratchet's compilers do not support it."""

from harness.chips.row import PAPER, ChipRow, Figures, Links
from harness.chips.workbench import Workbench

# A chip has 46 TFLOP/s, 700 GB/s, 16 GiB and two cores; each core is a device.
ROW = ChipRow(
    chip=Figures(
        name="v2",
        device="core",
        peak_bf16_flops_per_second=23e12,
        hbm_bytes_per_second=350e9,
        hbm_bytes=8 << 30,
        mxu_size=128,
        source=PAPER,
    ),
    # 1.2e11 B/s in both directions, on the 4x2 slice of the book's worked example.
    links=Links(
        one_way_bytes_per_second=6e10,
        axes=2,
        ring_size=16,
        rings_are_multiples=False,
        source="How to Scale Your Model, part 9 (jax-ml.github.io/scaling-book/profiling)",
    ),
    workbench=Workbench(),
)
