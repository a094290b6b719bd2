"""The scores of a step: their size, the tiles of an unrolled body, and the registers that they do not fit."""

import gzip
import re
from dataclasses import replace
from pathlib import Path

from evidence_examples import V5E, advised, evidence, simulation
from narrowing import present
from rule_examples import rowwise, saved, with_call, with_counts, with_table

from harness.advice import score_block
from harness.advice.diagnose import observe
from harness.advice.report import report
from harness.advice.rules.registers import score_registers
from harness.records import Array, Report
from harness.render import cycle_breakdown
from harness.render.report_sections import result
from harness.render.sections import screen

SCHEDULES = Path(__file__).parents[1] / "fixtures" / "schedules"


def regime(figures: Report) -> str:
    return screen(result(figures), 100).splitlines()[1]


def remark(number: int, **changes: int) -> str:
    run = simulation(1.2e-3, executed_spills=number)
    line = present(score_block.score_block(with_counts(evidence(1.2e-3, bq=2048, simulation=run), **changes)))
    assert line.count == 2048 * 256 * 4
    return line.remark


def test_the_score_block_is_a_float32_for_each_pair() -> None:
    assert remark(0) == ""
    assert remark(5) == ("the scores of a step are 2,048 x 256 x 4 B = 2.00 MiB; the vector registers hold 256.0 KiB")
    assert "= 2.00 MiB, in 8 tiles of 256.0 KiB;" in remark(5, matmul=16)


def test_only_attention_has_one() -> None:
    assert score_block.score_block(rowwise(1e-3)) is None
    assert score_block.score_block(evidence(1.2e-3, trace=None)) is None
    assert score_block.score_block_bytes(with_table(evidence(1.2e-3))) == 128 * 256 * 4


def test_a_small_mask_in_smem_is_no_query_block() -> None:
    """Splash attention hands the kernel tables of int8 before its queries."""
    base = with_table(evidence(1.2e-3))
    table, *others = present(base.trace).pallas_calls[0].windows
    mask = replace(table, array=Array(name="block_mask", shape=(1, 4, 4), dtype="int8"), memory_space="smem")
    masked = with_call(base, windows=(replace(mask, block_shape=(1, 4, 4)), *others))
    assert score_block.score_block_bytes(masked) == 128 * 256 * 4


def test_scores_are_counted_by_the_smaller_of_two_estimates() -> None:
    """Matmul FLOPs hold the padding of an operand, exponentials those that rescale sums."""
    record = saved("naive-2048x1024-v5e")
    seen = observe(record, report(record, V5E), 1e-3)
    flops = present(present(seen.run).mxu_flops)
    padded = replace(seen, run=replace(present(seen.run), mxu_flops=round(1.56 * flops)))
    exponentials = sum(line.exponentials for line in seen.lines)
    assert score_registers(seen) == flops / (4 * 128) / 1024 < exponentials
    assert score_registers(padded) == exponentials


def test_registers_of_bfloat16_exponentials_are_no_fewer_scores() -> None:
    """Each holds two; the problem says how many exponentials it cannot do without."""
    record = saved("naive-2048x1024-v5e")
    work = replace(record.problem.work, exponentials=2**40)
    packed = replace(record, problem=replace(record.problem, work=work))
    assert score_registers(observe(packed, report(record, V5E), 1e-3)) == 2**30
    on_two_cores = replace(observe(packed, report(record, V5E), 1e-3), report=replace(report(record, V5E), chip="v5p"))
    assert score_registers(on_two_cores) == 2**29


def test_no_schedule_names_a_register_beyond_the_last() -> None:
    """The size of the register file, from what libtpu allocates on v5e, v5p, v6e and v7x."""
    numbers: dict[str, int] = {}
    for path in SCHEDULES.glob("*/*-1024*/1-*final_bundles.txt.gz"):
        registers = [
            int(register) for register in re.findall(r"%v\d+_v(\d+)", gzip.decompress(path.read_bytes()).decode())
        ]
        numbers[path.parent.name] = max(registers, default=0)
    assert max(numbers.values()) + 1 == score_block.REGISTERS_BYTES // 4096


def test_the_report_has_it_beside_the_spills_of_a_real_run() -> None:
    figures = report(saved("naive-2048x1024-v5e"), V5E)
    lines = screen(cycle_breakdown.cycles(saved("naive-2048x1024-v5e"), figures, {}, full=False), 200).splitlines()
    spilling = " ".join(lines).partition("Simulated spilling:")[2]
    assert "the scores of a step are 2,048 x 1,024 x 4 B = 8.00 MiB; the vector registers hold 256.0 KiB" in spilling


def test_the_spills_that_are_advised_about_come_with_it() -> None:
    run = simulation(0.8e-3, executed_spills=200_000, executed_fills=200_000)
    hints = advised(evidence(0.8e-3, bq=2048, bkv=512, simulation=run))
    spills = next(hint for hint in hints if hint.rule == "spills")
    assert "the scores of a step are 2,048 x 512 x 4 B = 4.00 MiB; the vector registers" in spills.observation


def test_latency_bound_says_which_side_of_the_ridge() -> None:
    slow = report(evidence(7e-3), V5E)
    assert regime(slow) == (
        "REGIME: LATENCY-BOUND  BW=18.9%  intensity=128 FLOPs/byte  (memory side: 1.9x below ridge point)"
    )
    above = report(evidence(7e-3, bq=2048), V5E)
    assert regime(above).endswith("(compute side: 7.6x above ridge point)")
    assert "side" not in regime(report(evidence(2.16e-3), V5E))
