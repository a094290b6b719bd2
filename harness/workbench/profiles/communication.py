"""Exposed communication by device, collective and mesh axis; SparseCores; shardings that avoid collectives."""

from collections.abc import Iterator, Mapping, Sequence

from harness import chips
from harness.chips.row import Links
from harness.errors import RatchetError, UsageError
from harness.hardware import DEFAULT_CHIP
from harness.hardware import chip as chip_named
from harness.hlo.sharding import Mesh
from harness.records import Capture, Operation, Table
from harness.units import decimal
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.interconnect import links
from harness.workbench.hlo.mesh import axes_of_groups, axes_of_pairs, groups_per_link, infer_mesh, torus_of, torus_sizes
from harness.workbench.hlo.resharding import LargeCollective, constraint_table, large_collectives, with_mesh
from harness.workbench.profiles import op_times
from harness.workbench.profiles.analysis import Analysis, Facts, tables
from harness.workbench.profiles.classes import COMMUNICATION, pair_name
from harness.workbench.profiles.collectives import FLIGHTS, CollectiveFacts, collective_of, times_on_an_axis
from harness.workbench.profiles.database import Database, Row, database_of, made_on_demand
from harness.workbench.profiles.graph import graphs_of
from harness.workbench.profiles.views import meets, overlap_of

# Prefixes of flags that overlap collectives of one kind with other work; use only one of them (protocol, section 7).
_FUSE = "xla_tpu_enable_async_collective_fusion"
_OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload"
_OFFLOADING = " or ".join(chips.having(lambda row: row.workbench.offloads_collectives))
_WITH_FLAGS = ("all-gather", "all-reduce", "reduce-scatter")
# A wait for this share of a collective's time in flight counts as a stall. Our choice, like the protocol's red flag for
# idle time.
_STALL = 0.10
# Collectives should run near the bandwidth; the bounds are those for all operations, 10 % and 2x (protocol, section 5).
_NEAR, _HALF = 0.9, 0.5
_UNKNOWN = "unknown"
# A note for a capture of only some of the hosts; `spanned` computes its figures.
SPANNED = (
    "The program runs on {program_devices} devices, but the capture shows only {seen_devices}: the work and the waits "
    "of the other devices are unknown."
)


@made_on_demand("""collectives: all runs of one collective on one device
    device INTEGER         of devices
    module VARCHAR         its program
    name VARCHAR*          its name, common to start and done
    kind VARCHAR*          all-gather, all-reduce ...; NULL if its HLO does not say
    devices INTEGER*       the number of devices in a group
    array_bytes DOUBLE*    the whole array: after a gather, or before a scatter
    bus_bytes DOUBLE*      bytes that cross the links of one device
    axes VARCHAR*          the axes of the mesh along which it runs, or unknown
    is_asynchronous BOOLEAN* whether it is a pair of start and done
    count INTEGER*         runs
    flights INTEGER*       the runs whose time in flight is known
    flight_seconds DOUBLE* from start to end, summed over these runs
    waited_seconds DOUBLE* the time in its done half; the whole time of a synchronous collective
    start_seconds DOUBLE*  the time in its start half
    least_seconds DOUBLE*  the least time of one run over one axis of the torus, NULL if not known
    line_seconds DOUBLE*   the same on a line (the ends are not joined), times the number of groups that share a link
""")
def collectives_table(database: Database) -> Iterator[Row]:
    """A row for each collective of each device."""
    options, flights = database.options, database.rows(FLIGHTS)
    graphs, options["unread"] = _graphs_or_note(database.capture) if flights else ({}, None)
    query = f"select operation, name, module, text, category from operations where class = '{COMMUNICATION}'"
    collectives = {
        number: collective_of(Operation(name=name, module=module, text=text, category=kind), graphs)
        for number, name, module, text, kind in database.rows(query)
    }
    every = [collectives[operation] for _, _, _, operation, *_ in flights]
    mesh = _mesh_of(options.get("mesh") or {}, every, graphs)
    network, devices = _network(database.capture), _devices_named(every)
    options |= {"graphs": graphs, "laid_out": mesh, "torus": (), "may_close": False}
    options["devices"] = max([devices, *(graph.module.devices for graph in graphs.values())])
    for device, module, pair, operation, *counts in flights:
        facts = collectives[operation]
        axes = "+".join(axes_of_groups(facts.groups, mesh) or axes_of_pairs(facts.pairs, mesh)) or _UNKNOWN
        sizes = facts.kind, facts.size, facts.array_bytes, facts.bus_bytes
        times = times_on_an_axis(facts, network)
        if times is None or network is None:
            yield device, module, pair, *sizes, axes, *counts, None, None
            continue
        sharing = groups_per_link(facts.groups, devices, network.axes) or 1
        if sharing > 1:
            options["torus"] = torus_sizes(devices, network.axes)
        options["may_close"] |= times.closes is None
        yield device, module, pair, *sizes, axes, *counts, times.least_seconds, sharing * times.line_seconds


def _reading(fraction: str) -> str:
    """SQL for a reading in words, from the `fraction` of one axis' bandwidth that a collective reaches."""
    return f"""case when {fraction} is null then 'unknown' when {fraction} > $axes then 'too fast: check the array'
        when {fraction} > 1 then 'uses several axes' when {fraction} >= {_NEAR} then 'near the link'
        when {fraction} >= {_HALF} then 'look' else 'far below' end"""


_NONE = "no operation of the capture is a collective, so XLA moved no data between devices"
_EXPOSED = Analysis(
    name="communication",
    title="Exposed communication",
    columns="device;flight_seconds=in flight;waited_seconds=waited;synchronous_seconds=synchronous;"
    "exposed_seconds=exposed;exposed_fraction=of busy time;hidden_fraction=hidden",
    # If a capture has only start halves, the wait for the collectives is unknown.
    query="""
        with known as (
            select d.device, coalesce(sum(flight_seconds), 0) as flight, coalesce(sum(waited_seconds), 0) as exposed,
                coalesce(sum(waited_seconds) filter (not is_asynchronous), 0) as synchronous
            from devices d left join collectives c using (device)
            group by 1 having bool_or(count > 0) or count(c.device) = 0)
        select label, nullif(flight, 0), exposed - synchronous, synchronous, exposed, exposed / nullif(busy, 0),
            case when flight > 0 then greatest(0, 1 - exposed / flight) end
        from devices left join known using (device) left join busy_times using (device)
        where is_main and exists (from collectives) order by device""",
    facts="select bool_or(platform = 'tpu') as tpu, not tpu as other from devices where is_main",
    notes=(
        "Exposed is the time in async-done operations (0 if everything is hidden) and in synchronous collectives "
        "(protocol, section 6).{tpu:?}",
        "Operations run concurrently on this device: exposed is the time in which only collectives ran.{other:?}",
        SPANNED,
        "{stalls}",
    ),
    empty=_NONE,
)
# Notes for a TPU: flags to try for each kind of collective that stalls, and the base flag if no collective overlaps.
_STALLS = f"""
    with others as (
        select distinct module from times where class != 'communication' and not is_container and self_seconds > 0),
    kinds as (
        select kind, sum(flight_seconds) as flight, sum(waited_seconds) as waited,
            bool_and(module not in (select module from others)) as is_alone,
            coalesce(nullif(string_agg(distinct module, ', ' order by module), ''), 'its program') as modules
        from collectives where device in (select device from devices where platform = 'tpu') group by 1
        having bool_or(flights > 0 and count > 0) and kind is not null),
    said as (
        select kind, kind || ' stalls for ' || in_percent(waited / flight) || ' of its time in flight: '
            || case when is_alone then 'nothing else runs in ' || modules || ', so no flag can hide it.'
            else 'try {_FUSE}_fuse_'
            || replace(kind, '-', '_') || ', or on {_OFFLOADING} {_OFFLOAD}_' || replace(kind, '-', '_')
            || ', not both (protocol, section 7).' end as note
        from kinds where kind in {_WITH_FLAGS} and flight > 0 and waited > {_STALL} * flight
        union all
        select '~', 'No collective overlaps with other work: try the base flag {_FUSE} (protocol, section 7).'
        from kinds having bool_and(waited >= flight) and not bool_and(is_alone))
    select note from said order by kind"""
_COLLECTIVES = Analysis(
    name="collectives",
    title="Collectives, mean of one run on one device",
    columns="collective;kind;devices=n:count;array_bytes=array;count=runs;flight_seconds=flight;waited_seconds=waited;"
    "bus_bytes_per_second=bus;link_fraction=of an axis;shared_fraction=or;reading!",
    query=f"""
        with means as (
            select name, module, any_value(kind) as kind, any_value(devices) as devices,
                any_value(array_bytes) as array_bytes,
                any_value(bus_bytes) as bus_bytes, any_value(least_seconds) as least,
                any_value(line_seconds) as line, sum(count) as count,
                sum(flight_seconds) / nullif(sum(flights), 0) as took,
                    sum(waited_seconds) / nullif(sum(count), 0) as waited,
                min(device) as device, min(rowid) as place
            from collectives group by 1, 2)
        select name, coalesce(kind, 'unknown'), devices, array_bytes, count, took, waited,
            bus_bytes / nullif(took, 0), least / nullif(took, 0) as of_axis,
            case when line > least then line / nullif(took, 0) end as at_most,
            case when {_reading("of_axis")} = {_reading("coalesce(at_most, of_axis)")} then {_reading("of_axis")}
                else {_reading("of_axis")} || ', or ' || {_reading("at_most")} || ' if links are shared' end
        from means order by coalesce(waited, 0) * count desc, place""",
    notes=(
        "Bus bandwidth: the array times 2 (n-1)/n (all-reduce), 1 (collective-permute) or (n-1)/n (others), over the "
        "time in flight.",
        "The link bandwidth is unknown, because no published figures for {unpublished} are recorded here.",
        "Of an axis: the least time over one axis, divided by the time in flight. A link of {chip} carries {one_way} "
        "in each direction; a chip has {axes} axes. Source: {source}.",
        "A capture does not state the shape of the slice. {closing}",
        "If the devices are numbered along a slice of {slice}, with x varying fastest, adjacent groups share links.",
        "Near the link: within 10 %; far below: under half of it (protocol, section 5).{chip_:?}",
        "{no_line} no line of asynchronous operations: there the time in flight is from start to done, so the bus "
        "bandwidth is a lower bound.",
        "{unread}",
    ),
    empty=_NONE,
)
_AXES = Analysis(
    name="axes",
    title="Communication by axis of the mesh",
    columns="axes;devices=n:count;collectives:count;count=runs;device_bytes=a device;flight_seconds=in flight;"
    "exposed_seconds=exposed;exposed_fraction=of busy;link_fraction=of the link",
    # `of the link` is weighted by time; collectives with unknown times are left out.
    query="""
        with main as (
            select count(*) as devices, sum(busy) as busy
            from devices left join busy_times using (device) where is_main)
        select axes, case when count(c.devices) = count(*) and count(distinct c.devices) = 1
            then any_value(c.devices) end, count(distinct module || '/' || name), sum(count),
            case when count(bus_bytes) = count(*) then sum(bus_bytes * count) / any_value(m.devices) end,
            sum(flight_seconds) / any_value(m.devices), sum(waited_seconds) / any_value(m.devices) as exposed,
            sum(waited_seconds) / nullif(any_value(busy), 0),
            sum(least_seconds * flights) filter (flight_seconds > 0)
                / nullif(sum(flight_seconds) filter (least_seconds is not null and flight_seconds > 0), 0)
        from collectives c, main m group by 1 order by exposed desc, min(c.rowid)""",
    notes=(
        "Means over devices. `a device`: bytes that cross the links of a device (array times bus factor). `of the "
        "link`: the least time over one axis of the torus, divided by the time in flight.",
        "No mesh fits the groups: name the axes with --mesh data=4,model=2 (the last axis varies fastest).{no_mesh:?}",
        "The mesh is guessed from shardings or groups: {made_up}. Name its axes with --mesh.",
        "Dimensions of the torus along each axis, if the devices are numbered along the torus: {torus}.",
    ),
    empty=_NONE,
)
# The purpose of each mesh axis, derived from the kinds of its collectives and the passes in which they run. The rule is
# ours. Programs gather sharded weights in both passes, and scatter their gradients once; they add up gradients once,
# and activations in both passes.
_PARALLELISM = Analysis(
    name="parallelism",
    title="What each axis is for",
    columns="axes;serves!;kinds;passes;exposed_seconds=exposed",
    query="""
        with named as (
            select c.*, c.rowid as nth, o.direction, o.name_there from collectives c left join (
                select module, pair, any_value(direction) as direction, any_value(framework_name) as name_there
                from operations group by 1, 2) o
            on o.module = c.module and o.pair = c.name),
        by_axes as (
            select axes, string_agg(distinct kind, ', ' order by kind) as kinds,
                string_agg(distinct direction, ', ' order by direction) as passes,
                sum(waited_seconds) / (select devices from step_counts) as exposed, min(nth) as place,
                list(kind) as every, coalesce(list(kind) filter (direction = 'forward'), []) as forward,
                coalesce(bool_or(regexp_matches(name_there, '(?i)moe|expert|rout|dispatch')), false) as is_expert
            from named where kind is not null group by axes)
        select axes, case when 'all-to-all' in every and is_expert then 'expert (tokens are exchanged)'
            when 'all-to-all' in every then 'resharding (parts are exchanged)'
            when 'reduce-scatter' in forward then 'tensor, sequence (activations are scattered)'
            when 'all-gather' in every and 'reduce-scatter' in every
                then 'FSDP (weights are gathered, gradients scattered)'
            when 'all-reduce' in forward then 'tensor (activations are added up)'
            when 'all-gather' in every then 'FSDP or tensor (something is gathered)'
            when 'all-reduce' in every then 'data (gradients are added up)'
            when 'collective-permute' in every then 'pipeline or ring (values are passed on)'
            else 'unknown' end, kinds, passes, exposed
        from by_axes order by exposed desc, place""",
    notes=(
        "The purpose of an axis is guessed from the kinds of its collectives and from the pass (forward or backward) "
        "that each collective's tf_op shows.",
    ),
    is_optional=True,
)
# Before a program's operations begin, a core waits for the other cores with which the program communicates.
_CORE_WAITS = Analysis(
    name="core_waits",
    title="Waits for other cores before programs",
    columns="device;name=wait;count;seconds=waited;longest_seconds=longest",
    query="""
        select label, w.name, count(*), sum(w.seconds), max(w.seconds) from waits w join devices using (device)
        where is_main and w.name like '%barrier%' and exists (from collectives)
        group by device, label, w.name order by device, w.name""",
    notes=(
        "These waits are not part of the exposed time above. The core that is ready first waits longest: look at what "
        "the other cores did before. Times are by the profiler's clock.",
    ),
    is_optional=True,
)
_SPARSE = Analysis(
    name="sparse_cores",
    title="SparseCores",
    columns="core=SparseCore;busy_seconds=busy;collective_seconds=collectives;beside_seconds=beside work;"
    "alone_seconds=alone;hidden_fraction=hidden",
    query=f"""
        with cores as (
            select s.device, s.label, t.device as chip from devices s left join devices t
            on t.host = s.host and t.name = split_part(s.name, ' ', 1) where s.is_sparse_core),
        at_work as (select * from busy where of = 'everything'),
        took as (
            select c.*, (select sum(end_seconds - start_seconds) from at_work w where w.device = c.device) as busy,
                (select coalesce(sum(self_seconds), 0) from work w
                where w.device = c.device and w.class = 'communication') as sent,
                case when chip is not null then (select coalesce(sum({overlap_of("a", "b")}), 0) from at_work a
                join busy b
                    on a.device = c.device and b.device = c.chip and b.of = 'own' and {meets("a", "b")}) end as beside
            from cores c)
        select label, busy, sent, beside, busy - beside, beside / nullif(busy, 0) from took where busy is not null
        order by device""",
    notes=(
        "Beside work: the time in which the TensorCore of the same chip ran an operation other than a collective. "
        "Alone: the rest of the busy time.",
    ),
    is_optional=True,
)
# Only simulated captures have links; no device records them.
_LINKS = Analysis(
    name="links",
    title="Links by direction",
    columns="source=from;destination=to;transfers:count;bytes;busy_seconds=busy;busy_fraction=of the run",
    query="""
        select device, regexp_replace(device, '\\d+$', '') || split_part(lane, ' ', 3), count(*), sum(bytes),
            sum(seconds) as busy, busy / (select max(seconds) from runs)
        from lanes where lane like 'link to %' group by all order by sum(bytes) desc, 1, 2""",
    notes=(
        "A transfer that crosses several links is counted at each link. Of the run: as a share of the longest run.",
    ),
    is_optional=True,
)
_LARGE = Analysis(
    name="large_collectives",
    title="Large collectives and the operations that use them",
    columns="collective;axes;array_bytes=array;exposed_seconds=exposed;used_by=used by",
    query="""
        select s.name, s.axes, s.array_bytes, (select sum(waited_seconds) from collectives c
        where c.module = s.module and c.name = s.pair)
            / (select devices from step_counts), used_by from spared s order by s.rowid""",
    notes=(
        "Shown are collectives with a tenth or more of the bytes that a module's collectives send: all-gathers, and "
        "all-reduces that a sharding constraint may avoid. Exposed is the mean over devices.",
    ),
    is_optional=True,
)
_SPARED = "module VARCHAR, name VARCHAR, pair VARCHAR, axes VARCHAR, array_bytes DOUBLE, used_by VARCHAR"


def overlap(capture: Capture, mesh: Mapping[str, int] | None = None) -> tuple[Table, ...]:
    """Tables of exposed communication, collectives, simulated links, mesh axes, SparseCores, and sharding constraints.

    `mesh` maps the names of the mesh axes, in order, to their sizes. Raises UsageError `usage` if the product of the
    sizes is not the number of devices that the collectives name.
    """
    database = Database(capture, options={"mesh": mesh}) if mesh else database_of(capture)
    database.need("collectives")
    large = list(_large_collectives(database))
    rows = [
        (module, sent.name, pair_name(sent.name), "+".join(sent.axes) or _UNKNOWN, sent.array_bytes, users)
        for module, sent, users in ((module, of.sent, of.used_by) for module, of in large)
    ]
    database.add("spared", _SPARED, rows)
    links = (_LINKS,) if capture.is_simulated else ()
    analyses = (_EXPOSED, _CORE_WAITS, _COLLECTIVES, *links, _AXES, _PARALLELISM, _SPARSE, _LARGE)
    shown = tables(database, analyses, **_words(database))
    return (*shown, *((constraint_table([of for _, of in large], op_times.origin(capture)),) if large else ()))


def _words(database: Database) -> Facts:
    capture, mesh = database.capture, database.options.get("laid_out")
    main, chip, network = op_times.devices(capture), op_times.chip_of(capture), _network(capture)
    kind = (main[0].kind if main else "") or "a device of unknown kind"
    # For each mesh axis, the dimensions of the torus along which it runs.
    dimensions = torus_of(mesh, network.axes) if mesh and network else ()
    return {
        "stalls": [note for (note,) in database.rows(_STALLS)],
        "axes": network.axes if network else None,
        "unpublished": None if network else kind,
        "chip": chip.name if chip and network else None,
        "chip_": bool(network),
        "one_way": decimal(network.one_way_bytes_per_second, "B/s") if network else None,
        "closing": _closing(network, chip.name, may_close=database.options["may_close"]) if network and chip else None,
        "slice": "x".join(map(str, database.options["torus"])) or None,
        **spanned(database),
        "source": network.source if network else None,
        "unread": database.options.get("unread"),
        "no_line": _without_a_line(database),
        "no_mesh": mesh is None,
        "torus": "; ".join(f"{name} = {where}" for name, where in dimensions) or None,
        "made_up": str(mesh) if mesh is not None and not mesh.is_named else None,
    }


def spanned(database: Database) -> Facts:
    """The figures of the note SPANNED; None if the capture shows all devices of the program."""
    database.need("collectives")
    main = op_times.devices(database.capture)
    is_short = bool(main) and main[0].platform != "cpu" and database.options["devices"] > len(main)
    return {
        "program_devices": database.options["devices"] if is_short else None,
        "seen_devices": f"{len(main)} of them" if is_short else None,
    }


def _closing(network: Links, chip: str, *, may_close: bool) -> str:
    """A sentence on the lengths at which an axis is a ring."""
    length = f"a multiple of {network.ring_size}" if network.rings_are_multiples else f"{network.ring_size}"
    if may_close:
        return (
            f"On {chip} an axis of {length} chips may be a ring, as the fraction assumes. Column `or` is the fraction "
            "for a line (an axis with open ends)."
        )
    return f"On {chip} only an axis of {length} chips is a ring, so this axis is a line (its ends are not joined)."


def _without_a_line(database: Database) -> str | None:
    """Subject and verb of a note: the devices with asynchronous collectives, but no line of asynchronous operations."""
    query = """
        select label from devices d where platform = 'tpu' and is_main
            and device in (select device from collectives where is_asynchronous and flights > 0)
            and device not in (select device from executions where line = 'asynchronous') order by device"""
    labels = [label for (label,) in database.rows(query)]
    return f"{', '.join(labels)} {'has' if len(labels) == 1 else 'have'}" if labels else None


def _network(capture: Capture) -> Links | None:
    chip = op_times.chip_of(capture)
    return links(chip) if chip else None


def _graphs_or_note(capture: Capture) -> tuple[dict[str, Graph], str | None]:
    try:
        return graphs_of(capture)[0], None
    except (RatchetError, OSError) as error:
        return {}, f"The modules of the capture could not be read: {error}"


def _mesh_of(sizes: Mapping[str, int], every: Sequence[CollectiveFacts], graphs: Mapping[str, Graph]) -> Mesh | None:
    """The mesh of `sizes`; without sizes, a mesh that fits the modules' shardings, else a mesh that fits the groups.

    Raises UsageError `usage` if the collectives name another number of devices than `sizes` has.
    """
    devices = _devices_named(every)
    if sizes:
        mesh = Mesh(axes=tuple(sizes.items()))
        if devices and mesh.devices != devices:
            raise UsageError(
                "usage",
                f"expected --mesh with the {devices} devices that the collectives name, got {mesh.devices}: {mesh}",
            )
        return mesh
    for graph in graphs.values():
        fitting = with_mesh(graph.module, None).mesh
        if fitting is not None and fitting.devices == devices:
            return fitting
    return infer_mesh((), [of.groups for of in every if of.groups], devices) if devices else None


def _devices_named(every: Sequence[CollectiveFacts]) -> int:
    """The number of devices, from the largest device number in a group or pair; 0 if there is none."""
    return max((device + 1 for of in every for device in _members(of)), default=0)


def _members(facts: CollectiveFacts) -> tuple[int, ...]:
    listed = (*(facts.groups.groups if facts.groups else ()), *facts.pairs)
    return tuple(device for group in listed for device in group)


def _large_collectives(database: Database) -> Iterator[tuple[str, LargeCollective]]:
    """The large collectives of the modules that ran, as pairs of module name and collective."""
    # The chip affects only times, which are not shown, so any chip will do if the capture names none.
    target, mesh = op_times.chip_of(database.capture) or chip_named(DEFAULT_CHIP), database.options.get("laid_out")
    ran = {module for (module,) in database.rows("select distinct module from collectives")}
    for name, graph in database.options.get("graphs", {}).items():
        if name in ran:
            named = mesh if mesh is not None and graph.module.devices in (1, mesh.devices) else None
            laid_out = Graph(module=with_mesh(graph.module, named))
            yield from ((name, collective) for collective in large_collectives(laid_out, target))
