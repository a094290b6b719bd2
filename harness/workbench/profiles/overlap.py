"""Communication: how much of it is exposed, and the bus bandwidth of each collective against the links'."""

from collections.abc import Iterator, Mapping, Sequence

from harness import chips
from harness.chips.row import Chip
from harness.chips.workbench import Links
from harness.hardware import chip_of_device
from harness.records import Capture, Column, Device, Table
from harness.units import decimal, percent
from harness.workbench.hlo.interconnect import links
from harness.workbench.profiles import intervals, mesh_axes
from harness.workbench.profiles.classes import COMMUNICATION, op_class
from harness.workbench.profiles.collectives import Flight, flights, least_seconds
from harness.workbench.profiles.op_times import device_label, devices, origin, why_nothing_ran
from harness.workbench.tables import table

# Protocol, section 7: what overlaps a collective, by its kind; either of the two, they exclude each other.
_FUSE = "xla_tpu_enable_async_collective_fusion"
_OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload"
_OFFLOADING = " or ".join(chips.having(lambda row: row.workbench.offloads_collectives))
_WITH_FLAGS = ("all-gather", "all-reduce", "reduce-scatter")
# Ours, the protocol's red flag for idle time: so much of a collective's flight waited for is a stall.
_STALL = 0.10
# Protocol, section 5: collectives should run near the bandwidth; its bounds for any operation are 10 % and 2x.
_NEAR, _HALF = 0.9, 0.5

_EXPOSED = (
    Column(name="device", title="device"),
    Column(name="flight_seconds", title="in flight", unit="s"),
    Column(name="waited_seconds", title="waited", unit="s"),
    Column(name="synchronous_seconds", title="synchronous", unit="s"),
    Column(name="exposed_seconds", title="exposed", unit="s"),
    Column(name="exposed_fraction", title="of busy time", unit="fraction"),
    Column(name="hidden_fraction", title="hidden", unit="fraction"),
)
_COLLECTIVES = (
    Column(name="collective", title="collective"),
    Column(name="kind", title="kind"),
    Column(name="devices", title="n", unit="count"),
    Column(name="array_bytes", title="array", unit="B"),
    Column(name="count", title="runs", unit="count"),
    Column(name="flight_seconds", title="flight", unit="s"),
    Column(name="waited_seconds", title="waited", unit="s"),
    Column(name="bus_bytes_per_second", title="bus", unit="B/s"),
    Column(name="link_fraction", title="of an axis", unit="fraction"),
    Column(name="reading", title="reading", is_whole=True),
)


def overlap(capture: Capture, mesh: Mapping[str, int] | None = None) -> tuple[Table, ...]:
    """Exposed communication by device and mesh axis, every collective, what SparseCores do and constraints spare.

    `mesh` are the sizes of its axes by name, in order. Raises UsageError `usage` where they fit no group.
    """
    found = devices(capture)
    graphs, unread = mesh_axes.known_graphs(capture, found, _are_any_sent(found))
    of_device = [(device, flights(device, graphs)) for device in found]
    why = "" if found else why_nothing_ran(capture)
    if found and not any(some for _, some in of_device):
        why = "no operation of the capture is a collective: nothing was communicated between devices"
    on_tpus = [one for device, some in of_device for one in some if device.platform == "tpu"]
    exposed = [(device_label(device, found), *_exposed(device, some)) for device, some in of_device]
    notes = (*_what_is_exposed(found), *stalls(on_tpus))
    where, title = origin(capture), "Collectives, mean of one run on one device"
    every = [one for _, some in of_device for one in some]
    rows, network = _rows(found, every), _network(found)
    laid_out = mesh_axes.of_capture(mesh or {}, every, graphs)
    cores = mesh_axes.sparse_cores(capture)
    return (
        table("communication", "Exposed communication", where, _EXPOSED, () if why else exposed, notes, why),
        table(
            "collectives",
            title,
            where,
            _COLLECTIVES,
            rows,
            (*(_notes(found) if found else ()), *filter(None, (unread,))),
            why,
        ),
        mesh_axes.by_axis(capture, found, every, laid_out, network, why),
        *((cores,) if cores is not None else ()),
        *mesh_axes.remedies(capture, found, every, graphs, laid_out),
    )


def _are_any_sent(found: Sequence[Device]) -> bool:
    return any(op_class(operation) == COMMUNICATION for device in found for operation in device.operations)


def stalls(every: Sequence[Flight]) -> Iterator[str]:
    """A TPU's flags to try for each kind of collective that is waited for, and if nothing overlaps at all."""
    kinds = {one.moved.kind for one in every if one.flights and one.count}
    overlapped = False
    for kind in sorted(str(kind) for kind in kinds if kind):
        some = [one for one in every if one.moved.kind == kind]
        flight, waited = (sum(getattr(one, name) for one in some) for name in ("flight_seconds", "waited_seconds"))
        overlapped = overlapped or waited < flight
        if kind in _WITH_FLAGS and flight > 0 and waited > _STALL * flight:
            word = kind.replace("-", "_")
            yield (
                f"{kind} stalls for {percent(waited / flight)} of its flight: try {_FUSE}_fuse_{word}, or on "
                f"{_OFFLOADING} {_OFFLOAD}_{word}, not both (protocol, section 7)."
            )
    if kinds - {None} and not overlapped:
        yield f"Nothing overlaps: {_FUSE} is the base flag (protocol, section 7)."


def _what_is_exposed(found: Sequence[Device]) -> Iterator[str]:
    if any(device.platform == "tpu" for device in found):
        yield (
            "Exposed is the time in async-done operations, 0 where all is hidden, and in synchronous collectives "
            "(protocol, section 6)."
        )
    else:
        yield "Operations run side by side here: exposed is the time of collectives beside which nothing else ran."


def _exposed(device: Device, some: Sequence[Flight]) -> tuple[float | None, ...]:
    if some and not any(one.count for one in some):
        # Only halves that start something are in the capture: how long they were waited for it does not say.
        return (None,) * (len(_EXPOSED) - 1)
    busy = intervals.length(intervals.busy(device))
    flight = sum(one.flight_seconds for one in some)
    synchronous = sum(one.waited_seconds for one in some if not one.is_asynchronous)
    exposed = sum(one.waited_seconds for one in some)
    return (
        flight or None,
        exposed - synchronous,
        synchronous,
        exposed,
        exposed / busy if busy > 0 else None,
        max(0.0, 1 - exposed / flight) if flight > 0 else None,
    )


def _rows(found: Sequence[Device], every: Sequence[Flight]) -> tuple[tuple[str | float | int | None, ...], ...]:
    network = _network(found)
    groups: dict[tuple[str, str], list[Flight]] = {}
    for one in every:
        groups.setdefault((one.module, one.name), []).append(one)
    rows = []
    for group in groups.values():
        first, count = group[0].moved, sum(one.count for one in group)
        known = sum(one.flights for one in group)
        took = sum(one.flight_seconds for one in group) / known if known else None
        fraction = _of_an_axis(group[0], took, network)
        rows.append(
            (
                group[0].name,
                first.kind or "unknown",
                first.size,
                first.array_bytes,
                count,
                took,
                sum(one.waited_seconds for one in group) / count if count else None,
                first.bus_bytes / took if first.bus_bytes is not None and took else None,
                fraction,
                _reading(fraction, network),
            )
        )
    return tuple(sorted(rows, key=lambda row: -(row[6] or 0.0) * row[4]))


def _of_an_axis(one: Flight, took: float | None, network: Links | None) -> float | None:
    """The time that one axis of the torus needs over the time that it took; above 1 more than one axis was used."""
    least = least_seconds(one.moved, network)
    return least / took if least is not None and took else None


def _reading(fraction: float | None, network: Links | None) -> str:
    if fraction is None or network is None:
        return "unknown"
    if fraction > network.axes:
        return "too fast: check the array"
    if fraction > 1:
        return "uses several axes"
    return "near the link" if fraction >= _NEAR else "look" if fraction >= _HALF else "far below"


def _chip(found: Sequence[Device]) -> Chip | None:
    return chip_of_device(found[0].kind.removesuffix(" (simulated)")) if found else None


def _network(found: Sequence[Device]) -> Links | None:
    chip = _chip(found)
    return links(chip) if chip else None


def _notes(found: Sequence[Device]) -> Iterator[str]:
    yield "Bus bandwidth: the array times 2 (n-1)/n for all-reduce, (n-1)/n for the others, over the time in flight."
    chip, network = _chip(found), _network(found)
    if chip is None or network is None:
        kind = found[0].kind or "a device that does not say what it is"
        yield f"Link bandwidth unknown: nothing published is known here about the links of {kind}."
        return
    yield (
        f"An axis of {chip.name}: {decimal(network.both_ways_bytes_per_second, 'B/s')} in both directions of a "
        f"ring; half of it where the slice does not close one; {network.axes} axes. Source: {network.source}."
    )
    yield "Near the link: within 10 %; far below: under half of it (protocol, section 5)."
    if any(device.platform == "tpu" and not device.asynchronous for device in found):
        yield "In flight is from start to done where no line shows asynchronous operations: bus is a lower bound."
