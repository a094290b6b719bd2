"""A real ledger with all that a page has to show: old and new records, every verdict, two keys, hostile texts."""

from dataclasses import replace
from pathlib import Path

from breakdown_examples import CYCLES, breakdown
from evidence_examples import KEY, evidence, failed, measured, simulation
from ledger_fixtures import NAIVE, new_repository, run_attempt

from harness.ledger import Ledger
from harness.records import Champion, Evidence, Failure, Verdict

HOSTILE = "<script>alert(1)</script></script><img src=x onerror=alert(2)>"
# A comment that would end a script element, and one that turns the text after it around.
HOSTILE_KERNEL = NAIVE + b"# </script><script>alert(3)</script>\n# \xe2\x80\xae turned\n"
MEASURED = replace(KEY, source="measured", machine="TPU v5 lite, 1 chip")


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
        settings=(("BQ", "64"),),
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


def _write(contest: Path, kernel: bytes) -> None:
    (contest / "kernel.py").write_bytes(kernel)
