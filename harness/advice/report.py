"""Every number that is derived from evidence, in one record."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from harness.advice import diagnose
from harness.advice.buffers import with_compiled_sizes
from harness.advice.counters import counter_lines, unit_uses
from harness.advice.cycle_shares import cycle_shares
from harness.advice.edits import SimulatedEdits
from harness.advice.source_names import name_lines
from harness.hardware import Chip, with_mesh
from harness.judge.verdict import roofline
from harness.records import Attempt, Communication, Evidence, Hint, MemberReport, PallasCall, Report, Row, Source


def report(evidence: Evidence, chip: Chip) -> Report:
    """All figures of `evidence` on `chip`. The report has no advice: `advise` gives it.

    Figures that need a latency are None without one; figures that need the traffic are None if it is unknown.
    `gap_seconds` is the latency minus the largest of the compute-only, memory-only and link-only times. A negative gap
    alone does not make the latency impossible: `impossible` has the reasons. Raises ValueError if the evidence is for
    another chip.
    """
    if evidence.chip != chip.name:
        raise ValueError(f"expected evidence for {chip.name}, got evidence for {evidence.chip}")
    work = evidence.problem.work
    latency = roofline.latency_seconds(evidence)
    hbm_bytes, traffic_source = roofline.traffic(evidence)
    peak = roofline.peak(work, chip)
    compute_only = roofline.compute_only_seconds(work, chip)
    memory_only = None if hbm_bytes is None else roofline.memory_only_seconds(hbm_bytes, chip)
    of_mesh = with_mesh(chip, evidence.problem.mesh)
    links = roofline.link_only_seconds(work, of_mesh)
    ridge = chip.ridge(work.matmul_dtype)
    intensity = work.flops / hbm_bytes if hbm_bytes else None
    util = mxu_util = rate = bandwidth_util = regime = gap = None
    if latency is not None:
        util = roofline.utilisation(work.flops, latency, peak)
        mxu_util = roofline.utilisation(work.matmul_flops, latency, peak)
    if latency is not None and hbm_bytes is not None and memory_only is not None:
        rate = hbm_bytes / latency
        bandwidth_util = memory_only / latency
        gap = latency - max(compute_only, memory_only, links or 0.0)
    if util is not None and bandwidth_util is not None and intensity is not None:
        regime = roofline.regime(util, bandwidth_util, intensity, ridge)
        if links is not None and links > max(compute_only, memory_only or 0.0):
            is_long = latency is not None and links >= roofline.LOW_UTILISATION * latency
            regime = "link-bound" if is_long else regime
    gap_fraction = gap / latency if gap is not None and latency is not None else None
    tightest = tightest_call(evidence, chip)
    samples = evidence.samples
    # Without a latency, this is the source that a latency would have had.
    source: Source = evidence.latency.source if evidence.latency else "measured" if samples else "simulated"
    result = Report(
        chip=chip.name,
        source=source,
        seconds=latency,
        plus_minus_seconds=evidence.latency.plus_minus_seconds if evidence.latency and latency is not None else None,
        flops_per_second=None if latency is None else work.flops / latency,
        util=util,
        mxu_util=mxu_util,
        score=None if latency is None or util is None else roofline.score(util, latency),
        regime=regime,
        hbm_bytes=hbm_bytes,
        minimum_hbm_bytes=work.minimum_hbm_bytes,
        traffic_source=traffic_source,
        bytes_per_second=rate,
        bandwidth_util=bandwidth_util,
        intensity=intensity,
        minimum_intensity=work.flops / work.minimum_hbm_bytes,
        ridge=ridge,
        compute_only_seconds=compute_only,
        memory_only_seconds=memory_only,
        gap_seconds=gap,
        gap_fraction=gap_fraction,
        gap_size=None if gap_fraction is None else roofline.gap_size(gap_fraction),
        device_median_seconds=statistics.median(samples.device_seconds) if samples and samples.device_seconds else None,
        host_median_seconds=statistics.median(samples.host_seconds) if samples and samples.host_seconds else None,
        vmem_bytes=tightest.vmem_bytes if tightest and chip.platform == "tpu" else None,
        vmem_limit_bytes=chip.vmem_limit(tightest.vmem_limit_bytes if tightest else None),
        counters=counter_lines(evidence),
        hints=(),
        impossible=roofline.impossibilities(work, latency, of_mesh) if latency is not None else (),
        units=unit_uses(evidence),
        communication=_communication(evidence, of_mesh),
        cycle_shares=cycle_shares(name_lines(evidence, roofline.finished_run(evidence))),
    )
    if not evidence.members:
        return result
    members = tuple(
        MemberReport(name=member.name, weight=member.weight, report=report(of_member, chip))
        for member, of_member in evidence.named_members
    )
    return replace(
        result, regime=None, gap_seconds=None, gap_fraction=None, gap_size=None, impossible=(), members=members
    )


def _communication(evidence: Evidence, chip: Chip) -> Communication | None:
    """The waits for other chips and the traffic of the links; None for one chip, or without a latency."""
    run = roofline.finished_run(evidence)
    floor_seconds = roofline.link_only_seconds(evidence.problem.work, chip)
    if run is None or run.seconds is None or floor_seconds is None or not run.links:
        return None
    busiest = max(run.links, key=lambda link: link.bytes)
    return Communication(
        chips=run.chips,
        floor_seconds=floor_seconds,
        needed_bytes=evidence.problem.work.link_bytes // roofline.incoming_links(chip),
        exposed_seconds=run.link_wait_cycles / run.clock_hz,
        busiest=busiest,
        busy_fraction=busiest.busy_seconds / run.seconds,
        links=run.links,
    )


def advise(
    evidence: Evidence, report: Report, previous: Sequence[Row] = (), simulated: Sequence[SimulatedEdits] = ()
) -> tuple[Hint, ...]:
    """Hints on what to try next, most promising first; `previous` attempts and `simulated` edits refine them.

    For a suite, they are not used. The hints of a suite are the first hint of each member, under the member's name,
    ordered by weight times gain, then by weight. If several members have the same suggestion, it appears once, with the
    observation of the member that it would help most.
    """
    if not evidence.members:
        return diagnose.hints(evidence, report, previous, simulated=simulated)
    first = [(member, hints[0]) for member, hints in _of_members(evidence, report) if hints]
    suggested: dict[tuple[str, str], list[tuple[MemberReport, Hint]]] = {}
    for member, hint in sorted(
        first, key=lambda each: (each[0].weight * (each[1].gain or 0.0), each[0].weight), reverse=True
    ):
        suggested.setdefault((hint.rule, hint.suggestion), []).append((member, hint))
    shared = []
    for (best, hint), *others in suggested.values():
        also = f" (and {', '.join(member.name for member, _ in others)})" if others else ""
        shared.append(replace(hint, observation=f"{best.name}{also}: {hint.observation}"))
    return tuple(shared)


def with_advice(evidence: Evidence, report: Report, advice: tuple[Hint, ...]) -> Report:
    """The report as `--json` prints it: with `advice`, and with each member's own advice in the member's report."""
    members = tuple(
        replace(member, report=replace(member.report, hints=hints)) for member, hints in _of_members(evidence, report)
    )
    return replace(report, hints=advice, members=members)


def _of_members(evidence: Evidence, report: Report) -> list[tuple[MemberReport, tuple[Hint, ...]]]:
    pairs = zip(evidence.named_members, report.members, strict=True)
    return [(member, diagnose.hints(of_member, member.report, is_member=True)) for (_, of_member), member in pairs]


def row(attempt: Attempt, report: Report, key_digest: str) -> Row:
    """The row of the results table for `attempt`; the ledger fills in `commit`."""
    evidence, verdict = attempt.evidence, attempt.verdict
    # The time of a wrong or impossible kernel is not a time of this problem.
    failed = verdict.outcome == "failed"
    run = roofline.finished_run(evidence)
    return Row(
        number=attempt.number,
        kind=attempt.kind,
        outcome=verdict.outcome,
        failure_kind=verdict.failure.kind if verdict.failure else "",
        hypothesis=attempt.hypothesis,
        source=attempt.key.source,
        chip=attempt.key.chip,
        key_digest=key_digest,
        kernel_sha256=attempt.kernel_sha256,
        fingerprint=evidence.trace.fingerprint if evidence.trace else "",
        score=None if failed else report.score,
        seconds=None if failed else report.seconds,
        time_ratio=verdict.time_ratio,
        expected_time_ratio=attempt.expected_time_ratio,
        util=None if failed else report.util,
        regime=None if failed else report.regime,
        gap_fraction=None if failed else report.gap_fraction,
        copies=evidence.hlo.copy if evidence.hlo else None,
        spills=run.executed_spills if run else None,
        key=attempt.key,
        revokes=attempt.revocation.revoked if attempt.revocation else (),
        holder=attempt.revocation.holder if attempt.revocation else None,
        members=tuple((member.name, None if failed else member.report.seconds) for member in report.members),
        looked_at=attempt.sweep.looked_at if attempt.sweep else 0,
        schedule=evidence.schedule,
        certificate=evidence.certified,
    )


def tightest_call(evidence: Evidence, chip: Chip) -> PallasCall | None:
    """The Pallas call that fills its VMEM limit most, or None if the trace has no Pallas call."""
    trace = with_compiled_sizes(evidence).trace
    calls = trace.pallas_calls if trace else ()
    return max(calls, key=lambda call: call.vmem_bytes / chip.vmem_limit(call.vmem_limit_bytes), default=None)
