"""Results of verbs of the loop, made by hand or read from an example's ledger, for the screens that show them."""

from dataclasses import replace
from pathlib import Path

from evidence_examples import judgement
from loop_fixtures import PROJECT
from screen_examples import story

from harness.advice.comparison import ComparedSide, compare
from harness.ledger import Ledger, history
from harness.records import Change, CheckedChampion, RepeatedCheck, Replay
from harness.records.ablation import AblatedChange, Ablation
from harness.records.bisection import Bisection, JudgedVersion
from harness.records.comparison import Comparison
from harness.records.evidence import Draw
from harness.records.gate import Gate, GatedContest
from harness.records.validation import MeasuredKernel, Validation, ValidationStep

DIFF = "--- a/kernel.py\n+++ b/kernel.py\n-BR = 64\n+BR = 256\n"


def _side(number: int) -> ComparedSide:
    ledger = Ledger.open(Path(PROJECT) / "examples" / "rmsnorm")
    return ComparedSide(
        name=f"attempt {number}",
        candidate=history.candidate(ledger.place, number),
        evidence=history.attempt(ledger.place, number).evidence,
    )


def comparison() -> Comparison:
    """The two attempts of the example rmsnorm between which its block of rows grew."""
    return compare(_side(3), _side(4), DIFF)


def bisection() -> Bisection:
    good = JudgedVersion(name="attempt 3", title="a tree of sums", seconds=7.1e-4, spills=0, failure="", is_bad=False)
    failure = "compile-error: no such operation"
    unknown = replace(good, name="attempt 4", seconds=None, spills=None, failure=failure, is_bad=None)
    bad = replace(good, name="attempt 5", title="two halves of the rows", seconds=9.4e-4, spills=12_345, is_bad=True)
    return Bisection(
        metric="time",
        chip="v5e",
        threshold=0.02,
        kernels=4,
        judged=(good, bad, unknown),
        suspects=("attempt 4", "attempt 5"),
        comparison=None,
    )


def ablation() -> Ablation:
    pays = AblatedChange(
        name="attempt 2",
        attempt=2,
        title="larger blocks",
        effect="gain",
        without_seconds=0.7e-3,
        worth_seconds=1e-4,
        worth_fraction=1 / 7,
        uncertainty_seconds=0.012e-3,
        spills=500,
        vmem_bytes=9 << 20,
    )
    costs = replace(pays, name="attempt 5", effect="loss", worth_seconds=-0.02e-3, worth_fraction=-0.02 / 0.58)
    tied = replace(pays, name="attempt 4", tie="lines", own_seconds=0.03e-3, together=("attempt 5", "attempt 7"))
    wrong = AblatedChange(
        name="attempt 3",
        attempt=3,
        title="an idea",
        effect="needed",
        tie="dependence",
        failure="wrong-result: it differs",
    )
    return Ablation(
        chip="v5e",
        source="simulated",
        attempt=None,
        champion=9,
        baseline=1,
        champion_seconds=0.6e-3,
        champion_spills=1000,
        champion_vmem_bytes=8 << 20,
        whole_seconds=0.9e-3,
        whole_failure="",
        reworded=(7, 8),
        changes=(pays, costs, tied, wrong),
    )


def gate() -> Gate:
    comparison = compare(_side(4), _side(3), "")
    slower = GatedContest(
        contest="kernels/norm",
        outcome="slower",
        reason="5.74 % more simulated time",
        prepare="touched",
        changed=("kernel.py", "prepare.py"),
        comparison=comparison,
        seconds=comparison.programs[0].after_seconds,
        chip="v5e",
    )
    return Gate(base="a" * 40, head="b" * 40, compiler="jax 0, libtpu 0", threshold=0.01, contests=(slower,))


def champions() -> tuple[CheckedChampion, ...]:
    failed, passed = story()[1][1:]
    return (
        CheckedChampion(folder="examples/attention", title="attention", chip="v5e", note=passed, floor_seconds=1e-3),
        CheckedChampion(folder="examples/norm", title="rmsnorm", chip="v6e", note=failed),
        CheckedChampion(folder="examples/other", chip="v6e", why_not="no simulator for a v6e here"),
    )


def replay() -> Replay:
    then = judgement(
        reasons=("20.0% less time",),
        seconds=1.2e-3,
        plus_minus_seconds=1e-5,
        score=100.0,
        time_ratio=0.8,
        checks_passed=21,
        checks=21,
        tightest=("normal (interpreter)", 0.53),
        fingerprint="abcdef0123456789",
    )
    draw = Draw(mode="interpret", shape=(512, 128), family="normal", seed=1)
    drawn = RepeatedCheck(family="normal", draw=draw, then=0.2, passed_then=True, now=0.3, passes_now=True)
    kept = RepeatedCheck(family="state", draw=draw, then=None, passed_then=True, why_not="the problem changed since")
    return Replay(
        number=4,
        hypothesis="larger blocks",
        kernel_sha256="k",
        then=then,
        now=replace(then, seconds=1.3e-3),
        differences=("judge changed",),
        drift=1.3 / 1.2,
        scratch="profile_data/replay",
        changes=(Change(name="spills executed", unit="", before=5.0, after=7.0),),
        redrawn=(drawn, kept),
        are_same_draws=False,
    )


def validation() -> Validation:
    step = ValidationStep(
        name="A/A control",
        shows="the same program again is no improvement",
        command="./ratchet.sh judge",
        outcome="not held",
        seconds=3.2,
        limit_seconds=180.0,
        found="accept | <b>x0.9</b>",
    )
    timed = MeasuredKernel(
        name="rmsnorm", problem="a problem", measured_seconds=1e-3, plus_minus_seconds=1e-6, simulated_seconds=1.1e-3
    )
    return Validation(
        chip="v6e",
        source="measured",
        device="TPU v6 lite",
        versions="jax 0",
        started="2026-01-01T00:00:00+00:00",
        seconds=60.0,
        minutes=30.0,
        steps=(step,),
        kernels=(timed, replace(timed, measured_seconds=None)),
        archive="validate-v6e.tar.gz",
    )
