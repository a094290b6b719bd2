"""The published formulas: utilisation, score, regime, the lower bounds on a time, and the gap above them."""

import math
from typing import Literal

from harness import chips
from harness.hardware import Chip, slice_shape
from harness.records import Evidence, Simulation, Work
from harness.records.search_state import Floor
from harness.units import decimal, percent, seconds

Regime = Literal["compute-bound", "memory-bound", "link-bound", "latency-bound"]
GapSize = Literal["small", "moderate", "large"]
TrafficSource = Literal["block index maps", "simulated DMA", "unknown"]

# If both utilisations are below this share, the program is limited by latencies instead of a peak. The published method
# says "both low, say both under 30 %".
LOW_UTILISATION = 0.30

# Published bandwidths are rounded to three or four digits, so a program may seem to exceed the bandwidth by 0.2 %.
_ROUNDED_PEAK = 1.002

# The published method calls a gap small under 10 % of the actual time and large over 30 %.
SMALL_GAP, LARGE_GAP = 0.10, 0.30


def recorded_seconds(evidence: Evidence) -> float | None:
    """The latency as it was recorded, or None."""
    return evidence.latency.seconds if evidence.latency else None


def latency_seconds(evidence: Evidence) -> float | None:
    """The latency that is judged, or None if it is unknown, zero or not finite."""
    latency = recorded_seconds(evidence)
    return latency if latency is not None and math.isfinite(latency) and latency > 0 else None


def finished_run(evidence: Evidence) -> Simulation | None:
    """The simulation, if it finished; the counts of an unfinished run are not used."""
    run = evidence.simulation
    return run if run is not None and run.mean_seconds is not None else None


def peak(work: Work, chip: Chip) -> float:
    """The chip's peak for the type that the matmuls multiply, FLOP/s."""
    return chip.peak_flops_per_second(work.matmul_dtype)


def utilisation(flops: int, latency_seconds: float, peak_flops_per_second: float) -> float:
    """The useful `flops` of one call as a fraction of the FLOPs that the chip could do in `latency_seconds`."""
    return flops / (latency_seconds * peak_flops_per_second)


def score(util: float, latency_seconds: float) -> float:
    """The published score, `util_percent * 100 / latency_ms`: 64.8 % at 2.12 ms is 3057."""
    return (100 * util) * 100 / (1e3 * latency_seconds)


def regime(util: float, bandwidth_util: float, intensity: float, ridge: float) -> Regime:
    """The binding limit: latency if both utilisations are low, else compute if `intensity` >= `ridge`, else memory."""
    if util < LOW_UTILISATION and bandwidth_util < LOW_UTILISATION:
        return "latency-bound"
    return "compute-bound" if intensity >= ridge else "memory-bound"


def compute_only_seconds(work: Work, chip: Chip) -> float:
    """The time of all useful FLOPs (matmul and vector, the published form) at the chip's peak for the matmuls' type."""
    return work.flops / peak(work, chip)


def memory_only_seconds(hbm_bytes: int, chip: Chip) -> float:
    """The time of `hbm_bytes` at the chip's full HBM bandwidth."""
    return hbm_bytes / chip.hbm_bytes_per_second


def least_memory_seconds(work: Work, chip: Chip) -> float:
    """The time of the minimum traffic, minus the bytes that fit into a cache, at full HBM bandwidth."""
    return memory_only_seconds(max(0, work.minimum_hbm_bytes - chip.cache_bytes), chip)


def link_only_seconds(work: Work, chip: Chip) -> float | None:
    """The time that the chip with the fewest links needs to receive `work.link_bytes`; None for a program on one chip.

    Uses the published rate of all links of that chip together.
    """
    if not chip.mesh:
        return None
    links = chips.row(chip.name).links
    assert links is not None, "a slice has links"
    return work.link_bytes / (incoming_links(chip) * links.one_way_bytes_per_second)


def incoming_links(chip: Chip) -> int:
    """The fewest links that any chip of the slice has: one along each axis, or two if the axis is a ring."""
    links = chips.row(chip.name).links
    assert links is not None, "a slice has links"
    sizes = (size for size in slice_shape(chip.devices, links) if size > 1)
    return sum(2 if links.closes(size) and size > 2 else 1 for size in sizes)


def floor_of(work: Work, chip: Chip, champion_seconds: float | None) -> Floor:
    """A lower bound on the chip's time for `work`, and the champion's distance from it."""
    compute = compute_only_seconds(work, chip)
    memory = least_memory_seconds(work, chip)
    links = link_only_seconds(work, chip)
    least = max(compute, memory, links or 0.0)
    return Floor(
        compute_seconds=compute,
        memory_seconds=memory,
        seconds=least,
        link_seconds=links,
        bound_by="compute" if compute == least else "memory" if memory == least else "links",
        gap_seconds=None if champion_seconds is None else champion_seconds - least,
        gap_fraction=None if champion_seconds is None else 1 - least / champion_seconds,
    )


def gap_size(gap_fraction: float) -> GapSize:
    """The published word for a gap that is this fraction of the actual time."""
    if gap_fraction < SMALL_GAP:
        return "small"
    return "large" if gap_fraction > LARGE_GAP else "moderate"


def traffic(evidence: Evidence) -> tuple[int | None, TrafficSource]:
    """HBM bytes of one call with re-reads (None: unknown), and the source of the number.

    The bytes are derived from the block index maps of the Pallas calls. The simulator's DMA bytes of the whole chip are
    used instead in two cases: if a kernel moves an operand with explicit copies, and if the DMA bytes are fewer than
    the bytes from the maps. In the second case, XLA may have left an array between two kernels in VMEM, which the maps
    do not show. For a suite, the bytes are the weighted geometric mean of its members.
    """
    if evidence.members:
        of_members = [traffic(member) for member in evidence.members]
        counts = [count for count, _ in of_members if count is not None]
        if len(counts) < len(evidence.problem.members or ()):
            return None, "unknown"
        sources = {source for _, source in of_members}
        is_derived = sources == {"block index maps"}
        return round(evidence.problem.mean(counts)), "block index maps" if is_derived else "simulated DMA"
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    derived = [call.hbm_bytes for call in calls]
    known_counts = [count for count in derived if count is not None]
    run = finished_run(evidence)
    moved = None if run is None else run.mean_hbm_bytes
    if calls and len(known_counts) == len(derived) and (moved is None or sum(known_counts) <= moved):
        return sum(known_counts), "block index maps"
    return moved, "unknown" if moved is None else "simulated DMA"


def beyond_bandwidth(evidence: Evidence, latency_seconds: float, chip: Chip) -> tuple[str, ...]:
    """A sentence if the time is too short for HBM to move the compiled program's bytes, otherwise empty.

    Also empty for a chip with a cache, because the cached part is unknown; and for a program whose schedule was not
    executed, because its traffic is unknown.
    """
    run = finished_run(evidence)
    if run is None or chip.cache_bytes:
        return ()
    moved = run.mean_hbm_bytes
    share = memory_only_seconds(moved, chip) / latency_seconds
    if share <= _ROUNDED_PEAK:
        return ()
    return (
        f"the program moves {decimal(moved, 'B')} to and from HBM (simulated) in {seconds(latency_seconds)}, which is "
        f"{percent(share)} of the {decimal(chip.hbm_bytes_per_second, 'B/s')} that a {chip.name} has",
    )


def impossibilities(work: Work, latency_seconds: float, chip: Chip) -> tuple[str, ...]:
    """Sentences on work that no chip of this kind could do in that time; empty if the time is possible.

    Considers only the matmul FLOPs (softmax does not run on the MXU), the minimum traffic minus the bytes that fit into
    a cache, and the bytes that each chip of a mesh must receive.
    """
    sentences = []
    most = peak(work, chip)
    mxu_util = utilisation(work.matmul_flops, latency_seconds, most)
    if mxu_util > 1:
        sentences.append(
            f"{decimal(work.matmul_flops, 'FLOP')} of useful matmul work in {seconds(latency_seconds)} is "
            f"{decimal(work.matmul_flops / latency_seconds, 'FLOP/s')}, {percent(mxu_util)} of the "
            f"{decimal(most, 'FLOP/s')} that a {chip.name} can do in {work.matmul_dtype}"
        )
    floor = least_memory_seconds(work, chip)
    if latency_seconds < floor:
        cached = f" (at most {decimal(chip.cache_bytes, 'B')} of them cached)" if chip.cache_bytes else ""
        sentences.append(
            f"the inputs and outputs alone are {decimal(work.minimum_hbm_bytes, 'B')}{cached}, which takes a "
            f"{chip.name} {seconds(floor)} at {decimal(chip.hbm_bytes_per_second, 'B/s')}; the latency is "
            f"{seconds(latency_seconds)}"
        )
    links = link_only_seconds(work, chip)
    if links is not None and latency_seconds < links:
        sentences.append(
            f"each chip must receive {decimal(work.link_bytes, 'B')}, which takes the links of a {chip.name} "
            f"{seconds(links)}; the latency is {seconds(latency_seconds)}"
        )
    return tuple(sentences)
