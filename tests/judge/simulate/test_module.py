"""Whole modules in the simulator: two cores, tables in scalar memory, operands in VMEM, loops, impossible results."""

import dataclasses
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from naive_attention import QUOTIENTS
from narrowing import present
from schedule_examples import NEWEST, unpack
from simulated_examples import assert_possible, run

from harness.dumps.llo import Bundle, ModuleDump, Op, Schedule, parse_schedule
from harness.dumps.timing_tables import Assumption
from harness.errors import UsageError
from harness.hardware import chip
from harness.hlo import parse
from harness.hlo.tables import Tables
from harness.judge import simulate
from harness.judge.simulate.compiled_module import compile_module
from harness.judge.simulate.core import run_compiled
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.module import impossibilities, run_module
from harness.judge.simulate.structure import delay_slots
from harness.judge.simulate.uncertainty import relative_uncertainty
from harness.records import Simulation
from harness.shell.main import main

HLO = r"-TLP-hlo"


def changed(case: str, tmp_path: Path, change: Callable[[str], str], where: str) -> Simulation:
    """The saved case with another top-level program or HLO module."""
    return simulate.run(unpack(NEWEST, case, tmp_path, change, where=where), chip(case.split("-")[0]))


# --- scalar-prefetch tables --------------------------------------------------------------------


def test_a_causal_kernel_computes_the_blocks_that_its_table_names(tmp_path: Path) -> None:
    full = run("v6e-full-4096", tmp_path / "full")
    causal = run("v6e-causal-4096", tmp_path / "causal")
    assert (full.unknown, causal.unknown) == ((), ())
    # 16 x 16 blocks, of which 16 x 17 / 2 are on or below the diagonal.
    assert causal.mxu_flops == present(full.mxu_flops) * 136 // 256
    assert 0.5 < present(causal.cycles) / present(full.cycles) < 0.7
    assert causal.hbm_read_bytes < full.hbm_read_bytes
    assert_possible(causal)


def test_a_table_that_is_not_known_leaves_no_latency(tmp_path: Path) -> None:
    def scrub(text: str) -> str:
        return re.sub(r"(s32\[16,16\]\S*) constant\(\{.*\}\)(?=,|$)", r"\1 custom-call()", text, flags=re.MULTILINE)

    result = changed("v6e-causal-4096", tmp_path, scrub, HLO)
    assert (result.seconds, result.breakdown) == (None, None)
    assert "contents are not known" in result.unknown[0]


@pytest.mark.long
def test_a_table_can_be_handed_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def as_parameter(text: str) -> str:
        pattern = r"%(\S+) = (s32\[16,16\]\S*) constant\(\{.*\}\)(?=,|$)"
        return re.sub(pattern, r"%table = \2 parameter(3)", text, flags=re.MULTILINE).replace(named, "table")

    text = unpack(NEWEST, "v6e-causal-4096", tmp_path / "plain")
    hlo = next(text.glob("*hlo.txt")).read_text()
    named = present(re.search(r"%(\S+) = s32\[16,16\]\S* constant", hlo))[1]
    whole = present(Tables(parse.read(hlo)).values(named))
    directory = unpack(NEWEST, "v6e-causal-4096", tmp_path / "open", as_parameter, where=HLO)
    for path in directory.glob("*TLP*final_bundles*"):
        path.write_text(path.read_text().replace(named, "table"))
    assert simulate.run(directory, chip("v6e")).seconds is None
    simulation = simulate.run(directory, chip("v6e"), operands={"table": whole})
    assert simulation.seconds == simulate.run(tmp_path / "plain", chip("v6e")).seconds
    np.save(tmp_path / "table.npy", whole)
    assert main(["simulate", str(directory), "--chip", "v6e", "--operand", f"table={tmp_path / 'table.npy'}"]) == 0
    assert "simulated v6e" in capsys.readouterr().out
    assert main(["simulate", str(directory), "--chip", "v6e", "--operand", "table=nowhere.npy"]) == UsageError.exit_code


# --- cores, operands, the top-level program ----------------------------------------------------


def test_two_cores_share_the_grid_and_the_bandwidth(tmp_path: Path) -> None:
    result = run("v5p-512x512-2048", tmp_path)
    assert result.cycles is not None
    (op,) = result.ops
    slots = {unit.name: unit for unit in result.units}
    # 4 x 4 steps of 4 x 512 x 512 x 128 FLOPs on two cores; each has 4 MXUs that do 16 x 128 x 128 in 16 cycles.
    assert result.mxu_flops == 4 * 2048 * 2048 * 128
    busy = result.mxu_flops / (2 * 128 * 128) / 4 / 2
    assert slots["MXU"].busy_cycles == busy * machine_of(chip("v5p")).matmul_slowdown
    assert op.executed_bundles == result.bundle_cycles
    assert slots["MXU"].offered_slots == 2 * int(result.cycles) * slots["MXU"].slots_per_bundle


def test_without_its_core_id_a_program_for_two_cores_has_no_latency(tmp_path: Path) -> None:
    result = run("v5p-512x512-2048", tmp_path, lambda text: text.replace("core id", "something"))
    assert result.seconds is None
    assert "nothing wrote" in result.unknown[0]


def test_operands_in_vmem_are_read_from_hbm_once(tmp_path: Path) -> None:
    """The compiler prefetches small keys and values whole; the kernel then fetches none of their blocks."""
    result = run("v7x-resident-2048", tmp_path)
    assert result.unknown == ()
    assert (result.executed_steps, result.hbm_read_bytes) == (16, 3 * 2048 * 128 * 2)
    assert result.hbm_written_bytes == 2048 * 128 * 2
    assert_possible(result)


def test_every_op_of_a_module_counts(tmp_path: Path) -> None:
    result = run("v6e-shifted-2048", tmp_path)
    assert [op.name for op in result.ops] == ["broadcast_add_fusion", "naive.1"]
    assert result.unknown == ()
    assert result.cycles == sum(op.cycles for op in result.ops) + result.launch_cycles
    assert_possible(result)


def program(*bundles: str) -> Schedule:
    """A top-level program; what follows `@` in a bundle is its comment."""
    lines = [
        f"   {i:#x}   : > {{ {text.partition('@')[0]} }}{text.partition('@')[2]}" for i, text in enumerate(bundles)
    ]
    return parse_schedule("TLP", "\n".join(lines).replace("0x0 ", "0 "))


def dumped(*bundles: str, hlo: str = "", assumption: Assumption | None = None) -> ModuleDump:
    """A module whose top-level program may call the three-bundle ops `a`, `b`."""
    top = program(*bundles)
    nothing = Op("s0", "smov", text="0")
    ops = tuple(Schedule(name=n, bundles=tuple(Bundle(i, (nothing,), ()) for i in range(3))) for n in "ab")
    return ModuleDump(schedules=ops, utilisations=(None, None), top=top, hlo=hlo, remarks=(), assumption=assumption)


def module(
    *bundles: str, chip_name: str = "v5e", hlo: str = "", fetched_before: bool = False
) -> tuple[int, tuple[tuple[str, int], ...], str]:
    """Cycles, calls per op and reason of a top-level program that calls the three-bundle ops `a`, `b`."""
    dump = dumped(*bundles, hlo=hlo)
    machine = machine_of(chip(chip_name))
    cores = run_compiled(compile_module(dump, machine, fetched_before=fetched_before), machine, Tables(parse.read(hlo)))
    return cores[0].cycles, tuple((op.schedule.name, op.calls) for op in cores[0].ops), cores[0].reason


# The delay slots of a branch.
_SLOTS = ("",) * 4
TRANSFER = "%2 = dma.hbm_to_vmem (%p1_p1), %s1_s1, 64, %s1_s2, %s1_s3"
CALL = "%1 = inlined_call /* %{0} = copy(%x) */"


def test_a_loop_in_the_top_level_program_calls_as_often_as_it_turns() -> None:
    cycles, calls, reason = module(
        "%s1_s1 = smov 0",
        CALL.format("a") + " @ /* Start region 7 */",
        "%s1_s1 = sadd.s32 1, %s1_s1",
        "%p1_p0 = scmp.lt.s32.totalorder %s1_s1, 5",
        "%2 = sbr.rel (%p1_p0) target = $region7",
        *_SLOTS,
        CALL.format("b"),
    )
    assert (calls, reason) == ((("a", 5), ("b", 1)), "")
    assert cycles == 1 + 5 * (3 + 8) + 3 + 1


def test_a_loop_that_data_ends_has_no_latency() -> None:
    _, _, reason = module(
        CALL.format("a") + " @ /* Start region 7 */",
        "%s1_s1 = spop %3",
        "%p1_p0 = scmp.lt.s32.totalorder %s1_s1, 5",
        "%2 = sbr.rel (%p1_p0) target = $region7",
        *_SLOTS,
    )
    assert "vector register" in reason


def _jump(number: int, unless: str, region: int) -> tuple[str, ...]:
    """A branch that depends on a vector's contents."""
    return (
        f"%s{number}_s{number} = spop %9",
        f"%p{number}_p0 = scmp.lt.s32.totalorder %s{number}_s{number}, 0",
        f"%{number} = sbr.rel ({unless}%p{number}_p0) target = $region{region}",
        *_SLOTS,
    )


def _range(*bundles: str) -> tuple[Simulation, ...]:
    """The module simulated with branches that depend on vectors never taken, and always."""
    assumptions: tuple[Assumption, ...] = ("never", "always")
    return tuple(run_module(dumped(*bundles, assumption=word), chip("v5e"), with_lines=False) for word in assumptions)


@pytest.mark.parametrize(
    ("first", "second"),
    [("", "!"), ("!", ""), ("", ""), ("!", "!")],
    ids=["the second alone", "the first alone", "none", "both"],
)
def test_the_range_includes_work_whatever_conditions_on_vectors_must_hold_for_it(first: str, second: str) -> None:
    bundles = (*_jump(1, first, 7), *_jump(2, second, 7), *[CALL.format("a")] * 50, "@ /* Start region 7 */")
    assert [sum(op.calls for op in run.ops) for run in _range(*bundles)] == [0, 50]


def test_the_range_ends_with_the_longest_run() -> None:
    """Two decisions, each with a long wait on one side: alike outcomes have one of the waits, turned ones both."""

    def decision(number: int, unless: str) -> tuple[str, ...]:
        return (*_jump(number, unless, number), "%9 = vdelay 1000", f" @ /* Start region {number} */")

    never, always = (run.cycles or 0 for run in _range(*decision(1, ""), *decision(2, "!")))
    assert always > 2000
    assert never < 1000


@pytest.mark.parametrize(("asks", "delays"), [("ne.s32.totalorder %s1_s1, 0", 0), ("eq.s32.totalorder %s1_s1, 1", 100)])
def test_a_program_is_asked_to_run_and_finds_no_operand_fetched_before_it(asks: str, delays: int) -> None:
    word = "%s1_s1 = sld [smem:[#allocation9]]"
    cycles, _, reason = module(word, f"%p1_p0 = scmp.{asks}", "%1 = vdelay (%p1_p0), 100")
    assert (cycles, reason) == (3 + delays, "")


def test_what_the_runtime_has_fetched_before_is_not_fetched_again() -> None:
    """Published times do not include it: gated linear units were 20 % too slow. Judged programs fetch their own."""
    bundles = (
        "%s1_s1 = sld [smem:[#allocation9]]",
        "%p1_p0 = scmp.ne.s32.totalorder %s1_s1, 0",
        "%1 = vdelay (%p1_p0), 9",
    )
    assert module(*bundles)[0] == 3
    assert module(*bundles, fetched_before=True)[0] == 3 + 9


_OWN, _MOVED_UP = "%s1_s5 = smov %s1_s4", "%s1_s6 = smov (!%p1_p0), 3"
_END, _START = " @ /* End region 17 */", " @ /* Start region 19 */"


@pytest.mark.parametrize(
    ("behind", "slots"),
    [
        # One empty bundle stands for all remaining slots; more work of the branch's own region may come before it.
        (("", _OWN + _START), 1),
        ((_MOVED_UP + _END, _OWN + _END, "", _START), 3),
        ((_OWN + _END, "", "", _OWN + _END, "", _OWN, _OWN), 5),
        (("", TRANSFER, "", _START), 3),
        (("", "%2 = vsyncpa [#allocation11], 1", _OWN, _OWN, _OWN, _OWN + _END, _OWN), 1),
        ((_OWN + _END, _MOVED_UP, _MOVED_UP, "", _OWN, _OWN, _OWN), 4),
        # No branch stands in the slots of another branch, whose slots may be empty too.
        ((_MOVED_UP, "", "%3 = sbr.rel (%p1_p2) target = $region21", "", _START), 2),
        # None was left out: bundles behind an empty one come from behind the branch, or the region ends here.
        ((_MOVED_UP, "", _MOVED_UP, _MOVED_UP, _MOVED_UP, _MOVED_UP + _END, _OWN), 6),
        (("", "", _OWN, _OWN, "", _OWN + _END, _OWN + _START), 6),
        ((_MOVED_UP, "", "", "", "", TRANSFER + _END, _OWN), 6),
        ((_OWN, _OWN, _OWN, _OWN, _OWN, _OWN + _END, _OWN), 6),
        (("",) * 9, 6),
    ],
)
def test_on_the_newest_chip_delay_slots_are_found_by_what_stands_in_them(behind: tuple[str, ...], slots: int) -> None:
    bundles = program("%1 = sbr.rel (%p1_p0) target = $region20", *behind).bundles
    assert delay_slots(bundles, 0, machine_of(chip("v7x"))) == slots


@pytest.mark.parametrize(("transfers", "ends"), [(3, True), (2, False)])
def test_a_loop_whose_turns_wait_for_one_transfer_each_ends_where_each_is_started(transfers: int, ends: bool) -> None:
    """As the compiler writes a pipeline's loop for the newest chip: the next turn's buffer is copied in the slots."""
    start = "%2 = dma.hbm_to_vmem [thread:$0]  %s1_s1, 64, %s1_s1, [#allocation1 + $0x{}]"
    _, calls, reason = module(
        "%s1_s1 = smov 0  ;;  %s1_s4 = smov 0",
        *(start.format(number) for number in range(transfers)),
        "%s1_s6 = scalar_lea.sflag [#allocation1], %s1_s4 @ /* Start region 7 */",
        "%3 = dma.done.wait %s1_s6, 64  ;;  %s1_s5 = sadd.s32 1, %s1_s4",
        "%4 = vsyncadd %s1_s6, 4294967232  ;;  %p1_p0 = scmp.ge.s32.totalorder %s1_s5, 3",
        "%5 = sbr.rel (!%p1_p0) target = $region7",
        "%s1_s8 = smov (%p1_p0), %s1_s5 @ /* End region 7 */",
        "%s1_s4 = smov %s1_s5 @ /* End region 6 */",
        "",
        CALL.format("a") + " @ /* Start region 8 */",
        chip_name="v7x",
    )
    if ends:
        assert (calls, reason) == ((("a", 1),), "")
    else:
        assert "can never be satisfied: it has 0 and no transfer is under way" in reason


def test_equal_code_is_emitted_once_and_found() -> None:
    text = """HloModule m

ENTRY %main (x: s32[8]) -> s32[8] {
  %x = s32[8]{0:T(128)} parameter(0)
  %a = s32[8]{0:T(128)} copy(%x), metadata={op_name="one"}
  %c = s32[8]{0:T(128)} copy(%x), metadata={op_name="two"}
  ROOT %d = s32[8]{0:T(256)} copy(%a)
}
"""
    assert module(CALL.format("a"), CALL.format("c"), hlo=text)[1:] == ((("a", 2),), "")
    assert (
        "neither its schedule nor that of an equal instruction is in the dump"
        in module(CALL.format("a"), CALL.format("d"), hlo=text)[2]
    )


_CORE = "%s1_s3 = sld [smem:[#allocation5]] /* core id */"
_LATE, _DELAY = (_CORE, "%p1_p0 = scmp.eq.s32.totalorder %s1_s3, 1"), "%1 = vdelay (%p1_p0), 100"


def test_cores_wait_for_each_other_at_barriers() -> None:
    barrier = "%v1_v0 = vpop.ccrf"
    alone, _, _ = module(*_LATE, _DELAY, CALL.format("a"), chip_name="v5p")
    cycles, _, reason = module(*_LATE, _DELAY, barrier, CALL.format("a"), chip_name="v5p")
    assert reason == ""
    assert cycles == alone + 1 + 100, "core 0 waits for core 1"
    jump = ("%2 = sbr.rel (%p1_p0) target = $region9", *_SLOTS)
    assert "waits for it" in module(*_LATE, *jump, barrier, "@ /* Start region 9 */", chip_name="v5p")[2]


def test_a_signal_to_the_other_core_and_a_wait_for_its_own_are_a_barrier_on_v4() -> None:
    signal, decrement = "%2 = vsyncadd.remote %s1_s3, 1", "%4 = vsyncadd [#allocation9], 4294967295"
    wait = "%3 = vwait.ge.trace [#allocation9], 1 /* barrier-megacore-wait */"
    alone, _, _ = module(*_LATE, _DELAY, CALL.format("a"), chip_name="v4")
    cycles, _, reason = module(*_LATE, _DELAY, signal, wait, decrement, CALL.format("a"), chip_name="v4")
    assert reason == ""
    assert cycles == alone + 3 + 100, "core 0 waits for core 1"
    # Without the wait, the signal is for something else; the wait alone is for a signal that never comes.
    assert "another chip" in module(*_LATE, _DELAY, signal, decrement, CALL.format("a"), chip_name="v4")[2]
    assert "can never be satisfied" in module(*_LATE, _DELAY, wait, decrement, CALL.format("a"), chip_name="v4")[2]


def test_what_one_core_copies_to_the_other_both_wait_for_on_v4() -> None:
    first, second = (f"%p{core}_p{core} = scmp.eq.s32.totalorder %s1_s3, {core}" for core in (0, 1))
    wait = "%{} = dma.done.wait (%p{}_p{}), [#allocation{}], {} /* all-reduce-megacore-wait */"
    copy = (
        "%6 = dma.general (%p1_p1), /*src=*/[#allocation0], /*size_in_granules=*/256, /*dst=*/[#allocation13], "
        "/*dst_syncflagno=*/[#allocation9], /*src_syncflagno=*/[#allocation7], /*stridedescaddr=*/0, "
        "/*overrides=*/%s1_s3, /*dst_syncflagno_1=*/0 /* vmem-to-vmem */"
    )
    ended = "%{} = vsyncadd (%p{}_p{}), [#allocation{}], 4294967040"
    signal = "%8 = vsyncadd.remote (%p0_p0), %s1_s3, 4294967295"
    wait_for_signal = "%9 = vwait.eq.trace (%p1_p1), [#allocation8], 0"

    def summed(granules: int) -> tuple[int | None, str]:
        sent = (
            "%4 = vwait.ne.trace (%p1_p1), [#allocation8], 2",
            "%5 = vsyncadd (%p1_p1), [#allocation8], 1",
            copy,
            wait.format(7, 1, 1, 7, granules),
            ended.format(10, 1, 1, 7),
            wait_for_signal,
        )
        received = wait.format(11, 0, 0, 9, granules), ended.format(12, 0, 0, 9), signal
        cycles, _, reason = module(_CORE, first, second, *sent, *received, CALL.format("a"), chip_name="v4")
        return cycles, reason

    little, much = summed(256), summed(2560)
    assert (little[1], much[1]) == ("", "")
    assert present(much[0]) > present(little[0]) > 0
    # A wait of another name is for a copy that no core here makes.
    nameless = wait.format(11, 0, 0, 9, 256).partition(" /*")[0]
    assert "can never be satisfied" in module(_CORE, first, nameless, CALL.format("a"), chip_name="v4")[2]


# --- what cannot be, and what a profile shows --------------------------------------------------


def test_a_simulation_beyond_the_chip_is_called_wrong(tmp_path: Path) -> None:
    sound = run("v6e-full-4096", tmp_path)
    unit, breakdown = sound.units[0], present(sound.breakdown)

    def complaints(**changes: Any) -> tuple[str, ...]:
        return impossibilities(dataclasses.replace(sound, **changes), chip("v6e"))

    assert complaints() == ()
    # Beyond the peak of the narrowest type: a simulation does not say which types the program multiplies.
    assert "MXUs" in complaints(seconds=present(sound.mxu_flops) / 4000e12)[0]
    assert "HBM" in complaints(hbm_read_bytes=10**12)[0]
    crowded = dataclasses.replace(unit, executed_slots=unit.offered_slots + 1)
    assert "slots" in complaints(units=(crowded,))[0]
    for part in ("parts", "lines"):
        lossy = dataclasses.replace(breakdown, **{part: getattr(breakdown, part)[1:]})
        assert f"the {part} of its time" in complaints(breakdown=lossy)[0]
    assert "busy" in complaints(units=(dataclasses.replace(unit, busy_cycles=1e12),))[0]


def test_the_plus_minus_is_wider_than_what_ratios_are_compared_with(tmp_path: Path) -> None:
    result = run("v6e-full-4096", tmp_path)
    seconds = present(result.seconds)
    assert not result.unknown
    assert result.plus_minus_seconds == pytest.approx(1.2 * result.relative_uncertainty * seconds)
    calls = sum(op.calls for op in result.ops)
    assert result.relative_uncertainty == relative_uncertainty("v6e", seconds / calls)


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["libtpu-0.0.42.1", "libtpu-0.0.50.1"])
@pytest.mark.parametrize("chip_name", ["v5e", "v6e"])
def test_quotients_and_remainders_are_those_of_jax(compiler: str, chip_name: str, tmp_path: Path) -> None:
    """Constants and variables, positive and negative, in a kernel's body and in its index maps."""
    steps, row_bytes = 48, 128 * 2
    places = jnp.arange(steps, dtype=jnp.int32)
    copied = sum(8 * number * int(quotient(places).sum()) for number, quotient in enumerate(QUOTIENTS, 1))
    windows = [int(place) for place in places // 3 + 8 * (places % 3)]
    fetched = 1 + sum(window != other for window, other in itertools.pairwise(windows))
    simulation = simulate.run(unpack(compiler, f"{chip_name}-divided-1024", tmp_path), chip(chip_name))
    assert (simulation.unknown, simulation.offences) == ((), ())
    assert simulation.hbm_read_bytes == (copied + 8 * fetched) * row_bytes
    assert simulation.hbm_written_bytes == 8 * steps * row_bytes
