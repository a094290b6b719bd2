"""Comparisons with upper bounds: operations with the roofline, modules with both peaks, steps with model FLOPs."""

from math import prod

from harness.errors import UsageError
from harness.records import Capture, Table
from harness.units import decimal
from harness.workbench.profiles.analysis import Analysis, tables
from harness.workbench.profiles.database import Database
from harness.workbench.profiles.hotspots import UNCOUNTED_NOTE
from harness.workbench.profiles.timeline import SHORT

# Protocol, section 5: within 5 to 10 % fine, within 2x look, beyond 2x wrong sharding or layout. No operation can be
# faster than the roofline; inexact counts may explain times up to 10 % below it.
_FINE, _LOOK, _IMPOSSIBLE = 1.10, 2.0, 0.9
# Our choice: the verdict on all operations together needs predictions for at least half of the time.
_MOST = 0.5
# Protocol, section 1: below 30 % is low (its latency-bound regime). Section 8: the targets, which count as high.
_LOW, _HIGH_TC, _HIGH_HBM = 0.30, 0.80, 0.70
_VERDICT = f"""
    case when ratio < {_IMPOSSIBLE} then 'too fast: counts too high' when ratio <= {_FINE} then 'fine'
        when ratio <= {_LOOK} then 'look' when is_kernel then 'far off: look inside' else 'wrong sharding or layout?'
            end"""
ROOFLINE = Analysis(
    name="roofline",
    title="Roofline by operation",
    columns="operation;bound=bound by;predicted_seconds=predicted;mean_seconds={origin};ratio;share;verdict",
    query=f"""
        with every as (
            select 0 as rank, 'all with a prediction' as name, '' as bound, sum(least_seconds * count) as predicted,
                sum(self_seconds) as took, sum(self_seconds) / sum(least_seconds * count) as ratio,
                sum(self_seconds) as self_seconds, false as is_kernel
            from times where ratio is not null having count(*) > 0
            union all
            select rank, name, bound, least_seconds, mean_seconds, ratio, self_seconds, is_kernel
            from times where ratio is not null)
        select name, bound, predicted, took, ratio, self_seconds / nullif(whole, 0) as covered,
            case when rank = 0 and covered < {_MOST} then 'unknown: covers ' || in_percent(covered) || ' of the time'
                else {_VERDICT} end
        from every, whole order by rank limit $top + 1""",
    facts=f"""
        select any_value(uncounted) as uncounted, bool_or(ratio < {_IMPOSSIBLE}) as fast,
            coalesce(sum(self_seconds) filter (ratio is not null), 0) / any_value(whole) as covered,
            case when covered < 1 then 1 - covered end as without,
            any_value(unsaid) as unsaid
        from times, peaks, whole""",
    notes=(
        "The verdicts cover {covered:%} of the time: {without:%} of the time has no prediction (collectives, "
        "transfers, loops, operations without counts).",
        "Predicted = max(FLOPs/peak, bytes/bandwidth), with one device's peaks from the capture: {peak}.",
        "Within 10 % fine, within 2x look, beyond 2x wrong sharding or layout (protocol, section 5).",
        "Too fast: the predicted time is too long, because XLA also counts bytes that stay in VMEM, and counts FLOPs "
        "before simplification.{fast:?}",
        UNCOUNTED_NOTE,
    ),
    more=lambda database, _: {"peak": _peaks(database)},
    empty=("{unsaid}", "the capture states neither FLOPs nor bytes for any operation that took time"),
)


def _peaks(database: Database) -> str:
    ((peak, bandwidth),) = database.rows("select peak, bandwidth from peaks")
    words = (decimal(value, unit) if value else "unknown" for value, unit in ((peak, "FLOP/s"), (bandwidth, "B/s")))
    return " and ".join(words)


# One of four readings. `open` stands for a reading that would change if all time without a FLOP count ran at the peak.
READING = f"""
    case when tc is null or hbm is null then 'unknown'
        when tc < {_LOW} and hbm < {_LOW} then 'both low: bubbles or overhead'
        when tc >= {_HIGH_TC} and hbm >= {_HIGH_HBM} then 'both high: near the ceiling'
        when tc / {_HIGH_TC} >= hbm / {_HIGH_HBM} then
            case when tc >= {_HIGH_TC} then 'compute-bound, efficient' else 'compute leads, under target' end
        when hbm >= {_HIGH_HBM} then 'memory-bound: raise intensity' else 'memory leads: raise intensity' end"""
# If the capture shows no module runs of a device, the time from its first operation to its last counts as one run.
_USE = f"""
    every as (
        select device, module, seconds, run, is_recorded from runs
        union all
        select device, '(no module in the capture)', end_seconds - start_seconds, null, true from spans
        where device not in (select device from runs)),
    ran as (
        select e.device, e.module, sum(w.flops) as flops, sum(w.hbm_bytes) as moved,
            sum(w.self_seconds) filter (w.flops is null and w.is_kernel) as silent
        from every e join work w on w.device = e.device and w.run is not distinct from e.run and w.is_work
        where is_recorded group by 1, 2),
    use as (
        select device, module, count(*) as count, sum(seconds) as seconds,
            nullif(sum(seconds) filter (is_recorded), 0) as recorded,
            any_value(flops / peak_flops_per_second) / recorded as tc,
            any_value(moved / hbm_bytes_per_second) / recorded as hbm,
            coalesce(any_value(silent), 0) / recorded as silent, any_value(label) as label
        from every left join ran using (device, module) join devices using (device) where is_main group by 1, 2),
    read as (
        select *, {READING} as now, case when tc is not null then least(1, tc + silent) end as most from use),
    open as (select device, module, {READING.replace("tc", "most")} as best from read)"""
UTILIZATION = Analysis(
    name="utilization",
    title="Utilisation by module",
    columns="device;module;count=runs;seconds=time;tc_fraction=TC;hbm_fraction=HBM;uncounted_fraction=uncounted;"
    "reading!",
    query=f"""
        with {_USE}
        select label, module, count, seconds, tc, hbm, silent,
            case when silent > 0 and now != best then 'open: TC up to ' || printf('%.0f%%', 100 * most) else now end
        from read join open using (device, module)
        where (select bool_or(tc is not null or hbm is not null) from use) order by device, seconds desc, module""",
    facts="""
        select bool_or(uncounted_fraction > 0) as uncounted, any_value(unsaid) as unsaid,
            (select devices from unrecorded) as short
        from peaks left join answer on true""",
    notes=(
        "TC = FLOPs of the operations / (peak x time of the runs). HBM = bytes in HBM / (bandwidth x that time); all "
        "bytes count if the capture does not split them by memory. Both use XLA's counts, not hardware counters.",
        f"{SHORT} TC and HBM leave these runs out.",
        f"Low is under {_LOW:.0%} (protocol, section 1), high from {_HIGH_TC:.0%} TC and {_HIGH_HBM:.0%} HBM (section "
        "8); the readings are those of section 3, item 6.",
        "Uncounted is time in custom calls without a FLOP count, which makes TC a lower bound.{uncounted:?}",
    ),
    empty=("{unsaid}", "the capture states neither FLOPs nor bytes for any operation"),
)
_MFU = Analysis(
    name="mfu",
    title="Model FLOPs utilisation",
    columns="from=FLOPs from;step_flops=FLOPs per step;step_seconds=step;devices:count;"
    "peak_flops_per_second=peak of one;mfu=MFU:fraction",
    # Operations outside the steps are not part of a step's time. If steps are runs of the longest module, operations of
    # other modules are outside.
    query="""
        with wanted as (
            select 1 as place, 'the model' as who, $step_flops::DOUBLE as flops where $step_flops is not null
            union all
            select 2, 'the trace', sum(flops) / any_value(steps) * any_value(coalesce($chips, devices))
            from work, step_median, peaks where is_main and is_work and in_recorded(step))
        select who, flops, seconds, coalesce($chips, devices) as many, peak, flops / (many * peak * seconds)
        from wanted, peaks, step_median where peak is not null and seconds > 0 order by place""",
    facts="""
        select devices, what, $step_flops as asked,
            $step_flops / (coalesce($chips, devices) * peak * seconds) > 1 as absurd,
            case when $step_flops is null then $missing end as missing,
            case when $chips is null then devices end as own, case when $chips < devices then $chips end as less,
            uncounted, (select bool_or(framework_category = 'moe') from times) as experts,
            case when seconds is null then
                'the capture shows neither steps nor runs of modules, so the time of a step is unknown'
                when seconds = 0 then 'the steps of the capture take no time'
                when is_cpu then 'the peak of a CPU is unknown, so there is no MFU; a step takes ' || in_words(seconds)
                else 'the capture states no common peak of its devices; a step takes ' || in_words(seconds) end as why
        from whole, peaks, step_median""",
    notes=(
        "An MFU over 100 % is impossible: check --gbs, --seq, --flops-per-token and --num-chips.{absurd:?}",
        "MFU = GBS x sequence x FLOPs per token / (devices x peak x step) = {words} / (...) (protocol, section 6); "
        "GBS is the global batch size; FLOPs are those of the forward and backward pass.",
        "The MFU by the model's FLOPs also needs {missing}; the trace usually counts fewer FLOPs.",
        "The step is the median of all {what}; the peak is one device's, as the capture states it.",
        "Devices: the {own} in the capture; if other devices shared the batch, give --num-chips.",
        "--num-chips {less} is less than the {devices} devices in the capture: check --num-chips.",
        "The trace's sum is XLA's count: it counts recomputed FLOPs twice, and leaves out Pallas kernels without an "
        "estimate.",
        UNCOUNTED_NOTE,
        "There are mixture-of-experts operations: FLOPs per token count active experts only, and about 10 % is normal "
        "(protocol, section 6).{experts:?}",
    ),
    empty="{why}",
)


def mfu(
    capture: Capture,
    gbs: float | None = None,
    sequence: float | None = None,
    flops_per_token: float | None = None,
    device_count: int | None = None,
) -> tuple[Table, ...]:
    """Model FLOPs utilisation, from the model's FLOPs and from the sum of the trace's FLOPs.

    MFU = GBS x sequence x FLOPs per token (forward and backward) / (devices x peak x step): protocol, section 6. The
    step is the median over steps and devices. If `device_count` is None, the capture's devices count. If another
    argument is None, only the trace's sum is shown. Raises UsageError `usage` if one of the others is not above 0.
    """
    model = {"--gbs": gbs, "--seq": sequence, "--flops-per-token": flops_per_token}
    for name, value in model.items():
        if value is not None and not value > 0:
            raise UsageError("usage", f"expected {name} above 0, got {value:g}")
    missing = [name for name, value in model.items() if value is None]
    values = [value for value in model.values() if value is not None]
    words = f"{gbs:g} x {sequence:g} x {decimal(flops_per_token or 0.0, 'FLOP')}" if not missing else None
    return tables(
        capture,
        (_MFU,),
        step_flops=None if missing else prod(values),
        chips=device_count,
        missing=" and ".join(missing),
        words=words,
    )
