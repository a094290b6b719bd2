"""A capture diagnosed: what costs most seconds, by what rule, on what evidence, and one remedy each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import RatchetError
from harness.records import Capture, Column, Table
from harness.units import decimal, percent
from harness.workbench import tables
from harness.workbench.profiles.analysis import Analysis, run
from harness.workbench.profiles.ceilings import PREDICTED
from harness.workbench.profiles.comparison import figures_of, report
from harness.workbench.profiles.database import Database, Row, TableOf, opened
from harness.workbench.profiles.hotspots import FORMATTING_LIMIT, UNFUSED
from harness.workbench.profiles.inside import RED_FLAG
from harness.workbench.profiles.memory import estimate_of
from harness.workbench.profiles.op_times import comparable, origin
from harness.workbench.profiles.timeline import IMBALANCE, PARTS, STEP_TIMES

# Below this a finding is left out: one part in a thousand of the time.
_WORTH = 0.001
# From here on one finding is all there is to look at: half of the time.
_ALL_THAT_COUNTS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What may cost time: `query` gives the seconds it costs, on all devices together, and the evidence in words.

    `reason` is the published rule, or says that it is ours; `remedy` is the one thing to try.
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


RULES = (
    Rule(
        name="host transfers, exposed",
        query=_waits(
            "is_host_transfer",
            """coalesce((select '; ' || in_bytes(median(bytes)) || ' each at ' ||
            in_bytes(median(bytes / waited_seconds)) || '/s' from transfers
            where is_host_transfer and waited_seconds > 0.01 * seconds), '')""",
        ),
        reason="waiting for host memory hides nothing (protocol, section 3)",
        remedy="start them earlier, beside more work (prefetch), or offload less",
    ),
    Rule(
        name="copies, exposed",
        query=_waits("not is_host_transfer"),
        reason="DMA that does not overlap (protocol, section 3)",
        remedy="double buffering: start a step earlier; keep less in VMEM",
    ),
    Rule(
        name="communication, exposed",
        query="""
            select sum(self_seconds), 'longest ' || arg_min(name, rank) || ', ' || in_words(max(self_seconds))
            from times where class = 'communication' and half != 'start'""",
        reason="async-done and synchronous collectives are exposed (section 6)",
        remedy="`xprof overlap`: its flags and sharding constraints",
    ),
    Rule(
        name="idle inside runs",
        query=f"""
            with {PARTS} select sum(idle), count(*) || case count(*) when 1 then ' device' else ' devices' end || ', '
                || printf('%.1f%%', 100 * sum(idle) / sum(seconds)) || ' of their runs'
            from part_times join devices using (device) where is_main and place = 0""",
        reason=f"over {RED_FLAG:.0%} of the runs is a red flag (protocol, section 3)",
        remedy="larger blocks; `xprof gaps` says between which operations",
    ),
    Rule(
        name="idle between runs",
        query=f"""
            with {PARTS} select sum(idle), 'largest gap ' || (select in_words(max(seconds)) from gaps join devices
                using (device)
                where is_main and position = 'between') || ' of ' || sum(gaps) || ' between runs'
            from part_times join devices using (device) where is_main and place = 4""",
        reason="waiting for the next program is waiting for the host (section 6)",
        remedy="prefetch input, dispatch ahead; `xprof steps`: the host meanwhile",
    ),
    Rule(
        name="useless work",
        query="""
            select sum(seconds), string_agg(kind || ' ' || in_words(seconds), ', ' order by seconds desc) from
            (select kind, sum(seconds) as seconds from waste where kind not like 'wait for%' group by 1)""",
        reason=f"copies, casts, padding; over {FORMATTING_LIMIT:.0%}: layouts, sharding (section 6)",
        remedy="`xprof waste` names lines; donate, choose layouts, pad to tiles",
    ),
    Rule(
        name="unfused chains",
        query=f"{UNFUSED} select sum(saved), 'most from ' || arg_max(first, saved) || ' to ' || arg_max(last, saved) "
        f"from unfused",
        reason="a large array written and read again between elementwise steps: ours",
        remedy="`xprof waste` lists them; fuse by hand, or give each one user",
    ),
    Rule(
        name="far from the roofline",
        query=f"""
            with {PREDICTED}, far as (
                select * from predicted where ratio > 2 and class != 'data formatting')
            select sum(self_seconds - least * count), 'most in ' || arg_max(name, self_seconds - least * count) || ', '
                || printf('%.1fx', arg_max(ratio, self_seconds - least * count)) from far""",
        reason="beyond 2x: wrong sharding or layout; a kernel: look inside (section 5)",
        remedy="`hlo CAPTURE --op NAME` of the first; of a kernel `xprof gaps`",
    ),
    Rule(
        name="bubbles inside kernels",
        query=f"""
            with by_device as (
                select device, sum(amount) filter (part != 'issuing') / sum(amount) as bubbles,
                    arg_max(part, amount) filter (part != 'issuing') as largest from insides where is_simulated
                    group by 1),
            took as (select d.name as device, sum(r.seconds) as seconds from runs r join devices d using (device)
                group by 1)
            select sum(bubbles * seconds), printf('%.1f%%', 100 * avg(bubbles)) || ' of the cycles, most in '
                || any_value(largest) from by_device join took using (device) where bubbles > {RED_FLAG}""",
        reason=f"nothing issued in over {RED_FLAG:.0%} is a red flag (protocol, section 3)",
        remedy="more independent work in a step; `diagnose N` simulates edits",
    ),
    Rule(
        name="load imbalance",
        query=f"""
            with {STEP_TIMES}, slowest as (
                select max(own_seconds) as own, (max(own_seconds) - min(own_seconds)) / nullif(median(own_seconds), 0)
                    as differ from by_device having count(*) > 1)
            select sum((own - own_seconds) * count), 'slowest ' || arg_max(label, own_seconds)
                || ', own work differs by ' || printf('%.1f%%', 100 * any_value(differ))
            from by_device, slowest where differ > {IMBALANCE}""",
        reason=f"own work differing by over {IMBALANCE:.0%} between devices (section 6)",
        remedy="split evenly; see what the slowest device does more",
    ),
    Rule(
        name="uneven steps",
        query=f"""
            with {STEP_TIMES}
            select sum(greatest(0, s.seconds - b.median_seconds)), 'spread ' || printf('%.1f%%', 100 * max(spread))
                || ' on '
                || arg_max(b.label, spread) from step_times s join by_device b using (device) where spread >
                    {IMBALANCE}""",
        reason=f"steps differing by over {IMBALANCE:.0%}: ours, the limit between devices",
        remedy="`xprof steps`: recompilation, input, garbage collection",
    ),
    Rule(
        name="exponentials",
        query="""
            select sum(self_seconds), 'longest ' || arg_min(name, rank) from times where is_exponential
            having sum(self_seconds) > 0.1 * (select whole from whole)""",
        reason="over 10% in exp the vector unit binds (protocol, section 3)",
        remedy="exp2 with the factor folded in, bfloat16, or fewer of them",
    ),
)
_FINDINGS = TableOf("findings", "", """
    finding VARCHAR  what
    seconds DOUBLE   that it costs
    evidence VARCHAR on which
    rule VARCHAR     by which
    remedy VARCHAR   against it
    """)  # fmt: skip
_RANKED = Analysis(
    name="findings",
    title="Findings, the costliest first",
    columns="finding!;seconds=costs;share=of the time;evidence",
    query=f"""
        select finding, seconds, seconds / whole as share, evidence from findings, whole
        where seconds > {_WORTH} * whole order by seconds desc""",
    facts=f"""
        select nullif(count(*) filter (seconds > 0 and seconds <= {_WORTH} * whole), 0) as small,
            any_value(on_devices) as devices, case when max(seconds) > {_ALL_THAT_COUNTS} * any_value(whole)
                then max(seconds) / any_value(whole) end as most, arg_max(finding, seconds) as first
        from findings, whole, step_counts""",
    notes=(
        "{most:%} of the time is {first}: nothing else matters until these go.",
        "Seconds are those of {devices} together, shares of the time that operations take; findings may share them.",
        "Left out: {small} of less than 0.1 % of the time.",
    ),
    empty="no rule finds anything that costs a thousandth of the time",
)
_REMEDIES = Analysis(
    name="remedies",
    title="By what rule, and what to try",
    columns="finding!;fact=what;reading=says",
    query=f"""
        select finding, what, says from (
            select finding, seconds, unnest(['rule', 'remedy']) as what, unnest([rule, remedy]) as says,
                unnest([1, 2]) as place from findings), whole
        where seconds > {_WORTH} * whole order by seconds desc, place""",
    is_optional=True,
)
_CHECKLIST = (
    Column(name="check", title="check"),
    Column(name="found", title="found"),
    Column(name="limit", title="limit"),
    Column(name="verdict", title="verdict"),
)


_UNREAD = (Column(name="finding", title="finding"), Column(name="why", title="why", is_whole=True))


def diagnose(capture: Capture, other: Capture | None = None) -> tuple[Table, ...]:
    """Checklist, metrics, findings; with `other` what became of both from the one to the other.

    Raises RatchetError `not-comparable` like `comparable`.
    """
    if other is not None and (why := comparable(capture, other)):
        raise RatchetError("not-comparable", why)
    database = opened(capture)
    missing = _load(database)
    ranked = [table for each in (_RANKED, _REMEDIES) if (table := run(database, each, {})) is not None]
    shown = [_checklist(database), *ranked]
    if missing:
        shown.append(tables.table("unread", "What could not be looked at", origin(capture), _UNREAD, missing))
    if other is None:
        return (shown[0], _metrics(capture), *shown[1:])
    return (shown[0], *report(capture, other), _compared(capture, other), *shown[1:])


def _load(database: Database) -> list[tuple[str, str]]:
    """Fills the table of findings; what could not be looked at is returned with the reason."""
    rows: list[Row] = []
    missing = []
    for rule in RULES:
        try:
            ((seconds, evidence),) = database.rows(rule.query) or ((None, ""),)
        except RatchetError as error:
            missing.append((rule.name, str(error)))
            continue
        if seconds is not None:
            rows.append((rule.name, seconds, evidence or "", rule.reason, rule.remedy))
    database.add(_FINDINGS, rows)
    return missing


_METRICS = (
    Column(name="step_seconds", title="step", unit="s"),
    Column(name="mxu_fraction", title="MXU", unit="fraction"),
    Column(name="hottest_operation", title="hottest op"),
    Column(name="hottest_seconds", title="its time", unit="s"),
    Column(name="hottest_share", title="its share", unit="fraction"),
    Column(name="peak_hbm_bytes", title="peak HBM", unit="B"),
    Column(name="peak_from", title="peak is"),
)


def _metrics(capture: Capture) -> Table:
    rows = figures_of(opened(capture))
    note = "Times are of one step of one device; a second capture makes the comparison."
    why = "" if rows else "nothing ran in the capture"
    return tables.table("metrics", "The four metrics of a report", origin(capture), _METRICS, rows, (note,), why)


def _checklist(database: Database) -> Table:
    """Five rows: operations, collectives, gaps, copies, memory (protocol, section 5)."""
    rows = list(_checks(database))
    note = "The five checks of the published analysis (protocol, section 5); gaps and copies by sections 3 and 6."
    return tables.table("checklist", "Checklist", origin(database.capture), _CHECKLIST, rows, (note,), "nothing ran")


def _checks(database: Database) -> Iterator[tuple[str, str, str, str]]:
    def judged(
        check: str, value: float | None, limit: float, words: str, unknown: str = ""
    ) -> tuple[str, str, str, str]:
        found = unknown if value is None else f"{percent(value)} {words}"
        verdict = "unknown" if value is None else "fine" if value <= limit else "look"
        return check, found, percent(limit, 0) if limit else "none", verdict

    if not database.rows("select count(*) from times")[0][0]:
        return
    facts: Mapping[str, Any] = database.facts(
        f"""with {PREDICTED}, {PARTS}, waits as (select * from times where class = 'memory transfer' and half = 'done')
        select (select coalesce(sum(self_seconds) filter (ratio > 1.1), 0) / nullif(sum(self_seconds), 0) from
            predicted) as slow,
            (select coalesce(sum(self_seconds), 0) from times where class = 'communication' and half != 'start') /
                whole as sent,
            (select sum(idle) / nullif(sum(seconds), 0) from part_times join devices using (device)
                where is_main and place = 0) as idle,
            ((select coalesce(sum(self_seconds), 0) from times where class = 'data formatting')
                + (select coalesce(sum(self_seconds), 0) from waits)) / whole as moved from whole"""
    )
    yield judged("operations near roofline", facts["slow"], 0.0, "of their time beyond 10 %", "none has a prediction")
    yield judged("collectives hidden", facts["sent"], RED_FLAG, "of the time exposed")
    yield judged("gaps minimal", facts["idle"], RED_FLAG, "of the runs idle", "nothing ran")
    yield judged("copies rare and small", facts["moved"], FORMATTING_LIMIT, "of the time in copies or waiting for them")
    check, limit = "memory near the estimate", "2x"
    try:
        peak, estimate = estimate_of(database.capture)
    except RatchetError as error:
        yield check, str(error), limit, "unknown"
        return
    if peak is None:
        yield check, "no HLO module with a buffer assignment", limit, "unknown"
    elif not estimate:
        yield check, f"{decimal(peak, 'B')}, no argument is a parameter", limit, "unknown"
    else:
        found = f"{decimal(peak, 'B')} against {decimal(estimate, 'B')} (16 B a parameter)"
        yield check, found, limit, "fine" if peak <= 2 * estimate else "look"


_COMPARED = (
    Column(name="finding", title="finding", is_whole=True),
    Column(name="a_seconds", title="A", unit="s"),
    Column(name="b_seconds", title="B", unit="s"),
    Column(name="change_seconds", title="change", unit="s"),
)


def _compared(capture: Capture, other: Capture) -> Table:
    """What each finding costs in both, by step and device."""
    sides: list[dict[str, float]] = []
    for database in (opened(capture), Database(other)):
        _load(database)
        ((steps, devices),) = database.rows("select steps, devices from step_counts")
        rows = database.rows("select finding, seconds from findings")
        sides.append({finding: seconds / (steps or devices) for finding, seconds in rows})
    old, new = sides
    names = [rule.name for rule in RULES if old.get(rule.name) or new.get(rule.name)]
    rows = [(name, old.get(name), new.get(name), new.get(name, 0.0) - old.get(name, 0.0)) for name in names]
    rows.sort(key=lambda row: -abs(row[3]))
    note = "By step and device; without steps by device over the whole capture."
    title = f"Findings: A = {capture.name}, B = {other.name}"
    return tables.table(
        "compared", title, origin(capture), _COMPARED, rows, (note,), "no rule finds anything in either"
    )
