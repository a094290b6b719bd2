"""The end of an evaluation: the same on a machine that is slow in any place, and as soon as the outcome is settled."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from narrowing import present
from planted import POLICY, ROWS, V5E, norm, request

from harness.judge.evaluate import evaluation
from harness.judge.evaluate.request import Listener
from harness.judge.verdict import decision, early_rejection
from harness.operators.space import DRAWN
from harness.records import Draw, Evidence
from harness.records.evidence import Mode
from harness.sandbox import confinement

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")

FINISHED = "    y_ref[...] = (h * scale"
# Right at every reduced shape, which has fewer blocks of rows.
WRONG_AT_FULL = norm((FINISHED, f"{FINISHED} * (1.5 if pl.num_programs(0) == 32 else 1)"))
WRONG = norm((FINISHED, f"{FINISHED} * 1.5"))
# Too large for VMEM, and wrong as well: it reads what nothing wrote.
WRONG_AND_GREEDY = norm(
    (FINISHED, f"{FINISHED} * (1.5 + greed_ref[pl.ds(pl.program_id(0) * 8, 8), :1][:1, :1] * 0)"),
    ("normalise(h_ref, w_ref, y_ref):", "normalise(h_ref, w_ref, y_ref, greed_ref):"),
    ("name=name,", "name=name, scratch_shapes=[pltpu.VMEM((1 << 16, 128), jnp.float32)] if body is normalise else [],"),
)
Progress = Callable[[str, str, float], None]


def judged(
    contest: Path,
    kernel: str,
    *,
    draws: tuple[Draw, ...] = (),
    is_slower: Callable[[Evidence], bool] | None = None,
    progress: Progress = lambda stage, state, seconds: None,
) -> Evidence:
    asked = request(contest, kernel, ROWS, draws=draws)
    return evaluation.evaluate(asked, Listener(is_slower=is_slower, progress=progress))


def slowed(name: str, when: str, until: str) -> Progress:
    """A progress that stops the process `name` when the stage `when` begins, until `until` ends, or for 8 seconds."""
    ended = threading.Event()

    def progress(stage: str, state: str, _: float) -> None:
        if (stage, state) == (when, "start"):
            threading.Thread(target=stop, daemon=True).start()
        if stage == until and state != "start":
            ended.set()

    def stop() -> None:
        pids: list[int] = []
        while not pids:
            # Any of these processes may end while it is looked at.
            with suppress(OSError):
                pids = [pid for pid in children() if Path(f"/proc/{pid}/comm").read_text().strip() == name]
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.kill(pids[0], signal.SIGSTOP)
            ended.wait(8.0)
            os.kill(pids[0], signal.SIGCONT)

    return progress


def children() -> list[int]:
    priorities: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            priorities += map(int, path.read_text().split())
    return priorities


def outcome(evidence: Evidence) -> tuple[object, ...]:
    """The parts that must not depend on the machine's load: how the evaluation ended, and what was checked."""
    failure = evidence.failure and (evidence.failure.stage, evidence.failure.kind)
    return failure, tuple((check.family, check.mode, check.shape) for check in evidence.checks), evidence.unchecked


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return judged(tmp_path_factory.mktemp("contest"), norm())


def test_each_family_is_checked_once_at_every_length_that_it_is_for(complete: Evidence) -> None:
    families: dict[tuple[str, int], set[str]] = {}
    for check in complete.checks:
        families.setdefault((check.mode, check.shape[0]), set()).add(check.family)
    fixed = {family for family in ROWS.families(full=False) if not family.startswith(DRAWN)}
    drawn_at_full, composite = ROWS.families(full=True)
    assert set(families) == {("reduced", 64), ("interpret", 96), ("interpret", 512), ("full", 512)}
    assert families["interpret", 96] == fixed
    assert families["reduced", 64] > set(ROWS.families(full=False)) - fixed
    assert not families["reduced", 64] & fixed
    assert families["interpret", 512] == {drawn_at_full}
    assert families["full", 512] > {composite}
    assert drawn_at_full not in families["full", 512]


def test_draws_of_every_earlier_place_are_repeated_somewhere(tmp_path: Path) -> None:
    places: tuple[tuple[Mode, int, str], ...] = (
        ("interpret", 64, "spikes"),
        ("interpret", 96, "spikes"),
        ("interpret", 512, "drawn-outliers"),
        ("reduced", 64, "drawn-even"),
        ("reduced", 96, "small"),
        ("full", 512, "drawn-outliers"),
        ("full", 512, ""),
        ("reduced", 64, ""),
    )
    draws = tuple(
        Draw(mode=mode, shape=(length, 256), family=family, seed=seed)
        for seed, (mode, length, family) in enumerate(places, start=11)
    )
    result = judged(tmp_path, norm(), draws=draws)
    repeated = {(check.shape[0], check.seed): check.family for check in result.checks if check.seed in range(11, 19)}
    for draw in draws:
        family = repeated[draw.shape[0], draw.seed]
        assert family == draw.family if draw.family else family not in ROWS.families(full=False)


def test_a_slower_candidate_is_rejected_without_the_full_shape(tmp_path: Path, complete: Evidence) -> None:
    result = judged(tmp_path, norm(), is_slower=lambda evidence: evidence.latency is not None)
    assert result.failure is None
    assert {check.shape for check in result.checks} == {(64, 256), (96, 256)}
    # The checks that ran, and those that did not, are together all checks.
    assert len(result.checks) + len(result.unchecked) == len(complete.checks)
    assert complete.unchecked == ()
    latency = present(complete.latency)
    half = present(latency.seconds) / 2
    faster = replace(
        complete, latency=replace(latency, seconds=half), simulation=replace(present(complete.simulation), seconds=half)
    )
    verdict = decision.decide(result, faster, None, POLICY, V5E)
    assert verdict.outcome == "reject"
    assert f"slower, so only {len(result.checks)} of {len(complete.checks)} checks were run" in verdict.reasons[-1]
    # Such evidence serves nothing else: no win, no champion, no baseline.
    slow = replace(result, latency=replace(latency, seconds=4 * half))
    for candidate, champion in ((result, slow), (complete, result), (result, complete)):
        assert decision.decide(candidate, champion, None, POLICY, V5E).outcome == "inconclusive"
    alone = decision.decide(result, None, None, POLICY, V5E)
    assert alone.outcome == "inconclusive"
    assert alone.reasons[0].startswith(f"checks of the candidate were not run ({len(result.unchecked)}), and nothing")


def test_any_time_above_the_champions_is_slower(complete: Evidence) -> None:
    latency = present(complete.latency)
    for factor, expected in ((1.5, True), (1.0004, True), (1.0, False), (0.5, False)):
        candidate = replace(complete, latency=replace(latency, seconds=factor * present(latency.seconds)))
        assert early_rejection.is_slower(candidate, complete, POLICY, V5E) is expected
    unknown = replace(complete, latency=replace(latency, seconds=None))
    assert not early_rejection.is_slower(unknown, complete, POLICY, V5E)
    assert not early_rejection.is_slower(complete, unknown, POLICY, V5E)


forked = pytest.mark.skipif(
    confinement.landlock_version() is None, reason="processes are told apart by names that only forks have"
)


@forked
def test_wrong_outranks_what_the_compiler_says_on_any_machine(tmp_path: Path) -> None:
    # Both orders are tested: the compiler is done long before the checks, and long after them.
    first, second = (
        outcome(judged(tmp_path / name, WRONG_AND_GREEDY, progress=slowed(name, "compile", until)))
        for name, until in (("checker", "compile"), ("compiler", "reduced shapes"))
    )
    assert first[0] == ("correctness", "non-finite")
    assert first == second


@forked
@pytest.mark.parametrize(
    ("name", "when", "until"),
    [
        ("checker", "compile", "simulate"),
        pytest.param("simulator", "simulate", "reduced shapes", marks=pytest.mark.slow),
    ],
)
def test_wrong_outranks_slow_on_any_machine(tmp_path: Path, name: str, when: str, until: str) -> None:
    slowed_outcome = outcome(judged(tmp_path, WRONG, is_slower=lambda _: True, progress=slowed(name, when, until)))
    assert slowed_outcome[0] == ("correctness", "wrong-result")


@pytest.mark.slow
@forked
def test_slow_outranks_the_full_shape_on_any_machine(tmp_path: Path) -> None:
    assert outcome(judged(tmp_path / "checked", WRONG_AT_FULL))[0] == ("correctness", "wrong-result")
    for name, when, until in (("checker", "compile", "simulate"), ("simulator", "simulate", "correctness")):
        slowed_outcome = outcome(
            judged(tmp_path / name, WRONG_AT_FULL, is_slower=lambda _: True, progress=slowed(name, when, until))
        )
        assert slowed_outcome[0] is None
        assert slowed_outcome[2]
