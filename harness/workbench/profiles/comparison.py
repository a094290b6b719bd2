"""Two captures against each other: by category and operation, and as a report wants them."""

from collections.abc import Iterator

from harness.records import Capture, Table
from harness.units import change
from harness.workbench.profiles.analysis import Analysis, Facts, run
from harness.workbench.profiles.ceilings import ROOF
from harness.workbench.profiles.database import Database, Row, TableOf, opened
from harness.workbench.profiles.memory import peak_of
from harness.workbench.profiles.op_times import comparable

# What runs on the matrix units, as far as XLA counts it.
_ON_MXU = "class in ('matmul', 'attention', 'custom kernel')"
# Operations by name. Two modules with one name in common: together, as module numbers change from run to run.
_SIDE = """
    select name, arg_min(kind, rank), arg_min(framework_name, rank), arg_min(source, rank),
        sum(self_seconds) / coalesce(case when $per_step then (select steps from step_counts) end, (select devices
            from step_counts)),
        min(rank) from times group by 1"""
_TABLE = """
    name VARCHAR           of the operation
    kind VARCHAR           its category
    framework_name VARCHAR its tf_op
    source VARCHAR         its line
    seconds DOUBLE         self time by step and device
    rank INTEGER           by time
    """
# Operations of one name; of the rest those that alone on each side have a category, tf_op and source in common: the
# compiler numbers fusions anew each time, and what is called `fusion.7` in one may be `fusion.9` in the other.
_PAIRS = """
    left_a as (select *, count(*) over (partition by kind, framework_name, source) as alike from a where name not in
        (select name from b)),
    left_b as (select *, count(*) over (partition by kind, framework_name, source) as alike from b where name not in
        (select name from a)),
    pairs as (
        select a.name, b.name as now, b.kind, a.kind as was_kind, a.seconds as old, b.seconds as new, 'changed' as
            what, 1 as place, a.rank
        from a join b using (name)
        union all
        select a.name, b.name, b.kind, a.kind, a.seconds, b.seconds, 'was ' || a.name, 2, a.rank
        from left_a a join left_b b using (kind, framework_name, source) where a.alike = 1 and b.alike = 1 and
            framework_name != ''
        union all
        select name, name, kind, kind, seconds, null, 'vanished', 3, rank from left_a a
        where not exists (from left_b b where b.kind = a.kind and b.framework_name = a.framework_name and b.source =
            a.source
            and a.alike = 1 and b.alike = 1 and a.framework_name != '')
        union all
        select name, name, kind, kind, null, seconds, 'new', 4, rank from left_b b
        where not exists (from left_a a where b.kind = a.kind and b.framework_name = a.framework_name and b.source =
            a.source
            and a.alike = 1 and b.alike = 1 and b.framework_name != ''))"""
_RATIO = "new / nullif(old, 0)"
_CHANGES = "a_seconds=A;b_seconds=B;change_seconds=change;time_ratio=B/A"
_TOTALS = Analysis(
    name="totals",
    title="A = {a_name}, B = {b_name}",
    columns=f"what;{_CHANGES}",
    query=f"""
        with {_PAIRS},
        totals as (
            select 1 as place, 'step, median' as what, $a_step as old, $b_step as new where $a_step is not null and
                $b_step is not null
            union all
            select 2, 'all operations', coalesce(sum(old), 0), coalesce(sum(new), 0) from pairs
            union all
            select case what when 'new' then 3 else 4 end, count(*) || ' ' || what, nullif(coalesce(sum(old), 0), 0),
                nullif(coalesce(sum(new), 0), 0) from pairs where what in ('new', 'vanished') group by pairs.what)
        select what, old, new, coalesce(new, 0) - coalesce(old, 0), {_RATIO} from totals order by place""",
    notes=(
        "Self time by step and device, so that captures of different length compare. B/A below 1: B is "
        "faster.{per_step}",
        "Self time by device over the whole capture: one of them shows no steps, so mind their lengths.{no_step}",
        "The devices differ: A ran on {a_kinds}, B on {b_kinds}.",
        "The number of devices differs: {a_count} in A, {b_count} in B.",
    ),
)
_CATEGORIES = Analysis(
    name="categories",
    title="Change by category, largest first",
    columns=f"category;{_CHANGES}",
    query=f"""
        with {_PAIRS},
        sums as (
            select kind, sum(old) as old, sum(new) as new, min(place) as place, min(rank) as rank from (
                select was_kind as kind, old, null as new, 1 as place, rank from pairs where old is not null
                union all select kind, null, new, 2, rank from pairs where new is not null) group by 1)
        select kind, old, new, coalesce(new, 0) - coalesce(old, 0) as change, {_RATIO} from sums
        order by abs(change) desc, place, rank""",
)
_OPERATIONS = Analysis(
    name="operations",
    title="Change by operation, largest first",
    columns=f"operation;what;{_CHANGES};category",
    query=f"""
        with {_PAIRS}
        select now, what, old, new, coalesce(new, 0) - coalesce(old, 0) as change, {_RATIO}, kind
        from pairs order by abs(change) desc, place, rank limit $top""",
    facts=f"with {_PAIRS} select case when count(*) > $top then count(*) end as known from pairs",
    notes=("{top} of {known} operations are shown.",),
)


def compare(a: Capture, b: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Totals, categories, then every operation by the size of its change; with `top` only so many operations.

    Raises RatchetError `not-comparable` like `comparable`.
    """
    why = comparable(a, b)
    first, other = opened(a), Database(b)
    sides = [database.facts(
        "select steps, devices, (select median(seconds) from steps join devices using (device) where is_main) as step,"
        " (select string_agg(distinct coalesce(nullif(kind, ''), platform), ', ' order by coalesce(nullif(kind, ''), "
        "platform))"
        " from devices where is_main) as kinds from step_counts"
    ) for database in (first, other)]  # fmt: skip
    per_step = all(side["steps"] for side in sides)
    for name, database in (("a", first), ("b", other)):
        first.add(TableOf(name, "", _TABLE), [] if why else database.rows(_SIDE, per_step=per_step))
    kinds, counts = ([side[key] for side in sides] for key in ("kinds", "devices"))
    words: Facts = {
        "a_step": sides[0]["step"], "b_step": sides[1]["step"], "top": top, "a_name": a.name, "b_name": b.name,
        "per_step": "" if per_step else None, "no_step": None if per_step else "",
        "a_kinds": kinds[0] if kinds[0] != kinds[1] else None, "b_kinds": kinds[1],
        "a_count": counts[0] if counts[0] != counts[1] else None, "b_count": counts[1],
    }  # fmt: skip
    return tuple(table for each in (_TOTALS, _CATEGORIES, _OPERATIONS) if (table := run(first, each, words, why)))


# A capture's figures, NULL where it does not say one. Times are of one step of one device; `step` is that of the
# slowest
# device: the others wait for it. MXU: FLOPs of matmuls and kernels over what the peak allows in all steps.
_FIGURES = f"""
    with {ROOF}, by_device as (
        select device, median(seconds) as step, sum(seconds) as seconds from steps join devices using (device) where
            is_main group by 1),
    possible as (
        select case when count(*) filter (s.seconds is null or peak_flops_per_second is null) = 0
            then sum(peak_flops_per_second * s.seconds) end as flops
        from devices d left join by_device s using (device) where is_main)
    select (select max(step) from by_device),
        (select sum(flops) from work where is_main and is_work and step is not null and {_ON_MXU}) / (select
            nullif(flops, 0) from possible),
        name, self_seconds / coalesce(steps, devices), share from times, step_counts where rank = 1"""
_ROWS = TableOf("sides", "", """
    place INTEGER          baseline first
    side VARCHAR           which
    run VARCHAR            its name
    step DOUBLE            seconds
    ratio DOUBLE           of the baseline's step
    mxu DOUBLE             fraction
    hottest VARCHAR        operation
    hottest_seconds DOUBLE its time
    share DOUBLE           its share
    peak DOUBLE            bytes of HBM
    peak_from VARCHAR      which figure it is
    """)  # fmt: skip
_REPORT = Analysis(
    name="report",
    title="{a_name} -> {b_name}",
    columns="side=;run!;step_seconds=step;time_ratio=of baseline;mxu_fraction=MXU;hottest_operation=hottest op;"
    "hottest_seconds=its time;hottest_share=its share;peak_hbm_bytes=peak HBM;peak_from=peak is",
    query="select * exclude (place) from sides order by place",
    notes=(
        "Step time {change}: the median step of the slowest device. Whether that is more than chance says the "
        "ratchet's own "
        "verdict, not this table.",
        "A capture without steps and module runs has no step time.{no_step}",
        "MXU: FLOPs of matmuls and kernels as XLA counts them over peak x time of the steps; a lower bound.",
        "The peaks are not the same figure ({peaks}), so there is no difference.",
    ),
)


def report(baseline: Capture, experiment: Capture) -> tuple[Table, ...]:
    """The table of baseline, experiment and delta. Raises RatchetError `not-comparable` like `comparable`."""
    why = comparable(baseline, experiment)
    first = opened(baseline)
    words: Facts = {"a_name": baseline.name, "b_name": experiment.name}
    rows = [] if why else list(_sides(first, Database(experiment)))
    first.add(_ROWS, rows)
    if rows:
        ratio, froms = rows[1][4], [row[-1] for row in rows[:2]]
        words |= {
            "change": None if ratio is None else change(ratio), "no_step": "" if ratio is None else None,
            "peaks": "; ".join(froms) if froms[0] != froms[1] else None,
        }  # fmt: skip
    table = run(first, _REPORT, words, why)
    assert table is not None
    return (table,)


def figures_of(database: Database) -> list[Row]:
    """Step, MXU, hottest operation with its time and share, peak and which figure it is; none where nothing ran."""
    return [(*row, *peak_of(database.capture)) for row in database.rows(_FIGURES)]


def _sides(*databases: Database) -> Iterator[Row]:
    old, new = (figures_of(database)[0] for database in databases)
    ratio = new[0] / old[0] if old[0] and new[0] is not None else None
    yield 0, "baseline", databases[0].capture.name, old[0], None, *old[1:]
    yield 1, "experiment", databases[1].capture.name, new[0], ratio, *new[1:]

    def minus(at: int) -> float | None:
        return new[at] - old[at] if new[at] is not None and old[at] is not None else None

    same = "the same" if old[2] == new[2] else "another"
    yield (
        2,
        "delta",
        None,
        minus(0),
        None,
        minus(1),
        same,
        minus(3),
        minus(4),
        minus(5) if old[6] == new[6] else None,
        None,
    )
