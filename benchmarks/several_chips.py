"""Collectives on slices of 4 and 16 chips, simulated, against bytes derived by hand and against published times.

    python benchmarks/several_chips.py          # writes benchmarks/SEVERAL_CHIPS.md, about five minutes

Nothing on the page is measured. The bound of a row is what its busiest link needs for its bytes at the rate that
transfers reach (harness/chips); the published permutation is the only time that anything here was compared with.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from harness.chips import row
from harness.dumps.llo import read_module
from harness.errors import RatchetError
from harness.hardware import chip
from harness.judge.simulate.module import run_module
from harness.records import Simulation
from harness.units import percent, seconds
from harness.workbench.capture.program_run import lower_program

_HERE = Path(__file__).parent
_PAGE = _HERE / "SEVERAL_CHIPS.md"
_MIB = 1 << 20
# Latency and rate of a permutation between neighbours (marin-community/marin, issue 6736), by chip.
_PUBLISHED = {"v6e": (2.29e-6, 86.8e9)}


_HEAD = """# Several chips: what their links carry, and how long that takes

Made by `python benchmarks/several_chips.py`. Every time is simulated; nothing is measured. Bytes are those of one
direction of the busiest link. The bound is what that link needs for them at the rate that transfers reach, 86 % of the
link's own (harness/chips, with sources). The published time is a line through measurements of others; its fixed part on
v6e is what a hop there is fitted to, so that it proves the rate and nothing else. What is modelled:
[docs/SEVERAL_CHIPS.md](../docs/SEVERAL_CHIPS.md).

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A function of sharded_programs.py: how it is told to a reader, and the bytes of its busiest link for one shard.

    `by_hand` takes the number of chips and the bytes of a shard; None where no simple rule says it.
    """

    function: str
    title: str
    by_hand: Callable[[int, int], float] | None


_CASES = (
    Case(function="pairs", title="permutation of neighbours (XLA)", by_hand=lambda _, shard: shard),
    Case(function="permuted", title="permutation to the next number, by a kernel", by_hand=lambda _, shard: shard),
    # On 2x2 along both axes at once; on 4x4 around one ring through all chips, 8 shards one way and 7 the other.
    Case(
        function="gathered",
        title="all-gather (XLA)",
        by_hand=lambda chips, shard: (chips - 1) * shard / 2 if chips == 4 else chips / 2 * shard,
    ),
    Case(function="gathered_by_jax", title="all-gather (JAX's kernel)", by_hand=lambda chips, s: (chips - 1) * s),
    Case(function="summed", title="all-reduce (XLA)", by_hand=lambda chips, shard: shard * (chips - 1) / chips),
    Case(function="exchanged", title="all-to-all (XLA)", by_hand=None),
)


def simulated(function: str, chip_name: str, chips: int, megabytes: int) -> tuple[Simulation, float]:
    """The function with shards of so many MiB on a slice of so many chips, and the seconds that simulating took."""
    target = chip(chip_name)
    rows = megabytes * _MIB // 4096 * chips
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder)
        program = f"{_HERE / 'sharded_programs.py'}:{function}"
        lower_program(program, [f"f32[{rows}@x,1024]"], target, mesh={"x": chips}, dumps=dumps)
        dump = read_module(dumps)
        began = time.process_time()
        return run_module(dump, target, deadline_seconds=600), time.process_time() - began


def line(case: Case, chip_name: str, chips: int, megabytes: int) -> list[str]:
    """One row of the page."""
    links = row(chip_name).links
    assert links is not None
    shape = "2x2" if chips == 4 else "4x4"
    head = [case.title, f"{chip_name} {shape}", f"{megabytes} MiB"]
    try:
        simulation, spent = simulated(case.function, chip_name, chips, megabytes)
    except RatchetError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return [*head, "does not fit into VMEM", *[""] * 5]
    if simulation.seconds is None:
        return [*head, simulation.unknown[0], *[""] * 5]
    busiest = max(link.bytes for link in simulation.links)
    by_hand = case.by_hand(chips, megabytes * _MIB) if case.by_hand else None
    # A permutation of XLA's is part of the top-level program: what the chips wait for is all of it.
    collectives = [op.seconds for op in simulation.ops if not op.name.startswith("copy")]
    spent_there = sum(collectives) or simulation.link_wait_cycles / simulation.clock_hz
    bound = busiest / links.reached_bytes_per_second
    published = ""
    if case.function == "pairs" and chip_name in _PUBLISHED:
        fixed, rate = _PUBLISHED[chip_name]
        there = fixed + megabytes * _MIB / rate
        published = f"{seconds(there)} ({(spent_there / there - 1) * 100:+.1f} %)"
    agrees = "" if by_hand is None else "the same" if by_hand == busiest else f"{by_hand:,.0f}"
    return [
        *head,
        f"{busiest:,}",
        agrees,
        seconds(spent_there),
        percent(spent_there / bound - 1),
        published,
        f"{spent:.2f} s",
    ]


def page() -> str:
    """The page."""
    rows = [
        line(case, chip_name, chips, megabytes)
        for case in _CASES
        for chip_name in ("v5e", "v6e")
        for chips in (4, 16)
        for megabytes in (4, 64)
    ]
    table = tabulate(
        rows,
        headers=[
            "what",
            "slice",
            "shard",
            "bytes of the busiest link",
            "by hand",
            "time (simulated)",
            "over the bound",
            "published",
            "CPU time",
        ],
        tablefmt="github",
        disable_numparse=True,
    )
    return _HEAD + table + "\n"


if __name__ == "__main__":
    _PAGE.write_text(page(), encoding="utf-8")
    print(_PAGE.read_text(encoding="utf-8"))
