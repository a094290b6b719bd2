"""The device mesh of a module, and the mesh axes of a sharding or of a collective's groups."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from harness.hlo.sharding import Groups, Mesh, Sharding, tiles

# If more axes than this split one dimension, their order is not searched; four axes have 24 orders.
_MOST_AXES = 4


def infer_mesh(shardings: Iterable[Sharding], groups: Iterable[Groups], devices: int) -> Mesh | None:
    """The mesh that a module's text names, or else the coarsest mesh that fits the module's shardings and groups.

    None if neither a sharding nor a group shows the layout of the devices, or if no single mesh fits.
    """
    groups = tuple(groups)
    edges = {1, devices}
    whole = {sharding.text: sharding for sharding in shardings}.values()
    parts: list[Sharding | Groups] = [part for sharding in whole for part in sharding.members or (sharding,)]
    for part in (*parts, *groups):
        if part.axes:
            if math.prod(size for _, size in part.axes) == devices:
                return Mesh(axes=part.axes)
        elif part.order.sizes:
            edges |= _edges(part.order.sizes)
    for sharding in whole:
        if sharding.tile and not sharding.order.is_transposed:
            edges |= _edges(sharding.tile)
    for group_set in groups:
        if group_set.size and group_set.stride and group_set.groups:
            edges |= {group_set.stride, group_set.stride * group_set.size}
    ordered = sorted(edge for edge in edges if 0 < edge <= devices)
    if any(after % before for before, after in itertools.pairwise(ordered)):
        return None
    sizes = [after // before for before, after in itertools.pairwise(ordered)]
    if len(sizes) < 1 or (ordered == [1, devices] and not (parts or groups)):
        return None
    return Mesh(axes=tuple((f"axis{at}", size) for at, size in enumerate(reversed(sizes))), is_named=False)


def _edges(sizes: Sequence[int]) -> set[int]:
    """The distances of neighbours along each dimension, if the last dimension varies fastest."""
    return {math.prod(sizes[at:]) for at in range(len(sizes) + 1)}


def axes_of_pairs(pairs: Sequence[tuple[int, int]], mesh: Mesh | None) -> tuple[str, ...]:
    """The axes along which devices send: in these axes, the two devices of at least one pair differ."""
    if mesh is None or any(not 0 <= device < mesh.devices for pair in pairs for device in pair):
        return ()
    places = [(mesh.place(source), mesh.place(target)) for source, target in pairs]
    return tuple(
        name for at, (name, _) in enumerate(mesh.axes) if any(source[at] != target[at] for source, target in places)
    )


def axes_of_groups(groups: Groups | None, mesh: Mesh | None) -> tuple[str, ...]:
    """The axes along which the devices of a group differ; () if the group does not span whole axes."""
    if groups is None or mesh is None:
        return ()
    if groups.is_everyone:
        return tuple(name for name, _ in mesh.axes)
    return _along(groups.groups, mesh)


@lru_cache(maxsize=64)
def _along(groups: tuple[tuple[int, ...], ...], mesh: Mesh) -> tuple[str, ...]:
    if not groups or any(not 0 <= device < mesh.devices for group in groups for device in group):
        return ()
    places = [mesh.place(device) for device in groups[0]]
    moving = [at for at in range(len(mesh.axes)) if len({place[at] for place in places}) > 1]
    size = math.prod(mesh.axes[at][1] for at in moving)
    for group in groups:
        still = {tuple(step for at, step in enumerate(mesh.place(device)) if at not in moving) for device in group}
        if len(still) != 1 or len(set(group)) != size:
            return ()
    return tuple(mesh.axes[at][0] for at in moving)


@lru_cache(maxsize=256)
def axes_of_sharding(sharding: Sharding, mesh: Mesh) -> tuple[tuple[str, ...], ...]:
    """The axes that split each dimension, the slowest first; () for a dimension that is whole or split otherwise."""
    tiling = tiles(sharding)
    if tiling is None or len(tiling[1]) != mesh.devices:
        return tuple(() for _ in sharding.parts)
    sizes, devices = tiling
    at_tile = dict(zip(devices, itertools.product(*map(range, sizes)), strict=True))
    return tuple(
        _axes_of([at_tile[device][place] for device in range(mesh.devices)], parts, mesh) if parts > 1 else ()
        for place, parts in enumerate(sharding.parts)
    )


def _axes_of(tile: Sequence[int], parts: int, mesh: Mesh) -> tuple[str, ...]:
    """The axes, slowest first, along which a device's position determines its tile's number; () if there are none."""
    steps = [math.prod(size for _, size in mesh.axes[at + 1 :]) for at in range(len(mesh.axes))]
    moving = [at for at, (_, size) in enumerate(mesh.axes) if size > 1 and tile[steps[at]] != tile[0]]
    if len(moving) > _MOST_AXES or math.prod(mesh.axes[at][1] for at in moving) != parts:
        return ()
    for order in itertools.permutations(moving):
        expected = []
        for device in range(mesh.devices):
            place, number = mesh.place(device), 0
            for at in order:
                number = number * mesh.axes[at][1] + place[at]
            expected.append(number)
        if expected == list(tile):
            return tuple(mesh.axes[at][0] for at in order)
    return ()


def torus_sizes(devices: int, dimensions: int) -> tuple[int, ...]:
    """The lengths of the axes of the slice that `torus_of` assumes, x first; () if unknown."""
    power = devices.bit_length() - 1
    if devices < 2 or devices != 1 << power:
        return ()
    # If the devices do not split evenly, the last dimensions are longer: 8 devices are 2 x 4.
    return tuple(1 << (power + at) // dimensions for at in range(dimensions))


def groups_per_link(groups: Groups | None, devices: int, dimensions: int) -> int | None:
    """The largest number of groups that send over the same link, if each group is along one axis of the torus.

    Assumes the slice of `torus_of`. None if its shape is unknown, or if a group is not along a single axis. Groups
    along the same line share its links: of the pairs {0,4}, {1,5}, {2,6}, {3,7} on 2 x 4 devices, two pairs cross the
    middle of each line of four.
    """
    sizes = torus_sizes(devices, dimensions)
    if groups is None or not groups.groups or not groups.is_whole or not sizes:
        return None
    crossing: Counter[tuple[object, ...]] = Counter()
    for group in groups.groups:
        if not all(0 <= device < devices for device in group):
            return None
        places = [[device // math.prod(sizes[:at]) % size for at, size in enumerate(sizes)] for device in group]
        moving = [at for at in range(dimensions) if len({place[at] for place in places}) > 1]
        if len(moving) != 1:
            return None
        along = [place[moving[0]] for place in places]
        line = tuple(step for at, step in enumerate(places[0]) if at != moving[0])
        crossing.update((moving[0], line, link) for link in range(min(along), max(along)))
    return max(crossing.values())


def torus_of(mesh: Mesh, dimensions: int) -> tuple[tuple[str, str], ...]:
    """For each mesh axis, the dimensions of the torus along which it runs: `x` or `x, y (2 of 4)`; () if unknown.

    Assumes a slice with powers of two as lengths, as close to a square or a cube as possible; x is the shortest and
    fastest varying axis. Devices are in the order of their numbers, as libtpu numbers them. Another arrangement of the
    mesh runs along other dimensions.
    """
    sizes = torus_sizes(mesh.devices, dimensions)
    if not sizes:
        return ()
    edges = [math.prod(sizes[:at]) for at in range(dimensions + 1)]
    placed = []
    for at, (name, size) in enumerate(mesh.axes):
        low = math.prod(other for _, other in mesh.axes[at + 1 :])
        parts = []
        for place, (first, last) in enumerate(itertools.pairwise(edges)):
            shared = min(last, low * size) // max(first, low)
            if shared > 1:
                whole = last // first
                parts.append("xyz"[place] if shared == whole else f"{'xyz'[place]} ({shared} of {whole})")
        placed.append((name, ", ".join(parts)))
    return tuple(placed)


def specification(axes: Sequence[Sequence[str]]) -> str:
    """The sharding in JAX's notation, without quotes: `P(data, None)`, `P((data, model))`; "" if nothing is split."""
    if not any(axes):
        return ""
    words = ["None" if not some else some[0] if len(some) == 1 else f"({', '.join(some)})" for some in axes]
    return f"P({', '.join(words)})"
