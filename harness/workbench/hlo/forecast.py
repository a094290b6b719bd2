"""Predictions as tables: the time of a matmul or a collective, and the global shapes of split arrays."""

import math
from collections.abc import Sequence

from harness.chips.row import Figures
from harness.errors import UsageError
from harness.hlo.shapes import ELEMENT_BITS, Array
from harness.records import Table
from harness.units import decimal
from harness.workbench.hlo.interconnect import (
    HOP_SECONDS,
    Collective,
    axis_times,
    hops,
    link_bytes_per_second,
    links,
    published_seconds,
)
from harness.workbench.hlo.matrix_fill import fill_note, fill_of_product
from harness.workbench.hlo.prediction import MatmulShape, Spec, peak, roofline
from harness.workbench.tables import columns, table

_MATMUL = columns(
    "seconds=time;bound=bound by;compute_seconds=by FLOPs;memory_seconds=by bytes;flops=FLOPs;"
    "flops_per_device=a device:FLOP;hbm_bytes_per_device=a device:B;intensity:FLOP/B;mxu_fill=filled:fraction"
)


def matmul_tables(product: MatmulShape, target: Figures, devices: int, mesh: dict[str, int]) -> tuple[Table, ...]:
    """Tables of the time of a matmul on `devices` devices, and of the collectives that must follow it, if any."""
    flops_per_second, remark = peak(target, product.left.dtype)
    took = roofline(product.flops_per_device, product.bytes_per_device, flops_per_second, target.hbm_bytes_per_second)
    is_split = any(axes for array in (product.left, product.right) for axes in array.axes)
    left, right, out = product.letters
    notes = [
        f"{product.left} x {product.right} -> {product.left.dtype}{_sizes(product.result)}, {left},{right}->{out}.",
        f"A {target.device}: {decimal(flops_per_second, 'FLOP/s')}{f' ({remark})' if remark else ''}, "
        f"{decimal(target.hbm_bytes_per_second, 'B/s')} of HBM ({target.source}).",
    ]
    if is_split:
        notes.append(
            f"One device has {_sizes(product.left.local(mesh))} of the left and {_sizes(product.right.local(mesh))} of "
            "the right operand, and reads each once."
        )
    elif devices > 1:
        notes.append(
            "An even split is assumed in which no two devices read the same value, so the bytes are a lower bound. To "
            "state the split, name the axes: 'X[32@data,1024,8192]' --mesh data=4."
        )
    fill = None
    if target.mxu_size is not None:
        fill, summed, columns = fill_of_product(product, mesh, target.mxu_size)
        notes += [note] if (note := fill_note(fill, target.mxu_size, summed, columns)) else []
    many = "s" if devices > 1 else ""
    title = f"matmul on {devices} {target.name} {target.device}{many}: max(FLOPs/peak, bytes/bandwidth)"
    flops, size = product.flops_per_device, product.bytes_per_device
    floors = took.seconds, took.bound, took.compute_seconds, took.memory_seconds
    row = (*floors, product.flops, flops, size, flops / size, fill)
    result_table = table("matmul", title, "predicted", _MATMUL, [row], notes)
    if not product.partial_over:
        return (result_table,)
    return result_table, _partial(product, link_bytes_per_second(target), mesh)


def _partial(product: MatmulShape, bandwidth: float | None, mesh: dict[str, int]) -> Table:
    """A table of the collectives that add up the devices' partial sums if the summed dimension is split."""
    axes = dict.fromkeys(product.partial_over)
    size = math.prod(mesh[axis] for axis in axes)
    split = {
        letter: parts
        for names, array in zip(product.letters, (product.left, product.right), strict=False)
        for letter, parts in zip(names, array.parts(mesh), strict=True)
    }
    out = (ELEMENT_BITS[product.left.dtype] // 8) * math.prod(
        -(-length // split.get(letter, 1)) for letter, length in zip(product.letters[2], product.result, strict=True)
    )
    kinds: tuple[Collective, ...] = ("reduce-scatter", "all-reduce")
    rows = [(kind, size, out, published_seconds(kind, out, bandwidth) if bandwidth else None) for kind in kinds]
    columns = "kind=collective;devices:count;array_bytes=V;seconds=time"
    title = f"a collective must follow: the summed dimension is split over {'+'.join(axes)}"
    notes = ("Each device has partial sums, which one of these collectives must add up.",)
    return table("sum", title, "predicted", columns, rows, notes)


def collective_tables(
    kind: Collective,
    array_bytes: float,
    axes: Sequence[int],
    target: Figures,
    ring_bandwidth: float | None,
    remark: str,
) -> tuple[Table, ...]:
    """Tables of the time of a collective on an array of `array_bytes`, over one or several axes of the torus.

    `ring_bandwidth` is the bandwidth of each axis, both directions together; None for the published bandwidth. Raises
    UsageError `no-bandwidth` if none is published.
    """
    network = links(target)
    ring_rate = ring_bandwidth if ring_bandwidth is not None else link_bytes_per_second(target)
    if ring_rate is None:
        raise UsageError(
            "no-bandwidth",
            f"expected --bandwidth, because no bandwidth is published for the links of {target.name}; give the B/s of "
            "a ring, both directions together",
        )
    size = math.prod(axes)
    bandwidth = ring_rate * max(1, len(axes))
    took = published_seconds(kind, array_bytes, bandwidth)
    source = f"published for {target.name}: {network.source}" if ring_bandwidth is None and network else "as given"
    notes = [f"V: bytes of the whole array. W: {decimal(ring_rate, 'B/s')} per ring (both directions), {source}."]
    if remark:
        notes.insert(0, remark)
    if len(axes) > 1:
        notes.append(f"The {len(axes)} axes send at the same time, so W is {decimal(bandwidth, 'B/s')} in all.")
    named = "seconds=time;array_bytes=V;bandwidth_bytes_per_second=W;devices:count"
    row = (took, int(array_bytes), bandwidth, size if axes else None)
    first = table("collective", f"{kind} on {target.name}: {_RULES[kind]}", "predicted", named, [row], notes)
    if not axes:
        return (first,)
    return first, _bounds(kind, array_bytes, axes, ring_rate, target)


_RULES: dict[Collective, str] = {
    "all-gather": "V/W",
    "reduce-scatter": "V/W",
    "all-reduce": "2 V/W",
    "all-to-all": "V/(4 W)",
    "collective-permute": "2 V/W, one way",
}


def _bounds(kind: Collective, array_bytes: float, axes: Sequence[int], ring_rate: float, target: Figures) -> Table:
    """A table of times with three effects that the rule ignores: data that stays in place, wraparound, hop latency."""
    size = math.prod(axes)
    rows = []
    # If there are several axes, the rows show the longest axis with its share of the array.
    longest, network = max(axes), links(target)
    share = array_bytes / len(axes)
    closes = network.closes(longest) if network else None
    times = axis_times(kind, share, longest, ring_rate / 2, closes=closes)
    for is_ring, words, took in (
        (True, "a ring, both directions", times.ring_seconds),
        (False, "a line, no wraparound", times.line_seconds),
    ):
        here = "this axis" if closes == is_ring else ""
        rows.append((f"least on {words}", took, hops(longest, is_ring=is_ring) * HOP_SECONDS, here))
    chip = f" On {target.name} only an axis of {network.ring_size} devices is a ring." if network else ""
    if network and network.rings_are_multiples:
        chip = f" On {target.name} an axis is a ring if its length is a multiple of {network.ring_size}."
    named = "case;seconds=time;hop_seconds=hops alone;which"
    note = (
        "1/n of the array stays on its device, so less than V is sent. Devices at the ends of a line have half the "
        f"links.{chip} "
        "A hop takes at least about 1 us, even for little data (How to Scale Your Model, part 3)."
    )
    title = f"effects that the rule ignores, on an axis of {longest} devices ({size} in all)"
    return table("bounds", title, "predicted", named, rows, (note,))


def shape_tables(parts: Sequence[Spec], mesh: dict[str, int], remarks: Sequence[str]) -> tuple[Table, ...]:
    """A table of the global shapes of arrays, given one device's parts."""
    rows = [
        (str(array), Array(dtype=array.dtype, dimensions=array.whole(mesh)).plain, math.prod(array.parts(mesh)))
        for array in parts
    ]
    columns = "local=one device's part;whole;parts:count"
    return (table("true_shapes", "true shapes", "static", columns, rows, remarks),)


def _sizes(sizes: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, sizes))}]"
