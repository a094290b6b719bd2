"""Device memory: peak, composition, buffers alive at the peak, the heap over time; findings and remedies."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from harness.errors import UsageError
from harness.records import Capture, Table
from harness.workbench.hlo.training_memory import CHUNKS
from harness.workbench.profiles.analysis import Analysis, Facts, sparkline, tables
from harness.workbench.profiles.database import Database, database_of
from harness.workbench.profiles.memory_rules import (
    LOGITS,
    OPTIMIZER,
    PARAMETERS,
    TRAINING_BYTES_PER_PARAMETER,
    VOCABULARY_ELEMENTS,
)

# The number of moments at which a heap over time is shown.
_MOMENTS = 12
_NO_EVENTS = (
    "the capture has no allocator events (MemoryAllocation on the host's plane): a CPU writes none, and a TPU only "
    "if something was allocated during the capture"
)
_NO_MODULES = (
    "the capture carries no HLO module with a buffer assignment (the /host:metadata plane): it was taken with "
    "enable_hlo_proto=False, or the program was compiled earlier in another process"
)
# From the published analysis: more padding than this deserves attention.
_PADDING_BYTES = 500 * (1 << 20)
# A temporary that lives for at least the share _LONG of the schedule counts as kept long. It is critical if it lives
# for at least the share _VERY_LONG and has at least _LARGE_BYTES.
_LONG, _VERY_LONG, _LARGE_BYTES = 0.3, 0.8, 100 * (1 << 20)
_SPIKES = 3
# Our choices, because the published analysis states no limits. A step frees what it allocates, so growth by a tenth of
# the memory is a leak or a cache. A level 1.5 times the usual level deserves attention. Free memory is hard to use if
# a third of it is in pieces.
_GROWTH, _SPIKE, _FRAGMENTATION = 0.10, 1.5, 0.30
# Our choice: only a rise of at least this part of the forward half's maximum counts as recomputation.
_RISE = 0.05


def _moments(value: str, group: str, table: str) -> str:
    """SQL for the moments of a heap over time: the highest in each of `_MOMENTS` equal parts."""
    return f"""
        numbered as (
            select *, {value} as level, {group} as grouped, count(*) over (partition by {group}) as many from {table}),
        moments as (
            select * from numbered qualify row_number() over (
                partition by grouped, ceil((place + 1) * {_MOMENTS} / greatest({_MOMENTS}, many))
                order by level desc, place) = 1)"""


# The opcode that makes a buffer, derived from its instruction's name.
_OPCODE = """case group_name when 'Parameter' then 'parameter'
    else regexp_replace(name, '([.]?(clone|remat[0-9]*)|[.][0-9]+|[{][0-9,]*[}])+$', '') end"""

# An analysis of the chosen module's memory.
_planned = partial(Analysis, origin="static")


def _roll_up(name: str, title: str, column: str, key: str) -> Analysis:
    """An analysis that sums the buffers alive at the planned peak by `key`."""
    return _planned(
        name=name,
        title=title,
        columns=f"{column}!;bytes=size;share;buffers:count;longest=largest",
        query=f"""
            select coalesce(nullif({key}, ''), '(not said)') as key, sum(bytes) as size, size / nullif(sum(size) over
                (), 0), count(*), arg_max(shape, bytes) from buffers where heap = $heap
            group by 1 order by size desc, min(rowid)""",
        rows="kinds",
    )


_USED = "reserved_bytes + allocated_bytes"
# If reserved is a pool that contains the allocated and free bytes, the sum of all three counts bytes twice.
_WHOLE = f"case when actual_bytes != {_USED} then reserved_bytes else capacity_bytes end"
_STATIC = "(select max(peak_bytes) from heaps where space = 'HBM')"
_OVER_TIME = _moments(_USED, "memory", "memory_levels")
_OVER_SCHEDULE = _moments("bytes", "heap", "heap_levels where heap = $heap")
MEMORY = (
    Analysis(
        name="memory",
        title="Device memory at its peak",
        columns="host;memory;capacity_bytes=capacity;used_bytes=used;used_fraction=of it;actual_bytes=actual;"
        "reserved_bytes=reserved;allocated_bytes=allocated;available_bytes=available;fragmentation=fragmented:fraction;"
        "lifetime_peak_bytes=peak since start;static_peak_bytes=static bound",
        query=f"""
            select host, name, capacity_bytes, {_USED}, ({_USED}) / capacity_bytes, actual_bytes, reserved_bytes,
                allocated_bytes, free_bytes, fragmentation, lifetime_peak_bytes, {_STATIC}
            from memories order by memory""",
        notes=(
            "used = reserved (programs' workspace) + allocated (their arguments and results), as XProf adds them up; "
            "allocated alone leaves the workspace out.",
            "{counted}",
            "static bound: the compiler's peak of the largest module; published runs used 5 to 15 % less.",
            "peak since start: the allocator's own figure; it is less than the memory in use, so it leaves out the "
            "workspace.{apart:?}",
        ),
        facts="select bool_or(lifetime_peak_bytes < actual_bytes) as apart from memories",
        more=lambda database, _: {"counted": _how_counted(database)},
        empty=_NO_EVENTS,
    ),
    Analysis(
        name="allocations",
        title="Alive at the {origin} peak",
        columns="memory;operation=allocated for;category=what for!;region;shape;count;bytes=size",
        query="""
            select m.name, coalesce(nullif(op_name, ''), '(no name)'), category, region, shape, count, bytes
            from allocations a join memories m using (memory) order by memory, bytes desc, a.rowid""",
        rows="allocations",
        notes=(
            "`stack` (the programs' workspace) and `unused preallocated` are memory that no single allocation "
            "explains.",
            "Number of smaller allocations left out (--top): {more}.",
        ),
        empty=_NO_EVENTS,
    ),
    Analysis(
        name="memory_over_time",
        title="Memory in use over time",
        columns="memory;at_seconds=at;used_bytes=used",
        query=f"""
            with {_OVER_TIME} select name, at_seconds, level from moments join memories using (memory)
            order by memory, place""",
        more=lambda database, _: {"lines": _lines_over_time(database)},
        notes=("{lines}", "at: unknown, because a server's trace viewer omits the allocator's events.{timeless:?}"),
        facts="select bool_and(at_seconds is null) as timeless from memory_levels",
        empty=_NO_EVENTS,
    ),
    Analysis(
        name="modules",
        title="What the compiler planned, by module",
        columns="module;space=memory;peak_bytes=peak;argument_bytes=arguments;temporary_bytes=the rest;"
        "peak_place=peak at:fraction",
        query="select module, space, peak_bytes, argument_bytes, peak_bytes - argument_bytes, peak_place / changes "
        "from heaps order by heap",
        notes=(
            "Peaks are upper bounds from the buffer assignment. peak at: position among the schedule's changes of the "
            "heap; `-` if every buffer lives throughout. In a training step, below 50 % is the forward half.",
        ),
        empty=_NO_MODULES,
        origin="static",
    ),
)
# Analyses of the chosen module's memory, as the compiler planned it.
MEMORY_PLANNED = (
    _planned(
        name="composition",
        title="{composition}",
        columns="category=what for!;bytes=size;share;buffers:count",
        query="""
            select category, sum(bytes) as size, size / nullif(sum(size) over (), 0), count(*) from buffers
            where heap = $heap
            group by 1 order by size desc, min(rowid)""",
        notes=("Categories follow from a buffer's group and name; see harness/workbench/profiles/memory_rules.py.",),
    ),
    _planned(
        name="buffers",
        title="Alive at the planned peak",
        columns="buffer;shape;category=what for!;group;bytes=stored;needed_bytes=without padding;operation=from;source",
        query="""
            select name, shape, category, group_name, bytes, needed_bytes, op_name, source from buffers
            where heap = $heap
            order by rowid""",
        rows="buffers",
        facts="select in_bytes(sum(bytes)) as together from (from answer offset $top)",
        notes=("Number of smaller buffers left out (--top): {more}, together {together}.",),
    ),
    _roll_up("by_opcode", "Alive at the planned peak, by opcode", "opcode", _OPCODE),
    _roll_up("by_op_name", "Alive at the planned peak, by operation", "operation", "op_name"),
    _planned(
        name="heap_over_schedule",
        title="The planned heap over the schedule",
        columns="place=at:fraction;bytes=heap;instruction",
        query=f"""
            with {_OVER_SCHEDULE} select place / greatest(1, many - 1), bytes,
                coalesce(nullif(instruction, ''), '(start)')
            from moments order by place""",
        facts="select list(bytes order by rowid) as levels from answer",
        notes=("From empty to peak: {levels:bars}; each bar is the highest moment of a part of the schedule.",),
        empty="every buffer of {module} lives from start to end, so the heap does not change",
    ),
)


def _lines_over_time(database: Database) -> list[str]:
    query = f"""
        with {_OVER_TIME} select m.name, capacity_bytes, allocations, deallocations,
            list(level order by place) filter (level is not null)
        from memories m left join moments using (memory)
        group by memory, m.name, capacity_bytes, allocations, deallocations order by memory"""
    return [
        f"memory {name}, empty to full: {sparkline(levels or (), capacity or 0)}; {allocations} allocations and "
        f"{deallocations} deallocations while the capture was taken."
        for name, capacity, allocations, deallocations, levels in database.rows(query)
    ]


# Notes on the meaning of the allocator's figure `reserved`: a part of one memory, a pool, or unknown.
_COUNTS = {
    "parts": "actual = reserved + allocated: reserved, allocated and available are separate parts of the capacity. The "
    "published rule, reserved - available, does not apply to separate parts.",
    "pool": "actual = reserved - available, the published rule: reserved, allocated and available together exceed the "
    "chip's memory, so reserved is a pool that contains the others. So used and capacity count bytes twice, and `of "
    "capacity` means of reserved.",
    "unknown": "actual is unknown, because the capture does not show the meaning of reserved. If reserved contains the "
    "allocated and available bytes, reserved - available is in use (the published rule), else reserved + allocated.",
}


def _how_counted(database: Database) -> list[str]:
    query = f"""
        select distinct case when actual_bytes is null then 'unknown' when actual_bytes = {_USED} then 'parts'
            else 'pool' end from memories order by 1"""
    return [_COUNTS[kind] for (kind,) in database.rows(query)]


_WASTED = "coalesce(bytes - needed_bytes, 0)"
_READING = f"""
    coalesce(nullif(concat_ws('; ',
        case when filled is null then 'unknown: no capacity is stated'
            when filled > 0.9 then 'nearly full: reduce what is alive at the peak'
            when filled < 0.5 then 'room for a larger batch' end,
        case when grown / whole >= {_GROWTH} then 'grows: ' || in_percent(grown / whole)
            || ' of the capacity was allocated ' || meanwhile
            || ' and not freed; look for arrays kept from step to step' end,
        case when spike >= {_SPIKE} then 'a spike: the peak is ' || printf('%.1f', spike)
            || ' times the median level; see what is alive at the peak' end,
        case when fragmentation >= {_FRAGMENTATION} then 'fragmented: ' || in_percent(fragmentation)
            || '; use fewer sizes, or donate buffers' end), ''), 'in order')"""
# Activations in both halves of a training step; the first buffer of the backward pass separates the halves. `first` and
# `last` of `lives` count changes from 0, but `place` of `heap_levels` counts them from 1, because 0 is the start.
_HALVES = """
    begins as (select min(first + 1) as at_ from lives where heap = $heap and is_backward),
    changed as (
        select first + 1 as place, bytes as change from lives where heap = $heap and is_activation
        union all select last + 1, -bytes from lives where heap = $heap and is_activation),
    summed as (
        select l.place, sum(coalesce(c.change, 0)) over (order by l.place) as level
        from (select place from heap_levels where heap = $heap) l
        left join (select place, sum(change) as change from changed group by 1) c using (place)
        where (select at_ from begins) is not null and exists (from changed)),
    sides as (
        select 1 as nth, 'forward' as half, * from summed where place < (select at_ from begins)
        union all select 2, 'backward', * from summed where place >= (select at_ from begins) - 1),
    risen as (select *, level - lag(level) over (partition by half order by place) as rise from sides),
    ways as (select *, coalesce(lag(rise > 0) over (partition by half order by place), false) as was_up from risen
    where rise != 0),
    halves as (
        select nth, half, arg_min(level, place) as first, max(level) as most, arg_max(level, place) as last,
            coalesce(sum(greatest(0, rise)), 0) as made,
            (select count(*) from ways w where w.half = r.half and rise > 0 and not was_up) as rises from risen r
            group by 1, 2)"""
_LOGITS_HINT = (
    "A chunked cross entropy (the loss in pieces of the sequence) makes logits and their gradients smaller; sharding "
    "over the vocabulary makes embeddings and their optimizer state smaller."
)
# Rematerialisation saves all but the largest activation, because recomputed activations are alive one at a time.
_REMEDIES = f"""
    alive as (select * from buffers where heap = $heap),
    kept as (select * from alive where group_name = 'Temporary' and category != '{LOGITS}' and contains(op_name, 'jvp(')
        and not contains(op_name, 'transpose(')),
    remedies as (
        select 1 as place, 'chunked cross entropy' as remedy, sum(bytes) * (1 - 1 / {CHUNKS}) as saved, 'logits' as of_,
            'compute the loss in {CHUNKS} pieces of the sequence (jax.lax.map under jax.checkpoint)' as how
        from alive where category = '{LOGITS}'
        union all
        select 2, 'rematerialisation', sum(bytes) - max(bytes), 'activations kept for the backward pass',
            'jax.checkpoint around each layer: costs about one more forward pass'
        from kept where not (select is_recomputed from heaps where heap = $heap)
        union all
        select 3, 'bfloat16 optimizer state', sum(bytes) / 2, 'float32 optimizer state',
            'such as optax.adamw(mu_dtype=jnp.bfloat16); the second moment needs care'
        from alive where category = '{OPTIMIZER}' and starts_with(shape, 'f32')
        union all
        select 4, 'sharding over twice the devices', sum(bytes) / 2, 'parameters and optimizer state',
            'NamedSharding along a data axis (FSDP): weights are gathered layer by layer'
        from alive where category in ('{PARAMETERS}', '{OPTIMIZER}'))"""
DIAGNOSE = (
    Analysis(
        name="reserved",
        title="Memory in use, against capacity and plan",
        columns="memory;actual_bytes=actual;used_fraction=of capacity;allocated_bytes=allocated alone;"
        "static_peak_bytes=static bound;actual_to_static=actual/static:ratio;grown_bytes=grown meanwhile;"
        "peak_to_median=peak/median:ratio;fragmentation:fraction;reading!",
        query=f"""
            with started as (
                select min(start_seconds) as first, max(start_seconds) as last from steps
                join devices using (device) where is_main),
            -- A level lasts until the next moment. At the starts of two steps a program is in the same state.
            moments as (
                select memory, place, {_USED} as level, allocated_bytes, at_seconds <= first as is_before,
                    at_seconds <= last as is_early
                from memory_levels, started),
            levels as (
                select memory, median(level) as usual, bool_or(is_before) and any_value(last > first) as by_steps,
                    case when by_steps then arg_max(allocated_bytes, place) filter (is_early)
                        - arg_max(allocated_bytes, place) filter (is_before)
                    else arg_max(allocated_bytes, place) - arg_min(allocated_bytes, place) end as grown
                from moments, started group by 1),
            read as (
                select m.*, {_STATIC} as planned, grown, ({_USED}) / nullif(usual, 0) as spike,
                    {_WHOLE} as whole, coalesce(actual_bytes, {_USED}) / whole as filled,
                    case when by_steps then 'from the first step to the last' else 'during the capture' end as meanwhile
                from memories m left join levels using (memory))
            select name, actual_bytes, actual_bytes / whole, allocated_bytes, planned,
                actual_bytes / nullif(planned, 0), grown, spike, fragmentation, {_READING} from read order by memory""",
        notes=(
            f"Our thresholds: growth by {_GROWTH:.0%} of the capacity, a spike of {_SPIKE:g} times the median level, "
            f"fragmentation (XProf's, at the peak) of {_FRAGMENTATION:.0%}.",
            "actual/static is 0.85 to 0.95 in the published runs.",
            "grown meanwhile: growth of allocated memory from the start of the first step to that of the last; over "
            "the whole capture if it shows fewer than two steps, or no level before the first step. The workspace is "
            "not counted: it is reserved when a program is loaded.",
            "{counted}",
            "If actual is unknown, the reading uses reserved + allocated, because a run may fail if its free memory is "
            "overestimated.{unsure:?}",
        ),
        facts="select bool_or(actual_bytes is null) as unsure from memories",
        more=lambda database, _: {"counted": _how_counted(database)},
        empty=_NO_EVENTS,
    ),
)
DIAGNOSE_PLANNED = (
    _planned(
        name="padding",
        title="Padding",
        columns="buffer;shape=shape and layout;bytes=stored;needed_bytes=needed;padding_bytes=padding;"
        "stored_to_needed=ratio:ratio",
        query=f"""
            select name, shape, bytes, needed_bytes, {_WASTED} as padding, bytes / nullif(needed_bytes, 0) from buffers
            where heap = $heap and padding > 0 order by padding desc, rowid""",
        rows="buffers",
        facts=f"""
            select in_bytes(sum(padding_bytes)) as padded, in_bytes($peak) as whole, case when sum(padding_bytes) >
                {_PADDING_BYTES} then 'much: the shapes do not fit the tiles' else 'little' end as verdict
            from answer""",
        notes=(
            "{padded} of {whole} at the peak are padding: {verdict} (500 MiB is the published limit). The sum is over "
            "the buffers, because XProf's sum leaves out arguments and results.",
        ),
        empty="no buffer alive at the peak of {module} is padded",
    ),
    _planned(
        name="vocabulary",
        title="Vocabulary-sized buffers",
        columns="buffer;shape;category=what for;bytes=stored;operation=from",
        query=f"""
            select name, shape, category, bytes, op_name from buffers
            where heap = $heap and longest >= {VOCABULARY_ELEMENTS}
            order by rowid""",
        facts="select in_bytes(sum(bytes)) as together from answer",
        notes=(f"{{together}} together. {_LOGITS_HINT}",),
        empty=f"no buffer alive at the peak of {{module}} has a dimension of {VOCABULARY_ELEMENTS:,} or more",
    ),
    _planned(
        name="retained",
        title="Temporary buffers that are kept long",
        columns="buffer;shape;bytes=stored;lives=lives for:fraction;level;operation=from",
        query=f"""
            select l.name, shape, bytes, (last - first) / changes as part, case
                when part >= {_VERY_LONG} and bytes >= {_LARGE_BYTES} then 'critical' when part >= 0.5 then 'warning'
                else 'notice' end, op_name
            from lives l join heaps using (heap) where heap = $heap and part >= {_LONG} order by bytes desc, l.rowid
            limit $top""",
        notes=(
            "lives for: share of the schedule. If gathered weights of all layers are listed, gather them one layer at "
            "a time. jax.checkpoint (rematerialisation) shortens the life of activations.",
        ),
        empty="no temporary buffer of {module} lives for 30 % of its schedule",
    ),
    _planned(
        name="alike",
        title="Buffers of the same shape alive at once",
        columns="shape;count;bytes=together",
        query="""
            select shape, count(*), sum(bytes) as size from buffers where heap = $heap and shape != ''
            group by 1 having count(*) > 1 order by size desc, min(rowid)""",
        rows="shapes",
        empty="no two buffers alive at the peak of {module} have the same shape",
    ),
    _planned(
        name="spikes",
        title="Largest jumps of the planned heap",
        columns="instruction;place=at:fraction;grows_bytes=grows by;bytes=to;is_peak=peak",
        query=f"""
            select instruction, place / changes, grows, bytes, place is not distinct from peak_place from (
                select *, bytes - lag(bytes) over (order by place) as grows from heap_levels where heap = $heap)
            join heaps using (heap) where grows > 0 order by grows desc, place limit {_SPIKES}""",
        empty="the heap of {module} does not grow within its schedule",
    ),
    _planned(
        name="estimate",
        title="The peak against the estimate from the parameters",
        columns="parameters:count;estimate_bytes=estimate (predicted);static_peak_bytes=planned peak (static);"
        "parameter_bytes=parameters take;optimizer_bytes=optimizer takes",
        query=f"""
            select sum(elements)::BIGINT as parameters, parameters * {TRAINING_BYTES_PER_PARAMETER},
                any_value(peak_bytes), sum(bytes),
                (select coalesce(sum(bytes), 0) from buffers where heap = $heap and category = '{OPTIMIZER}')
            from buffers join heaps using (heap) where heap = $heap and category = '{PARAMETERS}'
            having count(*) > 0""",
        facts="select optimizer_bytes = 0 as none from answer",
        notes=(
            "16 bytes per parameter: weights 2, gradients 2, Adam 4 + 4, master copy 4; activations need more memory.",
            "No optimizer state is alive: for inference expect 2 bytes per parameter (bf16).{none:?}",
        ),
        origin="mixed",
        empty="no argument of {module} has a parameter's name",
    ),
    _planned(
        name="activations",
        title="Activations over the schedule",
        columns="half;first_bytes=begins with;most_bytes=most;last_bytes=ends with;made_bytes=made;rises:count",
        query=f"with {_HALVES} select half, first, most, last, made, rises from halves order by nth",
        facts=f"""
            select case when b.made_bytes > {_RISE} * f.most_bytes then in_bytes(b.made_bytes) end as again,
                in_bytes(b.first_bytes) as kept, case when again is null then in_bytes(f.most_bytes) end as all_kept
            from answer f join answer b on f.half = 'forward' and b.half = 'backward'""",
        notes=(
            "Activations fall and rise in the backward half: {again} are recomputed (jax.checkpoint), {kept} are kept.",
            "Activations only fall in the backward half: all {all_kept} are kept, nothing is recomputed. "
            "jax.checkpoint would save this memory, but needs a second forward pass.",
            "JAX's names show which temporaries are activations: those of the forward pass and of its recomputation.",
        ),
        empty="{module} keeps no temporary of a forward pass for a backward pass: it is not a training step, or a loop "
        "contains both passes",
    ),
    _planned(
        name="remedies",
        title="What would make the peak smaller",
        columns="remedy!;saved_bytes=saves at most;saved_fraction=of the peak;of;how",
        query=f"""
            with {_REMEDIES} select remedy, saved, saved / $peak, of_, how from remedies
            where saved > 0 order by saved desc, place""",
        notes=(
            "Upper bounds from the buffers alive at the peak: after a change the peak may move to another moment, and "
            "the compiler may plan differently.",
        ),
        empty="no buffer alive at the peak of {module} has the name of a parameter, an optimizer's state, logits or "
        "an activation",
    ),
)


def memory(capture: Capture, top: int = 10, module: str | None = None) -> tuple[Table, ...]:
    """Tables of the allocator's view (measured), and of the compiler's plan (static) for `module`, or the largest.

    Raises RatchetError if the capture cannot be converted, UsageError `unknown-module`.
    """
    return _tables(capture, MEMORY, MEMORY_PLANNED, top, module)


def diagnose(capture: Capture, top: int = 10, module: str | None = None) -> tuple[Table, ...]:
    """Findings on the allocator's view, and on the memory of `module`, or of the largest. Raises like `memory`."""
    return _tables(capture, DIAGNOSE, DIAGNOSE_PLANNED, top, module)


def _tables(
    capture: Capture, seen: Sequence[Analysis], planned: Sequence[Analysis], top: int, module: str | None
) -> tuple[Table, ...]:
    database = database_of(capture)
    heap = _chosen(database, module)
    words: Facts = {"top": top, "heap": heap, "composition": "Composition at the planned peak"}
    for name, peak in database.rows("select module, peak_bytes from heaps where heap = $heap", heap=heap):
        words |= {"module": name, "peak": peak, "composition": f"Composition of {name} at its planned peak"}
    why = _NO_MODULES if heap is None else ""
    shown = tables(database, seen, is_about_devices=False, **words)
    return (*shown, *tables(database, planned, why, is_about_devices=False, **words))


def _chosen(database: Database, module: str | None) -> int | None:
    """The HBM heap of `module`, or of the largest module; None if there is no heap.

    Raises UsageError `unknown-module`.
    """
    query = """select min(heap) from heaps where space = 'HBM'
        and ($module is null or module = $module or split_part(module, '(', 1) = $module)"""
    heap: int | None = database.rows(query, module=module)[0][0]
    if module is not None and heap is None:
        modules = database.rows("select string_agg(distinct module, ', ' order by module) from heaps")[0][0] or "none"
        raise UsageError("unknown-module", f"expected one of the capture's modules ({modules}), got {module!r}")
    return heap


def peak_of(capture: Capture) -> tuple[float | None, str]:
    """Peak HBM of the fullest memory (from the allocator, else from the compiler's plan), and the figure's meaning."""
    database = database_of(capture)
    query = f"select actual_bytes, {_USED} as used from memories order by used desc limit 1"
    for actual, used in database.rows(query):
        if actual is None:
            return used, "reserved + allocated; the memory in use is unknown"
        return actual, "reserved + allocated" if actual == used else "reserved - available"
    ((peak,),) = database.rows(f"select {_STATIC}")
    return (peak, "unknown") if peak is None else (peak, "planned, an upper bound")


def estimate_of(capture: Capture) -> tuple[float | None, float]:
    """The planned peak of the largest module (None without modules), and 16 bytes for each of its parameters."""
    database = database_of(capture)
    heap = _chosen(database, None)
    query = f"""select peak_bytes, (select coalesce(sum(elements), 0) * {TRAINING_BYTES_PER_PARAMETER} from buffers b
        where b.heap = h.heap and category = '{PARAMETERS}') from heaps h where heap = $heap"""
    rows: list[tuple[Any, ...]] = database.rows(query, heap=heap)
    return (rows[0][0], rows[0][1]) if rows else (None, 0.0)
