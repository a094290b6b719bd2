"""The simulator, on saved schedules of the real compiler and on the same schedules with something planted in them."""

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from narrowing import present
from schedule_examples import ATTENTION, NEWEST, shape, unpack
from simulated_examples import SMALL, SMALL_STEPS, assert_possible, longer, run, run_op

from harness.dumps.llo import Op, parse_schedule, read_module
from harness.errors import RatchetError
from harness.hardware import TPUS, chip
from harness.hlo import parse
from harness.judge import simulate
from harness.judge.simulate.channel import Channel
from harness.judge.simulate.contents import ROW_BYTES, Contents, OperandContents
from harness.judge.simulate.functional_units import IDLE, Pipes, Use, uses_of
from harness.judge.simulate.machine import Machine, machine_of
from harness.judge.simulate.module import run_module
from harness.judge.simulate.runs import OpRun
from harness.judge.simulate.scalar import ALLOCATION_SPACING, FIRST_OPERAND, Names, result_places
from harness.judge.simulate.scalar_memory import Arrival, Memory
from harness.judge.simulate.stalls import Account
from harness.judge.simulate.structure import is_for_first_core
from harness.judge.simulate.values import (
    Unknowable,
    Unknown,
    decided,
    float_word,
    floats_compared,
    floats_computed,
    pick,
)
from harness.records import Simulation
from harness.shell.main import main

V5E = machine_of(chip("v5e"))
V5P = machine_of(chip("v5p"))
V6E = machine_of(chip("v6e"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    """The small kernel as it is."""
    return run(SMALL, tmp_path_factory.mktemp("base"))


@pytest.mark.parametrize(("compiler", "case"), ATTENTION)
def test_attention_executes_exactly_its_grid(compiler: str, case: str, tmp_path: Path) -> None:
    name, bq, bkv, length = shape(case)
    result = run(case, tmp_path, compiler=compiler)
    query_blocks, steps = length // bq, (length // bq) * (length // bkv)
    assert result.unknown == ()
    assert result.executed_steps == steps
    # Each query block once in and once out; a key and a value block per step, because their index always changes.
    assert result.dma_transfers == 2 * query_blocks + 2 * steps
    row_bytes = 128 * 2
    assert result.hbm_read_bytes == length * row_bytes + 2 * steps * bkv * row_bytes
    assert result.hbm_written_bytes == length * row_bytes
    # A 256-wide MXU computes with half of its array where head_dim is 128.
    waste = 2 if chip(name).mxu_size == 256 else 1
    assert result.mxu_flops == waste * 4 * length * length * 128
    assert_possible(result)


@pytest.mark.parametrize("compiler", ["libtpu-0.0.42.1", NEWEST])
def test_the_compilers_own_matmul_is_not_faster_than_the_mxu(compiler: str, tmp_path: Path) -> None:
    result = run("v5e-dot-8192", tmp_path, compiler=compiler)
    assert result.seconds is not None
    assert result.mxu_flops == 2 * 8192**3
    assert result.bundle_cycles / result.clock_hz < 5.58e-3, "counting bundles alone would be impossible"
    assert 5.58e-3 <= result.seconds <= 6.05e-3 * 1.1
    assert_possible(result)


@pytest.mark.parametrize(
    ("case", "passes"),
    [("v5e-summed-8192", 1), ("v6e-summed-8192", 1), ("v6e-copied-8192", 2), ("v6e-normalised-8192", 3)],
)
def test_what_only_moves_memory_takes_most_of_the_bandwidth(case: str, passes: int, tmp_path: Path) -> None:
    """XLA's own sum, copy and RMSNorm (which it reads twice), whose buffers take turns by a division."""
    result = run(case, tmp_path)
    assert result.unknown == ()
    assert result.seconds is not None
    moved = result.hbm_read_bytes + result.hbm_written_bytes
    assert moved == pytest.approx(passes * 8192 * 8192 * 2, rel=1e-4)
    assert 0.7 < moved / result.seconds / chip(result.chip).hbm_bytes_per_second <= 1
    assert_possible(result)


COUNTS = np.array([3, 0, 1, 2, 0, 4, 5, 1], np.int32)


@pytest.mark.long
def test_a_grid_that_xla_computes_from_an_operand_runs_as_often_as_the_operand_says(tmp_path: Path) -> None:
    """A table that XLA scatters and sums, and a number of steps that is a scalar taken from a vector register."""
    bundles = []
    for times in (1, 2, 3):
        result = run("v5e-counted-1024", tmp_path / str(times), operands={"given_1_.1": times * COUNTS})
        assert result.unknown == ()
        assert_possible(result)
        # A block is written once, however many successive steps compute it; XLA writes some words itself.
        assert 0 <= result.hbm_written_bytes - np.count_nonzero(COUNTS) * 128 * 128 * 2 <= 4096
        bundles.append(next(op.executed_bundles for op in result.ops if op.name == "called.1"))
    assert bundles[2] - bundles[1] == bundles[1] - bundles[0] > COUNTS.sum()


@pytest.mark.long
def test_a_grid_that_xla_computes_from_an_operand_needs_its_contents(tmp_path: Path) -> None:
    result = run("v5e-counted-1024", tmp_path)
    assert result.seconds is None
    assert "taken from a vector register" in result.unknown[0]


def test_a_table_that_one_kernel_writes_for_another_is_the_one_that_it_writes(tmp_path: Path) -> None:
    bundles = []
    for times in (1, 2, 3):
        result = run("v5e-planned-1024", tmp_path / str(times), operands={"counts_ref.1": times * COUNTS})
        assert result.unknown == ()
        assert_possible(result)
        bundles.append(next(op.executed_bundles for op in result.ops if op.name == "add.1"))
    assert bundles[2] - bundles[1] == bundles[1] - bundles[0] >= 2 * 3 * COUNTS.sum()


@pytest.mark.long
def test_a_loop_that_data_end_compares_what_nobody_knows(tmp_path: Path) -> None:
    result = run("v5e-converged-1024", tmp_path)
    assert result.seconds is None
    assert "taken from a vector register" in result.unknown[0]
    # The loop runs once if it never goes on, forty times if it always does: its counter is known.
    least, most = (float(number) for number in re.findall(r"([\d.]+) us", result.unknown[0]))
    assert "a range, not a latency" in result.unknown[0]
    assert 10 < most / least < 40
    dump, target = read_module(tmp_path), chip("v5e")
    never, always = (run_module(replace(dump, assumption=word), target) for word in ("never", "always"))
    for assumed, microseconds in ((never, least), (always, most)):
        assert assumed.seconds is not None
        assert assumed.seconds * 1e6 == pytest.approx(microseconds, abs=0.06)
        assert "assumed, not known" in assumed.unknown[-1]
        # An assumption does not count as understood.
        assert assumed.relative_uncertainty * assumed.seconds < (assumed.plus_minus_seconds or 0.0)


def _replace(pattern: str, replacement: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, replacement, text)


def _before_transfers(operation: str) -> Callable[[str], str]:
    """The change of a schedule that puts this operation before each transfer to VMEM."""
    return _replace(r"(%0 = dma\.hbm_to_vmem)", rf"{operation} ;; \1")


def test_what_is_handed_to_a_sparse_core_has_no_latency_but_a_lower_bound(base: Simulation, tmp_path: Path) -> None:
    assert base.seconds is not None
    handed = (
        "%s0_s98 = smov 2 ;; %s0_s99 = int_to_ptr.sparse_core_sequencer_sflag [resolvable:$false] %s0_s98 ;; "
        "%0 = vsyncset.remote %s0_s99, 1"
    )
    result = run(SMALL, tmp_path, _before_transfers(handed))
    assert result.seconds is None
    assert "SparseCore" in result.unknown[0]
    # Without the module's text there is no upper end, and no range to rank by.
    assert result.range_seconds is None
    assert result.mean_range_seconds is None
    least = present(re.search(r"([\d.]+) us or more \(simulated", result.unknown[0]))
    assert float(least[1]) == pytest.approx(base.seconds * 1e6, rel=0.01)


def test_a_signal_to_another_chip_is_named(tmp_path: Path) -> None:
    result = run(SMALL, tmp_path, _before_transfers("%0 = vsyncset.remote %s0_s99, 1"))
    assert result.seconds is None
    assert "another chip" in result.unknown[0]


def test_a_transfer_of_nothing_raises_no_flag(tmp_path: Path) -> None:
    nothing = "%0 = dma.vmem_to_hbm %s0_s1, 0, %s0_s2, [#allocation99]"
    result = run(SMALL, tmp_path, _before_transfers(nothing))
    assert result.seconds is not None
    assert result.offences == ()


@pytest.mark.parametrize("operation", ["vllmr.16.mxu0", "vc.u32", "vphi", "vmac.bf16.f32.vacc0", "vclamps-f32"])
def test_an_operation_that_is_done_in_its_cycle_costs_none(base: Simulation, operation: str, tmp_path: Path) -> None:
    result = run(SMALL, tmp_path, _before_transfers(f"%0 = {operation} %v0_v1"))
    assert result.unknown == ()
    assert result.cycles == base.cycles


@pytest.mark.parametrize("operation", ["vcosq.f32", "vsinq.f32", "vsigshft.f32"])
def test_a_transcendental_operation_waits_for_its_unit(operation: str) -> None:
    ((_, (use,)),) = units_of(V6E, operation)
    assert (use.port, use.queue, use.results) == ("eup", "eup", 1)


def _memory(way: Machine | Channel, **options: Any) -> Memory:
    """The scalar memory of an empty program, with its way to HBM."""
    channel = way if isinstance(way, Channel) else Channel(way)
    return Memory(channel, {}, account=Account(parse_schedule("x", " 0x0   :  {}\n")), **options)


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_transfer_that_one_core_starts_for_both_raises_the_flag_of_each(place: int) -> None:
    """The compiler writes the flag into both halves of a word, the upper one marked: (0x6000 | flag) << 16 | flag."""
    shared: dict[int, list[Arrival]] = {}
    flag = 13 * (1 << 18) + place
    first, second, alone = (
        _memory(V5P, core=core, for_others=others) for core, others in ((0, shared), (1, shared), (1, None))
    )
    word = ((0x6000 | flag) << 16 | flag) & 0xFFFFFFFF
    first.start("hbm", "vmem", 1 << 26, 64, word - (1 << 32) if word >> 31 else word, 100)
    arrived = first.wait(flag, 64, 100, 0)
    assert arrived > 100
    assert second.wait(flag, 64, 0, 0) == arrived
    with pytest.raises(Unknowable, match="never be satisfied"):
        alone.wait(flag, 64, 0, 0)


def test_one_wait_of_the_second_core_may_be_for_several_transfers_of_the_first() -> None:
    shared: dict[int, list[Arrival]] = {
        7: [(300, 16, "small", False), (200, 512, "large", False), (900, 8, "x", False)]
    }
    second = _memory(V5P, core=1, for_others=shared)
    assert second.wait(7, 528, 100, 0) == 300
    second.set_flag(7, 0)
    assert second.wait(7, 8, 400, 0) == 900
    second.set_flag(7, 0)
    with pytest.raises(Unknowable, match="never be satisfied"):
        second.wait(7, 1, 400, 0)


def test_what_the_top_level_program_fetches_has_the_bandwidth_of_all_cores() -> None:
    """On v5p the first core starts it for both; the second core's path is as busy as its own."""
    arrived, busy = {}, {}
    for runtime in (False, True):
        second = Channel(V5P)
        first = Channel(V5P, others=(second,))
        memory = _memory(first, runtime=runtime)
        memory.start("hbm", "vmem", 1 << 26, 1 << 20, 5, 0)
        arrived[runtime] = memory.wait(5, 1 << 20, 0, 0) - V5P.dma_latency_cycles - V5P.transfer_cycles
        busy[runtime] = second.hbm_free
        assert (first.read_bytes, second.read_bytes) == (1 << 25, 0)
    assert arrived[True] == pytest.approx(arrived[False] / 2, abs=1)
    assert busy == {False: 0, True: pytest.approx(arrived[True] + V5P.transfer_cycles, abs=1)}


def test_a_core_that_runs_alone_has_the_bandwidth_of_the_chip_but_no_faster_transfer() -> None:

    def cycles(count: int, *, alone: bool) -> int:
        first = Channel(V5P, others=(Channel(V5P),))
        arrivals = [first.arrival("hbm", "vmem", 1 << 24, 0, alone=alone) for _ in range(count)]
        return arrivals[-1] - V5P.dma_latency_cycles

    # One core's path of a v5p is narrower than a single transfer's rate, and both paths together are wider.
    assert cycles(8, alone=True) == pytest.approx(cycles(8, alone=False) / 2, rel=0.001)
    assert cycles(1, alone=True) == pytest.approx((1 << 24) / 1024)


@pytest.mark.parametrize(
    ("bundles", "alone"),
    [
        (("%2 = sbr.rel (%p1_p0) target = $region9", "", "", "", "", "dma"), True),
        (("dma", "%2 = sbr.rel (%p1_p0) target = $region9", "", "", "", ""), False),
        (("%2 = sbr.rel (!%p1_p0) target = $region9", "", "", "", "", "dma"), False),
        (("%2 = sbr.rel (%p1_p0) target = $region9", "", "", "", "", "dma", "@ /* Start region 9 */", "dma"), False),
        (("%p2_p0 = pmov 1", "%2 = sbr.rel (%p1_p0) target = $region9", "", "", "", "", "dma"), False),
    ],
)
def test_a_program_that_all_but_the_first_core_leave_at_once_is_for_that_one(
    bundles: tuple[str, ...], alone: bool
) -> None:
    asks = ("%s1_s3 = sld [smem:[#allocation5]] /* core id */", "%p1_p0 = scmp.ne.s32.totalorder %s1_s3, 0")
    moves = "%9 = dma.hbm_to_vmem [thread:$0]  0, 64, 0, [#allocation1]"
    texts = [moves if text == "dma" else text for text in (*asks, *bundles)]
    lines = (f" {i:#x}   :  {{ {text.partition('@')[0]} }}{text.partition('@')[2]}\n" for i, text in enumerate(texts))
    assert is_for_first_core(parse_schedule("x", "".join(lines))) is alone


def test_floats_of_the_scalar_program_are_compared_for_real(tmp_path: Path) -> None:
    """With a known number in place of the vector's, the loop ends at once or by its counter."""
    cycles = {}
    for number in (0.0005, 0.002):
        compute = _replace(r"(scmp\.gt\.f32\.partialorder) %s\d+_s\d+, 0\.001", rf"\1 {number}, 0.001")
        folder = unpack(NEWEST, "v5e-converged-1024", tmp_path / str(number), compute, where=r"TLP-\d+-final_bundles")
        result = simulate.run(folder, chip("v5e"))
        assert result.unknown == ()
        cycles[number] = result.cycles or 0
    assert cycles[0.002] > 10 * cycles[0.0005] > 0


@pytest.mark.parametrize(
    ("name", "left", "other", "expected"),
    [
        ("lt", -1.5, 2.0, True),
        ("gt", -1.5, 2.0, False),
        ("ge", 2.0, 2.0, True),
        ("eq", 0.0, -0.0, True),
        ("ne", 0.25, 0.5, True),
        ("lt", float("nan"), 1.0, None),
        ("gt", 1e-40, 0.0, None),
    ],
)
def test_words_compared_as_floats(name: str, left: float, other: float, expected: bool | None) -> None:
    result = floats_compared(name, float_word(left), float_word(other))
    assert (None if isinstance(result, Unknown) else result) == expected


def test_what_is_made_of_floats_in_words() -> None:
    assert floats_computed("smul", float_word(1.5), float_word(-3.0)) == float_word(-4.5)
    assert floats_computed("ssub", float_word(0.1), float_word(0.1)) == 0
    assert isinstance(floats_computed("smul", float_word(1e38), float_word(1e38)), Unknown)
    assert isinstance(floats_computed("sadd", Unknown("x"), 0), Unknown)


def test_two_unknown_values_together_are_unknown() -> None:
    """A select between two addresses compares a word that nothing wrote with itself."""
    assert isinstance(Unknown("a") & Unknown("b"), Unknown)
    assert isinstance(Unknown("a") | Unknown("b"), Unknown)
    assert Unknown("a") & 0 == 0


def test_a_transfer_whose_comment_says_where_it_goes_and_one_that_never_runs(base: Simulation, tmp_path: Path) -> None:
    result = run(
        SMALL,
        tmp_path,
        _replace(
            r"dma\.hbm_to_vmem([^;}]*)",
            r"dma.general\1 /* hbm-to-vmem */ ;; "
            r"%0 = dma.general (0), %s0_s1, 0, %s0_s2, %s0_s3 /* hbm-to-vmem */ ",
        ),
    )
    assert result.cycles == base.cycles
    assert result.hbm_read_bytes == base.hbm_read_bytes


def test_a_division_that_does_not_say_what_it_puts_out_leaves_no_latency(tmp_path: Path) -> None:
    result = run("v6e-summed-8192", tmp_path, lambda text: text.replace("kRem", "kSomething"))
    assert result.seconds is None
    assert "sdivrem" in result.unknown[0]


@pytest.mark.parametrize("factor", [2, 4])
def test_a_longer_loop_takes_proportionally_longer(base: Simulation, factor: int, tmp_path: Path) -> None:
    result = run(SMALL, tmp_path, longer(factor))
    assert base.cycles is not None
    assert result.cycles is not None
    assert result.executed_steps == SMALL_STEPS * factor
    assert_possible(result)
    assert present(result.breakdown).steps == SMALL_STEPS * factor
    assert result.hbm_written_bytes == factor * base.hbm_written_bytes
    fixed = base.launch_cycles + base.dma_wait_cycles + 100
    assert result.cycles == pytest.approx(factor * base.cycles, abs=factor * fixed)


@pytest.mark.long
def test_single_buffering_shows_as_waiting(tmp_path: Path) -> None:
    double = run("v5e-1024x512-2048", tmp_path / "double")
    single = run("v5e-1024x512-2048-single", tmp_path / "single")
    assert single.cycles is not None
    assert double.cycles is not None
    assert single.hbm_read_bytes == double.hbm_read_bytes
    assert single.dma_wait_cycles > 3 * double.dma_wait_cycles
    assert single.cycles > double.cycles
    assert_possible(single)


def test_an_unknown_vector_operation_is_counted_and_harmless(base: Simulation, tmp_path: Path) -> None:
    result = run(SMALL, tmp_path, lambda text: text.replace("vsub.f32", "vfrobnicate.f32"))
    assert result.cycles == base.cycles
    assert any("vfrobnicate.f32" in text and "executed" in text for text in result.unknown)


# The change that is planted in the small kernel's schedule, and words of the reason for the missing latency.
PLANTED = {
    "unknown opcode": (_replace(r"scmp\.ge(\.s32\.totalorder %s0_s22, 130)", r"sfrob\1"), "sfrob"),
    "spop": (_replace(r"sadd\.s32( 1, %s0_s22)", r"spop\1"), "vector register"),
    "scrubbed spill": (_replace(r"%0 = sst \[smem:\[#allocation\d+_spill\]\] %s0_s14", "%0 = sfence"), "nothing wrote"),
    "unknown transfer": (_replace(r"dma\.hbm_to_vmem", "dma.enqueue"), "dma.enqueue"),
    "wait": (_replace(r"(dma\.done\.wait [^;{}]*?), 1024", r"\1, 1025"), "never be satisfied"),
    "missing transfer": (_replace(r"dma\.hbm_to_vmem(.*?), 1024,.*", "sfence }"), "never be satisfied"),
    "sync flag": (_replace(r"vsyncadd", "vsyncfrob"), "vsyncfrob"),
    "flag address": (_replace(r"(%s0_s\d+) = scalar_lea\.sflag", r"\1 = sfrob.sflag"), "sfrob.sflag"),
    "branch": (_replace(r"target = \$region\d+", "target = $region99999"), "has an unknown target"),
    "no bundles": (_replace(r"(?s).+", "nothing here"), "no readable bundle"),
}


# A loop of unknown length is executed until the limit on steps, which takes seconds.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name == "spop" else []) for name in PLANTED]
)
def test_what_is_not_known_in_control_flow_leaves_no_latency(name: str, tmp_path: Path) -> None:
    change, reason = PLANTED[name]
    result = run(SMALL, tmp_path, change)
    assert result.seconds is None
    assert result.plus_minus_seconds is None
    assert result.cycles is None
    assert result.breakdown is None
    assert reason in result.unknown[0]


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 100_000), st.integers(0, 40), st.sampled_from(["", "s1", "%p1_p1", ", 7", "(", "}", ";;"]))
def test_no_damage_to_the_text_raises(place: int, length: int, insert: str) -> None:
    """A strange schedule gives a result or a reason, never an exception."""

    def damage(text: str) -> str:
        start = place % (len(text) - length)
        return text[:start] + insert + text[start + length :] + "\n"

    with tempfile.TemporaryDirectory() as directory:
        result = run(SMALL, Path(directory), damage)
    assert result.seconds is not None or result.unknown


def test_the_module_entry_point_prints_what_the_function_returns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(NEWEST, SMALL, tmp_path)
    assert main(["simulate", str(tmp_path), "--chip", "v5e", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    result = simulate.run(tmp_path, chip("v5e"))
    assert printed["total_seconds"] == result.seconds
    assert printed["ops"] == [{"name": o.name, "cycles": o.cycles, "seconds": o.seconds} for o in result.ops]
    assert printed["plus_minus_seconds"] == result.plus_minus_seconds
    assert printed["relative_uncertainty"] == result.relative_uncertainty
    assert main(["simulate", str(tmp_path), "--chip", "v5e"]) == 0
    assert "MXU" in capsys.readouterr().out
    assert main(["simulate", str(tmp_path / "none"), "--chip", "v5e"]) == RatchetError.exit_code
    assert "no-dump" in capsys.readouterr().err


# --- small programs ----------------------------------------------------------------------------


def execute(*bundles: str, deadline: float = float("inf")) -> OpRun:
    """A program given as the text of its bundles; `@7` in front of a bundle starts region 7."""
    lines = []
    for address, bundle in enumerate(bundles):
        region = re.match(r"@(\d+) ", bundle)
        comment = f" /* Start region {region[1]} */" if region else ""
        lines.append(f"   {address:#x}   : > {{ {bundle[region.end() :] if region else bundle} }}{comment}")
    return run_op(parse_schedule("test", "\n".join(lines).replace("0x0 ", "0 ")), V5E, deadline)


def _kinds(result: OpRun) -> list[str]:
    """The kinds of the program's offences."""
    return [offence.kind for offence in result.offences]


# The delay slots of a branch.
_SLOTS = ("",) * 4
LOOP = ("@1 %s1_s0 = smov 0", "%1 = vdelay {}", "%2 = sbr.rel target = $region1", *_SLOTS)


def test_a_program_that_does_not_end_is_given_up() -> None:
    assert "not ended" in execute(*(text.format(10**8) for text in LOOP)).reason
    lines = [text.format(1) for text in LOOP]
    assert "time limit" in execute(*lines, deadline=0.0).reason


def test_the_four_bundles_after_a_branch_always_run() -> None:
    result = execute(
        "%s1_s0 = smov 0",
        "%1 = sbr.rel target = $region5",
        "%s1_s0 = sadd.s32 1, %s1_s0",
        "%s1_s0 = sadd.s32 1, %s1_s0",
        "%s1_s0 = sadd.s32 1, %s1_s0",
        "",
        "%s1_s0 = sadd.s32 100, %s1_s0",
        "@5 %p1_p0 = scmp.eq.s32.totalorder %s1_s0, 3",
        "%2 = shalt.err (%p1_p0)",
    )
    assert result.executions == (1, 1, 1, 1, 1, 1, 0, 1, 1)
    assert [(offence.kind, offence.count) for offence in result.offences] == [("chip-halts", 1)]
    assert "bundle 0x8" in result.offences[0].what


# Programs that halt if their registers hold what they should.
HALTING = {
    "all reads of a bundle come before its writes": (
        "%s1_s0 = smov 1  ;;  %s1_s1 = smov 2",
        "%s1_s0 = smov %s1_s1  ;;  %s1_s1 = smov %s1_s0  ;;  %1 = sst [smem:[#allocation1]] %s1_s0",
        "%s1_s2 = sld [smem:[#allocation1]]  ;;  %s1_s3 = sshll.u32 %s1_s1, 1",
        "%s1_s4 = sadd.s32 %s1_s2, %s1_s3",
        "%p1_p0 = scmp.eq.s32.totalorder %s1_s4, 3  ;;  %p1_p1 = scmp.eq.s32.totalorder %s1_s0, 2",
        "%p1_p2 = pand %p1_p0, %p1_p1",
        "%2 = shalt.err (%p1_p2)",
    ),
    # 9 << 8 | (7 + 7) and 8 are what the registers hold.
    "predicates and conditional moves": (
        "%p1_p0 = pmov 1  ;;  %s1_s1 = smov 7  ;;  %s1_s5 = smov 7",
        "%s1_s2 = smov (%p1_p0, %s1_s1), 9  ;;  %s1_s3 = smov (!%p1_p0, %s1_s1), 9",
        "%s1_s1 = sadd.s32 (!%p1_p0), 1, %s1_s1  ;;  %s1_s5 = sadd.s32 (%p1_p0), 1, %s1_s5",
        "%s1_s6 = sshll.u32 %s1_s2, 8  ;;  %s1_s7 = sadd.s32 %s1_s3, %s1_s1",
        "%s1_s8 = sor.u32 %s1_s6, %s1_s7",
        "%p1_p1 = scmp.eq.s32.totalorder %s1_s8, 2318  ;;  %p1_p2 = scmp.eq.s32.totalorder %s1_s5, 8",
        "%p1_p3 = pand %p1_p1, %p1_p2",
        "%1 = shalt.err (%p1_p3)",
    ),
    "a mask is ones shifted in, and a whole number becomes a float": (
        "%s1_s0 = smov 0  ;;  %s1_s1 = smov 5  ;;  %s1_s2 = smov 2",
        "%s1_s3 = sshllo.u32 %s1_s0, %s1_s1  ;;  %s1_s4 = sshllo.u32 %s1_s2, 3  ;;  %s1_s5 = scvt.s32.f32 %s1_s1",
        "%p1_p0 = scmp.eq.s32.totalorder %s1_s3, 31  ;;  %p1_p1 = scmp.eq.s32.totalorder %s1_s4, 23",
        "%p1_p2 = pand %p1_p0, %p1_p1  ;;  %p1_p3 = scmp.eq.f32.partialorder %s1_s5, 5.0",
        "%p1_p4 = pand %p1_p2, %p1_p3",
        "%1 = shalt.err (%p1_p4)",
    ),
    "a move to its own register leaves what the bundle puts there": (
        "%s1_s0 = smov 3",
        "%s2_s0 = smov 5  ;;  %s3_s0 = smov %s2_s0",
        "%p1_p0 = scmp.eq.s32.totalorder %s3_s0, 5",
        "%1 = shalt.err (%p1_p0)",
    ),
}


@pytest.mark.parametrize("rule", HALTING)
def test_registers_hold_what_the_program_computes(rule: str) -> None:
    assert execute(*HALTING[rule]).offences


def test_a_wait_lasts_latency_and_bytes_and_a_later_transfer_queues_behind() -> None:
    start = "dma.hbm_to_vmem [thread:$0]  %s1_s0, /*size_in_granules=*/{}, %s1_s1, [#allocation1]"
    wait = "%9 = dma.done.wait [#allocation1], {}"
    setup = "%s1_s0 = smov 0  ;;  %s1_s1 = smov 0"
    single = execute(setup, "%1 = " + start.format(32768), wait.format(32768))
    bytes_cycles = 32768 * 32 / V5E.hbm_bytes_per_cycle + V5E.transfer_cycles
    assert single.wait_cycles == pytest.approx(bytes_cycles + V5E.dma_latency_cycles - 1, abs=1)
    assert single.cycles == single.bundle_cycles + single.wait_cycles + V5E.wait_cycles
    two = execute(setup, "%1 = " + start.format(32768), "%2 = " + start.format(32768), wait.format(65536))
    assert two.wait_cycles == pytest.approx(2 * bytes_cycles + V5E.dma_latency_cycles - 2, abs=1)
    assert (two.read_bytes, two.transfers) == (2 * single.read_bytes, 2)


@pytest.mark.parametrize(("expected", "halts"), [(5, True), (4, False)])
def test_a_sync_flag_can_be_read(expected: int, halts: bool) -> None:
    """Kernels that move data by hand check at their end that every semaphore is back at zero."""
    result = execute(
        "%1 = vsyncadd [#allocation1], 5",
        "%2 = vsyncmov [#allocation1]",
        "%s1_s1 = vpop.sfrf %2",
        f"%p1_p0 = scmp.eq.s32.totalorder %s1_s1, {expected}",
        "%3 = shalt.err (%p1_p0)",
    )
    assert (result.reason, _kinds(result)) == ("", ["chip-halts"] * halts + ["semaphore-not-zero"])


_START = "%1 = dma.hbm_to_vmem [thread:$0]  %s1_s0, 64, %s1_s1, [#allocation1]"
_BEGIN = "%s1_s0 = smov 0  ;;  %s1_s1 = smov 0"


def test_the_clock_goes_on_until_a_transfer_that_nothing_waits_for_has_ended() -> None:
    waited = execute(
        _BEGIN, _START, "%2 = dma.done.wait [#allocation1], 64", "%3 = vsyncadd [#allocation1], 4294967232"
    )
    assert waited.offences == ()
    pending = execute(_BEGIN, _START)
    assert _kinds(pending) == ["transfer-pending"]
    # The difference is the wait with its additional cost, and resetting the flag.
    assert pending.cycles == waited.cycles - 2 - V5E.wait_cycles
    assert pending.wait_cycles == pending.cycles - 2


def test_of_two_transfers_on_one_flag_each_has_to_be_waited_for() -> None:
    end = ("%2 = dma.done.wait [#allocation1], 64", "%3 = vsyncadd [#allocation1], 4294967232")
    once = execute(_BEGIN, _START, _START, *["%4 = vdelay 1000000"], *end)
    assert _kinds(once) == ["transfer-pending"]
    assert execute(_BEGIN, _START, _START, *end, *end).offences == ()


def test_a_part_of_a_transfer_is_nothing_to_wait_for() -> None:
    half = ("%2 = dma.done.wait [#allocation1], 32", "%3 = vsyncadd [#allocation1], 4294967264")
    part = execute(_BEGIN, _START, *half)
    assert _kinds(part) == ["transfer-part-waited", "semaphore-not-zero"]
    # This is an operation of XLA: it is unknown what touches the memory that it moves.
    assert _kinds(execute(_BEGIN, _START, *half, *half)) == ["transfer-part-waited"]
    both = ("%2 = dma.done.wait [#allocation1], 128", "%3 = vsyncadd [#allocation1], 4294967168")
    assert execute(_BEGIN, _START, _START, *both).offences == ()


def test_a_flag_that_is_set_for_good_is_no_semaphore() -> None:
    """The compiler leaves the flags of a grid's windows at one."""
    assert execute("%1 = vsyncpa [#allocation1], 0", "%2 = vsyncpa [#allocation1], 1").offences == ()


def test_what_a_transfer_in_flight_makes_of_a_flag_decides_nothing() -> None:
    read = ("%2 = vsyncmov [#allocation1]", "%s1_s2 = vpop.sfrf %2", "%p1_p0 = scmp.ge.s32.totalorder %s1_s2, 64")
    waits = ("%4 = dma.done.wait [#allocation1], 64", "%5 = vsyncadd [#allocation1], 4294967232")
    jump = ("%3 = sbr.rel (%p1_p0) target = $region7", "", "", "", "", "@7 %s1_s3 = smov 0")
    early = execute(_BEGIN, _START, *read, *jump, *waits)
    assert "nothing waited for" in early.reason or "nothing has waited for" in early.reason
    assert execute(_BEGIN, _START, *waits, *read, *jump).reason == ""
    checked = execute(_BEGIN, _START, *read, "%3 = shalt.err (%p1_p0)", *waits)
    assert _kinds(checked) == ["check-unknown"]


def test_a_word_that_nobody_wrote_decides_nothing() -> None:
    jump = ("%p1_p0 = scmp.eq.s32.totalorder %s1_s0, 1", "%3 = sbr.rel (%p1_p0) target = $region7", "", "", "", "")
    result = execute("%s1_s0 = sld [smem:[#allocation1]]", *jump, "@7 %s1_s3 = smov 0")
    assert _kinds(result) == ["memory-nobody-wrote"]
    assert "nothing wrote" in result.reason
    # A store to an unknown place may have written it: then the word is unknown, and nothing more.
    stored = execute("%s1_s5 = spop %v1_v1", "%1 = sst [smem:[%s1_s5]] 1", "%s1_s0 = sld [smem:[#allocation1]]", *jump)
    assert (stored.offences, bool(stored.reason)) == ((), True)


def test_the_compilers_check_and_its_line_are_named() -> None:
    text = '%1 = shalt.err (%p1_p0) /* BoundsCheck 51 [deref of %s1] for %2 = dma /* loc("/a b/kernel.py":39:1) */'
    result = execute("%p1_p0 = pmov 1", text)
    assert [(offence.line, offence.what) for offence in result.offences] == [
        ("kernel.py:39", "a check of the compiler that fails: bundle 0x1, BoundsCheck 51")
    ]


_QUOTIENT = "%2 = sdivrem.u32 %s1_s0, 5 {}  ;;  %s1_s5 = smov 0"


@pytest.mark.parametrize(
    ("comment", "results"),
    [
        ("/* kDivAndRem */", (7, 3)),
        ("/* kDiv */", (7,)),
        ("/* kRem */", (3,)),
        ('/* loc("kernel.py":12:3 to :14) :: kRem */', (3,)),
        ('/* kDivAndRem :: loc("kernel.py":12:3) */', (7, 3)),
        ('/* loc("kRem kDiv :: kDiv */":12:3) :: kRem */', (3,)),
    ],
)
def test_a_division_is_known_by_its_marker_wherever_that_stands(comment: str, results: tuple[int, ...]) -> None:
    for number, value in enumerate(results):
        pops = [f"%s1_s{3 + place} = spop.drf %2" for place in range(len(results))]
        wrong = f"%p1_p0 = scmp.ne.s32.totalorder %s1_s{3 + number}, {value}"
        result = execute("%s1_s0 = smov 38", _QUOTIENT.format(comment), *pops, wrong, "%3 = shalt.err (%p1_p0)")
        assert (result.reason, result.offences, result.remarks) == ("", (), ())


def test_high_words_of_products_are_unsigned() -> None:
    result = execute(
        "%s1_s0 = smov 4294967295  ;;  %s1_s3 = smov 2863311531",
        "%s1_s1 = smulhi.u32 2863311531, %s1_s0",
        "%p1_p0 = scmp.ne.s32.totalorder %s1_s1, 2863311530",
        "%3 = shalt.err (%p1_p0)",
    )
    assert (result.reason, result.offences, result.remarks) == ("", (), ())


def test_a_file_name_adds_nothing_to_the_program() -> None:
    """A kernel's author chooses the names of its files, which stand in comments of its schedule."""
    text = '%s1_s0 = smov 1 /* loc("k*/ ;; %9 = vdelay 1000 /* core id Start region 3":6:19) */'
    schedule = parse_schedule("test", f"   0   :  {{ {text} }}")
    assert [op.opcode for op in schedule.bundles[0].ops] == ["smov"]
    assert schedule.bundles[0].regions == ()


def test_a_transfer_under_a_false_predicate_does_not_happen() -> None:
    result = execute("%p1_p0 = pmov 0", "%1 = dma.vmem_to_hbm [thread:$0]  (%p1_p0), 0, 64, 0, [#allocation1]")
    assert (result.transfers, result.reason) == (0, "")


def test_matmuls_keep_their_mxu_busy_and_pops_wait_for_results() -> None:
    matmul, pop = "%1 = vmatmul.bf16.gmra.mxu{} %v1_v0", "%v1_v1 = vpop.f32.mrf.mxu{}"
    same = execute(*[matmul.format(0)] * 10)
    # Sixteen rows, and 1/32 more in a stream of them; bundles issue in whole cycles.
    assert same.cycles == ceil(9 * 16.5) + 1
    spread = execute(*[matmul.format(i % 4) for i in range(10)])
    assert spread.cycles == ceil(2 * 16.5) + 2, "the tenth waits for the second use of its MXU"
    popped = execute(matmul.format(0), pop.format(0), pop.format(0))
    assert popped.cycles == V5E.matmul_latency_cycles + 8 + 1
    assert popped.mxu_flops == 2 * 16 * 128 * 128


def test_a_matmul_out_of_the_matrix_units_own_rows_takes_eight() -> None:
    """On v5 one result is popped for each: with sixteen rows, gradients of grouped products were a fifth too slow."""
    for opcode, rows, results in (
        ("vmatmul.bf16.gmra.mxu0", 16, 2),
        ("vmatmul.lmr.bf16.gmra.16.mxu0", 8, 1),
        ("vmatmul.lmr.bf16.vlgmr.msra.gmra.16.mxu0", 8, 1),
        ("vmatmul.f32.gmra.mxu0", 8, 1),
    ):
        (use,) = (use for use in uses_of(Op(destination="", opcode=opcode), V5P) if use.flops)
        assert (use.cycles, use.results, use.flops) == (rows, results, 2 * rows * 128 * 128), opcode


def test_predicated_matmuls_only_count_where_they_run() -> None:
    text = "%1 = vmatmul.bf16.gmra.mxu0 ({}%p1_p0), %v1_v0"
    ran = execute("%p1_p0 = pmov 1", text.format(""), text.format("!"))
    assert ran.mxu_flops == 2 * 16 * 128 * 128
    assert ran.executions == (1, 1, 1)


def test_an_address_behind_a_cache_of_pages_can_be_shifted() -> None:
    """XLA's copies count rows: they shift an address left by four and back, and halt if it has changed."""
    names = Names()
    pages = "[shape: bf16[512,64,8,2,128], index: {}, kind: {}, shape index: {}]"
    first, second = (
        names.operand("hbm", pages.format(index, kind, "{}")) for index, kind in enumerate(("input", "output"))
    )
    granules = 512 * 64 * 8 * 2 * 128 * 2 // 32
    assert first + granules <= second < 1 << 27


@pytest.mark.parametrize("operand", [1 << 26, 207880192])
def test_a_table_is_brought_from_wherever_it_lies(operand: int) -> None:
    """A register of 32 bits holds an address that counts granules: beyond 2^31 it is negative."""
    table = OperandContents(name="table", space="hbm", address=operand, words=lambda: (7, 8, 9))
    memory = _memory(V5E, operands=[table])
    source = operand * ROW_BYTES // V5E.granule_bytes
    source -= (source >> 31 & 1) << 32
    memory.fill("hbm", source, 100, 1, ())
    assert [memory.load(100 + place) for place in range(3)] == [7, 8, 9]


def _table() -> tuple[OperandContents, int]:
    """A table of 256 words in HBM, and the address at which transfers find it."""
    table = OperandContents(name="table", space="hbm", address=1 << 26, words=lambda: tuple(range(256)))
    return table, (1 << 26) * ROW_BYTES // V5E.granule_bytes


def test_a_transfer_with_strides_brings_no_known_words() -> None:
    table, source = _table()
    memory = _memory(V5E, operands=[table])
    memory.words = {ALLOCATION_SPACING: 5, ALLOCATION_SPACING + 2000: 5, 2 * ALLOCATION_SPACING: 5}
    # Two runs of one row each, a row apart in HBM.
    scale = max(1, ROW_BYTES // V5E.granule_bytes)
    memory.fill("hbm", source, ALLOCATION_SPACING, 2 * scale, (2 * scale, 2 * scale, 1))
    for place in (0, 128, 2000, 3000):
        assert isinstance(memory.load(ALLOCATION_SPACING + place), Unknown), place
    assert memory.load(2 * ALLOCATION_SPACING) == 5


def test_a_table_is_unknown_once_it_was_written_over() -> None:
    table, source = _table()
    memory = _memory(V5E, operands=[table])
    memory.fill("hbm", source, 0, 1, ())
    assert memory.load(1) == 1
    memory.replace("hbm", source)
    memory.fill("hbm", source, 0, 1, ())
    assert isinstance(memory.load(1), Unknown)


@pytest.mark.parametrize("writes_over", ["a transfer", "a transfer with strides", "a transfer to an unknown place"])
def test_words_of_the_scalar_program_are_forgotten_once_they_were_written_over(writes_over: str) -> None:
    output = OperandContents(name="output", space="hbm", address=1 << 26, words=lambda: None)
    destination = (1 << 26) * ROW_BYTES // V5E.granule_bytes
    memory = _memory(V5E, operands=[output])
    memory.words = dict.fromkeys(range(1024), 7)
    memory.drain(0, "hbm", destination, 2, ())
    assert memory.results({0: ("hbm", 1 << 26)})[0]() is not None
    if writes_over == "a transfer":
        memory.replace("hbm", destination)
    elif writes_over == "a transfer with strides":
        memory.drain(0, "hbm", destination, 32, (32, 32, 1))
    else:
        memory.replace("hbm", Unknown("somewhere"))
    assert memory.results({0: ("hbm", 1 << 26)}) == {}


def test_a_store_behind_one_to_an_unknown_place_gives_its_reason() -> None:
    memory = _memory(V5E)
    memory.words = {4: 1, 8: 2}
    memory.store(True, Unknown("the contents of a vector"), 1)
    memory.store(True, memory.load(4), 1)
    word = memory.load(8)
    assert isinstance(word, Unknown)
    assert word.reason == "scalar memory that a store at the contents of a vector may have changed"


def test_a_store_whose_predicate_does_not_hold_changes_no_word_wherever_it_would_go() -> None:
    """A word that is loaded in vain may be the address of a store that does not happen."""
    memory = _memory(V5E)
    memory.words = {4: 1}
    memory.store(False, Unknown("a word that nothing wrote"), 2)
    memory.store(False, 4, 2)
    assert memory.load(4) == 1
    memory.store(Unknown("a flag"), Unknown("a word that nothing wrote"), 2)
    assert isinstance(memory.load(4), Unknown)


def test_a_table_brought_to_scalar_memory_must_not_decide() -> None:
    result = execute(
        "%s1_s0 = smov 0",
        "%1 = dma.hbm_to_smem [thread:$0]  %s1_s0, 1, [#allocation2], [#allocation1]",
        "%2 = dma.done.wait [#allocation1], 1",
        "%s1_s1 = sld [smem:[#allocation2 + %s1_s0]]",
        "%p1_p0 = scmp.eq.s32.totalorder %s1_s1, 0",
        "%3 = sbr.rel (%p1_p0) target = $region2",
        *_SLOTS,
        "@2 %s1_s0 = smov 1",
    )
    assert "contents are not known" in result.reason


def test_a_scalar_spilled_to_hbm_is_the_same_when_it_is_read_back() -> None:
    result = execute(
        "%s1_s0 = smov [#allocation9_spill]  ;;  %s2_s1 = smov [#allocation8_spill]  ;;  %s3_s0 = smov %s1_s0",
        "%4 = sst [smem:[#allocation8_spill]] 7",
        "%5 = dma.smem_to_hbm %s2_s1, 1, %s3_s0, [#allocation1]",
        "%6 = dma.done.wait [#allocation1], 1",
        "%7 = vsyncadd [#allocation1], 4294967295",
        "%8 = sst [smem:[#allocation8_spill]] 0",
        "%9 = dma.hbm_to_smem %s3_s0, 1, %s2_s1, [#allocation1]",
        "%10 = dma.done.wait [#allocation1], 1",
        "%s4_s2 = sld [smem:[%s2_s1]]",
        "%p1_p0 = scmp.eq.s32.totalorder %s4_s2, 7",
        "%11 = shalt.err (%p1_p0)",
    )
    assert [offence.count for offence in result.offences if offence.kind == "chip-halts"] == [1]


@pytest.mark.parametrize(
    ("again", "kinds"),
    [
        ("", ["chip-halts"]),
        # The allocation is stored to once more, at an address that could be another's, or after a jump.
        ("%8 = vst [vmem:[#allocation2] sm:$0x1] /*vst_source=*/%v9_v1", ["check-unknown"]),
        ("%s8_s9 = smov [#allocation2]", ["check-unknown"]),
    ],
)
def test_a_scalar_that_goes_through_a_vector_is_the_same(again: str, kinds: list[str]) -> None:
    result = execute(
        "%s1_s0 = smov 7",
        "%v1_v0 = vstv %s1_s0",
        "%2 = vst [vmem:[#allocation2] sm:$0x1] /*vst_source=*/%v1_v0",
        "@1 %s3_s0 = smov 1",
        again,
        "%v3_v4 = vld [vmem:[#allocation2] sm:$0x1]",
        "%4 = vpush %v3_v4",
        "%s5_s2 = spop %4",
        "%p1_p0 = scmp.eq.s32.totalorder %s5_s2, 7",
        "%6 = shalt.err (%p1_p0)",
    )
    assert _kinds(result) == kinds


def test_contents_travel_between_operands_results_and_allocations_by_their_memory() -> None:
    scale, place = 16, result_places(1)[0]
    # An allocation in VMEM whose scaled address is that of an operand in HBM.
    names = {FIRST_OPERAND: "operand 0", FIRST_OPERAND // scale: "#allocation1", 7: "#allocation2"}
    contents = Contents(names, (), 32)
    contents.hold({FIRST_OPERAND: (1, 2), FIRST_OPERAND // scale: (3,)})
    contents.copied(FIRST_OPERAND, 7 * scale, ("hbm", "vmem"))
    assert contents[7]() == (1, 2)
    contents.copied(FIRST_OPERAND, place, ("vmem", "hbm"))
    assert contents[place]() == (3,)
    contents.copied(place, 7 * scale, ("hbm", "vmem"))
    assert contents[7]() == (3,)
    contents.copied(FIRST_OPERAND + 5, place, ("hbm", "hbm"))
    assert place not in contents


@pytest.mark.long
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from(["a", "b"]), st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 6),
)
def test_remembered_stretches_equal_one_long_execution(work: list[tuple[int, str, int, bool]], repeats: int) -> None:
    """Splitting a program at any bundle, and remembering each piece, changes no cycle of it."""
    pieces = []
    for length, unit, cycles, pops in work:
        push = Use(unit, cycles, unit, latency=11, results=1, spacing=0)
        pop = Use("", 0, unit, pops=True)
        pieces.append((length, ((length - 1, (push, pop) if pops else (push,)),)))
    whole_uses, position = [], 0
    for length, uses in pieces * repeats:
        whole_uses += [(position + offset, here) for offset, here in uses]
        position += length
    expected = Pipes([(position, tuple(whole_uses))]).run(0, 0).cycles
    pipes, clock, state = Pipes(pieces), 0, 0
    for _ in range(repeats):
        for number in range(len(pieces)):
            passed = pipes.memories[number].get(state) or pipes.run(number, state)
            clock, state = clock + passed.cycles, passed.state
    assert clock == expected


def units_of(machine: Machine, *opcodes: str) -> tuple[tuple[int, tuple[Use, ...]], ...]:
    """The cycles of the units with one operation in each bundle."""
    lines = (f"   {i:#x}   : > {{ %v{i}_v{i} = {opcode} %v9_v9 }}\n" for i, opcode in enumerate(opcodes))
    bundles = parse_schedule("test", "".join(lines)).bundles
    return tuple((i, uses_of(op, machine)) for i, bundle in enumerate(bundles) for op in bundle.ops)


def test_on_a_256_wide_unit_a_row_pair_keeps_the_weight_port_from_its_push_on() -> None:
    pair = ("vmatprep.subr.bf16.mxu0", "vmatpush1.bf16.msra.mxu0")

    def cycles(machine: Machine) -> list[int]:
        pairs = (units_of(machine, *pair * count) for count in (1, 2, 3))
        return [Pipes([(len(uses), uses)]).run(0, 0).cycles for uses in pairs]

    # As if the next prep waited for the push to end: a variation that is tested, not the assumption in use.
    waiting = replace(V6E, prep_early_cycles=0)
    assert cycles(waiting) == [2, 2 + V6E.push_cycles + 1, 2 + 2 * (V6E.push_cycles + 1)]
    # The compiler's own spacing lets it go at once, and only pushes wait for each other.
    assert cycles(V6E) == [2, 2 + V6E.push_cycles, 2 + 2 * V6E.push_cycles]


@pytest.mark.parametrize(
    ("opcode", "cycles"),
    [
        ("vmatpush1.bf16.msra.mxu0", 4),
        ("vmatpush1.bf16.xpose.msra.mxu0", 8),
        ("vmatpush1.msra.mxu0", 2),
        ("vmatpush2.xpose.msrb.mxu0", 4),
    ],
)
def test_a_push_of_float32_has_half_as_many_rows(opcode: str, cycles: int) -> None:
    """As the compiler spaces them (benchmarks/compiler_latencies.py)."""
    ((_, (push,)),) = units_of(V6E, opcode)
    assert push.cycles == cycles


def test_a_matmul_that_waits_in_front_of_its_unit_keeps_nothing_else_waiting() -> None:
    rows = 8
    for queue, cycles in ((0, 2 * rows + 1), (1, rows + 1), (2, 3)):
        machine = replace(V6E, matmul_slowdown=1.0, matmul_queue=queue)
        matmuls = units_of(machine, *("vmatmul.mubr.bf16.gmra.mxu0",) * 3)
        assert Pipes([(3, matmuls)]).run(0, 0).cycles == cycles, queue
        # The results come out as late as without a queue.
        (matmul,) = matmuls[0][1]
        pops = (3, (Use("", 0, "mxu0", pops=True),) * (3 * matmul.results))
        popped = Pipes([(4, (*matmuls, pops))]).run(0, 0).cycles
        assert popped == 2 * rows + machine.matmul_latency_cycles + (matmul.results - 1) * matmul.spacing + 1, queue


def test_a_matmul_that_waits_for_its_weights_keeps_nothing_else_waiting() -> None:
    lines = ("vmatpush1.bf16.msra.mxu0", "vmatmul.mubr.bf16.vlgmr.msra.gmra.mxu0", "vmatmul.mubr.bf16.gmra.mxu1")
    for queue, stalls in ((0, V6E.push_cycles - 1), (1, 0)):
        machine = replace(V6E, matmul_queue=queue)
        uses = units_of(machine, *lines)
        assert Pipes([(3, uses)]).run(0, 0).cycles == 3 + stalls
        # It starts when the weights are there.
        popped = Pipes([(4, (*uses, (3, (Use("", 0, "mxu0", pops=True),))))]).run(0, 0).cycles
        assert popped == V6E.push_cycles + V6E.matmul_latency_cycles + 1


def test_cross_lane_units_take_what_the_compiler_says_for_each_kind_of_operation() -> None:
    def latency(name: str, opcode: str, arguments: str = "") -> tuple[int, float]:
        (use,) = uses_of(Op(destination="", opcode=opcode, text=arguments), machine_of(chip(name)))
        return use.latency, use.cycles

    assert latency("v6e", "vadd.xlane.f32.xlu0") == (137, 4)
    assert latency("v6e", "vrot.lane.b32.xlu1") == (123, 4)
    assert latency("v6e", "vxpose.xlu0.b32.end", "vx, 128") == (64, 4)
    assert latency("v6e", "vxpose.xlu0.c.b16.end", "vx, 128") == (70, 4)
    assert latency("v5e", "vxpose.xlu0.c.b16.end", "vx, 128") == (60, 16)
    # Rows of 16-bit values go in every 16 cycles and come out every 8: the compiler's own spacing in a grouped product.
    for opcode, width, results in (("vxpose.binary.xlu0.c.b16.end", 128, 16), ("vxpose.xlu0.b32.end", 64, 8)):
        (use,) = uses_of(Op(destination="", opcode=opcode, text=f"v1, v2, {width}"), V5P)
        assert (use.results, use.spacing) == (results, 8)
    # The third unit of these chips is nearer.
    assert latency("v5p", "vadd.xlane.f32.xlu0") == (115, 8)
    assert latency("v5p", "vadd.xlane.f32.xlu2") == (91, 8)
    assert latency("v5p", "vxpose.xlu2.b32.end", "vx, 128") == (33, 8)


def test_exponentials_of_packed_halves_take_two_turns() -> None:
    for opcode, turns in (("vpow2.f32", 1), ("vexp2.bf16", 2), ("vpow.bf16", 2)):
        uses = units_of(V6E, *(opcode,) * 8)
        assert Pipes([(8, uses)]).run(0, 0).cycles == 8 + 7 * (turns - 1), opcode


def test_units_forget_while_nothing_is_issued() -> None:
    pipes = Pipes([(1, ((0, (Use("mxu0", 16, "mxu0", latency=125, results=2, spacing=8),)),))])
    state = pipes.run(0, 0).state
    assert pipes.run(0, pipes.later(state, 10)).cycles == 1 + 5
    assert pipes.run(0, pipes.later(state, 15)).cycles == 1
    assert pipes.later(0, 100) == 0
    assert IDLE == ((), ())


def test_unknown_spreads_through_arithmetic_and_stops_decisions() -> None:
    unknown = Unknown("a reason")
    for value in (unknown + 1, 1 - unknown, unknown << 2, unknown < 3, unknown ^ True, unknown & 6, unknown | 1):
        assert isinstance(value, Unknown)
    assert (unknown & False) == 0
    assert (unknown | True) is True
    assert isinstance(pick(unknown, 1, 2), Unknown)
    with pytest.raises(Unknowable, match="a reason"):
        bool(unknown)
    with pytest.raises(Unknowable, match="a wait depends on a reason"):
        decided(unknown, "a wait")


@pytest.mark.parametrize("name", [tpu.name for tpu in TPUS])
def test_every_chips_constants_are_positive_and_respect_its_peak(name: str) -> None:
    hardware, machine = chip(name), machine_of(chip(name))
    rate = 2 * machine.mxu_size**2 * machine.matmul_rows_per_cycle * machine.mxus * hardware.cores * machine.clock_hz
    # Published peaks and clocks are rounded to three digits.
    assert rate <= hardware.peak_bf16_flops_per_second * 1.002
    assert machine.hbm_bytes_per_cycle * machine.clock_hz * hardware.cores == pytest.approx(
        hardware.hbm_bytes_per_second
    )
    assert min(machine.dma_latency_cycles, machine.transfer_cycles) > 0
    assert machine.cores == hardware.cores


def test_waiting_costs_the_core_something_even_where_all_has_arrived() -> None:
    """A thousand short attention steps with three waits each take longer than their schedule and their bytes."""
    program = [_BEGIN, _START, "%4 = vdelay 1000000"]
    late = execute(*program, "%2 = dma.done.wait [#allocation1], 64", "%3 = vsyncadd [#allocation1], 4294967232")
    assert late.cycles == late.bundle_cycles + 1000000 + V5E.wait_cycles
    assert late.wait_cycles == 0


def test_reads_and_writes_of_hbm_reach_their_shares_of_its_bandwidth() -> None:
    read = Channel(V6E).arrival("hbm", "vmem", 1 << 24, 0) - V6E.dma_latency_cycles
    written = Channel(V6E).arrival("vmem", "hbm", 1 << 24, 0) - V6E.dma_write_latency_cycles
    assert written / read == pytest.approx(V6E.hbm_read_share / V6E.hbm_write_share, rel=0.01)


def test_one_transfer_alone_is_slower_than_several_on_a_way_that_is_wider() -> None:
    """Nothing moves more than 1024 bytes a cycle by itself; a v7x's path to HBM has room for nearly two."""
    machine = machine_of(chip("v7x"))
    alone = Channel(machine).arrival("hbm", "vmem", 1 << 24, 0) - machine.dma_latency_cycles
    assert alone == (1 << 24) / 1024
    way = Channel(machine)
    several = [way.arrival("hbm", "vmem", 1 << 24, 0) - machine.dma_latency_cycles for _ in range(8)]
    assert several[0] == alone
    assert several[-1] == pytest.approx(8 * (1 << 24) / machine.hbm_bytes_per_cycle, rel=0.001)
    reads = Channel(V6E).arrival("hbm", "vmem", 1 << 24, 0) - V6E.dma_latency_cycles
    assert reads == pytest.approx((1 << 24) / V6E.hbm_bytes_per_cycle / V6E.hbm_read_share, rel=0.001)


def test_rows_of_eight_bits_go_in_twice_as_fast_where_the_chip_multiplies_them_so() -> None:
    def busy(name: str, kind: str) -> float:
        op = Op(destination="", opcode=f"vmatmul.{kind}.gmra.mxu0", text=f"vmatmul.{kind}.gmra.mxu0 %v1_v0")
        (use,) = (use for use in uses_of(op, machine_of(chip(name))) if use.port)
        return use.cycles

    assert busy("v5e", "s8") == busy("v5e", "bf16")
    assert busy("v4", "s8") == 2 * busy("v4", "bf16")
    # A register holds 64 rows of 4 bits, which take no longer either.
    assert busy("v6e", "s4") == busy("v6e", "bf16")
    # Only v7x multiplies more 8-bit floats per cycle; other chips widen them to bfloat16 on the way in.
    assert busy("v7x", "f8e4m3fn") == busy("v7x", "bf16")
    assert busy("v6e", "f8e5m2.bf16") == 2 * busy("v6e", "bf16")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("HloModule jit_call, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}", {}),
        ("HloModule m, input_output_alias={ {1}: (1, {}, may-alias) }, entry_computation_layout={}", {1: 1}),
        ("HloModule m, input_output_alias={ {1}: (4, {}, may-alias), {2}: (0, {}, must-alias) }, x={}", {1: 4, 2: 0}),
    ],
)
def test_the_module_says_which_results_lie_in_memory_that_was_handed_over(
    header: str, expected: dict[int, int]
) -> None:
    assert dict(parse.read(f"{header}\n\nENTRY %main {{ {{3}}: (7, {{}}, x) }}").in_place) == expected
