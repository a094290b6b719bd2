"""The published block of a report: regime, intensity, traffic, and what the time is against its two bounds."""

from pathlib import PurePosixPath

from rich.cells import cell_len

from harness.hardware import chip
from harness.records import Evidence, Report
from harness.render.layout import flow, wrap
from harness.render.report_sections import FIELD, from_the_ridge, label
from harness.units import decimal, milliseconds, percent, quantity


def roofline(evidence: Evidence, report: Report, width: int) -> list[str]:
    """The published block, in full."""
    actual = "unknown" if report.intensity is None else f"{report.intensity:.1f} FLOPs/byte"
    lines = [
        _field("Bottleneck:", report.regime.upper() if report.regime else "unknown"),
        "Operational intensity:",
        f"    Actual (with re-reads):  {actual}",
        f"    Minimum (perfect reuse): {report.minimum_intensity:.1f} FLOPs/byte",
        f"    Chip ridge point:        {report.ridge:.1f} FLOPs/byte",
    ]
    lines += [
        *([f"  {distance}"] if (distance := from_the_ridge(report)) else []),
        "Memory traffic:",
        f"    Min (theoretical):    {decimal(report.minimum_hbm_bytes, 'B', 2)}",
        f"    Actual (with tiling): {_traffic(report)}",
        f"Time decomposition:    [{label(report)}]",
        f"    Compute-only {_ms(report.compute_only_seconds)} (if 100% MXU)",
        f"    Memory-only  {_ms(report.memory_only_seconds)} (if 100% BW)",
        f"    Actual       {_actual(report)}",
        f"    Gap          {_gap(report)}",
        _field("Bandwidth:", _bandwidth(report)),
        _field("Utilisation:", _utilisation(report)),
        *_hlo_stats(evidence),
    ]
    return [part for line in lines for part in _broken(line, width)]


def glance(report: Report, width: int) -> list[str]:
    """The times of the published block; shares of the peaks are in the RESULT and REGIME lines already."""
    times = [
        f"Compute-only {_ms(report.compute_only_seconds)}",
        f"Memory-only {_ms(report.memory_only_seconds)}",
        f"Actual {_actual(report)}",
        f"Gap {_gap(report)}",
    ]
    return [
        *flow(times, width, "Time decomposition:    ", "   "),
        *wrap(
            f"Min {decimal(report.minimum_hbm_bytes, 'B')}, actual {_traffic(report)}", width, "Memory traffic:        "
        ),
    ]


def _broken(line: str, width: int) -> list[str]:
    """`line` as it is if it fits, else broken with its own indentation and the values' column kept."""
    if cell_len(line) <= width:
        return [line]
    lead = line[: len(line) - len(line.lstrip())] or line[:FIELD]
    return wrap(line[len(lead) :], width, lead)


def _field(name: str, value: str) -> str:
    return f"{name:<{FIELD}}{value}"


def _ms(value: float | None) -> str:
    return "unknown" if value is None else milliseconds(value, " ")


def _actual(report: Report) -> str:
    if report.seconds is None or report.plus_minus_seconds is None:
        return _ms(report.seconds)
    return f"{_ms(report.seconds)} ± {_ms(report.plus_minus_seconds)}"


def _gap(report: Report) -> str:
    if report.gap_seconds is None or report.gap_fraction is None:
        return "unknown"
    return f"{_ms(report.gap_seconds)} ({percent(report.gap_fraction)} of actual: {report.gap_size})"


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
    # The ridge is of the type that the matmuls multiply, and so is the peak.
    peak = decimal(report.ridge * chip(report.chip).hbm_bytes_per_second, "FLOP/s", 0)
    if not report.mxu_util:
        return f"util {percent(report.util)} (all useful FLOPs, none in matmuls) of {peak}"
    return f"util {percent(report.util)} (all useful FLOPs), mxu {percent(report.mxu_util)} (matmul FLOPs) of {peak}"


def _hlo_stats(evidence: Evidence) -> list[str]:
    hlo = evidence.hlo
    if hlo is None:
        return [_field("HLO stats:", "unknown")]
    counts = f"{hlo.dot} dot ops, {hlo.exponential} exp ops, {hlo.reduce} reduce ops, {hlo.copy} copy ops"
    lines = [_field("HLO stats:", f"{counts}, {quantity(hlo.text_lines, 'line')}")]
    if evidence.mosaic:
        inside = f"{evidence.mosaic.matmul} matmul, {evidence.mosaic.exp} exp, {evidence.mosaic.reduction} reductions"
        lines.append(f"    inside the kernel: {inside} (Mosaic)")
    # The HLO text lies beside the folder with the compiler's dumps.
    dumps = evidence.dump_directory
    where = (PurePosixPath(dumps).parent / "kernel.hlo.txt").as_posix() if dumps else "not kept"
    return [*lines, f"    full HLO: {where}"]
