"""Diagnosis of a capture: the costliest findings, in seconds, each with its rule, its evidence and its remedy."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.errors import RatchetError
from harness.records import Capture, Table
from harness.units import decimal
from harness.workbench.profiles.analysis import Analysis, tables
from harness.workbench.profiles.communication import SPANNED, spanned
from harness.workbench.profiles.comparison import METRICS, add_figures, report
from harness.workbench.profiles.database import Database, Row, database_of
from harness.workbench.profiles.hotspots import FORMATTING_LIMIT
from harness.workbench.profiles.inside import RED_FLAG
from harness.workbench.profiles.memory import estimate_of
from harness.workbench.profiles.op_times import comparable
from harness.workbench.profiles.reading import BARRIER
from harness.workbench.profiles.timeline import IMBALANCE, SHORT

# A finding that costs less than this share of the time is left out.
_WORTH = 0.001
# If a finding costs more than this share of the time, a note says to fix it before all others.
_ALL_THAT_COUNTS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One cause of lost time: `query` returns the seconds lost on all devices together, and the evidence in words.

    `reason` is the published rule, or states that the rule is ours. `remedy` is what to try.
    """

    name: str
    query: str
    reason: str
    remedy: str


def _waits(where: str, evidence: str = "''") -> str:
    return f"""
        with waits as (select * from times where class = 'memory transfer' and half = 'done' and {where})
        select sum(self_seconds), 'longest ' || arg_min(name, rank) || ', ' || in_words(max(self_seconds)) || {evidence}
        from waits"""


# The link to the host by direction: the share of the steps in which it is busy, and its rate in words.
_HOST_RATES = """
    select direction, avg(step_fraction) as part, sum(bytes) / sum(l.count) as each_bytes,
        coalesce(' at ' || in_bytes(avg(bytes_per_second)) || '/s', '') as rate
    from host_links l join devices using (device) where is_main group by direction"""
RULES = (
    Rule(
        name="host transfers, link-bound",
        query="""
            select waited_seconds, 'at most ' || in_percent(both_ways_seconds / seconds)
                || ' of a step to gain, by prefetch alone ' || in_percent(hiding_seconds / seconds)
            from host_bound where is_bound""",
        reason="steps wait for the host's memory longer than all other work takes (our rule)",
        remedy="run both directions at once, in chunks; offload less, or use narrower types",
    ),
    Rule(
        name="host transfers, exposed",
        query=_waits(
            "is_host_transfer and not coalesce((select is_bound from host_bound), false)",
            f"""coalesce((select string_agg('; ' || in_bytes(each_bytes) || ' each ' || direction || rate, ''
                order by direction) from ({_HOST_RATES})), '')""",
        ),
        reason="nothing runs while a device waits for host memory (protocol, section 3)",
        remedy="start transfers earlier, so that more work runs meanwhile (prefetch); offload less",
    ),
    Rule(
        name="copies, exposed",
        query=_waits("not is_host_transfer"),
        reason="DMA does not overlap with other work (protocol, section 3)",
        remedy="use double buffering, to start copies a step earlier; keep less in VMEM",
    ),
    Rule(
        name="communication, exposed",
        query="""
            select sum(self_seconds), 'longest ' || arg_min(name, rank) || ', ' || in_words(max(self_seconds))
            from times where class = 'communication' and half != 'start'""",
        reason="async-done and synchronous collectives are exposed (section 6)",
        remedy="try the flags and sharding constraints that `xprof overlap` names",
    ),
    Rule(
        name="idle inside runs",
        query="""
            select sum(idle), count(*) || case count(*) when 1 then ' device' else ' devices' end || ', '
                || in_percent(sum(idle) / sum(seconds)) || ' of the runs'
            from part_times join devices using (device) where is_main and place = 0""",
        reason=f"over {RED_FLAG:.0%} of the runs is a red flag (protocol, section 3)",
        remedy="use larger blocks; `xprof gaps` names the operations around each gap",
    ),
    Rule(
        name="idle between runs",
        query="""
            select sum(seconds), 'longest ' || in_words(max(seconds)) || ' of ' || count(*) || ' between runs'
            from pauses join devices using (device) where is_main and place = 'between runs'""",
        reason="waiting for the next program is waiting for the host (section 6)",
        remedy="prefetch input and dispatch ahead; `xprof steps` shows what the host did while all devices were idle",
    ),
    Rule(
        name="idle outside steps",
        query="""
            select sum(seconds), 'longest ' || in_words(max(seconds)) || ' of ' || count(*) || ', '
                || arg_max(place, seconds)
            from pauses join devices using (device) where is_main and place != 'between runs'""",
        reason="start and end of a capture cost no step (our rule)",
        remedy="capture steps after a warm-up; to analyse the start, see the host in `xprof gaps`",
    ),
    Rule(
        name="waiting for other chips",
        query=f"""
            select sum(seconds), 'longest ' || in_words(max(seconds)) || ' on ' || arg_max(label, seconds)
            from waits w join devices using (device) where is_main and w.name = '{BARRIER}'""",
        reason="a program with collectives begins when all its chips are ready (our rule)",
        remedy="find what delays the other chips; `xprof gaps` lists the waits by device",
    ),
    Rule(
        name="useless work",
        query="""
            select sum(seconds), string_agg(kind || ' ' || in_words(seconds), ', ' order by seconds desc) from
            (select kind, sum(seconds) as seconds from waste where kind not like 'wait for%' group by 1)""",
        reason=f"copies, casts and padding; over {FORMATTING_LIMIT:.0%}, check layouts and sharding (section 6)",
        remedy="`xprof waste` names lines; donate, choose layouts, pad to tiles",
    ),
    Rule(
        name="unfused chains",
        query="select sum(saved), 'most from ' || arg_max(first, saved) || ' to ' || arg_max(last, saved) from unfused",
        reason="a large array is written and read again between elementwise steps (our rule)",
        remedy="`xprof waste` lists the chains; fuse them by hand, or give each value only one user",
    ),
    Rule(
        name="far from the roofline",
        query="""
            with far as (
                select *, self_seconds - least_seconds * count as lost from times
                where ratio > 2 and class != 'data formatting')
            select sum(lost), 'most in ' || arg_max(name, lost) || ', ' || printf('%.1fx', arg_max(ratio, lost))
            from far""",
        reason="beyond 2x: wrong sharding or layout; a kernel: look inside (section 5)",
        remedy="run `hlo CAPTURE --op NAME` for the operation; for a kernel, `xprof gaps`",
    ),
    Rule(
        name="bubbles inside kernels",
        query=f"""
            with by_device as (
                select device, sum(amount) filter (part != 'issuing') / sum(amount) as bubbles,
                    arg_max(part, amount) filter (part != 'issuing') as largest from insides where is_simulated
                    group by 1),
            took as (select d.name as device, sum(r.seconds) as seconds from runs r join devices d using (device)
            group by 1),
            -- Transfers may run while no bundle issues, so the time that the bytes need is not counted as a bubble.
            least_time as (
                select d.name as device, sum(w.hbm_bytes) / any_value(bandwidth) as floor
                from work w join devices d using (device), peaks where w.is_work group by 1)
            select sum(least(bubbles * seconds, greatest(0, seconds - coalesce(floor, 0)))),
                in_percent(avg(bubbles)) || ' of the cycles, most in '
                || any_value(largest) from by_device join took using (device) left join least_time using (device)
                where bubbles > {RED_FLAG}""",
        reason=f"over {RED_FLAG:.0%} of cycles issue nothing: a red flag (section 3), DMA time excluded",
        remedy="give a step more independent work; `diagnose N` simulates edits",
    ),
    Rule(
        name="load imbalance",
        query=f"""
            with slowest as (
                select max(own_seconds) as own, (max(own_seconds) - min(own_seconds)) / nullif(median(own_seconds), 0)
                    as differ from step_summary having count(*) > 1)
            select sum((own - own_seconds) * recorded), 'slowest ' || arg_max(label, own_seconds)
                || ', own work differs by ' || in_percent(any_value(differ))
            from step_summary, slowest where differ > {IMBALANCE}""",
        reason=f"own work differs by over {IMBALANCE:.0%} between devices (section 6)",
        remedy="split the work evenly; see which operations take longer on the slowest device",
    ),
    Rule(
        name="uneven steps",
        query=f"""
            select sum(greatest(0, s.seconds - b.recorded_median)),
                'spread ' || in_percent(max(spread)) || ' on '
                || arg_max(b.label, spread) from step_times s join step_summary b using (device)
                where spread > {IMBALANCE} and s.is_recorded""",
        reason=f"steps differ by over {IMBALANCE:.0%} (our rule; same limit as between devices)",
        remedy="look in `xprof steps` for recompilation, input and garbage collection",
    ),
    Rule(
        name="exponentials",
        query="""
            select sum(self_seconds), 'longest ' || arg_min(name, rank) from times where is_exponential
            having sum(self_seconds) > 0.1 * (select whole from whole)""",
        reason="over 10% of the time is in exp: the vector unit binds (protocol, section 3)",
        remedy="use exp2 with the factor folded in, bfloat16, or fewer exponentials",
    ),
)
_FINDINGS = (
    "place INTEGER, finding VARCHAR, seconds DOUBLE, evidence VARCHAR, rule VARCHAR, remedy VARCHAR, unread VARCHAR"
)
_FINDING_TABLES = (
    Analysis(
        name="findings",
        title="Findings, the costliest first",
        columns="finding!;seconds=costs;share=of the time;evidence",
        query=f"""
            select finding, seconds, seconds / elapsed as share, evidence from findings, elapsed
            where seconds > {_WORTH} * elapsed order by seconds desc, place""",
        facts=f"""
            select nullif(count(*) filter (seconds > 0 and seconds <= {_WORTH} * elapsed), 0) as small,
                any_value(on_devices) as devices, case when max(seconds) > {_ALL_THAT_COUNTS} * any_value(elapsed)
                    then max(seconds) / any_value(elapsed) end as most, arg_max(finding, seconds) as first,
                (select devices from unrecorded) as short
            from findings, elapsed, step_counts""",
        notes=(
            "{most:%} of the time is {first}: fix this finding before all others.",
            "Seconds are summed over {devices}; shares are of the time from the first operation to the last; two "
            "findings may count the same seconds.",
            f"{SHORT} The findings ignore this time.",
            "Findings left out because they cost less than 0.1 % of the time: {small}.",
            "The link to the host is busy {link}.",
            SPANNED,
        ),
        empty="no finding costs more than a thousandth of the time",
    ),
    Analysis(
        name="remedies",
        title="The rule behind each finding, and what to try",
        columns="finding!;fact=what;reading=says",
        query=f"""
            select finding, what, says from (
                select *, unnest(['rule', 'remedy']) as what, unnest([rule, remedy]) as says, unnest([1, 2]) as nth
                from findings), elapsed
            where seconds > {_WORTH} * elapsed order by seconds desc, place, nth""",
        is_optional=True,
    ),
    Analysis(
        name="unread",
        title="Findings that could not be checked",
        columns="finding;why!",
        query="select finding, unread from findings where unread is not null order by place",
        is_optional=True,
    ),
)
# Five checks: operations, collectives, gaps, copies, memory. A limit of 0 is shown as `none`.
_CHECKLIST = Analysis(
    name="checklist",
    title="Checklist",
    columns="check;found;limit;verdict",
    query=f"""
        with sums as (
            select sum(self_seconds) filter (ratio is not null) as rated,
                sum(self_seconds) filter (ratio > 1.1) as slow,
                sum(self_seconds) filter (class = 'communication' and half != 'start') as sent,
                sum(self_seconds) filter (class = 'data formatting' or (class = 'memory transfer' and half = 'done'))
                    as moved
            from times having count(*) > 0),
        shares as (
            select 1 as place, 'operations near roofline' as what, coalesce(slow, 0) / nullif(rated, 0) as value,
                0 as most, 'of their time more than 10 % off' as words, 'none has a prediction' as unknown from sums
            union all
            select 2, 'collectives hidden', coalesce(sent, 0) / whole, {RED_FLAG}, 'of the time exposed', ''
            from sums, whole
            union all
            select 3, 'gaps minimal', (select sum(idle) / nullif(sum(seconds), 0) from part_times
                join devices using (device) where is_main and place = 0), {RED_FLAG}, 'of the runs idle', 'nothing ran'
            from sums
            union all
            select 4, 'copies rare and small', coalesce(moved, 0) / whole, {FORMATTING_LIMIT},
                'of the time in copies or waiting for them', '' from sums, whole)
        select * exclude (place) from (
            select place, what, coalesce(in_percent(value) || ' ' || words, unknown),
                case when most > 0 then printf('%.0f%%', 100 * most) else 'none' end,
                case when value is null then 'unknown' when value <= most then 'fine' else 'look' end from shares
            union all
            select 5, 'memory near the estimate', $memory, '2x', $memory_verdict from sums) order by place""",
    notes=(
        "The five checks are those of the published analysis (protocol, section 5); the limits for gaps and copies "
        "are those of sections 3 and 6.",
    ),
    empty="nothing ran",
)
_COMPARED = Analysis(
    name="compared",
    title="Findings: A = {a_name}, B = {b_name}",
    columns="finding!;a_seconds=A;b_seconds=B;change_seconds=change",
    query="""
        select finding, a.seconds / $a_parts as old, b.seconds / $b_parts as new,
            coalesce(new, 0) - coalesce(old, 0) as change
        from findings a full join other_findings b using (place, finding)
        where coalesce(old, 0) != 0 or coalesce(new, 0) != 0 order by abs(change) desc, place""",
    notes=(
        "Seconds of the whole capture, including time outside the steps, per step and device; per device if there "
        "are no steps.",
    ),
    empty="no rule finds anything in either capture",
)


def diagnose(capture: Capture, other: Capture | None = None) -> tuple[Table, ...]:
    """Tables of the checklist, metrics and findings; with `other`, also the changes from `capture` to `other`.

    Raises RatchetError `not-comparable` if `comparable` returns a reason.
    """
    if other is not None and (why := comparable(capture, other)):
        raise RatchetError("not-comparable", why)
    database = database_of(capture)
    database.add("findings", _FINDINGS, _apply_rules(database))
    memory, verdict = _memory_check(capture)
    checklist = tables(database, (_CHECKLIST,), memory=memory, memory_verdict=verdict)
    if other is None:
        add_figures(database, database)
        return (*checklist, *tables(database, (METRICS, *_FINDING_TABLES), **_words(database)))
    second = Database(other)
    database.add("other_findings", _FINDINGS, _apply_rules(second))
    ((a_parts,), (b_parts,)) = (
        of.rows("select coalesce(steps, devices) from step_counts")[0] for of in (database, second)
    )
    words = {"a_name": capture.name, "b_name": other.name, "a_parts": a_parts, "b_parts": b_parts, **_words(database)}
    return (*checklist, *report(capture, other), *tables(database, (_COMPARED, *_FINDING_TABLES), **words))


def _words(database: Database) -> dict[str, Any]:
    """Figures of the notes: the program's devices, and the link to the host by direction if it is the limit."""
    link = f"""
        select string_agg(in_percent(part) || ' of the steps ' || direction || rate, ', ' order by direction) as link
        from ({_HOST_RATES}) where (select is_bound from host_bound)"""
    return {**spanned(database), **database.facts(link)}


def _apply_rules(database: Database) -> Iterator[Row]:
    """A row for each rule that applies, or that could not be checked."""
    for place, rule in enumerate(RULES):
        try:
            ((seconds, evidence),) = database.rows(rule.query) or ((None, ""),)
        except RatchetError as error:
            yield place, rule.name, None, "", "", "", str(error)
            continue
        if seconds is not None:
            yield place, rule.name, seconds, evidence or "", rule.reason, rule.remedy, None


def _memory_check(capture: Capture) -> tuple[str, str]:
    """The comparison of the planned peak with the estimate from the parameters, in words, and the verdict."""
    try:
        peak, estimate = estimate_of(capture)
    except RatchetError as error:
        return str(error), "unknown"
    if peak is None:
        return "no HLO module with a buffer assignment", "unknown"
    if not estimate:
        return f"{decimal(peak, 'B')}, no argument is a parameter", "unknown"
    words = f"{decimal(peak, 'B')} against {decimal(estimate, 'B')} (16 B a parameter)"
    return words, "fine" if peak <= 2 * estimate else "look"
