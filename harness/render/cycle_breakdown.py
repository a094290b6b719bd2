"""A simulated run's cycles by part, as a few lines of a report."""

from collections.abc import Iterator

from harness.advice.operands import problem_names
from harness.advice.score_block import SCORE_BLOCK
from harness.records import CycleShares, Evidence, Report
from harness.render.layout import Files, clean
from harness.render.sections import FIELD, Block, Line, Words, named, named_items
from harness.units import decimal, kibibytes, percent

# Parts below this share are added up as `rest`.
_SMALL, _SMALL_AT_A_GLANCE = 0.005, 0.03
_LEAST_PRINTED = 0.0005


def cycles(evidence: Evidence, report: Report, files: Files, *, full: bool) -> Iterator[Block]:
    """The cycles by part, the lines of `files` that cost most, and the cost of spilling.

    Nothing for an unfinished run. A record from before cycles were counted by part has only four sums.
    """
    run, shares = evidence.simulation, report.cycle_shares
    if run is None or not run.cycles:
        return
    total = f"{decimal(run.cycles, 'cycles', 2)} at {decimal(run.clock_hz, 'Hz', 2)}"
    if shares is None:
        sums = (
            ("bundles", run.bundle_cycles),
            ("DMA waits", run.dma_wait_cycles),
            ("stalls", run.unit_stall_cycles),
            ("launch", run.launch_cycles),
        )
        parts = [f"{name} {percent(value / run.cycles, 0)}" for name, value in sums]
        yield named_items("Simulated time", [total, *parts])
        return
    ops = [op.name for op in run.ops]
    small = _SMALL if full else _SMALL_AT_A_GLANCE
    large = [part for part in shares.parts if part.fraction >= small]
    parts = [f"{clean(problem_names(part.name, evidence.problem, ops))} {percent(part.fraction)}" for part in large]
    rest = sum(part.fraction for part in shares.parts if part.fraction < small)
    parts += [f"rest {percent(rest)}"] if rest else []
    bubbles = f"bubbles (nothing issued) {percent(shares.bubble_fraction)}"
    yield named_items("Simulated cycles", [total, *parts, bubbles])
    yield from _hottest(shares, files)
    yield from _spilling(shares, _scores(report), full=full)


def _hottest(shares: CycleShares, files: Files) -> Iterator[Line]:
    """One line for each of the source lines that cost most, with its text where `files` have it."""
    lead = "Hottest lines:"
    for share in shares.hottest:
        texts = files.get(share.name.rpartition(":")[0], ())
        text = f"  {clean(texts[share.line - 1])}" if 0 < share.line <= len(texts) else ""
        yield Line(f"{lead:<{FIELD}}{percent(share.fraction):>5}  {clean(share.name)}{text}")
        lead = ""


def _scores(report: Report) -> str:
    """A suffix on the size of a grid step's scores, which cause spills in attention; "" if not known."""
    return next((f"; {clean(line.remark)}" for line in report.counters if line.name == SCORE_BLOCK and line.remark), "")


def _spilling(shares: CycleShares, scores: str, *, full: bool) -> Iterator[Words]:
    """Bytes that register spills move in each grid step, a lower bound on their cost, and the lines that spill."""
    # In a short report, a cost that is printed as 0.0% is left out.
    if not shares.spill_lines or (not full and shares.spill_fraction < _LEAST_PRINTED):
        return
    saved, restored = shares.spilled_bytes_per_step, shares.filled_bytes_per_step
    moved = "bytes per grid step unknown"
    if saved is not None and restored is not None:
        moved = f"{kibibytes(saved)} saved, {kibibytes(restored)} restored per grid step"
    lines = shares.spill_lines[: 3 if full else 2]
    where = ", ".join(f"{line.name} {percent(line.fraction, 0)}" for line in lines)
    cost = f"at least {percent(shares.spill_fraction)} of the cycles"
    if shares.spill_fraction < _LEAST_PRINTED:
        cost = "nearly all in bundles with other work"
    most = "most" if sum(line.fraction for line in lines) > 0.5 else "the largest parts"
    yield named("Simulated spilling", f"{f'{moved}; ' if full else ''}{cost}; {most} at {where}{scores}")
