"""Comparison of two captures: by category and operation, and as the table of a report."""

from harness.records import Capture, Table
from harness.workbench.profiles.analysis import Analysis, Facts, tables
from harness.workbench.profiles.database import Database, Row, database_of
from harness.workbench.profiles.memory import peak_of
from harness.workbench.profiles.op_times import comparable

# Operations that may use the matrix units.
_ON_MXU = "class in ('matmul', 'attention', 'custom kernel')"
# Operations by name, summed over all modules, because module numbers change from run to run.
_SIDE = """
    select $side, name, arg_min(kind, rank), arg_min(framework_name, rank), arg_min(source, rank),
        case when $per_step then sum(in_steps_seconds) / (select steps from step_counts)
            else sum(self_seconds) / (select devices from step_counts) end,
        min(rank) from times group by name"""
_SIDES = (
    "side VARCHAR, name VARCHAR, kind VARCHAR, framework_name VARCHAR, source VARCHAR, seconds DOUBLE, rank INTEGER"
)
# Operations of the two captures are paired by name. The remaining operations are paired by category, tf_op and source,
# if they have a tf_op and only one operation of each capture matches. The compiler numbers fusions anew each time, so
# `fusion.7` of one capture may be `fusion.9` of the other.
_PAIRS = """
    create or replace temp view pairs as
    with named as (select *, count(*) over (partition by name) = 1 as is_alone from sides),
    keyed as (
        select *, case when not is_alone then [name]
            when framework_name != '' and count(*) filter (side = 'a') over alike = 1
                and count(*) filter (side = 'b') over alike = 1 then [kind, framework_name, source]
            else [side, name] end as key
        from named window alike as (partition by is_alone, kind, framework_name, source))
    select coalesce(b.name, a.name) as now, coalesce(b.kind, a.kind) as kind, coalesce(a.kind, b.kind) as was_kind,
        a.seconds as old, b.seconds as new, coalesce(a.rank, b.rank) as rank,
        case when b.name is null then 3 when a.name is null then 4 when a.name = b.name then 1 else 2 end as place,
        ['changed', 'was ' || a.name, 'vanished', 'new'][place] as what
    from (from keyed where side = 'a') a full join (from keyed where side = 'b') b on a.key = b.key"""
_RATIO = "new / nullif(old, 0)"
_CHANGES = "a_seconds=A;b_seconds=B;change_seconds=change;time_ratio=B/A"
_COMPARISON = (
    Analysis(
        name="totals",
        title="A = {a_name}, B = {b_name}",
        columns=f"what;{_CHANGES}",
        query=f"""
            with totals as (
                select 1 as place, 'step, median' as what, $a_step as old, $b_step as new
                where $a_step is not null and $b_step is not null
                union all
                select 2, 'all operations', coalesce(sum(old), 0), coalesce(sum(new), 0) from pairs
                union all
                select 7 - place, count(*) || ' ' || what, nullif(coalesce(sum(old), 0), 0),
                    nullif(coalesce(sum(new), 0), 0) from pairs where place in (3, 4) group by pairs.place, pairs.what)
            select what, old, new, coalesce(new, 0) - coalesce(old, 0), {_RATIO} from totals order by place""",
        notes=(
            "Self time per step and device, so that captures of different length can be compared. B/A below 1: B is "
            "faster.{per_step:?}",
            "Self time per device over whole captures, because a capture shows no steps: check that both captures are "
            "equally long.{no_step:?}",
            "The devices differ: A ran on {a_kinds}, B on {b_kinds}.",
            "The number of devices differs: {a_count} in A, {b_count} in B.",
        ),
    ),
    Analysis(
        name="categories",
        title="Change by category, largest first",
        columns=f"category;{_CHANGES}",
        query=f"""
            with sums as (
                select kind, sum(old) as old, sum(new) as new, min(place) as place, min(rank) as rank from (
                    select was_kind as kind, old, null as new, 1 as place, rank from pairs where old is not null
                    union all
                    select kind, null, new, 2, rank from pairs where new is not null) group by 1)
            select kind, old, new, coalesce(new, 0) - coalesce(old, 0) as change, {_RATIO} from sums
            order by abs(change) desc, place, rank""",
    ),
    Analysis(
        name="operations",
        title="Change by operation, largest first",
        columns=f"operation;what;{_CHANGES};category",
        query=f"""
            select now, what, old, new, coalesce(new, 0) - coalesce(old, 0) as change, {_RATIO}, kind
            from pairs order by abs(change) desc, place, rank""",
        rows="operations",
        notes=("{top} of {known} operations are shown.",),
    ),
)


def compare(a: Capture, b: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Tables of the changes of totals, of categories, and of the `top` operations with the largest changes.

    Raises RatchetError `not-comparable` like `comparable`.
    """
    why = comparable(a, b)
    first, other = database_of(a), Database(b)
    query = """
        select step_counts.steps, step_counts.devices, (select seconds from step_median) as step,
            (select string_agg(distinct coalesce(nullif(kind, ''), platform), ', ' order by coalesce(nullif(kind, ''),
                platform)) from devices where is_main) as kinds from step_counts"""
    old, new = first.facts(query), other.facts(query)
    per_step = bool(old["steps"] and new["steps"])
    rows = [row for side, of in (("a", first), ("b", other)) for row in of.rows(_SIDE, side=side, per_step=per_step)]
    first.add("sides", _SIDES, [] if why else rows)
    first.rows(_PAIRS)
    words: Facts = {
        "a_step": old["step"],
        "b_step": new["step"],
        "top": top,
        "a_name": a.name,
        "b_name": b.name,
        "per_step": per_step,
        "no_step": not per_step,
        "a_kinds": old["kinds"] if old["kinds"] != new["kinds"] else None,
        "b_kinds": new["kinds"],
        "a_count": old["devices"] if old["devices"] != new["devices"] else None,
        "b_count": new["devices"],
    }
    return tables(first, _COMPARISON, why, **words)


# A capture's figures; unknown figures are NULL. Times are of one step of one device. `step` is the step of the slowest
# device, for which the others wait. MXU: FLOPs of matmuls and kernels / FLOPs that the peak allows in all steps.
_FIGURES = f"""
    with by_device as (
        select device, median(seconds) as step, sum(seconds) filter (is_recorded) as seconds,
            any_value(peak_flops_per_second) as peak
        from devices left join steps using (device) where is_main group by 1),
    each as (
        select name, rank, case when steps is null then self_seconds / devices else in_steps_seconds / steps end as took
        from times, step_counts)
    select (select max(step) from by_device),
        (select sum(flops) from work where is_main and is_work and in_recorded(step) and {_ON_MXU})
            / (select nullif(sum(peak * seconds), 0) from by_device having count(peak * seconds) = count(*)),
        name, took, took / nullif((select sum(took) from each), 0) from each order by took desc, rank limit 1"""
_FIGURE_TABLE = (
    "place INTEGER, step DOUBLE, mxu DOUBLE, hottest VARCHAR, hottest_seconds DOUBLE, share DOUBLE, peak DOUBLE, "
    "peak_from VARCHAR"
)
_METRIC_COLUMNS = (
    "mxu_fraction=MXU;hottest_operation=hottest op;hottest_seconds=its time;hottest_share=its share;"
    "peak_hbm_bytes=peak HBM;peak_from=peak is"
)
METRICS = Analysis(
    name="metrics",
    title="The four metrics of a report",
    columns=f"step_seconds=step;{_METRIC_COLUMNS}",
    query="select * exclude (place) from figures",
    notes=("Times are of one step of one device; a second capture adds a comparison.",),
    empty="nothing ran in the capture",
)
_REPORT = Analysis(
    name="report",
    title="{a_name} -> {b_name}",
    columns=f"side=;run!;step_seconds=step;time_ratio=of baseline;{_METRIC_COLUMNS}",
    query="""
        with a as (from figures where place = 0), b as (from figures where place = 1)
        select 'baseline', $a_name, step, null, a.* exclude (place, step) from a
        union all
        select 'experiment', $b_name, b.step, b.step / nullif(a.step, 0), b.* exclude (place, step) from a, b
        union all
        select 'delta', null, b.step - a.step, null, b.mxu - a.mxu,
            case when b.hottest = a.hottest then 'the same' else 'another' end, b.hottest_seconds - a.hottest_seconds,
            b.share - a.share, case when b.peak_from = a.peak_from then b.peak - a.peak end, null from a, b""",
    facts="""
        select new.step / nullif(old.step, 0) as ratio, ratio is null as no_step,
            case when new.peak_from != old.peak_from then old.peak_from || '; ' || new.peak_from end as peaks
        from figures old join figures new on old.place = 0 and new.place = 1""",
    notes=(
        "Step time {ratio:c}: the median step of the slowest device. This table does not show whether the difference "
        "is more than chance; the ratchet's verdict does.",
        "A capture without steps and module runs has no step time.{no_step:?}",
        "MXU = FLOPs of matmuls and kernels (XLA's count) / (peak x time of the steps); a lower bound.",
        "The two peaks are figures of different kinds ({peaks}), so their difference is not shown.",
    ),
)


def report(baseline: Capture, experiment: Capture) -> tuple[Table, ...]:
    """A table of baseline, experiment and delta. Raises RatchetError `not-comparable` like `comparable`."""
    why = comparable(baseline, experiment)
    database = database_of(baseline)
    add_figures(database, *(() if why else (database, Database(experiment))))
    return tables(database, (_REPORT,), why, a_name=baseline.name, b_name=experiment.name)


def add_figures(database: Database, *of: Database) -> None:
    """Adds the figures of captures to `database`; a capture in which nothing ran has no figures."""
    rows: list[Row] = []
    for place, each in enumerate(of):
        rows += [(place, *row, *peak_of(each.capture)) for row in each.rows(_FIGURES)]
    database.add("figures", _FIGURE_TABLE, rows)
