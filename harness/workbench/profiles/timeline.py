"""Time without work: idle time by device and part, largest gaps, known patterns; steps; the host during idle time."""

from harness.records import Capture, Table
from harness.workbench.hlo.interconnect import host_bytes_per_second, host_rates
from harness.workbench.profiles import op_times
from harness.workbench.profiles.analysis import Analysis, tables
from harness.workbench.profiles.database import database_of
from harness.workbench.profiles.hotspots import FORMATTING_LIMIT
from harness.workbench.profiles.inside import EXCELLENT, RED_FLAG, inside_tables
from harness.workbench.profiles.reading import BARRIER
from harness.workbench.profiles.views import EDGE_STEPS, FEWEST_STEPS, meets, overlap_of

# If kernels fill more than this share of a run, idle time between operations hardly shows the use of the units. Half of
# the time is our choice, as is the limit for one long block.
_MOSTLY = _MOST = 0.5
# Step times that differ by more than IMBALANCE between devices are a load imbalance (protocol, section 6). Input should
# take under 10 % (section 8).
IMBALANCE, _INPUT = 0.05, 0.10
_HOST_ROWS = 5
SHORT = "The capture lacks operations of {short}: the line of operations ends before the runs end, or has holes."
MARK_STEPS = 'To mark steps, put each in jax.profiler.StepTraceAnnotation("train", step_num=n).'
_NAME_FUNCTIONS = (
    "To see your own functions here by name, decorate them with jax.profiler.annotate_function; for blocks of lines, "
    "use jax.profiler.TraceAnnotation"
)

_IDLE = Analysis(
    name="idle",
    title="Idle time between operations",
    columns="device;part;seconds=time;idle_seconds=idle;idle_fraction=fraction;gaps:count;"
    "custom_fraction=inside kernels;verdict!",
    query=f"""
        select label, part, seconds, idle, idle / nullif(seconds, 0) as fraction, gaps, kernels,
            case when fraction is null then 'nothing ran'
                when place = 4 then case when fraction > {RED_FLAG} then 'host or input?' else 'fine' end
                when place = 5 then 'start or end: not counted' when place in (1, 3) then 'not counted'
                when kernels > {_MOSTLY} and fraction <= {RED_FLAG} then
                    'unknown: kernels fill it; see inside them below'
                when fraction < {EXCELLENT} then 'excellent' when fraction > {RED_FLAG} then 'red flag' else 'fair' end
        from part_times join devices using (device) where is_main order by device, place""",
    facts=f"""
        select case when max(steps) >= {FEWEST_STEPS} then arg_min(what, device) end as what,
            case when max(steps) < {FEWEST_STEPS} then max(steps) end as few,
            arg_min(what, device) as which, sum(runs) = 0 as no_runs, (select devices from unrecorded) as short
        from (select d.device, count(distinct s.step) filter (s.is_recorded) as steps, count(distinct r.run) as runs,
                coalesce(any_value(s.what), 'neither steps nor module runs') as what
            from devices d left join steps s using (device) left join runs r using (device) where is_main
            group by 1)""",
    notes=(
        f"Bubble fraction: under {EXCELLENT:.0%} excellent, over {RED_FLAG:.0%} a red flag (protocol, section 3, item "
        f"4).",
        f"Fill and drain are the first and last {EDGE_STEPS} {{what}}.",
        f"Fill and drain are shown only for {FEWEST_STEPS} or more steps; the capture has {{few}} ({{which}}).",
        "The capture shows no runs of modules, so the bubble fraction includes idle time of the host.{no_runs:?}",
        f"{SHORT} This time is not counted, neither as busy nor as idle.",
        "A Pallas kernel is one operation here. If a run is mostly kernels, a table below splits their time; for an "
        "attempt, use `ratchet.sh show N`.",
        "{hint}",
    ),
)
# A TPU records the inside of a kernel only on request.
_NO_ROWS = (
    "Nothing was recorded inside the kernels: capture again with LIBTPU_INIT_ARGS="
    "--xla_xprof_enable_custom_call_tracing=true in the mode TRACE_COMPUTE (`ratchet.sh profile --mode TRACE_COMPUTE`)."
)
_LARGEST = Analysis(
    name="largest_gaps",
    title="Largest gaps",
    columns="device;start_seconds=at;seconds=gap;place=where;before=after this;after=before this;host=host meanwhile",
    # If several periods of the host cover a gap equally, the shortest is the most specific. Annotations of steps are
    # left out, because they do not show the host's work.
    query=f"""
        with shown as (
            select row_number() over (order by seconds desc, device, start_seconds) as at_, * from gaps
            join devices using (device)
            where is_main and position = 'between' order by at_ limit $top)
        select label, s.start_seconds, any_value(s.seconds), any_value(place), any_value(before), any_value(after),
            arg_max(h.name, {{'shared': {overlap_of("s", "h")}, 'short': -h.seconds}}) filter (h.name is not null)
        from shown s left join host h on h.step is null and {meets("s", "h")} and h.seconds > 0
        group by at_, label, s.start_seconds order by at_""",
    facts="""
        select case when count(*) > $top then count(*) end as known from gaps join devices using (device)
        where is_main and position = 'between'""",
    notes=("{top} of {known} gaps are shown.",),
    empty="no gaps: operations follow each other directly",
)
_ADVICE = {
    "gaps between blocks": "use more steps or larger blocks",
    "transfers not overlapped": "double buffering is off or too shallow",
    "host transfers not overlapped": "start the transfers earlier, so that more work runs meanwhile, or offload less",
    "many very short blocks": "blocks are too small",
    "one very long block": "fine only if the grid has enough steps",
    "copies": "look for aliasing, layouts and sharding",
    "idle at start and end": "this is fill and drain, because the grid is small",
    "large collectives": "check the sharding; set it with with_sharding_constraint or shard_map",
    "idle while the host works": "look at the input pipeline and host synchronisation; wrap suspected host functions "
    "in jax.profiler.annotate_function to see them by name in the timeline",
}
_PATTERNS = Analysis(
    name="patterns",
    title="Patterns of the timeline",
    columns="pattern;is_seen=seen;value=found:fraction;threshold=from:fraction;observation=what",
    query=f"""
        with told as (
            -- Fill and drain are left out if there are steps enough to tell them apart.
            select p.*, max(place) filter (place = 2) over (partition by device) as has_steady from part_times p
            join devices using (device) where is_main),
        bubbles as (
            select sum(idle) / nullif(sum(seconds), 0) as value, bool_and(place = 2) as is_steady from told
            where place = coalesce(has_steady, 0)),
        waited as (
            select is_host_transfer, sum(self_seconds) as took, arg_min(name, rank) as longest from times
            where class = 'memory transfer' and half = 'done' group by 1),
        -- Half of the time is in operations longer than this length, so many empty copies do not make blocks short.
        lengths as (
            select seconds, sum(seconds) over (order by seconds, execution) as so_far, sum(seconds) over () as all_
            from work where is_main and is_work),
        short as (
            select (select median(g.seconds) from gaps g join spans s on s.device = g.device
                    and (g.start_seconds + g.end_seconds) / 2 between s.start_seconds and s.end_seconds
                    join devices d on d.device = g.device where is_main and position = 'between') as gap,
                (select min(seconds) from lengths where so_far >= all_ / 2) as block),
        edges as (
            select sum(coalesce(first - s.start_seconds + s.end_seconds - last, s.end_seconds - s.start_seconds))
                / nullif(sum(s.end_seconds - s.start_seconds), 0) as value
            from spans s join devices using (device) left join (
                select s.device, s.start_seconds, min(greatest(b.start_seconds, s.start_seconds)) as first,
                    max(least(b.end_seconds, s.end_seconds)) as last
                from spans s join busy b on b.device = s.device and b.of = 'everything' and {meets("b", "s")}
                group by 1, 2
            ) b using (device, start_seconds) where is_main),
        sent as (select sum(self_seconds) as took, arg_min(name, rank) as longest from times
        where class = 'communication'),
        laid as (
            select sum(self_seconds) as took, string_agg(name, ', ' order by rank) filter (nth <= 2) as names
            from (select *, row_number() over (order by rank) as nth from times where class = 'data formatting')),
        between_runs as (select sum(idle) / nullif(sum(seconds), 0) as value from told where place = 4),
        seen as (
            select 1 as at_, 'gaps between blocks' as pattern, value, {RED_FLAG} as threshold,
                'idle time inside the ' || case when is_steady then 'steady steps' else 'runs' end as observation
                from bubbles
            union all
            select 2 + place, pattern, took / nullif(whole, 0), {RED_FLAG}, case when took is null
                    then 'no asynchronous transfer ' || where_
                        else 'waiting for transfers ' || where_ || ', longest ' || longest end
            from (values (0, false, 'transfers not overlapped', 'between the device''s memories'),
                         (1, true, 'host transfers not overlapped',
                             'from or to the host''s memory')) v(place, host, pattern, where_)
            left join waited on is_host_transfer = host, whole
            union all
            select 4, 'many very short blocks', gap / nullif(block, 0), {RED_FLAG},
                case when gap is null then 'no gap between the operations of a run'
                    else 'median gap ' || in_words(gap) || ', operation ' || in_words(block) end from short
            union all
            select 5, 'one very long block', share, {_MOST}, 'longest operation: ' || name from times where rank = 1
            union all
            select 6, 'copies', coalesce(took, 0) / nullif(whole, 0), {FORMATTING_LIMIT},
                coalesce('copies and other formatting, ' || names, 'no copy, no data formatting') from laid, whole
            union all
            select 7, 'idle at start and end', value, {RED_FLAG}, 'idle before first, after last operation of a run'
            from edges
            union all
            select 8, 'large collectives', case when took is null then 0 else took / nullif(whole, 0) end, {RED_FLAG},
                coalesce('collectives, longest ' || longest, 'no collective') from sent, whole
            union all
            select 9, 'idle while the host works', value, {RED_FLAG},
                case when value is null then 'each device shows one run only' else 'idle time between the runs' end
                from between_runs)
        select pattern, value > threshold, value, threshold, observation,
            case when value > threshold then upper(pattern[1]) || pattern[2:] || ': '
                || case when pattern = 'host transfers not overlapped' and (select is_bound from host_bound)
                    then 'the link to the host is the limit, see the transfers below' else advice end || '.' end
        from seen join (values {", ".join(f"('{pattern}', '{advice}')" for pattern, advice in _ADVICE.items())})
            a(pattern, advice) using (pattern) order by at_""",
    notes=(
        "The patterns are those of section 3 of the protocol. If that section gives no limit for a pattern, the limit "
        "is the red flag of item 4. The limit for one long block, half of the time, is ours.",
    ),
)
GAPS = (_IDLE, _LARGEST, _PATTERNS)
# Waits with a shorter total are left out: a v6e records a wait of a few ns before every run.
_SHORTEST_WAIT = 1e-6
_RUNTIME_WAITS = Analysis(
    name="runtime_waits",
    title="Waits before programs",
    columns="device;wait!;module;count;seconds=time;longest_seconds=longest",
    query=f"""
        select label, case w.name when '{BARRIER}' then 'for the other chips' else 'for its dependencies' end || ' ('
            || w.name || ')', module, count(*), sum(seconds) as took, max(seconds)
        from waits w join devices using (device) where is_main
        group by device, label, w.name, module having took >= {_SHORTEST_WAIT} order by took desc, device""",
    notes=(
        "Waits are those that the runtime records (XLA TraceMe), by the profiler's clock. A program with collectives "
        "begins when all its chips are ready, so a device that waits long is early, and the others are late. Waits for "
        "other chips are not counted as idle time.",
    ),
    is_optional=True,
)

# If a program's steps wait for the host's memory longer than all other work takes, this work cannot hide the waits.
HOST_FACTS = """
    select is_bound, not coalesce(is_bound, false) as hides, both_ways_seconds / seconds as both_ways,
        hiding_seconds / seconds as hiding from host_bound"""
_HOST_BOUND = (
    "The link to the host is the limit{is_bound:?}: steps wait for it longer than all other work takes, so starting "
    "transfers earlier saves at most {hiding:%}. Running both directions and all work at once saves at most "
    "{both_ways:%} at these rates: send one chunk back while the next comes; or offload less, or use narrower types"
)
_HOST_TRANSFERS = Analysis(
    name="host_transfers",
    title="Transfers from and to the host",
    columns="device;direction;count;bytes=each;flight_seconds=in flight;waited_seconds=waited;busy_seconds=link busy;"
    "step_fraction=of steps;bytes_per_second=rate;link_seconds=at the link",
    query="""
        select label, direction, l.count, each_bytes, flight_seconds, waited_seconds, busy_seconds, step_fraction,
            bytes_per_second, bytes / case direction when 'to the host' then $to_host else $from_host end
        from host_links l join devices using (device) join (
            select device, direction, median(bytes) as each_bytes, sum(seconds) as flight_seconds
            from transfers where is_host_transfer group by all) using (device, direction)
        where is_main order by device, direction""",
    facts=HOST_FACTS,
    notes=(
        "`in flight`: includes time in a queue behind other transfers. `link busy`: the time with any transfer of this "
        "direction in flight. `rate`: bytes per busy time, if the device waited for the last transfer; a lower bound, "
        "because the link may idle between. `at the link`: {link_words}.",
        "Waited time is exposed: start the transfers earlier, so that more work runs meanwhile (prefetch), or offload "
        "less.{hides:?}",
        f"{_HOST_BOUND}.",
    ),
    is_optional=True,
)


def host_transfers(capture: Capture) -> tuple[Table, ...]:
    """A table of the transfers from and to the host, with their least time at the link's rate; () without transfers."""
    chip = op_times.chip_of(capture)
    words = f"the time of all bytes at {host_rates(chip)}" if chip else "unknown, because the chip is unknown"
    back, there = (host_bytes_per_second(chip, to_host=to_host) if chip else None for to_host in (True, False))
    return tables(capture, (_HOST_TRANSFERS,), to_host=back, from_host=there, link_words=words)


def gaps_and_inside(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Tables of idle time and waits; if kernels fill a run, also of the inside of kernels.

    Raises RatchetError if the capture's files cannot be read.
    """
    database = database_of(capture)
    query = "select max(kernels), (select bool_or(platform = 'tpu') from devices) from part_times"
    ((kernels, is_tpu),) = database.rows(query)
    is_silent = is_tpu and kernels and not capture.is_simulated and not database.rows("from insides limit 1")
    inside = inside_tables(capture) if kernels and kernels > _MOSTLY else ()
    idle = tables(capture, (*GAPS, _RUNTIME_WAITS), top=top, hint=_NO_ROWS if is_silent else None)
    return (*idle, *host_transfers(capture), *inside)


_NO_STEPS = f"the capture shows neither steps nor runs of modules. {MARK_STEPS.removesuffix('.')}"
STEPS = (
    Analysis(
        name="steps",
        title="Steps by device",
        columns="device;count=steps;median_seconds=median;shortest_seconds=shortest;longest_seconds=longest;"
        "spread:fraction;own_seconds=own work;idle_fraction=idle",
        query="""
            select label, count, median_seconds, least, most, spread, own_seconds, idle_fraction
            from step_summary order by device""",
        facts=f"""
            select what, case when what not like 'steps marked%' then ' {MARK_STEPS}' else '' end as marks,
                (select devices from unrecorded) as short
            from step_median""",
        notes=(
            "Steps: {what}.{marks} Own work is the median time without collectives: devices that wait for each other "
            "have equal step times, even if their shares of the work differ.",
            f"{SHORT} Steps without operations have times of the profiler's clock, which may jump; their spread, own "
            "work and idle time are unknown.",
        ),
        empty=_NO_STEPS,
    ),
    Analysis(
        name="variation",
        title="Variation and idle time against the limits",
        columns="what=variation;spread:fraction;limit:fraction;verdict!",
        query=f"""
            with checks as (
                select 1 as at_, 'between steps, on the device where it is largest' as what, max(spread) as value,
                    {IMBALANCE} as most, 'uneven steps' as bad from step_summary
                union all
                select 2, 'between devices, step time', case when count(*) > 1 then
                    (max(median_seconds) - min(median_seconds)) / nullif(median(median_seconds), 0) end, {IMBALANCE},
                    'load imbalance' from step_summary
                union all
                select 3, 'between devices, own work', case when count(*) > 1 then
                    (max(own_seconds) - min(own_seconds)) / nullif(median(own_seconds), 0) end, {IMBALANCE},
                    'load imbalance' from step_summary
                union all
                select 4, 'idle in a step, on the device where it is largest', max(idle_fraction), {_INPUT},
                    'input pipeline or host' from step_summary)
            select what, value, most, case when value > most then bad when value is not null then 'fine'
                when (select devices from unrecorded) is not null then 'unknown: operations are missing'
                else 'unknown: only one value' end
            from checks where (select count(*) from step_summary) > 0 order by at_""",
        notes=(
            f"Spread = (longest - shortest) / median. Limits: {IMBALANCE:.0%} between devices (protocol, section 6), "
            f"{_INPUT:.0%} input (section 8); the limit between steps is ours, equal to that between devices.",
        ),
        empty=_NO_STEPS,
    ),
    Analysis(
        name="host",
        title="The host while all devices were idle",
        columns="period=the host meanwhile;line=thread;seconds=of the idle time;share",
        query=f"""
            with
            -- The annotation of a step lasts as long as the step, so it does not show the host's work.
            pieces as (
                select h.name, h.thread, greatest(h.start_seconds, t.start_seconds) as start_seconds,
                    least(h.end_seconds, t.end_seconds) as end_seconds
                from host h join together t on {meets("h", "t")}
                where h.step is null and h.name not in (select name from steps)),
            -- Calls of the same name may be nested; their time counts once.
            counted as (
                select name, thread, greatest(start_seconds, coalesce(max(end_seconds) over (partition by name, thread
                    order by start_seconds, end_seconds rows between unbounded preceding and 1 preceding), 0)) as from_,
                    end_seconds as until from pieces),
            took as (select name, thread, sum(greatest(0, until - from_)) as seconds from counted group by 1, 2)
            select name, thread, seconds, seconds / (select sum(end_seconds - start_seconds) from together) from took
            where seconds > 0 order by seconds desc, name limit {_HOST_ROWS}""",
        facts="""
            select idle, not has_steps as stepless, has_steps and idle is null as short, idle <= 0 as never,
                $is_simulated as hostless
            from (select coalesce(sum(end_seconds - start_seconds), 0)
                / (select arg_min(recorded_seconds, device) from step_summary where recorded_seconds > 0) as idle,
                (select count(*) from step_summary) > 0 as has_steps from together)""",
        notes=("Idle on all devices in the steps: {idle:%} of their time.", f"{_NAME_FUNCTIONS}."),
        empty=(
            f"{_NO_STEPS}{{stepless:?}}",
            "the capture lacks the operations of all steps{short:?}",
            "at no time in the steps are all devices idle{never:?}",
            "a simulated capture has no host{hostless:?}",
            "the capture has no host events in the idle time: trace the host as well (host_tracer_level 1 or 2)"
            f". {_NAME_FUNCTIONS}",
        ),
    ),
)


def steps_table(capture: Capture) -> tuple[Table, ...]:
    """Steps by device, their variation against the limits, and the host's work while the devices were idle."""
    return tables(capture, STEPS, is_simulated=capture.is_simulated)


def idle_in_steps(capture: Capture) -> float | None:
    """The share of the steps' time in which all devices are idle at once; None if the capture shows no steps."""
    value: float | None = database_of(capture).facts(STEPS[-1].facts, is_simulated=capture.is_simulated)["idle"]
    return value
