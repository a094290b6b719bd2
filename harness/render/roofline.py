"""The published block of a report: regime, intensity, traffic, and the time against its two bounds."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from harness.advice.simulated_rates import above_limit, passing_gap
from harness.hardware import chip
from harness.records import Evidence, Report
from harness.render.report_sections import from_the_ridge, label
from harness.render.sections import Block, Line, Words, named, named_items
from harness.units import decimal, milliseconds, percent, quantity


def roofline(evidence: Evidence, report: Report) -> Iterator[Block]:
    """The published block, in full."""
    actual = "unknown" if report.intensity is None else f"{report.intensity:.1f} FLOPs/byte"
    yield named("Bottleneck", report.regime.upper() if report.regime else "unknown")
    yield Line("Operational intensity:")
    yield _part("Actual (with re-reads):  ", actual)
    yield _part("Minimum (perfect reuse): ", f"{report.minimum_intensity:.1f} FLOPs/byte")
    yield _part("Chip ridge point:        ", f"{report.ridge:.1f} FLOPs/byte")
    if distance := from_the_ridge(report):
        yield Words(distance, lead="  ")
    yield Line("Memory traffic:")
    yield _part("Min (theoretical):    ", decimal(report.minimum_hbm_bytes, "B", 2))
    yield _part("Actual (with tiling): ", _traffic(report))
    yield named("Time decomposition", f"[{label(report)}]")
    yield _part("Compute-only ", _compute_only(report, " (if 100% MXU)"))
    yield _part("Memory-only  ", f"{_ms(report.memory_only_seconds)} (if 100% BW)")
    if report.communication:
        yield _part("Link-only    ", f"{_ms(report.communication.floor_seconds)} (if the links alone bind)")
    yield _part("Actual       ", _actual(report))
    yield _part("Gap          ", _gap(evidence, report))
    yield named("Bandwidth", _bandwidth(report))
    yield from communication(report)
    yield named("Utilisation", _utilisation(report))
    yield from _hlo_stats(evidence)


def glance(evidence: Evidence, report: Report) -> Iterator[Block]:
    """The times and traffic of the published block; shares of the peaks are in the RESULT and REGIME lines."""
    times = (
        f"Compute-only {_compute_only(report)}",
        f"Memory-only {_ms(report.memory_only_seconds)}",
        *([f"Link-only {_ms(report.communication.floor_seconds)}"] if report.communication else []),
        f"Actual {_actual(report)}",
        f"Gap {_gap(evidence, report)}",
    )
    yield named_items("Time decomposition", times, "   ")
    yield named("Memory traffic", f"Min {decimal(report.minimum_hbm_bytes, 'B')}, actual {_traffic(report)}")
    yield from communication(report)


def communication(report: Report) -> Iterator[Block]:
    """The exposed communication of several chips, and the link direction that carries the most bytes."""
    links = report.communication
    if links is None or not report.seconds:
        return
    name = f"{links.busiest.source} to {links.busiest.destination}"
    yield named_items(
        "Links",
        (
            f"exposed {_ms(links.exposed_seconds)} ({percent(links.exposed_seconds / report.seconds)} of actual)",
            f"busiest {name}: {decimal(links.busiest.bytes, 'B')}, {percent(links.busy_fraction)} of the time",
            f"{links.chips} chips [{label(report)}]",
        ),
        "   ",
    )


def _part(name: str, text: str) -> Words:
    return Words(f"{name}{text}", lead="    ", is_aligned=True)


def _ms(value: float | None) -> str:
    return "unknown" if value is None else milliseconds(value, " ")


def _compute_only(report: Report, condition: str = "") -> str:
    return "- (no matmuls)" if report.mxu_util == 0 else f"{_ms(report.compute_only_seconds)}{condition}"


def _actual(report: Report) -> str:
    if report.seconds is None or report.plus_minus_seconds is None:
        return _ms(report.seconds)
    return f"{_ms(report.seconds)} ± {_ms(report.plus_minus_seconds)}"


def _gap(evidence: Evidence, report: Report) -> str:
    """The published gap, and the gap at the rates of the simulator if that is notably smaller."""
    if report.gap_seconds is None or report.gap_fraction is None:
        return "unknown"
    size = f"{percent(report.gap_fraction)} of actual: {report.gap_size}"
    passing = above_limit(
        report.gap_fraction, passing_gap(evidence, report, chip(report.chip)), "at the simulator's rates"
    )
    return f"{_ms(report.gap_seconds)} ({'; '.join(filter(None, (size, passing)))})"


def _traffic(report: Report) -> str:
    if report.hbm_bytes is None:
        return "unknown"
    times = report.hbm_bytes / report.minimum_hbm_bytes
    return f"{decimal(report.hbm_bytes, 'B', 2)} ({times:.1f}x the minimum), from the {report.traffic_source}"


def _bandwidth(report: Report) -> str:
    if report.bytes_per_second is None or report.bandwidth_util is None:
        return "unknown"
    bandwidth = chip(report.chip).hbm_bytes_per_second
    peak = decimal(bandwidth, "B/s", 0 if bandwidth < 1e12 else 2)
    return f"Achieved {decimal(report.bytes_per_second, 'B/s')} / {peak} ({percent(report.bandwidth_util)})"


def _utilisation(report: Report) -> str:
    if report.util is None or report.mxu_util is None:
        return "unknown"
    # Ridge and peak are those of the matmuls' type.
    peak = decimal(report.ridge * chip(report.chip).hbm_bytes_per_second, "FLOP/s", 0)
    if not report.mxu_util:
        return f"util {percent(report.util)} (all useful FLOPs, none in matmuls) of {peak}"
    return f"util {percent(report.util)} (all useful FLOPs), mxu {percent(report.mxu_util)} (matmul FLOPs) of {peak}"


def _hlo_stats(evidence: Evidence) -> Iterator[Block]:
    hlo = evidence.hlo
    if hlo is None:
        yield named("HLO stats", "unknown")
        return
    counts = f"{hlo.dot} dot ops, {hlo.exponential} exp ops, {hlo.reduce} reduce ops, {hlo.copy} copy ops"
    yield named("HLO stats", f"{counts}, {quantity(hlo.text_lines, 'line')}")
    if evidence.mosaic:
        inside = f"{evidence.mosaic.matmul} matmul, {evidence.mosaic.exp} exp, {evidence.mosaic.reduction} reductions"
        yield _part("inside the kernel: ", f"{inside} (Mosaic)")
    # The HLO text lies next to the folder with the compiler's dumps.
    dumps = evidence.dump_directory
    text = (
        f"{(PurePosixPath(dumps).parent / 'kernel.hlo.txt').as_posix()}, where it was judged" if dumps else "not kept"
    )
    yield _part("full HLO: ", text)
