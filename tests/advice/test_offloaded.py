"""A program without a latency because of the SparseCore is explained by the lines of the offloaded operations."""

from dataclasses import replace
from pathlib import Path

from evidence_examples import evidence

from harness.advice import offloaded
from harness.advice.report import advise, report
from harness.candidate import Candidate
from harness.hardware import chip
from harness.hlo import parse
from harness.judge.simulate.channel import SPARSE_CORE
from harness.loop.package_kernel import for_kernel
from harness.loop.tuning_table import fill
from harness.records import Evidence

# How XLA hands the table of megablox to the SparseCore (libtpu 0.0.42.1): the call on the SparseCore calls once more.
HLO = """HloModule m

FileNames
1 "/venv/lib/python3.11/site-packages/jax/experimental/pallas/ops/tpu/megablox/gmm.py"

FunctionNames
1 "make_group_metadata"

FileLocations
1 {file_name_id=1 function_name_id=1 line=187 end_line=191 column=14 end_column=3}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%copied (a: s32[15]) -> s32[15] {
  %a = s32[15]{0:T(128)} parameter(0)
  ROOT %copy = s32[15]{0:T(128)} copy(%a)
}, execution_thread="sparsecore"

%outer (p: s32[15]) -> s32[15] {
  %p = s32[15]{0:T(128)} parameter(0)
  %inner-start = ((s32[15]{0:T(128)}), s32[15]{0:T(128)}, u32[]{:S(8)}) call-start(%p), \
async_execution_thread="sparsecore", to_apply=%copied
  ROOT %inner-done = s32[15]{0:T(128)} call-done(%inner-start)
}, execution_thread="sparsecore"

ENTRY %main (q: s32[15]) -> s32[15] {
  %q = s32[15]{0:T(128)} parameter(0)
  %start = ((s32[15]{0:T(128)}), s32[15]{0:T(128)}, u32[]{:S(8)}) call-start(%q), \
async_execution_thread="sparsecore", to_apply=%outer, metadata={op_name="jit(gmm)/scatter-add" stack_frame_id=1}
  ROOT %done = s32[15]{0:T(128)} call-done(%start)
}
"""
HANDED = "XLA hands operations (scatter-add at gmm.py line 187) to the SparseCore, whose time is not simulated"


def without_latency(reason: str) -> Evidence:
    judged = evidence(0.5e-3)
    assert judged.latency is not None
    latency = replace(judged.latency, seconds=None, plus_minus_seconds=None, reasons=(reason,))
    return replace(judged, latency=latency, dump_directory="profile_data/0001/dumps")


def test_the_operations_of_the_sparsecore_have_their_lines() -> None:
    assert offloaded.operations(parse.module(HLO)) == ("scatter-add at gmm.py line 187",)
    unnamed = HLO.replace(', metadata={op_name="jit(gmm)/scatter-add" stack_frame_id=1}', "")
    assert offloaded.operations(parse.module(unnamed)) == ("start without a source line",)
    assert offloaded.operations(parse.module(HLO.replace("sparsecore", "host"))) == ()


def test_the_first_hint_names_the_lines_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "profile_data" / "0001" / "dumps").mkdir(parents=True)
    (tmp_path / "profile_data" / "0001" / "kernel.hlo.txt").write_text(HLO)
    judged = without_latency(f"balanced: TLP: {SPARSE_CORE}; there is no range either")
    advice = for_kernel(advise(judged, report(judged, chip(judged.chip))), judged, Candidate(text=b""), tmp_path)
    assert [hint.observation for hint in advice] == [f"there is no latency: {HANDED}"]
    assert advice[0].suggestion == offloaded.REMEDY
    assert offloaded.explain(judged, tmp_path) == f"{HANDED}: {offloaded.REMEDY}"
    # A table whose settings have neither a latency nor a range says the same.
    assert fill._offloaded({(): judged}, tmp_path) == f"; {HANDED}: {offloaded.REMEDY}"
    assert fill._offloaded({(): evidence(0.5e-3)}, tmp_path) == ""


def test_without_the_module_the_hint_names_no_line(tmp_path: Path) -> None:
    judged = without_latency(SPARSE_CORE)
    assert offloaded.explain(judged, tmp_path).startswith("XLA hands operations to the SparseCore")


def test_any_other_reason_has_no_such_hint(tmp_path: Path) -> None:
    for judged in (without_latency("a scalar taken from a vector register"), evidence(0.5e-3)):
        assert offloaded.hints(judged, tmp_path) == ()
        assert offloaded.explain(judged, tmp_path) == ""
