"""The use of a simulated run's cycles: parts and lines on real schedules, and planted faults by name."""

import gzip
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from narrowing import present
from schedule_examples import NEEDS_MORE, NEWEST, SCHEDULES, unpack
from simulated_examples import SMALL, SMALL_STEPS, run

from harness.dumps.llo import ModuleDump, Schedule, parse_schedule, parse_utilisation
from harness.hardware import chip
from harness.hlo import parse
from harness.hlo.tables import Tables
from harness.judge.simulate.core import run_cores
from harness.judge.simulate.cycle_breakdown import breakdown
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.module import run as simulate
from harness.judge.simulate.source_lines import ascribed
from harness.judge.simulate.structure import unit_of, vector_spill
from harness.records import CycleBreakdown, PartKind, Simulation

pytestmark = pytest.mark.long

REGISTER_BYTES = 8 * 128 * 4


def taken_apart(result: Simulation) -> CycleBreakdown:
    return present(result.breakdown)


def cycles(breakdown: CycleBreakdown, kind: PartKind, name: str | None = None) -> float:
    return sum(part.cycles for part in breakdown.parts if part.kind == kind and name in (None, part.name))


# Other tests compare the older compiler's schedules with the same sums.
CASES = [(NEWEST, folder.name) for folder in sorted((SCHEDULES / NEWEST).iterdir()) if folder.name not in NEEDS_MORE]
CASES.append(("libtpu-0.0.42.1", "v5e-by-hand-4096"))


@pytest.mark.parametrize(("compiler", "case"), CASES)
def test_parts_and_lines_sum_to_the_total(compiler: str, case: str, tmp_path: Path) -> None:
    result = run(case, tmp_path, compiler=compiler)
    parts = taken_apart(result)
    assert parts.cycles == result.cycles
    assert sum(line.cycles for line in parts.lines) == result.cycles
    assert min(part.cycles for part in parts.parts) > 0
    assert len({(part.kind, part.name) for part in parts.parts}) == len(parts.parts)
    assert cycles(parts, "issuing") + cycles(parts, "empty bundles") == result.bundle_cycles
    assert cycles(parts, "empty bundles") == result.executed_empty_bundles
    # Two cores share the work: slots and steps of the simulation are both cores'.
    cores = chip(result.chip).cores
    assert parts.spilled_bytes * cores == result.executed_spills * REGISTER_BYTES
    assert parts.filled_bytes * cores == result.executed_fills * REGISTER_BYTES
    assert parts.spilled_bytes == sum(line.spilled_bytes for line in parts.lines)
    assert result.executed_steps == (None if parts.steps is None else parts.steps * cores)
    operations: Counter[str] = Counter()
    for line in parts.lines:
        operations.update(dict(line.operations))
    for unit in result.units:
        # The table counts for how long an MXU or XLU is taken; here operations count. Masks move from unit to unit.
        if unit.name in ("VPOP", "EUP", "VSTORE"):
            assert operations[unit.name] * cores == pytest.approx(unit.executed_slots, rel=0.01), unit.name


def test_without_lines_everything_else_is_the_same(tmp_path: Path) -> None:
    folder = unpack(NEWEST, "v5e-2048x1024-4096", tmp_path)
    whole = simulate(folder, chip("v5e"))
    plain = simulate(folder, chip("v5e"), with_lines=False)
    assert taken_apart(whole).lines
    assert plain == replace(whole, breakdown=replace(taken_apart(whole), lines=()))


@pytest.mark.parametrize("case", [SMALL, "v6e-1024x512-2048", "v7x-resident-2048"])
def test_spills_are_recognised_as_in_the_compilers_table(case: str) -> None:
    folder = SCHEDULES / NEWEST / case
    schedule, table = (
        gzip.decompress(next(folder.glob(f"1-*{part}*")).read_bytes()).decode() for part in ("bundles", "utilization")
    )
    utilisation = parse_utilisation(table)
    columns = [utilisation.units.index(name) for name in ("VLOAD:FILL", "VSTORE:SPILL", "VPOP")]
    for bundle, row in zip(parse_schedule("kernel", schedule).bundles, utilisation.rows, strict=True):
        kinds = Counter(vector_spill(op) for op in bundle.ops)
        counts = [kinds["fill"], kinds["spill"], sum(unit_of(op.opcode) == "VPOP" for op in bundle.ops)]
        assert counts == [row[column] for column in columns], f"bundle {bundle.address:#x}"


def test_almost_all_cycles_of_a_large_kernel_have_a_line(tmp_path: Path) -> None:
    result = run("v5e-2048x1024-4096", tmp_path)
    parts = taken_apart(result)
    nowhere = sum(line.cycles - line.wait_cycles for line in parts.lines if not line.line)
    assert nowhere < 0.03 * parts.cycles
    assert {line.file for line in parts.lines} == {"", "kernel.py"}
    # The two products, and nothing else, are computed by the MXUs.
    assert len([line for line in parts.lines if dict(line.operations).get("MXU")]) == 2
    assert parts.spilled_bytes > 0
    assert not [line for line in parts.lines if not line.line and line.spilled_bytes]
    assert 0 < parts.spill_cycles < cycles(parts, "issuing")


# --- planted faults ----------------------------------------------------------------------------


def test_a_planted_spill_is_found_with_its_line_and_bytes(tmp_path: Path) -> None:
    """The result of the body's first product is saved to VMEM in the next bundle."""
    base = taken_apart(run(SMALL, tmp_path / "base"))
    lines = []

    def spill(text: str) -> str:
        product = present(re.search(r"%v\d+_(v\d+) = vmul\.f32[^;}]*loc\(\"kernel\.py\":(\d+)", text))
        lines.append(int(product[2]))
        end = text.index("}", text.index("\n", product.end()))
        return f"{text[:end]} ;;  %0 = vst [vmem:[#allocation99_spill] sm:$0xff] %v0_{product[1]}{text[end:]}"

    parts = taken_apart(run(SMALL, tmp_path / "spilling", spill))
    assert parts.cycles == base.cycles, "the bundle was there before"
    assert parts.spilled_bytes - base.spilled_bytes == SMALL_STEPS * REGISTER_BYTES
    before = {line.line: line.spilled_bytes for line in base.lines}
    assert [line.line for line in parts.lines if line.spilled_bytes > before[line.line]] == lines


def test_single_buffering_is_a_wait_for_its_operands_in_every_step(tmp_path: Path) -> None:
    double = taken_apart(run("v5e-1024x512-2048", tmp_path / "double"))
    single = taken_apart(run("v5e-1024x512-2048-single", tmp_path / "single"))
    assert cycles(double, "operand wait", "k_ref.1") == cycles(double, "operand wait", "v_ref.1") == 0
    assert cycles(single, "operand wait", "k_ref.1") > 1000
    assert cycles(single, "operand wait", "v_ref.1") > 1000
    assert cycles(single, "operand wait", "q_ref.1") == 0, "its block is only fetched anew for the second query block"
    assert single.bubble_fraction > double.bubble_fraction
    for parts in (single, double):
        assert cycles(parts, "fill and drain", "q_ref.1") > 0
        assert cycles(parts, "fill and drain", "naive.1 output") > 0


def test_a_kernel_that_moves_its_data_by_hand_has_a_line_for_each_wait(tmp_path: Path) -> None:
    parts = taken_apart(run("v5e-by-hand-4096", tmp_path, compiler="libtpu-0.0.42.1"))
    waits = {part.name: part.cycles for part in parts.parts if part.kind == "operand wait"}
    assert set(waits) == {"x_0_.1", "by_hand.1 output"}
    assert waits["by_hand.1 output"] > 0.5 * parts.cycles, "it waits for every block that it writes"
    source = (Path(__file__).parents[2] / "fixtures" / "naive_attention.py").read_text().splitlines()
    (line,) = [number for number, text in enumerate(source, 1) if text.strip() == "write.wait()"]
    assert {cost.line: cost.wait_cycles for cost in parts.lines}[line] == waits["by_hand.1 output"]
    assert parts.steps is None


def test_every_core_of_a_chip_names_its_own_operands(tmp_path: Path) -> None:
    parts = taken_apart(run("v5p-512x512-2048", tmp_path))
    assert {part.name for part in parts.parts if part.kind == "fill and drain"} >= {"q_ref.1", "naive.1 output"}
    assert cycles(parts, "operand wait") == 0


def test_the_top_level_programs_copies_are_waits_for_parameters(tmp_path: Path) -> None:
    parts = taken_apart(run("v7x-resident-2048", tmp_path))
    waits = {part.name: part.cycles for part in parts.parts if part.kind == "operand wait"}
    assert set(waits) == {"q_ref.1", "k_ref.1", "v_ref.1"}
    assert cycles(parts, "launch") < min(waits.values())


def schedule(*bundles: str, name: str = "op") -> Schedule:
    lines = [f"   {i:#x}   : > {{ {text} }}" for i, text in enumerate(bundles)]
    return parse_schedule(name, "\n".join(lines).replace("0x0 ", "0 "))


def apart(*bundles: str, chip_name: str = "v5e") -> list[CycleBreakdown]:
    """The breakdowns of all cores that run one op of these bundles."""
    machine = machine_of(chip(chip_name))
    top = schedule("%1 = inlined_call /* %op = copy(%x) */", name="TLP")
    dump = ModuleDump(schedules=(schedule(*bundles),), utilisations=(None,), top=top, hlo="", remarks=())
    cores = run_cores(dump, machine, Tables(parse.read("")))
    assert [core.reason for core in cores] == [""] * machine.cores
    parts = [breakdown(core, machine, with_lines=True) for core in cores]
    for core, part in zip(cores, parts, strict=True):
        assert part.cycles == sum(line.cycles for line in part.lines) == core.cycles
    return parts


def at(line: int) -> str:
    return f'/* loc("kernel.py":{line}:1 to :2) */'


def test_stalls_belong_to_the_operation_that_waits() -> None:
    (parts,) = apart(
        f"%1 = vmatmul.bf16.gmra.mxu0 %v1_v0 {at(3)}  ;;  %v1_v7 = vadd.f32 %v1_v0, %v1_v0 {at(4)}",
        f"%2 = vmatmul.bf16.gmra.mxu0 %v1_v0 {at(5)}",
        "",
        f"%v1_v1 = vpop.f32.mrf.mxu0 {at(6)}  ;;  %v1_v8 = vadd.f32 %v1_v0, %v1_v0 {at(4)}",
        "%3 = vdelay 7",
    )
    lines = {line.line: line for line in parts.lines}
    # A matmul keeps its unit for 16.5 cycles (16 rows, 1/32 more), of which one is the next bundle's own.
    assert (lines[5].stall_cycles, cycles(parts, "unit stall", "MXU busy")) == (16, 16)
    # The first result is due `latency` cycles after the first bundle; the fourth would have issued at cycle 19.
    due = machine_of(chip("v5e")).matmul_latency_cycles - 19
    assert (lines[6].stall_cycles, cycles(parts, "unit stall", "MXU result")) == (due, due)
    assert cycles(parts, "unit stall", "delay") == 7
    assert cycles(parts, "empty bundles") == 1
    # Two bundles of two operations, the second with the empty one before it: which line gets the odd cycle is by order.
    assert [lines[n].issue_cycles for n in (3, 5)] == [1, 1]
    assert lines[4].issue_cycles + lines[6].issue_cycles == 2
    assert dict(lines[4].operations) == {"VALU": 2}


def test_a_reciprocal_is_no_exponential() -> None:
    (parts,) = apart(
        f"%1 = vpow2.f32 %v1_v0 {at(3)}",
        f"%v1_v1 = vpop.eup %1 {at(3)}",
        f"%2 = vrcp.f32 %v1_v1 {at(4)}",
        f"%v1_v2 = vpop.eup %2 {at(4)}",
    )
    lines = {line.line: line for line in parts.lines}
    assert [(lines[n].units["EUP"], lines[n].exponentials) for n in (3, 4)] == [(1, 1), (1, 0)]
    assert dict(lines[4].operations)["EUP rcp"] == 1
    assert "EUP rcp" not in lines[4].units


def test_waiting_for_the_other_core_is_a_part_of_its_own() -> None:
    first, second = apart(
        "%s1_s3 = sld [smem:[#allocation5]] /* core id */",
        "%p1_p0 = scmp.eq.s32.totalorder %s1_s3, 1",
        "%1 = vdelay (%p1_p0), 100",
        "%v1_v0 = vpop.ccrf",
        chip_name="v5p",
    )
    assert (cycles(first, "barrier wait"), cycles(second, "barrier wait")) == (100, 0)
    assert (cycles(first, "unit stall"), cycles(second, "unit stall")) == (0, 100)


def test_what_the_compiler_adds_belongs_to_the_line_it_works_for() -> None:
    costs = ascribed(
        schedule(
            f"%v1_v3 = vadd.f32 %v1_v1, %v1_v2 {at(3)}",
            "%1 = vst [vmem:[#allocation9_spill] sm:$0xff] /*vst_source=*/%v1_v3  ;;  %2 = vpow2.f32 %v1_v5",
            "",
            f"%v1_v4 = vld [vmem:[#allocation9_spill] sm:$0xff]  ;;  %v1_v6 = vpop.eup %2 {at(8)}",
            "%v1_v7 = vpack.c.bf16 %v1_v4, %v1_v4  ;;  %3 = vmatpush.bf16.mxu1 %v1_v6",
            f"%v1_v4 = vmov 0  ;;  %4 = vmatmul.bf16.gmra.mxu1 %v1_v7 {at(5)}",
        )
    )
    three, five, eight = (f"kernel.py:{line}" for line in (3, 5, 8))
    assert [bundle.operations for bundle in costs] == [
        (three,),
        (three, eight),
        (),
        (five, eight),
        (five, five),
        ("", five),
    ]
    assert costs[2].shared == (five, eight), "an empty bundle is the next one's"
