"""A kernel.py that calls a package's kernel is told to try its own constants, not to change the package's file."""

from dataclasses import replace
from pathlib import Path

from evidence_examples import V5E, evidence
from rule_examples import copied, good, rowwise, spilling, with_parts, with_run

from harness.advice.report import advise, report
from harness.advice.rules.counts import DO_WITHOUT, OUTPUT_READ
from harness.candidate import Candidate
from harness.loop.package_kernel import for_kernel
from harness.loop.untried_advice import UNRECORDED, who_tried
from harness.records import Array, Evidence, SourceFile, SuiteMember

WRAPPER = b"""from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

ROWS, NAME = 8, "text"
PAGES = 8
LIMIT = None
SCALE = 0.5
IS_FAST = True
"""
OWN = WRAPPER + b"\n\ndef kernel_fn(q):\n    return pl.pallas_call(body)(q)\n"


def package(judged: Evidence) -> Evidence:
    assert judged.trace is not None
    source = SourceFile(name="jax/experimental/pallas/ops/tpu/ragged_paged_attention/kernel.py", sha256="0" * 64)
    return replace(judged, trace=replace(judged.trace, sources=(source,)))


WAITING = with_parts(rowwise(0.5e-3), ("unit stall", "XLU result", 0.3))
SPILLING = package(with_run(WAITING, executed_spills=90_000, executed_fills=90_000))


def test_its_constants_are_what_to_try() -> None:
    before = advise(SPILLING, report(SPILLING, V5E))
    kinds = [hint.kind for hint in before]
    assert kinds.count("body") > 1
    hints = for_kernel(before, SPILLING, Candidate(text=WRAPPER), Path())
    first, *others = [hint for hint, kind in zip(hints, kinds, strict=True) if kind == "body"]
    assert first.suggestion == (
        "try the constants of kernel.py, which calls ragged_paged_attention/kernel.py: "
        '`ratchet.sh sweep "experiment: ..." --set PAGES=4,16`'
    )
    assert (first.kind, first.gain) == ("constants", None)
    in_a_copy = "possible only in a copy of ragged_paged_attention/kernel.py: "
    assert all(other.suggestion.startswith(in_a_copy) for other in others)
    assert [hint.observation for hint in hints] == [hint.observation for hint in before]


def test_no_sweep_is_advised_next_to_advice_to_stop_tuning_blocks() -> None:
    """The traffic takes 98.7 % of the bandwidth."""
    judged = package(with_run(rowwise(0.166e-3), executed_spills=90_000, executed_fills=90_000))
    advice = advise(judged, report(judged, V5E))
    first, *others = for_kernel(advice, judged, Candidate(text=WRAPPER), Path())
    assert first.rule == "memory floor"
    assert others
    assert not any("sweep" in hint.suggestion or "tried already" in hint.suggestion for hint in others)


def test_a_sweep_that_covered_these_values_is_not_advised_again() -> None:
    """Two of three constants were swept, as in the baseline of examples/attention-llama-70b-v7x."""
    kernel = b"Q = 8\nKV = 8\nC = 4\n"
    grid = [(("Q", q), ("KV", kv), ("C", c)) for q in ("4", "8", "16") for kv in ("4", "8", "16") for c in ("2", "4")]
    (words,) = {word for word in sweeps_of(kernel, *grid) if word.startswith("try ")}
    assert words.endswith('"experiment: ..." --set C=8`')
    assert not {word for word in sweeps_of(kernel, *grid, (("C", "8"),)) if word.startswith("try ")}
    # The present values stay in a grid of several constants.
    (words,) = {word for word in sweeps_of(kernel, (("Q", "4"),)) if word.startswith("try ")}
    assert words.endswith("--set Q=8,16 --set KV=4,8,16 --set C=2,4,8`")


def sweeps_of(kernel: bytes, *screened: tuple[tuple[str, str], ...]) -> set[str]:
    """The suggestions of changes of the code for a package's kernel; the longest axis is 8192."""
    before = advise(SPILLING, report(SPILLING, V5E))
    candidate = Candidate(text=kernel)
    settings = [(UNRECORDED, setting) for setting in screened]
    hints = for_kernel(before, SPILLING, candidate, Path(), lambda: who_tried(candidate, {}, settings))
    return {hint.suggestion for hint, old in zip(hints, before, strict=True) if old.kind == "body"}


def test_sizes_that_were_screened_or_fit_no_axis_are_left_out() -> None:
    kernel = b"PAGES = 8\nROWS = 8192\nLIMIT = 100000000\n"
    (words,) = {word for word in sweeps_of(kernel) if word.startswith("try ")}
    assert words.endswith("--set PAGES=4,8,16 --set ROWS=4096,8192 --set LIMIT=50000000,100000000,200000000`")
    (words,) = {word for word in sweeps_of(b"PAGES = 8\n", (("PAGES", "4"),)) if word.startswith("try ")}
    assert words.endswith("--set PAGES=16`")
    spent = sweeps_of(b"PAGES = 8\n", (("PAGES", "4"),), (("PAGES", "16"),))
    assert spent
    spent_words = "half and twice the values of PAGES were tried already or exceed every axis; "
    in_a_copy = "possible only in a copy of ragged_paged_attention/kernel.py: "
    assert all(words.startswith(f"{spent_words}{in_a_copy}") for words in spent)


def test_a_kernel_of_its_own_is_told_what_it_was_told() -> None:
    judged = package(spilling(0.8e-3, 120_000))
    advice = advise(judged, report(judged, V5E))
    assert for_kernel(advice, judged, Candidate(text=OWN), Path()) == advice
    assert for_kernel(advice, judged, Candidate(text=b"X = None\n"), Path()) == advice
    alone = advise(good(), report(good(), V5E))
    assert for_kernel(alone, good(), Candidate(text=WRAPPER), Path()) == alone


MODULE = """HloModule call

ENTRY main {
  args_1_.1 = bf16[16384,128]{1,0:T(8,128)(2,1)} parameter(1)
  args_0_.1 = bf16[16384,128]{1,0:T(8,128)(2,1)} parameter(0)
  copy.1 = bf16[16384,128]{0,1:T(8,128)(2,1)} copy(args_1_.1)
  naive.1 = bf16[16384,128]{0,1:T(8,128)(2,1)} custom-call(args_0_.1, copy.1), custom_call_target="tpu_custom_call"
  ROOT copy.2 = bf16[16384,128]{1,0:T(8,128)(2,1)} copy(naive.1)
}
"""


COLUMN = """HloModule call

ENTRY main {
  args_0_.1 = bf16[16384,128]{1,0:T(8,128)(2,1)} parameter(0)
  sums.1 = f32[16384,1]{1,0:T(8,128)} custom-call(args_0_.1), custom_call_target="tpu_custom_call"
  ROOT copy.2 = f32[16384,1]{0,1:T(1,128)} copy(sums.1)
}
"""


def test_copied_arrays_have_the_problems_names_where_the_module_is_still_there(tmp_path: Path) -> None:
    judged = replace(copied(evidence(0.9e-3)), dump_directory="profile_data/0001/dumps")
    advice = advise(judged, report(judged, V5E))
    assert for_kernel(advice, judged, Candidate(text=OWN), tmp_path) == advice
    (tmp_path / "profile_data" / "0001" / "dumps").mkdir(parents=True)
    (tmp_path / "profile_data" / "0001" / "kernel.hlo.txt").write_text(MODULE)
    hints = for_kernel(advice, judged, Candidate(text=OWN), tmp_path)
    (copies,) = [hint for hint in hints if hint.rule == "copies"]
    assert copies.observation.endswith(
        "; copied: k (bf16[16384,128], 8.4 MB read and written in all, in another layout for naive.1 "
        "(tpu_custom_call)), o (bf16[16384,128], 8.4 MB read and written in all, in another layout for the result)"
    )
    # The kernel reads no output too early: that would be a copy in the same layout.
    assert OUTPUT_READ in next(hint for hint in advice if hint.rule == "copies").suggestion
    assert copies.suggestion == "pass the array unchanged, instead of transposing or reshaping it outside"
    alone = [replace(hint, suggestion=OUTPUT_READ) for hint in advice]
    without = for_kernel(alone, judged, Candidate(text=OWN), tmp_path)
    assert next(hint for hint in without if hint.rule == "copies").suggestion == DO_WITHOUT
    same_layout = MODULE.replace("{0,1:T(8,128)(2,1)} copy", "{1,0:T(8,128)(2,1)} copy")
    (tmp_path / "profile_data" / "0001" / "kernel.hlo.txt").write_text(same_layout)
    (copies,) = [hint for hint in for_kernel(advice, judged, Candidate(text=OWN), tmp_path) if hint.rule == "copies"]
    assert OUTPUT_READ in copies.suggestion
    assert [hint for hint in hints if hint.rule != "copies"] == [hint for hint in advice if hint.rule != "copies"]
    column = Array(name="sums", shape=(16384, 1), dtype="float32")
    of_rows = replace(judged, problem=replace(judged.problem, outputs=(column,)))
    (tmp_path / "profile_data" / "0001" / "kernel.hlo.txt").write_text(COLUMN)
    (copies,) = [hint for hint in for_kernel(advice, of_rows, Candidate(text=OWN), tmp_path) if hint.rule == "copies"]
    assert copies.suggestion.startswith("sums uses one of 128 lanes: let the kernel write it along the lanes")
    assert copies.suggestion.endswith("and return sums.reshape(16384, 1)")
    (tmp_path / "profile_data" / "0001" / "kernel.hlo.txt").write_text("no module")
    assert for_kernel(advice, judged, Candidate(text=OWN), tmp_path) == advice


def test_a_suites_hint_names_the_arrays_of_the_member_that_it_is_about(tmp_path: Path) -> None:
    """Two members; only the second has a compiled module here. The name `short` is a prefix of `shorter`."""
    member = replace(copied(evidence(0.9e-3)), dump_directory="profile_data/0001/shorter/dumps")
    stated = tuple(
        SuiteMember(name=name, weight=1.0, function="kernel_fn", statement=member.problem)
        for name in ("short", "shorter")
    )
    suite = replace(
        member,
        problem=replace(member.problem, members=stated),
        members=(replace(member, dump_directory=None), member),
        dump_directory=None,
    )
    (tmp_path / "profile_data" / "0001" / "shorter" / "dumps").mkdir(parents=True)
    (tmp_path / "profile_data" / "0001" / "shorter" / "kernel.hlo.txt").write_text(MODULE)
    alone = next(hint for hint in advise(member, report(member, V5E)) if hint.rule == "copies")
    for start, is_known in (("short: ", False), ("shorter: ", True), ("shorter (and short): ", True)):
        hint = replace(alone, observation=start + alone.observation)
        (named,) = for_kernel((hint,), suite, Candidate(text=OWN), tmp_path)
        assert ("; copied: k (bf16[16384,128]" in named.observation) == is_known
