"""Communication by mesh axis: bytes, time, exposed time, use of the link; what SparseCores do and constraints spare."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from harness.chips.workbench import Links
from harness.errors import RatchetError, UsageError
from harness.hardware import DEFAULT_CHIP, chip_of_device
from harness.hardware import chip as chip_named
from harness.hlo.sharding import Mesh
from harness.records import Capture, Device, Table
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.mesh import axes_of_groups, axes_of_pairs, inferred
from harness.workbench.hlo.resharding import Spared, constraint_table, laid_out, spared
from harness.workbench.profiles import intervals
from harness.workbench.profiles.classes import COMMUNICATION, op_class, pair_name
from harness.workbench.profiles.collectives import Flight, Moved, least_seconds
from harness.workbench.profiles.graph import graphs_of
from harness.workbench.profiles.intervals import Interval
from harness.workbench.profiles.op_times import device_label, is_sparse_core, origin, running, share
from harness.workbench.tables import Field, Fields, table_of

UNKNOWN = "unknown"


def of_capture(sizes: Mapping[str, int], every: Sequence[Flight], graphs: Mapping[str, Graph]) -> Mesh | None:
    """The mesh that is named, else what the modules' shardings and the collectives' groups fit.

    Raises UsageError `usage` where the named one has another number of devices than the groups name.
    """
    devices = max((device + 1 for one in every for device in _members(one.moved)), default=0)
    if sizes:
        mesh = Mesh(axes=tuple(sizes.items()))
        if devices and mesh.devices != devices:
            raise UsageError(
                "usage",
                f"expected --mesh of the {devices} devices that the collectives name, got {mesh.devices}: {mesh}",
            )
        return mesh
    for graph in graphs.values():
        found = laid_out(graph.module, None).mesh
        if found is not None and found.devices == devices:
            return found
    return inferred((), [one.moved.groups for one in every if one.moved.groups], devices) if devices else None


def _members(moved: Moved) -> tuple[int, ...]:
    listed = (*(moved.groups.groups if moved.groups else ()), *moved.pairs)
    return tuple(device for group in listed for device in group)


def by_axis(
    capture: Capture,
    found: Sequence[Device],
    every: Sequence[Flight],
    mesh: Mesh | None,
    network: Links | None,
    why: str,
) -> Table:
    """The collectives of all devices by the axes of the mesh along which they run, most exposed first."""
    groups: dict[str, list[Flight]] = defaultdict(list)
    for one in every:
        axes = axes_of_groups(one.moved.groups, mesh) or axes_of_pairs(one.moved.pairs, mesh)
        groups["+".join(axes) or UNKNOWN].append(one)
    ranked = sorted(groups.items(), key=lambda item: -_waited(item[1]))
    busy = sum(intervals.length(intervals.busy(device)) for device in found)
    count = max(1, len(found))
    fields: Fields[tuple[str, list[Flight]]] = (
        Field("axes", "axes", lambda row: row[0]),
        Field("devices", "n", lambda row: _only_size([one.moved.size for one in row[1]]), "count"),
        Field("collectives", "collectives", lambda row: len({(one.module, one.name) for one in row[1]}), "count"),
        Field("count", "runs", lambda row: sum(one.count for one in row[1]), "count"),
        Field("device_bytes", "a device", lambda row: _sent(row[1], count), "B"),
        Field("flight_seconds", "in flight", lambda row: _flight(row[1]) / count, "s"),
        Field("exposed_seconds", "exposed", lambda row: _waited(row[1]) / count, "s"),
        Field("exposed_fraction", "of busy", lambda row: _waited(row[1]) / busy if busy else None, "fraction"),
        Field("link_fraction", "of the link", lambda row: _of_the_link(row[1], network), "fraction"),
    )
    notes = [
        "Per device, mean over devices. a device: what crosses its links, by the bus factor of each kind. of the link: "
        "the time that one axis of the torus needs over the time in flight.",
    ]
    if mesh is None:
        notes.append("No mesh fits the groups: --mesh data=4,model=2 names its axes, the last one varying fastest.")
    elif not mesh.is_named:
        notes.append(f"The mesh is made up from the groups, {mesh}: --mesh names its axes.")
    return table_of("axes", "Communication by axis of the mesh", origin(capture), fields, ranked, notes, why)


def sparse_cores(capture: Capture) -> Table | None:
    """What each SparseCore did beside its TensorCore and alone; None where the capture shows none."""
    cores = [device for device in capture.devices if is_sparse_core(device) and device.executions]
    if not cores:
        return None
    tensor = {(one.host, one.name): one for one in capture.devices}
    rows = []
    for core in cores:
        chip = tensor.get((core.host, core.name.partition(" ")[0]))
        own = intervals.busy(core)
        beside = intervals.length(intervals.common(own, _work(chip))) if chip is not None else None
        sent = sum(run.self_seconds for run in core.executions if _is_sent(core, run.operation))
        rows.append((core, intervals.length(own), sent, beside))
    fields: Fields[tuple[Device, float, float, float | None]] = (
        Field("core", "SparseCore", lambda row: device_label(row[0], capture.devices)),
        Field("busy_seconds", "busy", lambda row: row[1], "s"),
        Field("collective_seconds", "collectives", lambda row: row[2], "s"),
        Field("beside_seconds", "beside work", lambda row: row[3], "s"),
        Field("alone_seconds", "alone", lambda row: None if row[3] is None else row[1] - row[3], "s"),
        Field("hidden_fraction", "hidden", lambda row: None if row[3] is None else share(row[3], row[1]), "fraction"),
    )
    notes = (
        "Beside work: while an operation of the same chip's TensorCore ran that is no collective. What is alone is "
        "waited for.",
    )
    return table_of("sparse_cores", "SparseCores", origin(capture), fields, rows, notes)


def remedies(
    capture: Capture, found: Sequence[Device], every: Sequence[Flight], graphs: Mapping[str, Graph], mesh: Mesh | None
) -> tuple[Table, ...]:
    """The large collectives of the modules that ran, with what a sharding constraint would spare; none without any."""
    chip = chip_of_device(found[0].kind.removesuffix(" (simulated)")) if found else None
    # None of its times are shown: any chip will do for a capture that names none.
    target = chip or chip_named(DEFAULT_CHIP)
    waited: dict[tuple[str, str], float] = defaultdict(float)
    for one in every:
        waited[one.module, one.name] += one.waited_seconds / max(1, len(found))
    rows: list[tuple[str, Spared]] = []
    for name, graph in graphs.items():
        if not any(module == name for module, _ in waited):
            continue
        named = mesh if mesh is not None and graph.module.devices in (1, mesh.devices) else None
        rows += [(name, one) for one in spared(Graph(module=laid_out(graph.module, named)), target)]
    if not rows:
        return ()
    fields: Fields[tuple[str, Spared]] = (
        Field("collective", "collective", lambda row: row[1].name),
        Field("axes", "axes", lambda row: "+".join(row[1].axes) or UNKNOWN),
        Field("array_bytes", "array", lambda row: row[1].array_bytes, "B"),
        Field("exposed_seconds", "exposed", lambda row: waited.get((row[0], pair_name(row[1].name))), "s"),
        Field("used_by", "used by", lambda row: row[1].used_by),
    )
    notes = ("Collectives of a tenth or more of what a module sends, from its HLO; exposed is a device's mean.",)
    where = origin(capture)
    large = table_of("large_collectives", "Large collectives, by what uses them", where, fields, rows, notes)
    return large, constraint_table([one for _, one in rows], where)


def known_graphs(capture: Capture, found: Sequence[Device], read: bool) -> tuple[dict[str, Graph], str]:
    """The modules of the capture where they are needed, or why they could not be read."""
    if not read or not found:
        return {}, ""
    try:
        return graphs_of(capture)[0], ""
    except (RatchetError, OSError) as error:
        return {}, f"The modules of the capture could not be read: {error}"


def _is_sent(core: Device, number: int) -> bool:
    return op_class(core.operations[number]) == COMMUNICATION


def _work(chip: Device) -> tuple[Interval, ...]:
    return intervals.union(
        Interval(run.start, run.end)
        for run in running(chip)
        if op_class(chip.operations[run.operation]) != COMMUNICATION
    )


def _only_size(sizes: Sequence[int | None]) -> int | None:
    found = set(sizes)
    return found.pop() if len(found) == 1 else None


def _sent(some: Sequence[Flight], devices: int) -> float | None:
    """Bytes that cross the links of one device; None where those of one of the collectives are not known."""
    sent = [None if one.moved.bus_bytes is None else one.moved.bus_bytes * one.count for one in some]
    known = [size for size in sent if size is not None]
    return sum(known) / devices if known and len(known) == len(sent) else None


def _flight(some: Sequence[Flight]) -> float:
    return sum(one.flight_seconds for one in some)


def _waited(some: Sequence[Flight]) -> float:
    return sum(one.waited_seconds for one in some)


def _of_the_link(some: Sequence[Flight], network: Links | None) -> float | None:
    """Time-weighted, over those of which everything is known."""
    least = [(one, least_seconds(one.moved, network)) for one in some]
    known = [(one, seconds) for one, seconds in least if seconds is not None and one.flight_seconds > 0]
    took = _flight([one for one, _ in known])
    return sum(seconds * one.flights for one, seconds in known) / took if took else None
