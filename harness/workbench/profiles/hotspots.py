"""Time by operation, framework operation, class, direction, source line and named scope."""

from collections.abc import Iterator

from harness.errors import UsageError
from harness.records import Capture, Table
from harness.units import decimal
from harness.workbench.profiles.analysis import Analysis, tables
from harness.workbench.profiles.classes import CLASSES, FRAMEWORK_CATEGORIES
from harness.workbench.profiles.database import Database, Row, made_on_demand

# Protocol, section 6: if data formatting takes more than this share of a step, check the sharding.
FORMATTING_LIMIT = 0.05
# Protocol, section 3, item 5: if exp takes more than this share, the vector unit binds.
_EXPONENTIAL_LIMIT = 0.10
# Section 6 again: a mixture-of-experts layer runs four GMMs (two forward, two backward) and two TGMMs (backward).
_GMMS, _TGMMS = 4, 2
NO_SCOPE = "(no tf_op)"
_TIME = "self_seconds=self time;share;count=runs"
_SHARES = "self_seconds=self time;share;step_seconds=per step;count=runs"
UNCOUNTED_NOTE = (
    "{uncounted:%} of the time is in custom calls with a count of 0 FLOPs, shown as unknown: the FLOPs of a Pallas "
    "kernel are counted only if it has pl.CostEstimate."
)
EXECUTED_NOTE = (
    "FLOP rates use the executed FLOPs that XLA and pl.CostEstimate count, including masked and recomputed FLOPs."
)


def useful_note(database: Database, flops: float | None) -> str | None:
    """A sentence on the rate of useful FLOPs (`flops` in one run); None if the FLOPs or the runs are unknown."""
    query = "select $flops * any_value(steps) / nullif(sum(in_steps_seconds), 0) from step_counts, times"
    ((rate,),) = database.rows(query, flops=flops)
    if flops is None or rate is None:
        return None
    counted = f"{decimal(flops, 'FLOP')} a run, {decimal(rate, 'FLOP/s')}"
    return f"Useful FLOPs, as the contest of the attempt counts them: {counted}."


OPS = Analysis(
    name="ops",
    title="Time by HLO operation",
    columns="operation;category;self_seconds=self time;share;seconds=total;count=runs;mean_seconds=mean;"
    "flops_per_second=FLOP rate;bytes_per_second=bandwidth",
    # A half of an asynchronous operation has no bandwidth, because its bytes do not move during its own time.
    query="""
        select name, case category when '' then class else category end, self_seconds, share, seconds, count,
            self_seconds / count, flops * count / nullif(self_seconds, 0),
            case when half = '' then bytes_accessed * count / nullif(self_seconds, 0) end
        from times order by rank""",
    rows="operations",
    facts="""
        select whole, on_devices as devices, uncounted,
            (select bool_or(half != '' and bytes_accessed > 0) from times) as halves
        from step_counts, whole""",
    more=lambda database, words: {"useful": useful_note(database, words["useful_flops"])},
    notes=(
        "All operations together: {whole:s} of self time, summed over {devices}.{cut}",
        EXECUTED_NOTE,
        "Starts and ends of asynchronous operations have no bandwidth: the bytes move between start and end.{halves:?}",
        "{useful}",
        UNCOUNTED_NOTE,
    ),
)

_CATEGORIES = Analysis(
    name="categories",
    title="Time by framework category",
    columns=f"category;{_TIME}",
    query="""
        select framework_category, sum(self_seconds) as took, took / nullif(sum(took) over (), 0), sum(count)
        from times group by 1 order by took desc, min(rank)""",
)
_FRAMEWORK_OPS = Analysis(
    name="framework_ops",
    title="Time by framework operation",
    columns=f"framework_name=framework operation (tf_op);category;direction;{_TIME}",
    query="""
        select case framework_name when '' then '(no tf_op in the capture)' else framework_name end, framework_category,
            direction, sum(self_seconds) as took, took / nullif((select sum(self_seconds) from times), 0), sum(count)
        from times where $categories = '' or list_contains(string_split($categories, ','), framework_category)
        group by 1, 2, 3 order by took desc, min(rank)""",
    rows="framework operations",
    facts="""
        with found as (
            select framework_category as category, sum(self_seconds) as took, min(rank) as place from times group by 1)
        select sum(self_seconds) as whole, any_value(on_devices) as devices,
            sum(self_seconds) filter (framework_name = '') / nullif(sum(self_seconds), 0) as unnamed,
            replace($categories, ',', ', ') as asked,
            (select string_agg(category, ', ' order by took desc, place) from found) as there
        from times, step_counts""",
    notes=(
        "All framework operations together: {whole:s} of self time, summed over {devices}.{cut}",
        "{unnamed:%} of the time has no tf_op: there the operation's own name decides the category.",
    ),
    empty="no operation belongs to {asked}; the categories of this capture are {there}",
)


def framework_ops(capture: Capture, categories: str, top: int | None) -> tuple[Table, ...]:
    """Tables of time by framework category, and by tf_op in `categories` (separated by commas; "": all).

    Raises UsageError `unknown-category`.
    """
    for name in categories.split(",") if categories else ():
        if name not in FRAMEWORK_CATEGORIES:
            listed = ", ".join(FRAMEWORK_CATEGORIES)
            raise UsageError("unknown-category", f"expected a framework category, one of {listed}, got {name!r}")
    return tables(capture, (_CATEGORIES, _FRAMEWORK_OPS), categories=categories, top=top)


LINES = Analysis(
    name="lines",
    title="Time by source line",
    columns=f"source=source line;{_TIME};longest=longest operation",
    query="""
        select case source when '' then '(no source in the capture)' else source end, sum(self_seconds) as took,
            took / nullif((select sum(self_seconds) from times), 0), sum(count), arg_min(name, rank)
        from times where (select bool_or(source != '') from times)
        group by 1 order by took desc, min(rank)""",
    rows="lines",
    facts="select nullif(sum(self_seconds) filter (source = ''), 0) / sum(self_seconds) as unnamed from times",
    notes=(
        "A fusion counts for the line that its metadata names, although it may contain work of several lines.",
        "{unnamed:%} of the time names no line.",
        "{top} of {known} lines are shown.",
    ),
    empty="no operation of the capture names its source line: simulated captures have none (for an attempt, use "
    "`ratchet.sh lines`), and other captures only have the source lines that the compiler kept",
)


@made_on_demand("""scopes: a named scope around an operation; the innermost is the operation's own name
    operation INTEGER      of operations
    depth INTEGER*         its depth: 1 is the outermost
    path VARCHAR*          the scopes from the outermost down to it
    scope VARCHAR*         its own name
""")
def scopes_table(database: Database) -> Iterator[Row]:
    for operation, name in database.rows("select operation, framework_name from operations order by operation"):
        path = segments(name) or (NO_SCOPE,)
        for depth in range(1, len(path) + 1):
            yield operation, depth, "/".join(path[:depth]), path[depth - 1]


SCOPES = Analysis(
    name="scopes",
    title="Time by named scope",
    columns="scope;depth:count;seconds=time;share;roofline_share=at the roofline;count=runs",
    query="""
        with took as (
            select path, scope, depth, sum(t.self_seconds) as took, sum(t.count) as runs,
                sum(t.count * least_seconds) as least
            from scopes s join times t using (operation) where depth <= $depth group by all),
        -- Each scope follows the scope around it; scopes within the same scope are sorted by time, the longest first.
        ordered as (
            select one.path, list({'took': -above.took, 'scope': above.scope} order by above.depth) as place
            from took one join took above on above.depth <= one.depth and starts_with(one.path || '/', above.path ||
                '/')
            group by one.path)
        select repeat('  ', depth - 1) || scope, depth, took, took / nullif(whole, 0),
            least / nullif((select sum(count * least_seconds) from times), 0), runs
        from took join ordered using (path), whole
        where (whole = 0 or took >= $at_least * whole) and (select bool_or(framework_name != '') from times)
        order by place""",
    facts="""
        with took as (select path, sum(t.self_seconds) as took from scopes s join times t using (operation)
        where depth <= $depth group by 1)
        select nullif(count(*) filter (took < $at_least * (select sum(self_seconds) from times)), 0) as few
        from took""",
    notes=(
        "A scope's time includes the scopes in it; the last segment is the operation itself. At the roofline: the "
        "scope's share of the predicted time of all operations that have a prediction.",
        "Scopes left out because they take less than {at_least:%} of the time: {few}.",
    ),
    empty="no operation of the capture has a tf_op: simulated captures have none, other captures only with HLO "
    "metadata",
)

# The names of a layer's scope in flax, haiku, equinox and by hand: `layers_3`, `block/3`, `decoder.layer[3]`.
_LAYER = r"(?i)(?:layers?|blocks?|stage)[_./\[(]*(\d+)"
LAYERS = Analysis(
    name="layers",
    title="Time by layer",
    columns="layer;self_seconds=self time;share;forward_seconds=forward;backward_seconds=backward;"
    "roofline_share=at the roofline;longest=longest operation",
    query=f"""
        with numbered as (
            select *, try_cast(nullif(regexp_extract(framework_name, '{_LAYER}', 1), '') as integer) as layer
            from times)
        select layer, sum(self_seconds) as took, took / nullif((select whole from whole), 0),
            sum(self_seconds) filter (direction = 'forward'), sum(self_seconds) filter (direction = 'backward'),
            sum(count * least_seconds) / nullif((select sum(count * least_seconds) from times), 0), arg_min(name, rank)
        from numbered where layer is not null group by 1 order by 1""",
    notes=(
        "The layer is the first number after layer, block or stage in a tf_op; a loop over layers (scan) has none.",
    ),
    is_optional=True,
)
CHAINS = Analysis(
    name="chains",
    title="Unfused chains",
    columns="first=from;last=to;operations:count;bytes=moved now;fused_bytes=in one pass;saved_seconds=saves at most;"
    "source",
    query="select first, last, many, now, fused, saved, source from unfused order by saved desc",
    rows="chains",
    notes=(
        "A chain is a sequence of elementwise operations and reductions that writes a large array and reads it again. "
        "`in one pass`: the bytes without these writes and reads. Fuse the chain by hand, or see what keeps XLA from "
        "fusing it (several users, a layout, a loop).",
    ),
    is_optional=True,
)


def segments(framework_name: str) -> tuple[str, ...]:
    """The scopes of a tf_op, outermost first. A slash inside parentheses separates no scopes; a type is cut off."""
    parts, depth, start = [], 0, 0
    # XProf writes `path:type`, and the type is mostly empty.
    text = framework_name.rsplit(":", 1)[0] if ":" in framework_name else framework_name
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "/" and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return tuple(part for part in (*parts, text[start:]) if part)


# Operations outside the steps are not part of the steps' time.
_SHARE = """
    sum(self_seconds) as took, took / nullif(sum(took) over (), 0), sum(in_steps_seconds) / any_value(steps),
    sum(count)"""
BREAKDOWN = (
    Analysis(
        name="classes",
        title="Time by class of operation",
        columns=f"class;{_SHARES};longest=longest operation",
        query=f"""
            select class, {_SHARE}, arg_min(name, rank) from times, step_counts group by 1
            order by took desc, list_position({list(CLASSES)}, class)""",
        facts=f"""
            select any_value(on_devices) as devices, coalesce('; per step is the mean of what ran in steps ('
                    || any_value(what) || ': ' || any_value(steps) || ')', '; the capture shows no steps') as per,
                sum(self_seconds) filter (is_exponential) / nullif(sum(self_seconds), 0) as exponential,
                case when exponential > {_EXPONENTIAL_LIMIT} then exponential end as exponentials,
                sum(self_seconds) filter (class = 'data formatting') / nullif(sum(self_seconds), 0) as formatted,
                case when formatted > {FORMATTING_LIMIT} then formatted end as formatting
            from times, step_counts""",
        notes=(
            "Time is summed over {devices}{per}.",
            f"Exponentials take {{exponentials:%}}, over {_EXPONENTIAL_LIMIT:.0%}: the vector unit binds (protocol, "
            "section 3, item 5).",
            f"Data formatting takes {{formatting:%}}, over {FORMATTING_LIMIT:.0%}: look at sharding and layouts "
            "(protocol, section 6).",
        ),
    ),
    Analysis(
        name="directions",
        title="Forward and backward",
        columns=f"direction;known_by=known by;{_SHARES}",
        query=f"select direction, nullif(known_by, ''), {_SHARE} from times, step_counts group by 1, 2 "
        "order by took desc, min(rank)",
        notes=(
            "The direction comes from the tf_op (transpose(jvp(..)): backward, jvp(..): forward), else from the name. "
            "Neither: outside any derivative, such as an update, or unknown (protocol, section 6).",
        ),
    ),
    Analysis(
        name="experts",
        title="Mixture-of-experts layers",
        columns="kernel;count=runs;step_count=per step and device:;layers;self_seconds=self time",
        query=f"""
            select experts, sum(count), sum(in_steps_count) / any_value(steps) as each,
                each / case experts when 'GMM' then {_GMMS} else {_TGMMS} end, sum(self_seconds)
            from times, step_counts where experts is not null group by 1 order by 1""",
        facts=f"""
            select sum(in_steps_count) filter (experts = 'GMM') / {_GMMS} as gmm,
                sum(in_steps_count) filter (experts = 'TGMM') / {_TGMMS} as tgmm,
                gmm != tgmm and any_value(steps) > 0 as differ,
                any_value(steps) is null as unknown
            from times, step_counts""",
        notes=(
            f"Layers = GMM/{_GMMS} = TGMM/{_TGMMS} (protocol, section 6).",
            "The counts differ: recomputation repeats forward GMMs, and inference has no TGMM.{differ:?}",
            "The capture shows no steps, so runs per step are unknown.{unknown:?}",
        ),
        empty="no operation is called gmm or tgmm, so no mixture of experts with grouped matmuls ran",
    ),
    # In the backward pass a GMM computes the gradient of its input (dlhs), and the TGMM after it computes the gradient
    # of the weights (protocol, section 6).
    Analysis(
        name="backward_loops",
        title="Backward loops of experts: dlhs, then TGMM",
        columns="device;count=pairs;dlhs_seconds=dlhs;tgmm_seconds=TGMM;between_seconds=between;share",
        query="""
            with grouped as (
                select device, label, experts, name, self_seconds, end_seconds,
                    lead(experts) over (partition by device order by start_seconds) as after,
                    lead(self_seconds) over (partition by device order by start_seconds) as tgmm,
                    lead(start_seconds) over (partition by device order by start_seconds) - end_seconds as apart
                from work where is_main and experts is not null)
            select label, count(*), sum(self_seconds), sum(tgmm), sum(greatest(0, apart)),
                (sum(self_seconds) + sum(tgmm)) / nullif(any_value(whole), 0)
            from grouped, whole where experts = 'GMM' and after = 'TGMM' group by device, label order by device""",
        notes=("A pair is a GMM and the TGMM that follows it; the sums leave out the time between the two.",),
        is_optional=True,
    ),
)
BY_SCOPE = (SCOPES, LAYERS)
