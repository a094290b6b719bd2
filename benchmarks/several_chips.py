"""Compares simulated collectives on slices of 4, 16 and 32 chips with bytes derived by hand and published times.

    python benchmarks/several_chips.py          # writes benchmarks/SEVERAL_CHIPS.md, about ten minutes

Nothing on the page is measured. The bound of a row is the time that its busiest link needs for its bytes at the rate
that transfers reach (harness/chips). Only permutations are compared with a published time.
"""

import argparse
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isqrt
from pathlib import Path

from markdown_pages import markdown_table

from harness.chips import row
from harness.dumps.llo import read_module
from harness.errors import RatchetError
from harness.hardware import chip, slice_topology
from harness.judge.simulate.machine import Machine, machine_of
from harness.judge.simulate.module import Prepared, prepare, run_module, run_prepared
from harness.records import Simulation
from harness.units import percent, seconds
from harness.workbench.capture.program_run import lower_program

_HERE = Path(__file__).parent
_PAGE = _HERE / "SEVERAL_CHIPS.md"
_MIB = 1 << 20
# Latency and rate of a permutation between neighbours (marin-community/marin, issue 6736), by chip.
_PUBLISHED = {"v5p": (4.55e-6, 86.3e9), "v6e": (2.29e-6, 86.8e9)}
_CONFIG = re.compile(r'"collective_algorithm_config":\{(.*?)\}')
_ALGORITHM = re.compile(r'"(?:emitter|strategy)":"(\w+)"')
# Larger rows are simulated only once: each part that VMEM holds adds the same excess over the bound. In MiB.
_EXPLAINED = 128
# A factor so large that the faster part takes no time.
_FAST = 1_000_000

_HEAD = """# Several chips: what their links carry, and how long that takes

Made by `python benchmarks/several_chips.py`. Every time is simulated; nothing is measured. Bytes are those of one
direction of the busiest link. The bound is the time that this link needs for these bytes at the rate that transfers
reach, 86 % of the link's own rate (harness/chips has the sources).

Three columns explain why a time exceeds the bound, in percent of the bound: `hops` is the time saved if hops take no
time, `HBM` is the time saved if transfers within a chip take no time either, and `rest` is what remains (arithmetic,
barriers, links that wait for each other).

The published time comes from a straight line that others fitted to their measurements. On v6e the simulator's time of a
hop is fitted to the fixed part of this line, so the published time confirms only the rate. On v5p only the rate was
fitted to the line. The algorithm is the compiler's name for its choice (`collective_algorithm_config`); for
permutations it names none. [docs/SEVERAL_CHIPS.md](../docs/SEVERAL_CHIPS.md) says what is modelled.

"""

_NOTES = """
- **The bytes of an algorithm.**
  - An all-gather along a ring through all chips sends half of the other shards in each direction; on 2x2 it uses both
    axes at once.
  - An all-reduce splits the array into four colours, a quarter each: two colours go along one axis first, two along the
    other. Along an axis of k chips, a colour sends 2 (k - 1) / k of the data that it still holds when it reaches this
    axis. If the axis does not close to a ring, the ring is folded (0, 1, 3, 2), so each link carries two of the ring's
    transfers. With axes of j and k chips, k the longer, the axis of k carries (k - 1) / k x (1 + 1 / j) of the array.
    The simulated bytes are a little more, because the parts of the array are padded to whole tiles.
  - An all-to-all sends a part to each other chip, along x and then along y: in a row of k chips, each of k / 2 chips
    sends a part across the middle to each of k x k / 2 chips.
- **All-reduces wait for hops.** In each phase the last piece travels around a ring, on 4x4 over up to 5 links, before
  the next phase can begin. Larger arrays come no nearer to the bound: VMEM holds one part of the array at a time, and
  each part costs the same hops, one read and one write.
- **The all-gather of 2x2** (`2DAllGatherOnMajorDim`) copies its own shard into the result, block by block, before it
  sends anything. The column `HBM` shows the time of this copy.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A function of sharded_programs.py: its description for readers, and the bytes of its busiest link.

    `by_hand` takes the number of chips and the bytes of a shard. `sizes` are MiB of the whole array if the collective
    gathers one (`is_gathered`), otherwise of a shard.
    """

    function: str
    title: str
    by_hand: Callable[[int, int], float]
    sizes: tuple[int, ...] = (4, 64)
    is_gathered: bool = False
    more_chips: tuple[str, ...] = ()


def _of_an_all_reduce(chips: int, array: int) -> float:
    """Bytes of the busiest link, on the longer axis: it carries one colour in the first phase, another in the next."""
    shorter, longer = {4: (2, 2), 16: (4, 4), 32: (4, 8)}[chips]
    return (longer - 1) / longer * (1 + 1 / shorter) * array


_CASES = (
    Case(
        function="pairs", title="permutation of neighbours (XLA)", by_hand=lambda _, shard: shard, more_chips=("v5p",)
    ),
    Case(function="permuted", title="permutation to the next number, by a kernel", by_hand=lambda _, shard: shard),
    # On 2x2 along both axes at once; on other slices around one ring through all chips, half of the shards one way.
    Case(
        function="gathered",
        title="all-gather (XLA)",
        by_hand=lambda chips, shard: (chips - 1) * shard / 2 if chips == 4 else chips / 2 * shard,
        sizes=(16, 128, 1024),
        is_gathered=True,
    ),
    Case(
        function="gathered_by_jax",
        title="all-gather (JAX's kernel)",
        by_hand=lambda chips, shard: (chips - 1) * shard,
        sizes=(16, 64),
        is_gathered=True,
    ),
    Case(function="summed", title="all-reduce (XLA)", by_hand=_of_an_all_reduce, sizes=(16, 128, 1024)),
    Case(function="exchanged", title="all-to-all (XLA)", by_hand=lambda chips, shard: isqrt(chips) / 4 * shard),
)


def lowered(function: str, chip_name: str, chips: int, shard_bytes: int, dumps: Path) -> str:
    """The HLO of the function with shards of `shard_bytes`, compiled with its dumps in the folder `dumps`."""
    target, rows = chip(chip_name), shard_bytes // 4096 * chips
    program = f"{_HERE / 'sharded_programs.py'}:{function}"
    return lower_program(program, [f"f32[{rows}@x,1024]"], target, mesh={"x": chips}, dumps=dumps).hlo


def spent_there(simulation: Simulation) -> float:
    """The seconds of the collective alone, without the copies around it."""
    # XLA's permutation is part of the top-level program: its time is the time that the chips wait for links.
    collectives = [op.seconds for op in simulation.ops if not op.name.startswith("copy")]
    return sum(collectives) or simulation.link_wait_cycles / simulation.clock_hz


def explained(prepared: Prepared, took: float, bound: float) -> list[str]:
    """The time over the bound, in percent of the bound: due to hops, to transfers within a chip, and to all else."""

    def without(machine: Machine) -> float:
        return spent_there(run_prepared(prepared, machine=machine, deadline_seconds=600, with_lines=False))

    machine = machine_of(prepared.chip)
    assert machine.links is not None
    at_once = replace(machine, links=replace(machine.links, hop_seconds=0.0))
    hops = without(at_once)
    all_at_once = replace(
        at_once,
        hbm_bytes_per_cycle=machine.hbm_bytes_per_cycle * _FAST,
        transfer_bytes_per_cycle=machine.transfer_bytes_per_cycle * _FAST,
        transfer_cycles=0,
        dma_latency_cycles=0,
        dma_write_latency_cycles=0,
    )
    both = without(all_at_once)
    return [percent(part / bound) for part in (took - hops, hops - both, both - bound)]


def line(case: Case, chip_name: str, chips: int, megabytes: int) -> list[str]:
    """One row of the page."""
    links = row(chip_name).links
    assert links is not None
    shard = megabytes * _MIB // (chips if case.is_gathered else 1)
    topology = slice_topology(chip(chip_name), chips).replace(":", " ")
    head = [case.title, topology, f"{megabytes} MiB {'gathered' if case.is_gathered else 'a shard'}"]
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder)
        try:
            hlo = lowered(case.function, chip_name, chips, shard, dumps)
        except RatchetError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return [*head, "does not fit into VMEM", *[""] * 9]
        dump = read_module(dumps)
        began = time.process_time()
        prepared = prepare(dump, chip(chip_name))
        simulation = run_prepared(prepared, deadline_seconds=600, with_lines=False)
        spent = time.process_time() - began
        if simulation.seconds is None:
            return [*head, simulation.unknown[0], *[""] * 9]
        busiest = max(link.bytes for link in simulation.links)
        by_hand = case.by_hand(chips, shard)
        took, bound = spent_there(simulation), busiest / links.reached_bytes_per_second
        parts = explained(prepared, took, bound) if megabytes <= _EXPLAINED else [""] * 3
    published = ""
    if case.function == "pairs" and chip_name in _PUBLISHED:
        fixed, rate = _PUBLISHED[chip_name]
        there = fixed + shard / rate
        published = f"{seconds(there)} ({(took / there - 1) * 100:+.1f} %)"
    config = _CONFIG.search(hlo)
    return [
        *head,
        ", ".join(_ALGORITHM.findall(config[1])) if config else "",
        f"{busiest:,}",
        "the same" if by_hand == busiest else f"{by_hand:,.0f}",
        seconds(took),
        percent(took / bound - 1),
        *parts,
        published,
        f"{spent:.2f} s",
    ]


def _rows() -> Iterator[list[str]]:
    for case in _CASES:
        for chip_name in ("v5e", "v6e", *case.more_chips):
            for chips in (4, 16):
                for megabytes in case.sizes:
                    yield line(case, chip_name, chips, megabytes)
            if case.function in ("gathered", "summed"):
                yield line(case, chip_name, 32, case.sizes[0])


def processor_seconds(chip_name: str, chips: int) -> float:
    """The least of three CPU times of simulating the product of gathered rows; for one chip, of the product alone."""
    target, rows, columns = chip(chip_name), 4096, 512
    with tempfile.TemporaryDirectory() as folder:
        dumps, mesh = Path(folder), {"x": chips} if chips > 1 else None
        split = "@x" if mesh else ""
        operands = [f"bf16[{rows}{split},{rows}]", f"bf16[{rows},{columns * chips}{split}]"]
        program = f"{_HERE / 'sharded_programs.py'}:{'multiplied' if mesh else 'product'}"
        lower_program(program, operands, target, mesh=mesh, dumps=dumps)
        dump, times = read_module(dumps), []
        for _ in range(3):
            began = time.process_time()
            assert run_module(dump, target, deadline_seconds=600).seconds is not None
            times.append(time.process_time() - began)
    return min(times)


def _cost() -> str:
    """A table that compares the CPU time of simulating many chips with that of one, in one run."""
    rows = []
    for chip_name in ("v5e", "v6e"):
        one_seconds = processor_seconds(chip_name, 1)
        for chips in (4, 16):
            several = processor_seconds(chip_name, chips)
            rows.append([chip_name, chips, f"{one_seconds:.2f} s", f"{several:.2f} s", f"{several / one_seconds:.1f}"])
    headers = ["chip", "chips", "the product on one", "gather and product on all", "ratio"]
    return markdown_table(rows, headers)


def page() -> str:
    """The page as Markdown."""
    headers = ["what", "slice", "size", "algorithm", "bytes of the busiest link", "by hand", "time (simulated)"]
    headers += ["over the bound", "hops", "HBM", "rest", "published", "CPU time"]
    cost = (
        "\n## What simulating several chips costs\n\nThe table has the CPU time of simulating XLA's product of "
        "gathered rows (`multiplied` in\nbenchmarks/sharded_programs.py), and of the same product alone on one chip. "
        "Each figure is the least of three\nsimulations, all of them in one run. Aim: a ratio of at most 10 for 16 "
        "chips.\n\n"
    )
    return f"{_HEAD}{markdown_table(_rows(), headers)}\n{_NOTES}{cost}{_cost()}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    _PAGE.write_text(page(), encoding="utf-8")
    print(_PAGE.read_text(encoding="utf-8"))
