"""Hand-made cycle breakdowns and timelines, with figures whose sums are known."""

from harness.records import CycleBreakdown, LineTime, Part, Span, Timeline

CYCLES = 30_000.0


def breakdown() -> CycleBreakdown:
    """30,000 cycles in four steps: three lines of kernel.py, one line of another file, and cycles of no line."""
    return CycleBreakdown(
        parts=(
            Part(kind="issuing", name="", cycles=24_000.0),
            Part(kind="empty bundles", name="", cycles=600.0),
            Part(kind="operand wait", name="k", cycles=1_500.0),
            Part(kind="unit stall", name="MXU", cycles=3_000.0),
            Part(kind="fill and drain", name="", cycles=840.0),
            Part(kind="launch", name="", cycles=60.0),
        ),
        lines=(
            LineTime(
                file="kernel.py",
                line=3,
                issue_cycles=12_000.0,
                stall_cycles=3_000.0,
                wait_cycles=0.0,
                operations=(("VALU", 9_000), ("MXU", 20_000), ("XLU", 10), ("EUP", 5)),
            ),
            LineTime(
                file="kernel.py",
                line=5,
                issue_cycles=6_000.0,
                stall_cycles=0.0,
                wait_cycles=1_500.0,
                operations=(("EUP", 4_000),),
                spilled_bytes=3 << 20,
                filled_bytes=1 << 20,
            ),
            LineTime(file="kernel.py", line=14, issue_cycles=900.0, stall_cycles=0.0, wait_cycles=0.0),
            LineTime(file="jax.py", line=7, issue_cycles=3_000.0, stall_cycles=0.0, wait_cycles=0.0),
            LineTime(file="", line=0, issue_cycles=2_700.0, stall_cycles=0.0, wait_cycles=900.0, filled_bytes=1 << 20),
        ),
        steps=4,
        spilled_bytes=3 << 20,
        filled_bytes=2 << 20,
        spill_cycles=2_250.0,
    )


def timeline() -> Timeline:
    """A copy and a kernel of 20 us at 1.5 GHz: two transfers that overlap, a wait, a stall, three bundles."""

    def span(kind: str, row: str, name: str, start: int, end: int, **more: int) -> Span:
        return Span(kind=kind, row=f"core 0 {row}", name=name, start=start, end=end, **more)  # type: ignore[arg-type]

    return Timeline(
        chip="v5e",
        clock_hz=1.5e9,
        cycles=30_101,
        spans=(
            span("op", "ops", "copy.9", 100, 3_100, hbm_bytes=4_000_000),
            span("op", "ops", "naive.1", 3_100, 30_001, flops=1_000_000_000, hbm_bytes=1_000_000),
            span("transfer", "DMA in", "copy.9 operand", 100, 1_600, hbm_bytes=2_000_000),
            span("transfer", "DMA out", "copy.9 output", 1_600, 3_100, hbm_bytes=2_000_000),
            span("transfer", "DMA in", "k", 3_200, 4_000, hbm_bytes=500_000),
            span("transfer", "DMA in", "v", 3_300, 4_100, hbm_bytes=300_000),
            span("transfer", "DMA in", "k", 4_050, 4_200, hbm_bytes=200_000),
            span("wait", "waits", "k", 3_300, 4_000),
            span("stall", "stalls", "MXU", 4_000, 4_010),
            span("step", "steps", "step 0", 3_200, 15_000),
            span("step", "steps", "step 1", 15_000, 29_000),
            *(span("issue", "MXU", "vmatmul", cycle, cycle + 1, line=66) for cycle in (4_010, 4_011, 4_012)),
            span("issue", "VALU", 'vadd "x" ü', 4_012, 4_013, line=67),
        ),
        window=(4_000, 4_013),
        left_out=(("core 0 VALU", 7),),
    )
