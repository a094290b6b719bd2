"""Transfers under way in an executed schedule: accesses to their memory before they were waited for are named."""

from pathlib import Path

import pytest
from narrowing import present
from simulated_examples import run_op

from harness import contest as contests
from harness.dumps.llo import parse_schedule
from harness.hardware import chip
from harness.judge.simulate.accesses import Rows, accesses
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.scalar import Names
from harness.judge.simulate.transfer_races import Region, _meet, _side, _strides_of
from harness.loop import scaffold
from harness.loop.bench import Bench
from harness.records import Offence
from harness.selftest import planted, scratch

V5E = machine_of(chip("v5e"))
_ENTRY = " /* entry bundle: %kernel.1 = custom-call(%a) */"
# Two buffers of 16 rows in one allocation, in granules; a block of HBM; and a wait for a transfer of 256 granules.
_BEGIN = (
    "%s1_s0 = inlined_call_operand.hbm [shape: f32[1024,128], index: 0, kind: input, shape index: {}]",
    "%s1_s1 = inlined_call_operand.hbm [shape: f32[1024,128], index: 1, kind: output, shape index: {}]",
    "%s1_s2 = smov [#allocation2]  ;;  %s1_s3 = sshll.u32 %s1_s0, 4  ;;  %s1_s4 = sshll.u32 %s1_s1, 4",
    "%s1_s5 = sshll.u32 %s1_s2, 4  ;;  %s1_s7 = scalar_lea.vmem %s1_s2, 16",
    "%s1_s6 = sshll.u32 %s1_s7, 4",
)
_FETCH = "%1 = dma.hbm_to_vmem [thread:$0]  %s1_s3, 256, %s1_s5, [#allocation3]"
_FETCH_OTHER = "%1 = dma.hbm_to_vmem [thread:$0]  %s1_s3, 256, %s1_s6, [#allocation4]"
_STORE = "%1 = dma.vmem_to_hbm [thread:$0]  %s1_s5, 256, %s1_s4, [#allocation5]"
_STORE_OTHER = "%1 = dma.vmem_to_hbm [thread:$0]  %s1_s6, 256, %s1_s4, [#allocation5]"
_READ = '%v1_v0 = vld [vmem:[%s1_s2 + $0x8] sm:$0xff] /* loc("/a/kernel.py":7:1) */'
_WRITE = '%2 = vst [vmem:[%s1_s2 + $0x8] sm:$0xff] %v1_v0 /* loc("/a/kernel.py":8:1) */'
_READ_OTHER = "%v1_v0 = vld [vmem:[%s1_s7] sm:$0xff]"


def _wait(flag: int, granules: int = 256) -> tuple[str, str]:
    back = (1 << 32) - granules
    return (f"%3 = dma.done.wait [#allocation{flag}], {granules}", f"%4 = vsyncadd [#allocation{flag}], {back}")


def offences(*bundles: str, entry: str = _ENTRY) -> tuple[Offence, ...]:
    """The races that are named in a kernel of these bundles after the beginning."""
    lines = [
        f"   {address:#x}   : > {{ {bundle} }}{entry if not address else ''}"
        for address, bundle in enumerate((*_BEGIN, *bundles))
    ]
    run = run_op(parse_schedule("kernel.1", "\n".join(lines).replace("0x0 ", "0 ")), V5E)
    assert run.reason == ""
    return run.offences


def races(*bundles: str, entry: str = _ENTRY) -> list[tuple[str, str]]:
    """The races in it, each with its line."""
    named = offences(*bundles, entry=entry)
    return [(offence.what, offence.line) for offence in named if offence.kind == "transfer-raced"]


@pytest.mark.parametrize(
    ("bundles", "what", "line"),
    [
        ((_FETCH, _READ, *_wait(3)), "a load from VMEM that a transfer from HBM to VMEM", "kernel.py:7"),
        ((_FETCH, _WRITE, *_wait(3)), "a store to VMEM that a transfer from HBM to VMEM", "kernel.py:8"),
        ((_STORE, _WRITE, *_wait(5)), "a store to VMEM that a transfer from VMEM to HBM", "kernel.py:8"),
        (
            (_STORE, _FETCH, *_wait(5), *_wait(3)),
            "a transfer from HBM to VMEM that overlaps a transfer from VMEM to",
            "",
        ),
        (
            (_STORE, _STORE_OTHER, *_wait(5, 512)),
            "a transfer from VMEM to HBM that overlaps a transfer from VMEM to",
            "",
        ),
        # A wait for one of two transfers on a flag says nothing about either.
        (
            (_FETCH, _FETCH_OTHER.replace("4]", "3]"), *_wait(3), _READ, *_wait(3)),
            "a load from VMEM that",
            "kernel.py:7",
        ),
    ],
)
def test_what_touches_the_memory_of_a_transfer_is_named(bundles: tuple[str, ...], what: str, line: str) -> None:
    offences = races(*bundles)
    assert len(offences) == 1, offences
    assert offences[0][0].startswith(what), offences
    assert offences[0][1] == line
    assert "which nothing has waited for" in offences[0][0]


@pytest.mark.parametrize(
    "bundles",
    [
        (_FETCH, *_wait(3), _READ, _WRITE),
        (_FETCH, _READ_OTHER, *_wait(3)),
        # A store only reads what it stores.
        (_STORE, _READ, *_wait(5)),
        (_FETCH, _FETCH_OTHER, *_wait(3), *_wait(4), _READ),
        (_STORE, _FETCH_OTHER, *_wait(5), *_wait(4)),
        (_FETCH, _FETCH_OTHER.replace("4]", "3]"), *_wait(3, 512), _READ),
        # A read in the bundle in which the transfer starts gets the old contents.
        (f"{_READ}  ;;  {_FETCH}", *_wait(3)),
        # The register has another value by then.
        (_FETCH, "%s1_s2 = smov [#allocation9]", _READ, *_wait(3)),
        # The write has a false predicate.
        (_FETCH, "%p1_p0 = scmp.eq.s32.totalorder 1, 2", _WRITE.replace("] %v1_v0", "] (%p1_p0), %v1_v0"), *_wait(3)),
    ],
)
def test_what_was_waited_for_or_lies_elsewhere_is_no_race(bundles: tuple[str, ...]) -> None:
    assert races(*bundles) == []


_LARGE = _FETCH_OTHER.replace("4]", "3]").replace("256", "512")


@pytest.mark.parametrize(
    ("bundles", "kinds"),
    [
        # Two copies of two sizes on one semaphore are waited for in either order, then used, as in shipped kernels.
        ((_FETCH, _LARGE, *_wait(3, 512), *_wait(3), _READ), []),
        ((_FETCH, _LARGE, *_wait(3), *_wait(3, 512), _READ), []),
        ((_FETCH, _LARGE, *_wait(3, 384), *_wait(3, 384), _READ), []),
        ((_FETCH, _FETCH.replace("256", "0"), *_wait(3, 128), *_wait(3, 128), _READ), []),
        # Used before the rest is waited for; the rest is not waited for; a copy whose memory is not known.
        ((_FETCH, _LARGE, *_wait(3, 512), _READ, *_wait(3)), ["transfer-raced", "transfer-part-waited"]),
        ((_FETCH, *_wait(3, 128), _READ_OTHER), ["transfer-part-waited", "semaphore-not-zero"]),
        (
            (_FETCH, _FETCH.replace("%s1_s5", "%s1_s9"), *_wait(3, 128), *_wait(3, 384), _READ_OTHER),
            ["transfer-part-waited"],
        ),
        # If a program's accesses cannot be followed, it is unknown what it touches in between.
        ((_FETCH, *_wait(3, 128), *_wait(3, 128)), ["transfer-part-waited"]),
    ],
)
def test_a_part_may_be_waited_for_where_the_rest_is_before_it_matters(
    bundles: tuple[str, ...], kinds: list[str]
) -> None:
    assert [offence.kind for offence in offences(*bundles)] == kinds


def test_allocations_without_a_register_are_told_apart() -> None:
    lower, other = _READ.replace("%s1_s2 + $0x8", "#allocation1"), _READ.replace("%s1_s2 + $0x8", "#allocation2")
    assert races(lower, _FETCH, lower, *_wait(3)) == []
    assert len(races(lower, _FETCH, f"{lower}  ;;  {other}", *_wait(3))) == 1


def test_a_transfer_that_reads_what_it_writes_is_named() -> None:
    onto = "%1 = dma.vmem_to_vmem [thread:$0]  %s1_s5, 256, %s1_s{}, [#allocation3]"
    assert [what for what, _ in races(onto.format(5), *_wait(3))] == [
        "a transfer from VMEM to VMEM that reads what it writes"
    ]
    assert races(onto.format(6), *_wait(3)) == []


def test_a_predicate_that_holds_counts() -> None:
    write = _WRITE.replace("] %v1_v0", "] (%p1_p0), %v1_v0")
    assert races(_FETCH, "%p1_p0 = scmp.eq.s32.totalorder 2, 2", write, *_wait(3))


def test_operations_of_xla_are_not_looked_at() -> None:
    assert races(_FETCH, _READ, *_wait(3), entry=" /* entry bundle: %fusion = fusion(%a) */") == []


def test_a_transfer_of_every_second_run_leaves_the_others_alone() -> None:
    strided = "%1 = dma.hbm_to_vmem [thread:$0]  %s1_s3, 128, %s1_s5, [#allocation3], 256, 256, 8"
    # Rows 0 to 7 of every 16: the second eight are free.
    assert races(strided, _READ, *_wait(3, 128)) == []
    assert races(strided.replace(" 128, ", " 256, "), _READ.replace("0x8", "0x10"), *_wait(3))


def general(words: tuple[int, ...], granules: int) -> tuple[str, ...]:
    """A transfer whose strides stand in scalar memory."""
    stores = tuple(f"%5 = sst [smem:[#allocation8 + ${place:#x}]] {word}" for place, word in enumerate(words))
    start = (
        f"%1 = dma.general %s1_s3, {granules}, %s1_s5, [#allocation3], 131072, [#allocation8], 0, 0 /* hbm-to-vmem */"
    )
    return (*stores, start)


@pytest.mark.parametrize(
    ("words", "granules"),
    [
        ((256, 256, 8), 256),
        ((512, 512, 1, 256, 256, 8), 256),
        # The inner level of one side is the wider level of the other.
        ((4096, 512, 2, 2048, 256, 1, 64, 256, 8), 512),
    ],
)
def test_strides_in_scalar_memory_are_followed(words: tuple[int, ...], granules: int) -> None:
    """All of them leave rows 8 to 15 alone."""
    transfer, wait = general(words, granules), _wait(3, granules)
    assert races(*transfer, _READ, *wait) == []
    assert races(*transfer, _READ.replace("0x8", "0x0"), *wait)


def test_a_descriptor_of_which_a_part_is_known_is_not_followed() -> None:
    # No word of its strides is written: it has none.
    assert races(*general((), 256), _READ, *_wait(3))
    assert races(*general((256, 256), 256), _READ, *_wait(3)) == []


def test_levels_of_strides_make_one_whole() -> None:
    """As XLA fetches a window of columns on v6e, tile by tile: seen in a published kernel."""
    words = (262144, 1024, 2, 131072, 64, 8, 64, 128, 4)
    strides = present(_strides_of(163840, words, 16))
    assert _side(("vmem", 0), 1, strides).regions == (Region(0, 0, 1, 163840),)
    assert _side(("hbm", 0), 0, strides).regions == (Region(0, 131072, 320, 512),)


@pytest.mark.parametrize(
    ("place", "rows"),
    [
        ("[#allocation2 + $0x10] sm:$0xff", ((16, 24),)),
        ("[#allocation2] sm:$0xf", ((0, 4),)),
        ("[#allocation2] sm:$0xf0", ((4, 8),)),
        ("[#allocation2] ss:$4 sm:$0x3", ((0, 1), (4, 5))),
        ("[#allocation2] ss:$0 sm:$0xff", ((0, 1),)),
        ("[#allocation2] ss:$-1 sps:$4 sm:$0xff", ((0, 1),)),
        # The mask selects rows of the register. Here two rows lie behind two others, as seen in a published kernel.
        ("[#allocation2 + $0x1fc] sm:$0x30 pattern:$0x76325410", ((0x1FE, 0x200),)),
        ("[#allocation2] sm:$0x33 pattern:$0x75316420", ((0, 4),)),
        ("[#allocation2] sm:$0xff pattern:$0x75316420", ((0, 8),)),
    ],
)
def test_the_rows_of_a_load(place: str, rows: tuple[Rows, ...]) -> None:
    names, address = Names(), "%s1_s2 = smov [#allocation2]"
    opcode = "vld.sshfl" if "pattern" in place else "vld"
    load = f"%v1_v0 = {opcode} [vmem:{place}]"
    schedule = parse_schedule("kernel.1", f"   0   : > {{ {load}  ;;  {address} }}{_ENTRY}")
    (access,) = accesses(schedule, names)[0]
    base = names.base("#allocation2")
    assert tuple((first - base, end - base) for first, end in access.rows) == rows


def test_memory_whose_address_nothing_makes_is_not_looked_at() -> None:
    text = f"   0   : > {{ %v1_v0 = vld [vmem:[#allocation2] sm:$0xff] }}{_ENTRY}"
    assert accesses(parse_schedule("kernel.1", text), Names()) == {}


def test_regions_meet_where_their_runs_do() -> None:
    comb = Region(0, 16, 4, 8)
    assert _meet((comb,), (Region(8, 16, 4, 8),)) is False
    assert _meet((comb,), (Region(7, 16, 4, 2),)) is True
    assert _meet((comb,), (Region(56, 0, 1, 100),)) is False
    assert _meet((comb,), (Region(55, 0, 1, 100),)) is True
    every = {granule for first, end in comb.runs() for granule in range(first, end)}
    for first in range(-3, 70):
        for length in (1, 5, 9):
            assert comb.overlaps(first, first + length) == bool(every & set(range(first, first + length)))


# Planted kernels whose transfers are wrong, but for those of which nothing follows than a transfer that is pending at
# the end, and those whose copies the compiler makes without the transfer engine.
RACES = (
    "bytes_of_another_copy",
    "fetch_over_a_store",
    "fetched_backwards",
    "late_race",
    "late_race_by_a_table",
    "late_race_counted_down",
    "race",
    "race_at_full_length",
    "ring_not_waited",
    "semaphore_shared",
    "store_over_a_store",
    "unseen_race",
    "waits_by_halves",
)
HONEST = (
    "inner_pipeline",
    "manual_dma",
    "norm_fetched_by_hand",
    "paged",
    "product_copies_what_is_left",
    "product_in_a_pipeline",
    "ring_waited",
    "stored_in_place",
    "three_buffers",
    "two_sizes_on_one_semaphore",
    "update",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RACES, *HONEST])
def test_the_schedule_and_the_interpreter_agree_about_planted_kernels(name: str, tmp_path: Path) -> None:
    (kernel,) = planted.select(planted.kernels(), (name,))
    assert kernel.is_good == (name in HONEST)
    # A selftest has the interpreter find those; what is asked here is that the schedule shows the same.
    scaffold.scaffold(tmp_path / "contest", *scratch.contest(kernel.contest))
    (tmp_path / "contest" / "kernel.py").write_bytes(planted.source(kernel))
    contest = contests.load(tmp_path / "contest")
    evidence = Bench(contest=contest, on="simulated", checked=False, reuses=False).judge(contest.candidate(), "work")
    simulation = present(evidence.simulation)
    assert simulation.seconds is not None
    kinds = {offence.kind for offence in simulation.offences}
    assert ("transfer-raced" in kinds) == (name in RACES)
    assert name in RACES or not kinds
