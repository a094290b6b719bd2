"""The views on a capture's tables, in SQL, and a sentence on each view."""

# The first and last 2 to 3 steps are fill and drain (protocol, section 3, item 4). Two steps at each end leave a middle
# part if there are six steps or more.
EDGE_STEPS = 2
FEWEST_STEPS = 3 * EDGE_STEPS


def overlap_of(first: str, second: str) -> str:
    """SQL for the seconds that two spans share."""
    start = f"greatest({first}.start_seconds, {second}.start_seconds)"
    return f"greatest(0, least({first}.end_seconds, {second}.end_seconds) - {start})"


def meets(first: str, second: str) -> str:
    """SQL for a condition: two spans overlap by more than rounding explains."""
    return (
        f"{first}.start_seconds < {second}.end_seconds - 5e-13 and {first}.end_seconds > {second}.start_seconds + 5e-13"
    )


def _recorded_of(span: str) -> str:
    """SQL for the seconds of a span, without runs whose operations the capture lacks."""
    lacking = f"select sum({overlap_of(span, 'r')}) from runs r where r.device = {span}.device and not is_recorded"
    return f"greatest(0, {span}.end_seconds - {span}.start_seconds - coalesce(({lacking}), 0))"


_BASIC_SQL = """
create macro in_words(v) as case when v = 0 then '0 s' when round(abs(v), 6) >= 1 then printf('%.3f s', v)
    when round(abs(v) * 1e3, 6) >= 1 then printf('%.3f ms', v * 1e3)
    when round(abs(v) * 1e6, 6) >= 1 then printf('%.3f us', v * 1e6) else printf('%.3f ns', v * 1e9) end;
create macro in_bytes(v) as case when v >= 1e12 then printf('%.1f TB', v / 1e12) when v >= 1e9
    then printf('%.1f GB', v / 1e9)
    when v >= 1e6 then printf('%.1f MB', v / 1e6) when v >= 1e3 then printf('%.1f kB', v / 1e3)
        else printf('%.0f B', v) end;
create macro in_percent(v) as printf('%.1f%%', 100 * v);
create macro in_recorded(s) as s in (select step from steps where is_recorded);
create view work as
    select e.*, o.* exclude (operation), d.label, d.is_main
    from executions e join operations o using (operation) join devices d using (device) where e.line = 'serial';
create view peaks as
    -- Peaks of one device; NULL if the devices' peaks differ or are not stated.
    select case when count(distinct coalesce(peak_flops_per_second, 0)) = 1 then any_value(peak_flops_per_second) end
            as peak,
        case when count(distinct coalesce(hbm_bytes_per_second, 0)) = 1
            then any_value(hbm_bytes_per_second) end as bandwidth,
        count(*) as devices, bool_and(platform = 'cpu') as is_cpu,
        case when bool_and(peak_flops_per_second is null and hbm_bytes_per_second is null) then 'peak FLOP/s and '
            || 'bandwidth of ' || case when bool_and(platform = 'cpu') then 'a CPU' else arg_min(name, device) end
            || ' are unknown: the capture does not state them' end as unsaid
    from devices where is_main;
create view busy_times as
    select device, sum(end_seconds - start_seconds) as busy, max(end_seconds) - min(start_seconds) as span
    from busy where of = 'everything' group by 1;
create view step_median as
    select median(seconds) as seconds, count(*) filter (is_recorded) as steps, arg_min(what, device) as what
    from steps join devices using (device) where is_main;
create view times as
    with summed as (
        select min(operation) as operation, count(*) as count, round(sum(seconds), 12) as seconds,
            round(sum(self_seconds), 12) as self_seconds, count(*) filter (in_recorded(step)) as in_steps_count,
            round(coalesce(sum(self_seconds) filter (in_recorded(step)), 0), 12) as in_steps_seconds
        from executions e join operations o using (operation) join devices d using (device)
        where e.line = 'serial' and d.is_main group by o.module, o.name
    ) select o.*, count, seconds, self_seconds, in_steps_count, in_steps_seconds, self_seconds / count as mean_seconds,
        -- The time that FLOPs and bytes of one run need at the devices' peaks; NULL if unknown. If a kernel's FLOPs are
        -- unknown, its bytes alone give no roofline.
        case when class not in ('communication', 'memory transfer', 'control flow')
            and not (flops is null and class in ('custom kernel', 'attention')) then
            nullif(greatest(coalesce(flops / peak, 0), coalesce(hbm_bytes / bandwidth, 0)), 0) end as least_seconds,
        case when coalesce(flops / peak, 0) > coalesce(hbm_bytes / bandwidth, 0) then 'compute'
            else 'memory' end as bound,
        -- An operation whose time was too short to measure has no ratio.
        case when self_seconds > 0 then mean_seconds / least_seconds end as ratio,
        row_number() over (order by self_seconds desc, name) as rank,
        self_seconds / nullif(sum(self_seconds) over (), 0) as share
    from summed join operations o using (operation), peaks;
create view transfers as
    -- Start and done of an asynchronous copy are paired in order: the nth start belongs to the nth done.
    with halves as (
        select e.*, o.module, o.pair, o.text, o.half, o.bytes_accessed, o.is_host_transfer,
            min(e.start_seconds) filter (o.half = 'start') over (partition by e.device, o.module, o.pair) as first
        from executions e join operations o using (operation) where e.line = 'serial' and o.class = 'memory transfer'),
    numbered as (
        select *, row_number() over (partition by device, module, pair, half order by start_seconds) as nth
        from halves where half in ('start', 'done') and start_seconds >= first)
    select s.device, s.module, s.pair as name, s.is_host_transfer,
        case when not s.is_host_transfer then '' when regexp_matches(s.text, '= \\(\\w+\\[[^\\]]*\\]\\{[^}]*S\\(5\\)')
            then 'to the host' else 'from the host' end as direction,
        s.bytes_accessed as bytes, s.start_seconds, d.end_seconds - s.start_seconds as seconds, d.end_seconds,
        d.self_seconds as waited_seconds
    from numbered s join numbered d on s.device = d.device and s.module = d.module and s.pair = d.pair and s.nth = d.nth
    where s.half = 'start' and d.half = 'done';
create view host_spans as
    -- Overlapping transfers are one span, so time in a queue counts once. If a span ends in a wait for its last
    -- transfer, the link was busy until the end; otherwise the link may have been idle before the end.
    with flights as (
        select *, max(end_seconds) over (partition by device, direction order by start_seconds, end_seconds
            rows between unbounded preceding and 1 preceding) as so_far from transfers where is_host_transfer),
    numbered as (
        select *, count(*) filter (so_far is null or start_seconds > so_far + 5e-13) over (
            partition by device, direction order by start_seconds, end_seconds) as nth from flights)
    select device, direction, count(*) as count, sum(bytes) as bytes, min(start_seconds) as start_seconds,
        max(end_seconds) - min(start_seconds) as seconds, max(end_seconds) as end_seconds,
        sum(waited_seconds) as waited_seconds,
        arg_max(waited_seconds, {'end': end_seconds, 'waited': waited_seconds})
            > 0.01 * (max(end_seconds) - min(start_seconds)) as ends_in_wait
    from numbered group by device, direction, nth;
create view whole as
    -- `uncounted` is the share of the time in kernels without a FLOP count.
    select sum(self_seconds) as whole,
        sum(self_seconds) filter (is_kernel and flops is null) / nullif(whole, 0) as uncounted
    from times;
create view elapsed as
    select whole + (select coalesce(sum(span - busy), 0) from busy_times join devices using (device) where is_main)
        as elapsed
    from whole;
create view step_counts as
    select case when min(steps) > 0 then sum(steps) end as steps, min(what) as what, count(*) as devices,
        case count(*) when 1 then 'one device' else count(*) || ' devices' end as on_devices
    from (
        select d.device, count(s.step) filter (s.is_recorded) as steps, arg_min(s.what, s.step) as what
        from devices d left join steps s using (device) where d.is_main group by d.device);
"""
_TIMELINE_SQL = f"""
create view loops as
    select device, min(start_seconds) as start_seconds, max(end_seconds) as end_seconds
    from steps group by 1 having count(*) > 1;
create view pauses as
    with between_spans as (
        select device, end_seconds as start_seconds,
            lead(start_seconds) over (partition by device order by start_seconds) as end_seconds from spans)
    select p.device, p.start_seconds, {_recorded_of("p")} as seconds, p.end_seconds,
        case when l.device is null then 'between runs' when p.end_seconds <= l.start_seconds + 5e-13
            then 'before the first step' when p.start_seconds >= l.end_seconds - 5e-13 then 'after the last step'
            else 'between runs' end as place
    from between_spans p left join loops l using (device) where p.end_seconds is not null and seconds > 5e-13;
create view extents as
    with paused as (
        select device, sum(seconds) filter (place = 'between runs') as loop_idle,
            count(*) filter (place = 'between runs') as loop_pauses,
            sum(seconds) filter (place != 'between runs') as other_idle,
            count(*) filter (place != 'between runs') as other_pauses
        from pauses group by 1),
    wholes as (
        select device, min(start_seconds) as start_seconds, max(end_seconds) as end_seconds from spans group by 1),
    looped as (
        select device, l.start_seconds, least(l.end_seconds, w.end_seconds) as end_seconds
        from loops l join wholes w using (device))
    select w.device, {_recorded_of("w")} as all_,
        case when l.device is not null then {_recorded_of("l")} end as in_loop, p.* exclude (device)
    from wholes w left join looped l using (device) join paused p using (device);
create view part_times as
    -- Each part of a device's time consists of spans; idle time between runs is in no span.
    with parts as (
        select device, 0 as place, 'all runs' as part, start_seconds, end_seconds from spans
        union all
        select s.device, p.place, p.part || ': ' || p.number || case p.number when 1 then ' step' else ' steps' end,
            greatest(s.start_seconds, w.start_seconds), least(s.end_seconds, w.end_seconds)
        from (select s.device, s.start_seconds, s.end_seconds,
                case when nth < {EDGE_STEPS} then 'fill' when nth >= total - {EDGE_STEPS} then 'drain'
                    else 'steady' end as part
            from (select *, row_number() over (partition by device order by number) - 1 as nth,
                    count(*) over (partition by device) as total from steps where is_recorded) s
            where total >= {FEWEST_STEPS}) s
        join (select device, unnest([1, 2, 3]) as place, unnest(['fill', 'steady', 'drain']) as part,
                unnest([{EDGE_STEPS}, count(*) - {2 * EDGE_STEPS}, {EDGE_STEPS}]) as number
            from steps where is_recorded group by device) p using (device, part)
        join spans w on w.device = s.device and {meets("s", "w")}),
    part_idle as (
        select p.device, p.place, p.part, sum({overlap_of("p", "g")}) as idle, count(*) as gaps
        from parts p join gaps g on g.device = p.device and {meets("p", "g")} group by all),
    part_kernels as (
        select p.device, p.place, p.part, sum({overlap_of("p", "b")}) as filled
        from parts p join busy b on b.device = p.device and b.of = 'kernels' and {meets("p", "b")} group by all)
    select device, place, part, sum(end_seconds - start_seconds) as seconds, coalesce(any_value(idle), 0) as idle,
        coalesce(any_value(gaps), 0) as gaps,
        coalesce(any_value(filled), 0) / nullif(sum(end_seconds - start_seconds), 0) as kernels
    from parts left join part_idle using (device, place, part) left join part_kernels using (device, place, part)
    group by all
    union all
    -- If there are steps, the time from the first to the last counts, as far as operations are recorded.
    select device, 4, 'between runs', coalesce(in_loop, all_), coalesce(loop_idle, 0), coalesce(loop_pauses, 0), null
    from extents
    union all
    select device, 5, 'outside steps', all_ - in_loop, other_idle, other_pauses, null
    from extents where in_loop is not null and other_pauses > 0;
create view step_times as
    select s.*, label,
        case when is_recorded then (select coalesce(sum({overlap_of("s", "b")}), 0) from busy b
            where b.device = s.device and b.of = 'own' and {meets("s", "b")}) end as own_seconds,
        case when is_recorded then (select coalesce(sum({overlap_of("s", "g")}), 0) from gaps g
            where g.device = s.device and {meets("s", "g")}) end as idle_seconds
    from steps s join devices using (device) where is_main;
create view host_links as
    select device, direction, sum(p.count)::bigint as count, sum(bytes) as bytes, sum(p.seconds) as busy_seconds,
        sum(p.waited_seconds) as waited_seconds,
        sum(bytes) filter (ends_in_wait) / nullif(sum(p.seconds) filter (ends_in_wait), 0) as bytes_per_second,
        (select sum({overlap_of("s", "q")}) from steps s join host_spans q on q.device = s.device and {meets("s", "q")}
            where s.device = p.device and q.direction = p.direction and is_recorded)
            / (select sum(seconds) from steps s where s.device = p.device and is_recorded) as step_fraction
    from host_spans p group by device, direction;
create view host_bound as
    with by_step as (
        select s.seconds,
            (select coalesce(sum(self_seconds), 0) from work w
                where w.step = s.step and w.is_host_transfer and w.half = 'done') as waited,
            (select coalesce(max(sum_), 0) from (select sum({overlap_of("s", "q")}) as sum_ from host_spans q
                where q.device = s.device and q.ends_in_wait and {meets("s", "q")} group by q.direction)) as longest
        from steps s join devices using (device) where is_main and is_recorded)
    select sum(waited) as waited_seconds, sum(seconds - waited) as other_seconds, sum(seconds) as seconds,
        sum(greatest(0, least(waited, seconds - longest))) as both_ways_seconds,
        -- Prefetch alone cannot save more than full overlap of all work.
        least(waited_seconds, other_seconds, both_ways_seconds) as hiding_seconds,
        waited_seconds > other_seconds as is_bound
    from by_step;
create view step_summary as
    select device, label, count(*) as count, median(seconds) as median_seconds, min(seconds) as least,
        max(seconds) as most,
        -- Steps without operations have times of the profiler's clock, which may jump.
        count(*) filter (is_recorded) as recorded, sum(seconds) filter (is_recorded) as recorded_seconds,
        median(seconds) filter (is_recorded) as recorded_median,
        case when recorded > 1 then (max(seconds) filter (is_recorded) - min(seconds) filter (is_recorded))
            / nullif(recorded_median, 0) end as spread,
        median(own_seconds) as own_seconds, sum(idle_seconds) / nullif(recorded_seconds, 0) as idle_fraction,
        sum(seconds) as seconds
    from step_times group by 1, 2 having sum(seconds) > 0;
create view unrecorded as
    select string_agg(label || ' in ' || count || ' of ' || runs || ' runs', ', ' order by device) as devices
    from (
        select device, label, count(*) filter (not is_recorded) as count, count(*) as runs
        from runs join devices using (device) where is_main group by 1, 2)
    where count > 0;
create view together as
    -- The time in steps in which all devices are idle: as many idle times overlap as there are devices.
    with edges as (
        select greatest(s.start_seconds, g.start_seconds) as at_, 1 as change
        from step_times s join step_summary using (device) join gaps g on g.device = s.device and {meets("s", "g")}
        where is_recorded
        union all
        select least(s.end_seconds, g.end_seconds), -1
        from step_times s join step_summary using (device) join gaps g on g.device = s.device and {meets("s", "g")}
        where is_recorded),
    levels as (
        select at_, sum(sum(change)) over (order by at_) as level, lead(at_) over (order by at_) as until
        from edges group by at_)
    select at_ as start_seconds, until as end_seconds from levels
    where level >= (select count(*) from step_summary) and until > at_;
"""
_CHAINS_SQL = """
create view unfused as
    -- Elementwise operations and reductions with a large result that another such operation reads again.
    with recursive work_on as (
        select * from times where class in ('elementwise fusion', 'other') and text != '' and result_bytes >= 1048576
            and regexp_matches(kind, 'fusion|elementwise|reduce|convert|broadcast')),
    links as (
        select a.operation as one, min(b.operation) as next from work_on a join work_on b on a.module = b.module
            and a.operation != b.operation and regexp_matches(b.text, '%' || regexp_escape(a.name) || '[,) ]')
            group by 1),
    chains as (
        select one as start, one as at_, [one] as members from links where one not in (select next from links)
        union all
        select start, next, list_append(members, next) from chains join links on at_ = one
        where not list_contains(members, next) and len(members) < 64),
    longest as (select start, arg_max(members, len(members)) as members from chains where len(members) > 1 group by 1),
    listed as (
        select start, unnest(members) as operation, generate_subscripts(members, 1) as nth, len(members) as many
        from longest)
    select arg_min(w.name, nth) as first, arg_max(w.name, nth) as last, any_value(many) as many,
        sum(hbm_bytes * count) as now, now - 2 * sum(result_bytes * count) filter (nth < many) as fused,
        sum(self_seconds) * (1 - greatest(0, fused) / now) as saved, nullif(arg_min(w.source, nth), '') as source
    from listed join work_on w using (operation) group by start having now > 0 and fused < now;
"""
VIEWS_SQL = _BASIC_SQL + _TIMELINE_SQL + _CHAINS_SQL
# The contents of each view in words, for `schema`.
VIEWS = {
    "work": "serial executions with the columns of their operation, and label and is_main of their device",
    "times": "operations that ran on the main devices: count, seconds and self_seconds of all runs; mean_seconds of "
    "one run; in_steps_count and in_steps_seconds of the runs in recorded steps; least_seconds at the peaks, bound "
    "(compute or memory), ratio of mean_seconds to least_seconds; rank; share of the time",
    "transfers": "asynchronous copies from start to end: bytes, seconds, waited_seconds, direction from or to the host",
    "host_spans": "unbroken time with a transfer in flight in one direction (from or to the host); ends_in_wait: the "
    "device waited for the last transfer, so the link was busy until the end",
    "host_links": "a device's link to its host by direction: busy_seconds, share of the steps, and a lower bound of "
    "the rate, from the spans that end in a wait",
    "host_bound": "one row: in all steps, the waits for host memory, all other time, is_bound (the waits are longer), "
    "and the most time that prefetching, or full overlap of all transfers and all work, can save",
    "peaks": "one row: peak FLOP/s and HBM bytes/s of one device, as the capture states, and the number of devices",
    "busy_times": "busy seconds of each device, and the span from its first operation to its last",
    "step_median": "one row: the median time of the main devices' steps, the number of recorded steps, and the meaning "
    "of a step",
    "part_times": "for each part of a device's time, idle time and share in kernels; parts: all runs, fill, steady, "
    "drain, between runs (if there are steps, from the first to the last), outside steps",
    "loops": "the time from a device's first step to its last, for devices with several steps",
    "pauses": "times in which a device has no program: between runs, before the first step, after the last step; "
    "seconds leave out runs whose operations the capture lacks",
    "extents": "recorded time and pauses of each device: in all, from its first step to its last, and outside the "
    "steps",
    "step_times": "the steps of the main devices, with own work (without collectives) and idle time",
    "step_summary": "one row for each device: its steps, their median, spread, own work and idle fraction",
    "unrecorded": "one row: the devices whose operations the capture lacks in some runs; NULL if there are none",
    "together": "spans within steps in which all devices are idle",
    "unfused": "chains of elementwise operations over a large array: bytes now and in one pass, seconds saved",
    "whole": "one row: the self time of all operations, and its share in kernels without a FLOP count",
    "elapsed": "one row: the self time of all operations plus the idle time of the devices",
    "step_counts": "one row: the number of steps of all devices (NULL if a device shows none), the meaning of a step, "
    "the number of devices",
}
