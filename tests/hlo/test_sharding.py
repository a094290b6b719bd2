"""Participants: replica groups and shardings in every form that HLO writes, against numpy and XLA's own reading."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxlib import _hlo

from harness.errors import RatchetError
from harness.hlo import parse
from harness.hlo.sharding import Sharding, groups
from harness.workbench.hlo import proto


@st.composite
def iotas(draw: st.DrawFn) -> tuple[str, list[list[int]]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    total = math.prod(sizes)
    size = draw(st.sampled_from([length for length in range(1, total + 1) if total % length == 0]))
    devices = np.arange(total).reshape(sizes).transpose(order).reshape(-1, size)
    turned = f"T({','.join(map(str, order))})" if order != sorted(order) else ""
    return f"[{total // size},{size}]<=[{','.join(map(str, sizes))}]{turned}", devices.tolist()


@given(iotas())
@settings(max_examples=100)
def test_iota_groups_are_numpys(case: tuple[str, list[list[int]]]) -> None:
    text, devices = case
    parsed = groups(text)
    assert [list(group) for group in parsed.groups] == devices
    assert parsed.size == len(devices[0])
    assert parsed.text == text


@given(st.lists(st.integers(2, 4), min_size=1, max_size=4), st.data())
@settings(max_examples=60)
def test_mesh_groups_are_the_devices_along_the_named_axes(sizes: list[int], data: st.DataObject) -> None:
    named = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    axes = ",".join(f"'a{place}'={size}" for place, size in enumerate(sizes))
    names = ",".join(f"'a{place}'" for place in named)
    parsed = groups(f"mesh[{axes}] {{{names}}}")
    rest = [place for place in range(len(sizes)) if place not in named]
    length = math.prod(sizes[place] for place in named)
    devices = np.arange(math.prod(sizes)).reshape(sizes).transpose(*rest, *named).reshape(-1, length)
    assert [list(group) for group in parsed.groups] == devices.tolist()


def test_a_part_of_an_axis() -> None:
    # (2)2 of an axis of 8: two parts before it, two in it, two behind it.
    parsed = groups("mesh['x'=8] {'x':(2)2}")
    assert [list(group) for group in parsed.groups] == np.arange(8).reshape(2, 2, 2).transpose(0, 2, 1).reshape(
        -1, 2
    ).tolist()


def test_lists_and_what_they_leave_out() -> None:
    parsed = groups("{{0,2},{1,3}}")
    assert (parsed.groups, parsed.size, parsed.stride, parsed.is_whole) == (((0, 2), (1, 3)), 2, 2, True)
    everyone = groups("{}")
    assert everyone.is_everyone
    assert everyone.size is None
    cut = groups("{{0,16,32,...,112},...}")
    assert cut.groups == (tuple(range(0, 113, 16)),)
    assert (cut.size, cut.stride, cut.is_whole) == (8, 16, False)
    uneven = groups("{{0,1},{2}}")
    assert uneven.size is None


MODULE = """HloModule m, num_partitions=8

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[8,128]{{1,0}} parameter(0), sharding={sharding}
  ROOT y = f32[8,128]{{1,0}} all-reduce(x), replica_groups={groups}, channel_id=1, to_apply=add
}}
"""


@pytest.mark.parametrize(
    "text",
    [
        "{{0,1,2,3},{4,5,6,7}}",
        "[2,4]<=[8]",
        "[4,2]<=[2,4]T(1,0)",
        "[2,4]<=[2,2,2]T(1,0,2)",
        "mesh['data'=2,'model'=4] {'model'}",
        "mesh['data'=2,'model'=4] {'data'}",
    ],
)
def test_text_and_proto_say_the_same_groups(text: str) -> None:
    source = MODULE.format(groups=text, sharding="{replicated}")
    read = parse.module(source)
    again = proto.module(_hlo.hlo_module_from_text(source).as_serialized_hlo_module_proto())
    ours, theirs = (next(i for i in m.entry.instructions if i.name == "y") for m in (read, again) if m.entry)
    assert ours.groups is not None
    assert theirs.groups is not None
    assert ours.groups.groups == theirs.groups.groups
    assert ours.groups.size in (2, 4)
    assert (read.not_understood, again.not_understood) == ((), ())


@pytest.mark.parametrize(
    ("text", "kind", "parts"),
    [
        ("{replicated}", "replicated", ()),
        ("{manual}", "manual", ()),
        ("{devices=[8,1]<=[8]}", "devices", (8, 1)),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "devices", (2, 1)),
        ("{devices=[2,2,2]<=[8] last_tile_dims={manual}}", "devices", (2, 2)),
        ("{devices=[1,8]0,4,1,5,2,6,3,7}", "devices", (1, 8)),
        ("{maximal device=0}", "maximal", ()),
    ],
)
def test_shardings_in_text_and_proto(text: str, kind: str, parts: tuple[int, ...]) -> None:
    source = MODULE.format(groups="{}", sharding=text)
    again = proto.module(_hlo.hlo_module_from_text(source).as_serialized_hlo_module_proto())
    for module in (parse.module(source), again):
        assert module.entry is not None
        parsed = module.entry.instructions[0].sharding
        assert isinstance(parsed, Sharding)
        assert (parsed.kind, parsed.parts) == (kind, parts)


def test_a_sharding_by_the_mesh() -> None:
    source = MODULE.format(groups="{}", sharding="{mesh['x'=2,'y'=4], [{'x','y'}, {}]}")
    parsed = parse.module(source).computations[1].instructions[0].sharding
    assert parsed is not None
    assert parsed.parts == (8, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{{0,1}",
        "[2,4]<=[9]",
        "[8]<=[8]",
        "[2,4]<=[8]T(1)",
        "{{0,...,4}}",
        "{{0,16,...,17}}",
        "mesh['x'=2] {'y'}",
        "{{0}} x",
    ],
)
def test_what_is_no_list_of_groups_is_told(text: str) -> None:
    with pytest.raises(RatchetError, match="expected groups such as") as caught:
        groups(text)
    assert caught.value.kind == "bad-hlo"
