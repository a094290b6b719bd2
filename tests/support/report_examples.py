"""Contents for pages to show: a real ledger with every verdict, two keys, a search; rows of a table; hostile texts."""

from dataclasses import replace
from pathlib import Path

from breakdown_examples import CYCLES, breakdown
from evidence_examples import KEY, evidence, failed, measured, simulation
from ledger_fixtures import NAIVE, new_repository, run_attempt

from harness.ledger import Ledger
from harness.loop.tuning_table.row import Row as TunedRow
from harness.operators import Attention
from harness.records import Champion, Evidence, Failure, RefusedSetting, ScreenedSetting, Sweep, Verdict

HOSTILE = "<script>alert(1)</script></script><img src=x onerror=alert(2)>"
# A comment that would end a script element, and one that reverses the direction of the text after it.
HOSTILE_KERNEL = NAIVE + b"# </script><script>alert(3)</script>\n# \xe2\x80\xae turned\n"
MEASURED = replace(KEY, source="measured", machine="TPU v5 lite, 1 chip")


_WRONG = Failure(stage="correctness", kind="wrong-result", message=f"2.0 times the tolerance {HOSTILE}")
SEARCH = Sweep(
    parameters=(("BQ", ("8192", "512", "64", f'"{HOSTILE}"')), ("BKV", ("128",))),
    source="simulated",
    chip="v5e",
    looked_at=4,
    champion=2,
    champion_seconds=2e-3,
    screened=(
        ScreenedSetting(
            settings=(("BQ", "8192"), ("BKV", "128")), seconds=None, failure_kind="vmem-exceeded", message=HOSTILE
        ),
        ScreenedSetting(settings=(("BQ", "512"), ("BKV", "128")), seconds=1.9e-3, fingerprint="a"),
        ScreenedSetting(settings=(("BQ", "64"), ("BKV", "128")), seconds=2.4e-3, fingerprint="b"),
        ScreenedSetting(settings=(("BQ", f'"{HOSTILE}"'), ("BKV", "128")), seconds=3e-3, fingerprint="c", same_as=1),
    ),
    refused=(RefusedSetting(settings=(("BQ", "512"), ("BKV", "128")), failure=_WRONG),),
)


def taken_apart(seconds: float) -> Evidence:
    """Evidence of a run whose cycles are known part by part and line by line."""
    run = replace(
        simulation(seconds, cycles=CYCLES, clock_hz=CYCLES / seconds),
        breakdown=breakdown(),
        plus_minus_seconds=0.05 * seconds,
    )
    whole = evidence(seconds, simulation=run)
    assert whole.latency is not None
    return replace(whole, latency=replace(whole.latency, plus_minus_seconds=0.05 * seconds))


def storied(folder: Path) -> Ledger:
    """Eight attempts: old baseline, hostile win, loss, failure, doubt, undo, then two under a measured key."""
    contest = new_repository(folder)
    ledger = Ledger.open(contest)
    run_attempt(ledger, hypothesis="baseline", evidence=evidence(4e-3))
    _write(contest, HOSTILE_KERNEL)
    run_attempt(
        ledger,
        hypothesis=HOSTILE,
        evidence=taken_apart(2e-3),
        verdict=Verdict(outcome="accept", reasons=(f"49.0% less time {HOSTILE}",), time_ratio=0.51),
        expected_time_ratio=0.5,
    )
    _write(contest, HOSTILE_KERNEL.replace(b"128", b"64"))
    run_attempt(
        ledger,
        "reject",
        hypothesis="small blocks",
        evidence=taken_apart(2.4e-3),
        verdict=Verdict(
            outcome="reject", reasons=("20% more time",), time_ratio=1.2, time_ratio_low=1.15, time_ratio_high=1.25
        ),
        expected_time_ratio=0.9,
        champion=Champion(attempt=2, commit="", score=0.3, seconds=2e-3),
        settings=(("BQ", "64"), ("BKV", "128")),
        sweep=SEARCH,
    )
    _write(contest, HOSTILE_KERNEL.replace(b"128", b"8192"))
    failure = Failure(
        stage="compile", kind="vmem-exceeded", message=f"too large {HOSTILE}", detail="  File <b>\n\x1b[31m"
    )
    run_attempt(
        ledger,
        "failed",
        hypothesis="huge blocks",
        evidence=replace(failed(), failure=failure),
        verdict=Verdict(outcome="failed", reasons=(), failure=failure),
    )
    _write(contest, HOSTILE_KERNEL.replace(b"256", b"128"))
    run_attempt(ledger, "inconclusive", hypothesis="half as many keys", evidence=evidence(1.99e-3))
    _write(contest, NAIVE)
    run_attempt(
        ledger,
        hypothesis="undo attempt 2",
        evidence=evidence(4e-3),
        kind="undo",
        champion=Champion(attempt=2, commit="", score=None, seconds=None),
    )
    _write(contest, NAIVE.replace(b"128", b"512"))
    run_attempt(
        ledger,
        hypothesis="measured win",
        key=MEASURED,
        evidence=measured(1.5e-3),
        champion=Champion(attempt=6, commit="", score=400.0, seconds=3e-3),
        champion_evidence=measured(3e-3),
    )
    _write(contest, NAIVE.replace(b"128", b"32"))
    run_attempt(
        ledger, "reject", hypothesis="measured loss", key=MEASURED, evidence=replace(measured(1.8e-3), simulation=None)
    )
    return ledger


def tuned_rows() -> tuple[TunedRow, ...]:
    """Rows of a table: two that passed, one without known trials, one unchecked, one without any time."""
    parameters = Attention(heads=4, kv_heads=2, sequence=1024, head_dim=128, causal=True).statement().parameters
    fallback, best = (("BLOCK_Q", "128"), ("BLOCK_KV", "128")), (("BLOCK_Q", "512"), ("BLOCK_KV", "128"))
    trials = (
        ScreenedSetting(settings=fallback, seconds=4e-3, fingerprint="a"),
        ScreenedSetting(settings=(("BLOCK_Q", "1024"), ("BLOCK_KV", HOSTILE)), seconds=0.9e-3, fingerprint="b"),
        ScreenedSetting(settings=best, seconds=1e-3, fingerprint="c"),
        ScreenedSetting(
            settings=(("BLOCK_Q", "2048"), ("BLOCK_KV", "128")),
            seconds=None,
            failure_kind="vmem-exceeded",
            message=HOSTILE,
        ),
    )
    wrong = RefusedSetting(
        settings=trials[1].settings, failure=Failure(stage="correctness", kind="wrong-result", message=HOSTILE)
    )
    first = TunedRow(
        kernel="tokamax:flash_attention",
        chip="v5e",
        shape=f"prefill {HOSTILE}",
        operation="attention",
        parameters=parameters,
        settings=best,
        seconds=1e-3,
        plus_minus_seconds=3e-5,
        fallback=fallback,
        fallback_seconds=4e-3,
        fallback_failure="",
        checks=30,
        unchecked="",
        failure="",
        tried=4,
        possible=20,
        looked_at=3,
        compiler="jax 1, libtpu 2",
        search="a",
        finished="2026-11-23T00:00:00+00:00",
        trials=trials,
        refused=(wrong,),
    )
    return (
        first,
        replace(first, chip="v6e", search="b", fallback_seconds=1.02e-3),
        replace(first, chip="v7x", search="c", shape="old", trials=(), refused=()),
        replace(first, chip="v5p", search="d", shape="unchecked", checks=0, unchecked=f"wrong-result: {HOSTILE}"),
        replace(
            first, chip="v4", search="e", shape="lost", settings=None, seconds=None, plus_minus_seconds=None, checks=0,
            fallback_seconds=None, fallback_failure="vmem-exceeded: too large", failure=f"all fail {HOSTILE}",
            trials=trials[3:], refused=(),
        ),
    )  # fmt: skip


def _write(contest: Path, kernel: bytes) -> None:
    (contest / "kernel.py").write_bytes(kernel)
