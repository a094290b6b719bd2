"""Programs on several chips: bytes by link as derived by hand, published times, chips that wait for ever."""

import math
import os
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import compiled_meshes
import pytest
from loop_fixtures import PROJECT
from narrowing import present

from harness.chips import row
from harness.dumps.llo import read_module
from harness.errors import RatchetError, UsageError
from harness.hardware import chip, slice_shape, slice_topology, with_mesh
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.module import run_module
from harness.judge.simulate.several_chips import Network
from harness.judge.simulate.timeline import timeline
from harness.judge.simulate.uncertainty import plus_minus_seconds
from harness.records import Simulation
from harness.sandbox.messages import Rejected
from harness.workbench.capture import program_run, programs
from harness.workbench.capture.messages import LowerRequest
from harness.workbench.capture.program_run import lower_program

pytestmark = pytest.mark.long

_PROGRAMS = Path(__file__).parents[3] / "benchmarks" / "sharded_programs.py"
# Each of four chips holds 1,024 rows of 1,024 numbers.
_SHARD = 4 << 20
_ARGUMENT = "f32[4096@x,1024]"
# On a slice of 2x2: chip 1 is beside chip 0, chip 2 below it.
_AROUND = ((0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (3, 1), (2, 3), (3, 2))


# The programs that tests look at, by the chip that they are compiled for.
_COMPILED = {
    "v5e": (
        "permuted",
        "gathered_by_jax",
        "pairs",
        "gathered",
        "gathered_and_scaled",
        "summed",
        "exchanged",
        "stuck",
        "beside",
        "unheard",
        "beyond",
    ),
    "v6e": ("pairs",),
    "v5p": ("pairs", "gathered", "summed", "exchanged", "beside"),
}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The folder of the dumps of one of the programs, compiled for four chips."""

    @cache
    def compiled(of_chip: str) -> Path:
        folder = tmp_path_factory.mktemp(of_chip)
        flags = " ".join([*program_run._DUMPS, f"--xla_jf_dump_to={folder / 'dumps'}"])
        environment = {**program_run._QUIET, **os.environ, "PYTHONPATH": PROJECT, "LIBTPU_INIT_ARGS": flags}
        command = [sys.executable, compiled_meshes.__file__, str(_PROGRAMS), of_chip, _ARGUMENT, str(folder)]
        subprocess.run([*command, *_COMPILED[of_chip]], env=environment, check=True, timeout=300)
        return folder

    return lambda name, of_chip: compiled(of_chip) / name


def simulated(folder: Path, of_chip: str = "v5e") -> Simulation:
    return run_module(read_module(folder), chip(of_chip))


def carried(simulation: Simulation) -> dict[tuple[int, int], int]:
    return {(link.source, link.destination): link.bytes for link in simulation.links}


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        # 0 -> 1 -> 2 -> 3 -> 0: the chips 1 and 2, and 3 and 0, stand across from each other, along x first, then y.
        ("permuted", {(0, 1): 1, (1, 0): 1, (0, 2): 1, (2, 3): 1, (3, 2): 1, (2, 0): 1}),
        # Three halves of a shard each way around the ring of chips in the order of their numbers.
        (
            "gathered_by_jax",
            {(0, 1): 3, (1, 0): 3, (2, 3): 3, (3, 2): 3, (0, 2): 1.5, (2, 0): 1.5, (1, 3): 1.5, (3, 1): 1.5},
        ),
        ("pairs", {(0, 1): 1, (1, 0): 1, (2, 3): 1, (3, 2): 1}),
        # Three shards come to each chip, over two links.
        ("gathered", dict.fromkeys(_AROUND, 1.5)),
        ("gathered_and_scaled", dict.fromkeys(_AROUND, 1.5)),
        # Three quarters of the array to be summed and three quarters of the sum, over two links.
        ("summed", dict.fromkeys(_AROUND, 0.75)),
        # A quarter goes to each neighbour, and over each of them half of the quarter for the chip across, twice.
        ("exchanged", dict.fromkeys(_AROUND, 0.5)),
    ],
)
def test_links_carry_the_bytes_that_are_derived_by_hand(dumps, name: str, by_hand: dict) -> None:  # type: ignore
    simulation = simulated(dumps(name, "v5e"))
    assert simulation.chips == 4
    assert carried(simulation) == {link: shards * _SHARD for link, shards in by_hand.items()}
    assert not simulation.offences
    assert all(link.busy_seconds < present(simulation.seconds) for link in simulation.links)
    waits = simulation.link_wait_cycles / simulation.clock_hz
    assert waits > 0.6 * max(link.busy_seconds for link in simulation.links)


def test_an_all_gather_takes_what_its_busiest_link_does_and_little_more(dumps) -> None:  # type: ignore
    simulation = simulated(dumps("gathered", "v5e"))
    (seconds,) = (op.seconds for op in simulation.ops if op.name.startswith("all-gather"))
    bound = 1.5 * _SHARD / row("v5e").links.reached_bytes_per_second  # type: ignore[union-attr]
    assert bound < seconds < 1.1 * bound


@pytest.mark.parametrize(("of_chip", "fixed", "rate"), [("v6e", 2.29e-6, 86.8e9), ("v5p", 4.55e-6, 86.3e9)])
def test_a_permutation_between_neighbours_takes_what_is_published(  # type: ignore
    dumps, of_chip: str, fixed: float, rate: float
) -> None:
    simulation = simulated(dumps("pairs", of_chip), of_chip)
    published = fixed + _SHARD / rate  # marin-community/marin, issue 6736
    assert simulation.link_wait_cycles / simulation.clock_hz == pytest.approx(published, rel=0.05)


def test_chips_that_wait_for_each_other_for_ever_are_named_with_the_line(dumps) -> None:  # type: ignore
    simulation = simulated(dumps("stuck", "v5e"))
    assert simulation.seconds is None
    line = next(n for n, text in enumerate(_PROGRAMS.read_text().splitlines(), 1) if "semaphore_wait" in text)
    assert "chips 0, 1, 2, 3 wait in " in simulation.unknown[0]
    assert f"(sharded_programs.py:{line}) for 1 more" in simulation.unknown[0]


def test_a_permutation_beside_other_work_ends_and_hides_it(dumps) -> None:  # type: ignore
    simulation = simulated(dumps("beside", "v5e"))
    assert simulation.seconds is not None
    assert not simulation.offences
    alone = simulated(dumps("pairs", "v5e")).link_wait_cycles
    assert simulation.link_wait_cycles < alone


def test_what_is_sent_and_never_waited_for_is_named(dumps) -> None:  # type: ignore
    offences = simulated(dumps("unheard", "v5e")).offences
    assert {offence.kind for offence in offences} == {"transfer-pending"}
    assert sum(offence.count for offence in offences) == 4
    assert all(offence.what.startswith("another chip's signal that nothing waits for") for offence in offences)


def test_a_chip_that_does_not_exist_is_named_with_the_line(dumps) -> None:  # type: ignore
    reason = simulated(dumps("beyond", "v5e")).unknown[0]
    assert "it sends to chip 4 at sharded_programs.py:" in reason


def test_what_the_dump_lacks_is_said(dumps, tmp_path: Path) -> None:  # type: ignore
    for path in dumps("gathered", "v5e").iterdir():
        if path.suffix == ".txt":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert "whose contents are not known" in simulated(tmp_path).unknown[0]
    for path in tmp_path.glob("*post-delay-converter*"):
        path.unlink()
    assert "also dump the pass `post-delay-converter`" in simulated(tmp_path).unknown[0]


def test_transfers_go_along_one_axis_after_the_other_and_the_short_way_around_a_ring() -> None:
    links = present(row("v5e").links)

    def chips(shape: tuple[int, ...], source: int, destination: int) -> list[int]:
        network = Network(shape=shape, links=links, machine=machine_of(chip("v5e")))
        return [network.neighbour(link) for link in network.route(source, destination)]

    assert chips((2, 2), 0, 3) == [1, 3]
    assert chips((4, 4), 3, 0) == [2, 1, 0]
    assert chips((4, 4), 1, 14) == [2, 6, 10, 14]
    assert chips((16, 16), 15, 0) == [0]
    assert chips((16, 16), 0, 240 + 14) == [15, 14, 254]
    assert chips((2, 2), 1, 1) == []


def test_a_link_is_taken_once_at_a_time() -> None:
    network = Network(shape=(2, 2), links=present(row("v5e").links), machine=machine_of(chip("v5e")))
    size = 1 << 20
    transfer = size / network.bytes_per_cycle
    first = network.passage(0, 1, size, flag=1, begins=0.0, read=0.0)
    second = network.passage(0, 3, size, flag=1, begins=0.0, read=0.0)
    back = network.passage(1, 0, size, flag=1, begins=0.0, read=0.0)
    assert first.left == pytest.approx(transfer)
    assert second.route[0][1][0][0] == first.left
    assert first.arrived == pytest.approx(transfer + network.hop_cycles)
    assert second.arrived == pytest.approx(2 * transfer + 2 * network.hop_cycles)
    assert back.arrived == pytest.approx(first.arrived)


def test_slices_on_which_transfers_name_routes_are_simulated(tmp_path: Path) -> None:
    """On slices of 32 chips and more, the compiler's tables of routes and of the barrier's tree are read."""
    for name in ("gathered", "permuted"):
        lower_program(f"{_PROGRAMS}:{name}", ["f32[8192@x,1024]"], chip("v5e"), mesh={"x": 32}, dumps=tmp_path / name)
    simulation = simulated(tmp_path / "gathered")
    assert simulation.seconds is not None
    assert not simulation.offences
    # Around one ring through all chips, 16 shards one way and 15 the other.
    shard = 1 << 20
    assert sorted(carried(simulation).values()) == [15 * shard] * 32 + [16 * shard] * 32
    # The last chip of a row stands far from the first one of the next.
    assert "that its routing table has no route to" in simulated(tmp_path / "permuted").unknown[0]


def test_a_link_that_carries_nothing_is_not_kept_free_for_what_comes_later() -> None:
    network = Network(shape=(4, 4), links=present(row("v5e").links), machine=machine_of(chip("v5e")))
    size = 1 << 20
    unit = size / network.bytes_per_cycle

    def times(source: int, destination: int, units: float) -> list[list[tuple[float, float]]]:
        """The times at which a transfer that begins at once has each link on its way, in units of `size` bytes."""
        way = network.passage(source, destination, int(units * size), flag=1, begins=0.0, read=0.0).route
        return [[(start / unit, end / unit) for start, end in busy] for _, busy in way]

    def approximately(*pairs: tuple[float, float]) -> list[object]:
        return [pytest.approx(pair) for pair in pairs]

    assert times(0, 1, 1) == [approximately((0, 1))]
    # It waits for the first of its links, and has the second as soon as it has that.
    assert times(0, 2, 1) == [approximately((1, 2)), approximately((1, 2))]
    # Until then another transfer has the second link, and it continues afterwards.
    assert times(1, 2, 1.5) == [approximately((0, 1), (2, 2.5))]
    # A transfer that waits for a link farther on does not keep its first link busy.
    assert times(0, 2, 1) == [approximately((2, 3)), approximately((2.5, 3.5))]
    assert times(0, 1, 1) == [approximately((3, 4))]


def test_chips_of_two_cores_send_and_receive_with_both(dumps, tmp_path: Path) -> None:  # type: ignore
    for name, shards in (("gathered", 1.5), ("summed", 0.75), ("exchanged", 0.5)):
        simulation = simulated(dumps(name, "v5p"), "v5p")
        assert carried(simulation) == dict.fromkeys(_AROUND, shards * _SHARD), name
        assert not simulation.offences, name
        assert simulation.seconds is not None, name
    # In this product one core fetches an operand for both.
    split = simulated(dumps("beside", "v5p"), "v5p")
    assert split.seconds is not None
    assert not split.offences
    run = timeline(read_module(dumps("gathered", "v5p")), chip("v5p"))
    assert {"chip 3 ops", "chip 3 core 1 ops", "chip 3 link to 1"} <= {span.row for span in run.spans}
    assert len(run.parts) == 4


def test_a_timeline_has_every_chip_and_what_each_direction_of_a_link_carries(dumps) -> None:  # type: ignore
    folder = dumps("gathered", "v5e")
    run, simulation = timeline(read_module(folder), chip("v5e")), simulated(folder)
    crossings = [span for span in run.spans if span.kind == "link"]
    lanes: dict[str, int] = {}
    for span in crossings:
        lanes[span.row] = lanes.get(span.row, 0) + span.link_bytes
    assert lanes == {f"chip {link.source} link to {link.destination}": link.bytes for link in simulation.links}
    for row_name in lanes:
        lane = sorted((span.start, span.end) for span in crossings if span.row == row_name)
        assert all(end <= start for (_, end), (start, _) in pairwise(lane)), row_name
    ops = {(span.row, span.name) for span in run.spans if span.kind == "op" and span.name.startswith("all-gather")}
    assert len(ops) == 4
    assert [run.end(number) for number in range(4)] == [core.cycles for core in run.parts]
    assert max(map(run.end, range(4))) == run.cycles == simulation.cycles


def test_slices_are_as_square_as_they_can_be() -> None:
    links = present(row("v5e").links)
    assert [slice_shape(count, links) for count in (1, 4, 8, 16, 32, 256)] == [
        (1, 1),
        (2, 2),
        (2, 4),
        (4, 4),
        (4, 8),
        (16, 16),
    ]
    assert slice_topology(chip("v6e"), 8) == "v6e:2x4"
    for count in (2, 3, 5, 6, 12):
        with pytest.raises(UsageError, match="fill a slice"):
            slice_shape(count, links)
    torus = present(row("v5p").links)
    assert [slice_shape(count, torus) for count in (4, 8, 16, 32, 64)] == [
        (2, 2, 1),
        (2, 2, 2),
        (2, 2, 4),
        (2, 4, 4),
        (4, 4, 4),
    ]
    assert slice_topology(chip("v5p"), 16) == "v5p:2x2x4"
    with pytest.raises(UsageError, match="fill a slice"):
        slice_shape(2, torus)
    with pytest.raises(UsageError, match="not judged for v5p"):
        with_mesh(chip("v5p"), (("x", 4),))
    for name, why in (("v4", "not understood"), ("v7x", "collective_offload_all_gather=false")):
        with pytest.raises(UsageError, match=f"not simulated for {name}.*{why}"):
            slice_topology(chip(name), 4)


# jax 0.12 warns of a class that benchmarks/sharded_programs.py uses, which this process imports.
@pytest.mark.filterwarnings("ignore:jax.experimental.pallas.DeviceIdType is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "expected --arg, such as 'f32[8,128]', for x, got none"),
        (["f32[4097@x,1024]"], "a multiple of x=2 before @x, got 4097"),
        (["f32[4098@x@y,1024]"], "a multiple of x=2 * y=2 before @x@y, got 4098"),
        (["f32[4096@x,1024@x]"], "expected each axis at most once in one --arg, got x 2 times"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Run in this process; the next test checks that the child's sentences reach the caller.
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, _PROGRAMS.stem, sys.modules.get(_PROGRAMS.stem))
    asked = LowerRequest(
        path=str(_PROGRAMS),
        function="pairs",
        arguments=tuple(arguments),
        topology=slice_topology(chip("v5e"), 4),
        chip=chip("v5e"),
        directory=str(Path.cwd()),
        scratch=str(tmp_path),
        mesh=(("x", 2), ("y", 2)),
        dumps="",
    )
    with pytest.raises(Rejected) as refused:
        programs.lower(asked)
    assert expected in str(refused.value)


def test_a_dimension_is_split_over_two_axes(tmp_path: Path) -> None:
    program = tmp_path / "scaled.py"
    program.write_text("def scaled(x, y, z):\n    return x * 2, y * 2, z * 2\n", encoding="utf-8")
    parts = {"8192@x@y": "2048,128", "8192@x": "4096,128", "8192": "8192,128"}
    arguments = [f"f32[{size},128]" for size in parts]
    lowered = lower_program(f"{program}:scaled", arguments, chip("v5e"), mesh={"x": 2, "y": 2})
    entry = lowered.hlo.partition("ENTRY")[2].partition("->")[0]
    assert re.findall(r"f32\[([\d,]+)\]", entry) == list(parts.values())


def test_a_training_step_with_several_all_reduces_of_xla_is_simulated(tmp_path: Path) -> None:
    """Of equal all-reduces only one is in the dump, and they share one constant: the order of the ring."""
    up, down, tokens = "bf16[1024,4096@y]", "bf16[4096@y,1024]", "bf16[4096@x,1024]"
    arguments = [tokens, tokens, up, down, up, down]
    lower_program(f"{_PROGRAMS}:training_step", arguments, chip("v5e"), mesh={"x": 2, "y": 2}, dumps=tmp_path)
    simulation = simulated(tmp_path)
    assert simulation.seconds is not None
    assert not simulation.offences
    # Each chip's part of every array has 4 MiB. Between two chips an all-reduce sends them once each way: along y for
    # both MLPs forward and for the second one backward, along x for the gradients of the four weights.
    part = 4 << 20
    along_x, along_y = ((0, 2), (2, 0), (1, 3), (3, 1)), ((0, 1), (1, 0), (2, 3), (3, 2))
    assert carried(simulation) == dict.fromkeys(along_x, 4 * part) | dict.fromkeys(along_y, 3 * part)


def test_waits_for_other_chips_are_off_by_a_part_of_their_own(dumps) -> None:  # type: ignore[no-untyped-def]
    simulation = simulated(dumps("gathered", "v5e"))
    assert simulation.seconds is not None
    alone = plus_minus_seconds(simulation.seconds, simulation.relative_uncertainty, is_understood=True)
    waits = simulation.link_wait_cycles / simulation.clock_hz
    assert waits > simulation.seconds / 2
    assert simulation.plus_minus_seconds == pytest.approx(math.hypot(alone, 0.1 * waits))


def test_an_axis_that_the_mesh_lacks_is_refused(tmp_path: Path) -> None:
    for mesh, axes in (({"x": 4}, "the axes are x"), ({}, "no --mesh is given")):
        with pytest.raises(RatchetError, match=f"expected an axis of --mesh after @, got 'y': {axes}"):
            lower_program(f"{_PROGRAMS}:pairs", ["f32[4096@y,1024]"], chip("v5e"), mesh=mesh, dumps=tmp_path)
