"""Participants of collectives and partitions of values over devices, in all forms that HLO writes."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from harness.errors import RatchetError
from harness.hlo.tokens import DEVICES, DIMENSIONS, Misunderstood, Tokens

# An axis of a mesh, or a part of an axis: the name of the axis, the product of the sizes of the parts before this part
# (1 for a whole axis), and the part's size.
AxisPart: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOrder:
    """The order of devices that a text states: `listed`, or 0, 1, 2, ... reshaped to `sizes` and transposed."""

    sizes: tuple[int, ...] = ()
    transposition: tuple[int, ...] = ()
    listed: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.listed) or math.prod(self.sizes)

    @property
    def is_transposed(self) -> bool:
        """True if the text states a transposition that changes the order of the devices."""
        return list(self.transposition) != sorted(self.transposition)

    def devices(self) -> tuple[int, ...]:
        """All devices, in order. Check `count` first, because a short text may describe any number of devices."""
        return self.listed or tuple(_transposed(self.sizes, self.transposition))


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The groups of devices among which a collective runs, as text and as lists.

    - `axes`: the axes of the mesh, if the text states a mesh.
    - `order`: the order of all devices, if the text does not list the groups.
    - `is_everyone`: True if the text names no groups; then all devices are one group.
    - `is_whole`: False if the text leaves groups out (`...`).
    """

    text: str
    groups: tuple[tuple[int, ...], ...] = ()
    axes: tuple[tuple[str, int], ...] = ()
    order: DeviceOrder = DeviceOrder()
    is_everyone: bool = False
    is_whole: bool = True

    @cached_property
    def size(self) -> int | None:
        """Devices in each group; None if the groups differ in size or are not named."""
        sizes = {len(group) for group in self.groups}
        return sizes.pop() if len(sizes) == 1 else None

    @cached_property
    def stride(self) -> int | None:
        """The distance between neighbours in a group; None if it is not the same for all neighbours."""
        steps = {after - before for group in self.groups for before, after in itertools.pairwise(group)}
        return steps.pop() if len(steps) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """The partition of one value over devices, from a `sharding={...}` attribute.

    - `parts`: the number of parts of each dimension; empty for kinds that split nothing (`replicated`, `manual`,
      `maximal`).
    - `order`: the devices in the order in which they fill the `tile` or the mesh.
    - `tile`: without a mesh, `parts` followed by the number of replicas.
    - `axes`: the axes of the mesh. `split`: for each dimension, the axes that split it.
    - `members`: the shardings of a tuple's values.
    """

    text: str
    kind: str
    parts: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    order: DeviceOrder = DeviceOrder()
    axes: tuple[tuple[str, int], ...] = ()
    split: tuple[tuple[AxisPart, ...], ...] = ()
    members: "tuple[Sharding, ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Names and sizes of axes; device numbers vary fastest along the last axis. Names are made up if not `is_named`."""

    axes: tuple[tuple[str, int], ...]
    is_named: bool = True

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)

    @property
    def devices(self) -> int:
        return math.prod(size for _, size in self.axes)

    def place(self, device: int) -> tuple[int, ...]:
        """The coordinates of a device: its position along each axis."""
        places = []
        for _, size in reversed(self.axes):
            device, at = divmod(device, size)
            places.append(at)
        return tuple(reversed(places))


def groups(text: str) -> Groups:
    """The groups of `replica_groups=`: lists, iota forms, mesh forms. Raises RatchetError `bad-hlo`."""
    tokens = Tokens(text)
    try:
        parsed = read_groups(tokens)
        if tokens.peek().kind != "end":
            raise tokens.misunderstood("the end of the groups")
    except Misunderstood as error:
        raise RatchetError(
            "bad-hlo",
            f"expected groups such as {{{{0,1}},{{2,3}}}}, [2,4]<=[8] or [4,2]<=[2,4]T(1,0), got "
            f"{text[:60]!r}: {error}",
        ) from error
    return parsed


def read_groups(tokens: Tokens) -> Groups:
    """The groups that begin at the next token. Raises Misunderstood."""
    start = tokens.peek().start
    if tokens.sees("["):
        sizes, order = _iota(tokens)
        if len(sizes) != 2:
            raise Misunderstood(f"expected groups as [number of groups,devices in a group], got {[*sizes]}")
        return _groups_of_text(tokens, start, (), order, lambda devices: _cut(devices, sizes[1]))
    if tokens.sees("mesh", "@mesh"):
        axes, order = _mesh(tokens)
        named = _axis_references(tokens, axes)
        return _groups_of_text(tokens, start, axes, order, lambda devices: _mesh_groups(axes, devices, named))
    tokens.expect("{")
    lists: list[tuple[int, ...]] = []
    is_whole = True
    while not tokens.skip("}"):
        if lists:
            tokens.expect(",")
        if tokens.skip("..."):
            is_whole = False
        else:
            lists.append(_list(tokens))
    return Groups(text=_since(tokens, start), groups=tuple(lists), is_everyone=not lists, is_whole=is_whole)


def _groups_of_text(
    tokens: Tokens,
    start: int,
    axes: tuple[tuple[str, int], ...],
    order: DeviceOrder,
    grouped: Callable[[Sequence[int]], tuple[tuple[int, ...], ...]],
) -> Groups:
    """The groups whose text began at `start`. Reuses the groups of an equal earlier text; otherwise calls `grouped`."""
    text = _since(tokens, start)
    groups = tokens.groups.get(text)
    if not isinstance(groups, Groups):
        if not order.listed:
            _count(tokens, order.count)
        groups = tokens.groups[text] = Groups(text=text, groups=grouped(order.devices()), axes=axes, order=order)
    return groups


def _cut(devices: Sequence[int], size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(devices[at : at + size]) for at in range(0, len(devices), size or 1))


def _count(tokens: Tokens, devices: int) -> None:
    """Counts devices that are about to be listed. Raises RatchetError `too-large`."""
    tokens.devices += devices
    DEVICES.check(tokens.devices, f"the groups at {tokens.where(tokens.place)}")


def read_sharding(tokens: Tokens, *, is_member: bool = False) -> Sharding:
    """The sharding in braces that begins at the next token. Raises Misunderstood."""
    start = tokens.peek().start
    tokens.expect("{")
    if tokens.sees("{") and not is_member:
        # One sharding for each value of a tuple. Only the shape shows which sharding belongs to which value.
        members: list[Sharding] = []
        while not tokens.skip("}"):
            tokens.skip(",")
            members.append(read_sharding(tokens, is_member=True))
        return Sharding(text=_since(tokens, start), kind="tuple", members=tuple(members))
    if tokens.sees("mesh"):
        return _named_sharding(tokens, start)
    kind = tokens.name()
    if kind != "devices":
        _skip_group(tokens)
        return Sharding(text=_since(tokens, start), kind=kind)
    tokens.expect("=")
    tile, order = _iota(tokens)
    replicated = 0
    while not tokens.skip("}"):
        word = tokens.name()
        if word == "last_tile_dim_replicate":
            replicated = 1
        elif word == "last_tile_dims":
            tokens.expect("=")
            replicated = tokens.group().count(",") + 1
        else:
            _skip_group(tokens)
            break
    parts = tile[: len(tile) - replicated]
    return Sharding(text=_since(tokens, start), kind="devices", parts=parts, tile=tile, order=order)


def tiles(sharding: Sharding) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The number of tiles of each dimension, replicas last, and the device of each tile in order.

    None for kinds that name no devices. Raises RatchetError `too-large`.
    """
    if sharding.kind not in ("devices", "mesh"):
        return None
    DEVICES.check(sharding.order.count, f"the sharding {sharding.text[:60]}")
    devices = sharding.order.devices()
    if sharding.kind == "devices":
        return sharding.tile, devices
    grouped = _mesh_groups(sharding.axes, devices, [part for parts in sharding.split for part in parts])
    # Each group holds the devices of all tiles for one replica, but in the result the replicas must vary fastest.
    return (*sharding.parts, len(grouped)), tuple(device for tile in zip(*grouped, strict=True) for device in tile)


def _named_sharding(tokens: Tokens, start: int) -> Sharding:
    """The sharding `{mesh['x'=2,'y'=4], [{'x'}, {}]}`, which lists the axes of the mesh that split each dimension."""
    axes, order = _mesh(tokens)
    tokens.expect(",")
    split = [_axis_references(tokens, axes) for _ in tokens.items("]")] if tokens.skip("[") else []
    _skip_group(tokens)
    parts = tuple(math.prod(size for _, _, size in places) for places in split)
    text = _since(tokens, start)
    return Sharding(text=text, kind="mesh", parts=parts, order=order, axes=axes, split=tuple(split))


def _skip_group(tokens: Tokens) -> None:
    """Skips all tokens up to and including the brace that closes the current group."""
    while not tokens.skip("}"):
        if tokens.peek().kind == "end":
            raise tokens.misunderstood("`}`")
        tokens.skip_value()


def _list(tokens: Tokens) -> tuple[int, ...]:
    """The numbers of a list such as `{0,1,2}`. In `{0,16,32,...,112}`, the ellipsis continues in equal steps."""
    tokens.expect("{")
    listed: list[int] = []
    goes_on = False
    for _ in tokens.items("}"):
        if tokens.skip("..."):
            if len(listed) < 2 or listed[-1] <= listed[-2]:
                raise tokens.misunderstood("two rising numbers before `...`")
            goes_on = True
            continue
        number = tokens.integer()
        if goes_on:
            step = listed[-1] - listed[-2]
            if number <= listed[-1] or (number - listed[-1]) % step:
                raise Misunderstood(f"after `...` expected a number in steps of {step} from {listed[-1]}, got {number}")
            _count(tokens, (number - listed[-1]) // step)
            listed += range(listed[-1] + step, number, step)
            goes_on = False
        listed.append(number)
    if goes_on:
        raise tokens.misunderstood("the last number behind `...`")
    return tuple(listed)


def _sizes(tokens: Tokens, opening: str, closing: str) -> tuple[int, ...]:
    tokens.expect(opening)
    listed: list[int] = []
    for _ in tokens.items(closing):
        listed.append(tokens.integer())
        DIMENSIONS.check(len(listed), f"the groups at {tokens.where(tokens.place)}")
    return tuple(listed)


def _iota(tokens: Tokens) -> tuple[tuple[int, ...], DeviceOrder]:
    """The sizes in front and the order of the devices in `[4,2]<=[2,4]T(1,0)` or `[2,2]0,1,2,3`."""
    sizes = _sizes(tokens, "[", "]")
    if tokens.skip("<="):
        counted = _sizes(tokens, "[", "]")
        places = tuple(range(len(counted)))
        order = DeviceOrder(sizes=counted, transposition=_sizes(tokens, "(", ")") if tokens.skip("T") else places)
        if sorted(order.transposition) != [*places]:
            raise Misunderstood(f"T{order.transposition} is not an order of {len(counted)} dimensions")
    else:
        devices = [tokens.integer()]
        while tokens.skip(","):
            devices.append(tokens.integer())
        order = DeviceOrder(listed=tuple(devices))
    if min(sizes, default=0) < 0 or math.prod(sizes) != order.count:
        raise Misunderstood(f"{[*sizes]} has room for {math.prod(sizes)} devices, there are {order.count}")
    return sizes, order


def _transposed(sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    """The numbers 0, 1, 2, ... reshaped to `sizes`, transposed to `order`, and read row by row."""
    strides = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
    listed = [0]
    for place in order:
        listed = [base + strides[place] * index for base in listed for index in range(sizes[place])]
    return listed


def _mesh(tokens: Tokens) -> tuple[tuple[tuple[str, int], ...], DeviceOrder]:
    """The axes of `mesh['axis_0'=2,'axis_1'=4]`, and the order of devices, which the text may state after the axes."""
    tokens.take()
    tokens.expect("[")
    axes: dict[str, int] = {}
    for _ in tokens.items("]"):
        name = tokens.take().text.strip("'\"")
        tokens.expect("=")
        axes[name] = tokens.integer()
        if axes[name] < 1:
            raise Misunderstood(f"expected an axis of 1 device or more, got {name}={axes[name]}")
    order = DeviceOrder(sizes=(math.prod(axes.values()),), transposition=(0,))
    before = tokens.place
    if tokens.skip(",") and tokens.sees("device_ids"):
        tokens.take()
        tokens.expect("=")
        tokens.skip("(")
        _, order = _iota(tokens)
        tokens.skip(")")
    else:
        tokens.jump(before)
    return tuple(axes.items()), order


def _axis_references(tokens: Tokens, mesh: tuple[tuple[str, int], ...]) -> tuple[AxisPart, ...]:
    """The axes, or parts of axes, in text such as `{'x', 'y':(2)4}`."""
    tokens.expect("{")
    axes = dict(mesh)
    listed: list[AxisPart] = []
    while not tokens.skip("}"):
        tokens.skip(",")
        if tokens.skip("?"):
            continue
        name = tokens.take().text.strip("'\"")
        if name not in axes:
            raise Misunderstood(f"`{name}` is not an axis of the mesh {axes}")
        before, size = 1, axes[name]
        if tokens.skip(":"):
            tokens.expect("(")
            before = tokens.integer()
            tokens.expect(")")
            size = tokens.integer()
            if before < 1 or size < 1:
                raise Misunderstood(f"({before}){size} is not a part of the axis {name}")
        listed.append((name, before, size))
    return tuple(listed)


def _mesh_groups(
    axes: tuple[tuple[str, int], ...], devices: Sequence[int], named: Sequence[AxisPart]
) -> tuple[tuple[int, ...], ...]:
    """Groups of devices; the devices of a group differ only in their places along the named axes."""
    sizes: list[int] = []
    places: dict[tuple[str, int], int] = {}
    for axis, whole in axes:
        # If only a part of an axis is named, the axis is cut into the named part and the parts before and after it.
        parts = sorted((before, size) for name, before, size in named if name == axis)
        at = 1
        for before, size in parts:
            if before % at or whole % (before * size):
                raise Misunderstood(f"({before}){size} is not a part of the axis {axis} of {whole}")
            sizes.append(before // at)
            places[axis, before] = len(sizes)
            sizes.append(size)
            at = before * size
        sizes.append(whole // at)
    inner = [places[name, before] for name, before, _ in named]
    outer = [place for place in range(len(sizes)) if place not in inner]
    if len(devices) != math.prod(sizes):
        raise Misunderstood(f"the mesh {dict(axes)} has {math.prod(sizes)} places for {len(devices)} devices")
    order = [devices[place] for place in _transposed(sizes, outer + inner)]
    return _cut(order, math.prod(sizes[place] for place in inner))


def _since(tokens: Tokens, start: int) -> str:
    return tokens.text[start : tokens.place].strip().rstrip(",").rstrip()
