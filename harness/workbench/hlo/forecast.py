"""Predictions as tables: a matmul, a collective, the memory of a training run, whole shapes from one device's parts."""

import math
from collections.abc import Sequence

from harness.chips.row import Figures
from harness.errors import UsageError
from harness.hlo.shapes import ELEMENT_BITS
from harness.records import Table
from harness.units import decimal
from harness.workbench.hlo.interconnect import (
    HOP_SECONDS,
    Collective,
    exact_seconds,
    hops,
    link_bytes_per_second,
    links,
    published_seconds,
)
from harness.workbench.hlo.matrix_fill import fill_note, fill_of_product
from harness.workbench.hlo.prediction import MatmulShape, Spec, peak, roofline, whole_shape
from harness.workbench.tables import Field, Fields, table, table_of


def matmul_tables(product: MatmulShape, target: Figures, devices: int, mesh: dict[str, int]) -> tuple[Table, ...]:
    """The time of a matmul on `devices` devices."""
    flops_per_second, remark = peak(target, product.left.dtype)
    took = roofline(product.flops_per_device, product.bytes_per_device, flops_per_second, target.hbm_bytes_per_second)
    is_split = any(axes for array in (product.left, product.right) for axes in array.axes)
    result = f"[{','.join(map(str, product.result))}]"
    notes = [
        f"{product.left} x {product.right} -> {product.left.dtype}{result}, {product.letters[0]},{product.letters[1]}->"
        f"{product.letters[2]}.",
        _per_device(target, flops_per_second, remark),
    ]
    if is_split:
        notes.append(
            f"One device has {_sizes(product.left.local(mesh))} of the left and {_sizes(product.right.local(mesh))} of "
            "the right, and reads them once."
        )
    elif devices > 1:
        notes.append(
            "Assumes an even split in which no value is read by two devices, so the bytes are a lower bound. For a "
            "given split, name the axes: 'X[32@data,1024,8192]' --mesh data=4."
        )
    fill = None
    if target.mxu_size is not None:
        fill, summed, columns = fill_of_product(product, mesh, target.mxu_size)
        notes += [note] if (note := fill_note(fill, target.mxu_size, summed, columns)) else []
    many = "s" if devices > 1 else ""
    title = f"matmul on {devices} {target.name} {target.device}{many}: max(FLOPs/peak, bytes/bandwidth)"
    fields: Fields[MatmulShape] = (
        Field("seconds", "time", lambda _: took.seconds, "s"),
        Field("bound", "bound by", lambda _: took.bound),
        Field("compute_seconds", "by FLOPs", lambda _: took.compute_seconds, "s"),
        Field("memory_seconds", "by bytes", lambda _: took.memory_seconds, "s"),
        Field("flops", "FLOPs", lambda shape: shape.flops, "FLOP"),
        Field("flops_per_device", "a device", lambda shape: shape.flops_per_device, "FLOP"),
        Field("hbm_bytes_per_device", "a device", lambda shape: shape.bytes_per_device, "B"),
        Field("intensity", "intensity", lambda shape: shape.flops_per_device / shape.bytes_per_device, "FLOP/B"),
        Field("mxu_fill", "filled", lambda _: fill, "fraction"),
    )
    result_table = table_of("matmul", title, "predicted", fields, [product], notes)
    return (
        (result_table, _partial(product, link_bytes_per_second(target), mesh))
        if product.partial_over
        else (result_table,)
    )


def _partial(product: MatmulShape, bandwidth: float | None, mesh: dict[str, int]) -> Table:
    """The collectives that must follow if the dimension summed over is split: every device has a part of each sum."""
    axes = dict.fromkeys(product.partial_over)
    size = math.prod(mesh[axis] for axis in axes)
    split = {
        letter: math.prod(mesh[axis] for axis in array_axes)
        for names, array in ((product.letters[0], product.left), (product.letters[1], product.right))
        for letter, array_axes in zip(names, array.axes, strict=True)
    }
    out = (ELEMENT_BITS[product.left.dtype] // 8) * math.prod(
        -(-length // split.get(letter, 1)) for letter, length in zip(product.letters[2], product.result, strict=True)
    )
    kinds: tuple[Collective, ...] = ("reduce-scatter", "all-reduce")
    fields: Fields[Collective] = (
        Field("kind", "collective", lambda kind: kind),
        Field("devices", "devices", lambda _: size, "count"),
        Field("array_bytes", "V", lambda _: out, "B"),
        Field("seconds", "time", lambda kind: published_seconds(kind, out, bandwidth) if bandwidth else None, "s"),
    )
    title = f"a collective must follow: the summed dimension is split over {'+'.join(axes)}"
    notes = ("Each device has partial sums; one of these collectives adds them up.",)
    return table_of("sum", title, "predicted", fields, kinds, notes)


def collective_tables(
    kind: Collective,
    array_bytes: float,
    axes: Sequence[int],
    target: Figures,
    ring_bandwidth: float | None,
    remark: str,
) -> tuple[Table, ...]:
    """The time of a collective on an array of `array_bytes`, over one axis or several of the torus.

    `ring_bandwidth` is the bandwidth of one axis, both directions together; each of several axes has as much.
    """
    network = links(target)
    ring_rate = (
        ring_bandwidth if ring_bandwidth is not None else network.both_ways_bytes_per_second if network else None
    )
    if ring_rate is None:
        raise UsageError(
            "no-bandwidth",
            f"expected --bandwidth, got none, and the links of {target.name} are not published in the table; give B/s "
            "of a ring in both directions",
        )
    size = math.prod(axes)
    bandwidth = ring_rate * max(1, len(axes))
    took = published_seconds(kind, array_bytes, bandwidth)
    source = f"published for {target.name}: {network.source}" if ring_bandwidth is None and network else "as given"
    notes = [f"V: bytes of the whole array. W: {decimal(ring_rate, 'B/s')} of one ring in both directions, {source}."]
    if remark:
        notes.insert(0, remark)
    if len(axes) > 1:
        notes.append(f"{len(axes)} axes send at the same time, together {decimal(bandwidth, 'B/s')}.")
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
    """Times with what the rule leaves out: the part of the array that is not sent, wraparound, latency of hops."""
    size = math.prod(axes)
    rows = []
    # If there are several axes, the rows are about the array's share on the longest one.
    longest, network = max(axes), links(target)
    share = array_bytes / len(axes)
    closes = network.closes(longest) if network else None
    for is_ring, words in ((True, "a ring, both directions"), (False, "a line, no wraparound")):
        took = exact_seconds(kind, share, longest, ring_rate / 2, is_ring=is_ring)
        here = "" if closes is None else "this axis" if closes == is_ring else ""
        rows.append((f"least on {words}", took, hops(longest, is_ring=is_ring) * HOP_SECONDS, here))
    chip = f" On {target.name} an axis is a ring from {network.ring_size}." if network else ""
    if network and network.rings_are_multiples:
        chip = f" On {target.name} an axis is a ring where its length is a multiple of {network.ring_size}."
    named = "case;seconds=time;hop_seconds=hops alone;which"
    note = (
        "1/n of the array stays on its device, so less than V is sent; the devices at the ends of a line have half the "
        f"links.{chip} "
        "One hop takes about 1 us (How to Scale Your Model, part 3), however little is sent."
    )
    title = f"effects that the rule leaves out, on an axis of {longest} of {size} devices"
    return table("bounds", title, "predicted", named, rows, (note,))


def shape_tables(parts: Sequence[Spec], mesh: dict[str, int], remarks: Sequence[str]) -> tuple[Table, ...]:
    """The whole shapes of arrays given as one device's part."""
    fields: Fields[Spec] = (
        Field("local", "one device's part", str),
        Field("whole", "whole", lambda array: whole_shape(array, mesh)),
        Field("parts", "parts", lambda array: math.prod(mesh[axis] for axes in array.axes for axis in axes), "count"),
    )
    return (table_of("true_shapes", "true shapes", "static", fields, parts, remarks),)


def _per_device(target: Figures, flops_per_second: float, remark: str) -> str:
    what = f" ({remark})" if remark else ""
    return (
        f"A {target.device}: {decimal(flops_per_second, 'FLOP/s')}{what}, "
        f"{decimal(target.hbm_bytes_per_second, 'B/s')} of HBM ({target.source})."
    )


def _sizes(sizes: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, sizes))}]"
