"""Reading the compiler's schedules: saved dumps of two compilers, and the forms that single lines take."""

import re
from pathlib import Path

import pytest
from schedule_examples import ATTENTION, NEWEST, unpack

from harness.dumps.llo import Op, called_operands, parse_schedule, parse_utilisation, read_module
from harness.errors import RatchetError


def only_op(line: str) -> Op:
    """The only operation of a one-bundle schedule."""
    (bundle,) = parse_schedule("test", f"   0x1   : > {{ {line} }} /* End region 3 */\n").bundles
    (op,) = bundle.ops
    return op


@pytest.mark.parametrize(("compiler", "case"), ATTENTION)
def test_saved_dumps_are_read_whole(compiler: str, case: str, tmp_path: Path) -> None:
    dump = read_module(unpack(compiler, case, tmp_path))
    (schedule,) = dump.schedules
    assert [bundle.address for bundle in schedule.bundles] == list(range(len(schedule.bundles)))
    (table,) = dump.utilisations
    assert table is not None
    assert len(table.rows) == len(schedule.bundles)
    assert table.units[0] == "MXU"
    assert all(used <= slots for row in table.rows for used, slots in zip(row, table.slots, strict=True))
    assert dump.calls == (schedule.name,)
    assert not dump.remarks
    assert schedule.pipeline_depth == 2
    assert schedule.grid_exit is not None
    assert any(op.opcode == "scmp.ge.s32.totalorder" for op in schedule.bundles[schedule.grid_exit].ops)


LONG_NAME = "a_kernel_" + "with_its_blocks_" * 16 + "1"


def _with_a_long_name(directory: Path, name: str) -> None:
    """Calls the op so in all files, and cuts their names as the compiler does: to 250 characters with a number."""
    for number, path in enumerate(sorted(directory.iterdir())):
        path.write_text(re.sub(rf"%{re.escape(name)}\b", f"%{LONG_NAME}", path.read_text()))
        stamp, op, kind = path.name.partition(f"-{name}-")
        if op:
            tail = f"-{5947558392244665 + number}-{kind}"
            path.rename(directory / (f"{stamp}-{LONG_NAME}"[: 250 - len(tail)] + tail))


def test_a_name_that_the_compiler_cuts_off_is_the_ops(tmp_path: Path) -> None:
    before = read_module(unpack(*ATTENTION[0], tmp_path))
    (name,) = before.calls
    _with_a_long_name(tmp_path, name)
    dump = read_module(tmp_path)
    assert dump.calls == tuple(schedule.name for schedule in dump.schedules) == (LONG_NAME,)
    assert (dump.utilisations, dump.remarks) == (before.utilisations, ())


def test_a_cut_name_that_fits_two_ops_stays(tmp_path: Path) -> None:
    (name,) = read_module(unpack(*ATTENTION[0], tmp_path)).calls
    _with_a_long_name(tmp_path, name)
    (tmp_path / "1-TLP-hlo.txt").write_text(f"HloModule two\n%{LONG_NAME}0 = f32[8]{{0}} fusion(%x)\n")
    (remark,) = read_module(tmp_path).remarks
    assert re.search(r"does not call a_kernel_.*: it is not counted", remark)


def test_matmuls_carry_the_line_they_come_from(tmp_path: Path) -> None:
    dump = read_module(unpack(NEWEST, "v5e-128x256-2048", tmp_path))
    ops = [op for bundle in dump.schedules[0].bundles for op in bundle.ops]
    matmuls = {op.source for op in ops if op.opcode.startswith("vmatmul")}
    assert len(matmuls) == 2
    assert all(source.startswith("kernel.py:") for source in matmuls)


def test_forms_of_one_operation() -> None:
    added = only_op("%s12_s3 = sadd.s32 4294967295, %s7_s22 /* stage = 1 */")
    assert (added.destination, added.opcode, added.predicate) == ("s3", "sadd.s32", "")
    assert (added.arguments, added.source, added.note) == ("4294967295, s22", "", "")
    assert (
        only_op('%9 = sbr.rel (!%p7_p5) /* loc("/a/b/kernel.py":13:5 to :35) */ target = $region48').predicate == "!p5"
    )
    assert only_op('%v8_v0 = vexp2.f32 %v7_v1 /* loc("/a/b/kernel.py":13:5) */').source == "kernel.py:13"
    moved = only_op("%s9_s24 = smov (%p1_p0, %s8_s7), 0")
    assert (moved.destination, moved.predicate, moved.arguments) == ("s24", "", "(p0, s7), 0")
    loaded = only_op("%s5_s7 = sld [smem:[#allocation10]] (!%p1_p0) /* id */")
    assert (loaded.predicate, loaded.arguments) == ("!p0", "[smem:[#allocation10]]")
    operand = only_op("%s3_s0 = inlined_call_operand.hbm [shape: bf16[16,128], index: 0, shape index: {}] /* {u8} */")
    assert operand.operands == ("[shape: bf16[16,128], index: 0, shape index: {}]",)
    assert only_op("%v1_v2 = vpop.f32.mrb[4].mxu0").opcode == "vpop.f32.mrb[4].mxu0"


PLAIN = (
    "%v8_v0 = vexp2.f32 %v7_v1",
    "%9 = vmatmul.mubr.bf16.gmra.mxu0 %v7_v1",
    "%v1_v2 = vpop.f32.mrb[4].mxu0",
    "%v3_v63 = vld [vmem:[#allocation90_spill] sm:$0xff]",
    "%v8_vm0 = vcmp.eq.s32.totalorder %v7_v1, 3",
    "%v8_v0 = vmul.f32 -0.5, %v7_v1",
)


@pytest.mark.parametrize("line", PLAIN)
@pytest.mark.parametrize("location", ["", ' /* loc("/a/b/kernel.py":13:5 to :35) */'])
def test_the_common_form_and_any_other_are_read_alike(line: str, location: str) -> None:
    assert only_op(line + location) == only_op(f"{line}{location} /* a remark */")._replace(
        text=only_op(line + location).text
    )
    assert only_op(line + location).arguments == only_op(f"{line}{location} /* a remark */").arguments


def test_a_comment_cannot_hide_or_forge_an_operation() -> None:
    forged = 'loc("a */ ;; %v1_v2 = vadd.f32 %v3_v4 /* b;;c.py":7:5)'
    (bundle,) = parse_schedule(
        "test", f"     0   :  {{ %v8_v0 = vexp2.f32 %v7_v1 /* {forged} */ ;; %v1_v1 = vlaneseq }}\n"
    ).bundles
    assert [op.opcode for op in bundle.ops] == ["vexp2.f32", "vlaneseq"]
    assert bundle.ops[0].source == "__b__c.py:7"


def test_bundles_regions_and_comments_over_several_lines() -> None:
    text = (
        "     0   :  { %s1_s0 = smov 0 }\n"
        "   0x1 LB: > { %5 = dma.hbm_to_vmem [thread:$0]  (%p1_p2), /*hbm=*/%s1_s0, 64, %s1_s1, %s1_s2 /* \n"
        "base_bounds: (1, 1)\n} */  ;;  %s2_s0 = smov 1 } /* Start region 9 :: Start/End empty region 4 */\n"
        " 0x102 PF: > > {} /* End region 9 */\n"
    )
    bundles = parse_schedule("test", text).bundles
    assert [bundle.address for bundle in bundles] == [0, 1, 0x102]
    assert [len(bundle.ops) for bundle in bundles] == [1, 2, 0]
    assert bundles[1].regions == (9, 4)
    assert bundles[1].ops[0].predicate == "p2"


def test_utilisation_table() -> None:
    table = parse_utilisation("== CAPACTIY:\nMXU, VLOAD:FILL\n  4  3\n== UTILIZATION:\n0 1\n2 0\n")
    assert (table.units, table.slots, table.rows) == (("MXU", "VLOAD:FILL"), (4, 3), ((0, 1), (2, 0)))


@pytest.mark.parametrize("text", ["", "MXU\n1\nUTILIZATION:\nx\n", "MXU, EUP\n1 1\nUTILIZATION:\n1\n"])
def test_a_damaged_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|invalid literal"):
        parse_utilisation(text)


def test_text_that_is_no_operation_is_kept() -> None:
    (bundle,) = parse_schedule("test", "     0   :  { nonsense ;; %s1_s0 = smov 0 }\n").bundles
    assert [op.opcode for op in bundle.ops] == ["(unreadable)", "smov"]
    assert bundle.ops[0].arguments == "nonsense"


def test_a_directory_without_schedules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match="final_bundles") as caught:
        read_module(tmp_path / "missing")
    assert caught.value.kind == "no-dump"
    (tmp_path / "notes.txt").write_text("no schedule")
    with pytest.raises(RatchetError, match="1 other files"):
        read_module(tmp_path)


def test_the_top_level_programs_calls_are_read(tmp_path: Path) -> None:
    (tmp_path / "1-copy.1-03-final_bundles.txt").write_text("     0   :  { %s1_s0 = smov 0 }\n")
    (tmp_path / "1-copy.9-03-final_bundles.txt").write_text("     0   :  { %s1_s0 = smov 0 }\n")
    (tmp_path / "0-TLP-03-final_bundles.txt").write_text(
        "     0   :  { %1 = inlined_call /* <late-initialization> */ }\n"
        "   0x1   :  { %2 = inlined_call %s1_s0 /* %copy.1 = copy(%a) */ } /* Start region 7 */\n"
        "   0x2   :  { %3 = sbr.rel (%p1_p0) target = $region7 }\n"
        "   0x3   :  { %4 = call %s1_s0 /* %fusion.2 = fusion(%a) */ }\n"
    )
    dump = read_module(tmp_path)
    assert dump.calls == ("copy.1", "fusion.2")
    assert called_operands(dump.top.bundles[1].ops[0]) == ("a",)
    assert dump.remarks == ("the top-level program does not call copy.9: it is not counted",)
