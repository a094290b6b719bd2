"""A kernel.py that calls a package's kernel is told to try its own constants, not to change the package's file."""

from dataclasses import replace

from evidence_examples import V5E
from rule_examples import good, rowwise, spilling, with_parts, with_run

from harness.advice.report import advise, report
from harness.candidate import Candidate
from harness.loop.package_kernel import for_kernel
from harness.records import Evidence, SourceFile

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


def test_its_constants_are_what_to_try() -> None:
    waiting = with_parts(rowwise(0.5e-3), ("unit stall", "XLU result", 0.3))
    judged = package(with_run(waiting, executed_spills=90_000, executed_fills=90_000))
    before = advise(judged, report(judged, V5E))
    kinds = [hint.kind for hint in before]
    assert kinds.count("body") > 1
    hints = for_kernel(before, judged, Candidate(text=WRAPPER))
    first, *others = [hint for hint, kind in zip(hints, kinds, strict=True) if kind == "body"]
    assert first.suggestion == (
        "try the constants of kernel.py, which calls ragged_paged_attention/kernel.py: "
        '`ratchet.sh sweep "experiment: ..." --set PAGES=4,8,16`'
    )
    assert (first.kind, first.gain) == ("constants", None)
    assert all(other.suggestion.startswith("only in a copy of ragged_paged_attention/kernel.py: ") for other in others)
    assert [hint.observation for hint in hints] == [hint.observation for hint in before]


def test_a_kernel_of_its_own_is_told_what_it_was_told() -> None:
    judged = package(spilling(0.8e-3, 120_000))
    advice = advise(judged, report(judged, V5E))
    assert for_kernel(advice, judged, Candidate(text=OWN)) == advice
    assert for_kernel(advice, judged, Candidate(text=b"X = None\n")) == advice
    alone = advise(good(), report(good(), V5E))
    assert for_kernel(alone, good(), Candidate(text=WRAPPER)) == alone
