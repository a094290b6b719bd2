"""Evidence from real children and the real compiler: a good kernel, wrong ones, and interruptions."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from narrowing import present
from planted import CHANGING, MEDIUM, NAIVE, POLICY, ROWS, SMALL, V5E, naive, norm, request
from refusals import assert_failed, refused

from harness.errors import RatchetError, UsageError
from harness.hardware import chip
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.compile.seen_programs import SeenPrograms
from harness.judge.evaluate.request import Listener
from harness.judge.evaluate.timing import paired_benchmark
from harness.operators import Attention, Problem
from harness.operators.space import DRAWN
from harness.records import Evidence, Failure, PairedBenchmark, Trace

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")

KERNELS = Path(__file__).parents[1] / "fixtures" / "kernels"
# Of the shapes below SMALL, the first one has two blocks of these along either axis.
BLOCKS = naive(("BKV = 256\n", "BKV = 128\n"))


def evaluated(contest: Path, kernel: str, *, problem: Problem = SMALL, **changes: Any) -> Evidence:
    return evaluation.evaluate(request(contest, kernel, problem, **changes))


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest in a folder whose name has spaces, as users' folders have."""
    return tmp_path_factory.mktemp("a contest of mine")


@pytest.fixture(scope="module")
def good(contest: Path) -> Evidence:
    return evaluated(contest, BLOCKS, problem=SMALL)


def test_a_good_kernel_passes_everything(good: Evidence) -> None:
    assert good.failure is None
    assert good.claims is not None
    assert good.warnings == ()
    values = [check for check in good.checks if check.criterion in ("worst element", "root mean square")]
    modes = [(family, "reduced" if family.startswith(DRAWN) else "interpret") for family in SMALL.families(full=False)]
    # At the full shape one family runs in the interpreter, the other as compiled for a CPU.
    modes += [("drawn-all", "interpret"), ("composite", "full")]
    assert sorted((check.family, check.mode) for check in values) == sorted(modes)
    assert all(check.passed and check.elements for check in good.checks)
    # Seeds are drawn anew for every check, after the trace.
    assert len({check.seed for check in values}) == len(values)
    # Values are probed at both shapes; keys and queries at the reduced one, where a call is also repeated.
    bits = sorted((check.criterion, check.mode) for check in good.checks if check not in values)
    assert bits == [("dependence", "full"), *[("dependence", "reduced")] * 3, ("determinism", "reduced")]
    # The interpreter runs another shape, whose numbers of blocks are no powers of two.
    assert {check.shape for check in good.checks} == {(512, 128), (256, 128), (384, 128)}


def test_counters_of_all_levels(good: Evidence) -> None:
    assert good.hlo is not None
    assert (good.hlo.copy, good.hlo.dot, good.hlo.custom_call) == (0, 0, 1)
    assert good.mosaic is not None
    assert (good.mosaic.matmul, good.mosaic.exp, good.mosaic.reduction) == (2, 2, 2)
    assert present(good.simulation).static_bundles > 100


def test_the_simulated_latency_is_above_the_floor_of_the_matrix_unit(good: Evidence) -> None:
    assert good.latency is not None
    assert good.latency.source == "simulated"
    assert present(good.latency.seconds) > SMALL.work().matmul_flops / V5E.peak_bf16_flops_per_second


def test_the_files_that_are_kept(contest: Path, good: Evidence) -> None:
    work = contest / "profile_data" / "0001"
    assert good.dump_directory == "profile_data/0001/dumps"
    assert {path.name for path in work.iterdir()} == {
        "candidate.cpu",
        "candidate.tpu",
        "candidate.traced",
        "dumps",
        "kernel.hlo.txt",
        "kernel.sha256",
        "mosaic",
    }
    assert (contest / "profile_data" / "kernel.hlo.txt").read_bytes() == (work / "kernel.hlo.txt").read_bytes()
    assert "tpu_custom_call" in (work / "kernel.hlo.txt").read_text()
    assert "tpu.matmul" in next((work / "mosaic").iterdir()).read_text()
    assert next((work / "dumps").glob("*per-bundle-utilization.txt")).stat().st_size > 0


def test_the_schedule_names_lines_of_the_kernel(contest: Path, good: Evidence) -> None:
    line = BLOCKS.splitlines().index("    weights = jnp.exp(scores - new_max)") + 1
    schedule = max((contest / "profile_data" / "0001" / "dumps").glob("*final_bundles.txt"), key=os.path.getsize)
    assert f'loc("kernel.py":{line}:' in schedule.read_text()


def test_every_stage_has_its_time(good: Evidence) -> None:
    stages = {"trace", "compile", "certificate", "simulate", "correctness", "reduced shapes", "interpret"}
    assert {stage.stage for stage in good.stages} == stages
    assert all(stage.seconds > 0 for stage in good.stages)


@pytest.mark.long
def test_where_there_is_no_smaller_shape_all_that_was_drawn_is_repeated_all_the_same(contest: Path) -> None:
    seen = SeenPrograms(directory=contest / "seen", judge="a judge")
    asked: dict[str, Any] = {"problem": replace(ROWS, rows=64), "programs": seen}
    once = evaluated(contest, norm(), work="once", **asked)
    assert once.failure is None
    assert {check.shape for check in once.checks} == {(64, 256)}, "no smaller shape has two steps"
    again = evaluated(contest, norm(), work="again", draws=tuple(check.draw for check in once.checks), **asked)
    assert again.failure is None
    assert len({check.seed for check in once.checks}) > 4
    # Probes have names as well, which say what was changed: those of the full shape, and the others.
    assert {(check.family, check.seed) for check in once.checks} <= {
        (check.family, check.seed) for check in again.checks
    }


WRONG = {
    # The accumulator is never set to zero: what VMEM held before is added.
    "uninitialised": ("non-finite", (("        acc_ref[...] = jnp.zeros_like(acc_ref)\n", ""),)),
    # Rows of a block that know of each other, by less than any tolerance: only a probe sees it. The block is twice as
    # large as what the probe changes, which would leave no row of a smaller one if it began where that does.
    "rows leak": (
        "wrong-dependence",
        (
            ("BQ = 128", "BQ = 256"),
            (
                "o_ref[...] = (acc_ref[...] / l_ref[:, :1])",
                "o = acc_ref[...] / l_ref[:, :1]\n        spread = o.max(axis=0) - o.min(axis=0)\n"
                "        o_ref[...] = (o * (1 + 1e-3 * spread / (1 + spread)))",
            ),
        ),
    ),
    "not rescaled": ("wrong-result", (("acc_ref[...] * rescale", "acc_ref[...]"),)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_refused_with_its_worst_element(contest: Path, name: str) -> None:
    kind, edits = WRONG[name]
    result = evaluated(contest, naive(*edits), work="wrong")
    assert_failed(result.failure, "correctness", kind, "o[")
    assert any(not check.passed for check in result.checks)


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "kind", "words"),
    [
        ("unsynchronised.py", "race", ("the write of VMEM", "in kernel.py line 19", "the read of VMEM", "line 24")),
        ("past_the_end.py", "out-of-bounds", ("kernel.py line 18: expected the read to stay within an array",)),
    ],
)
def test_unsafe_memory_accesses_are_refused(contest: Path, file: str, kind: str, words: tuple[str, ...]) -> None:
    result = evaluated(contest, (KERNELS / file).read_text(), work="unsafe")
    assert_failed(result.failure, "correctness", kind, *words)


@pytest.mark.long
def test_vmem_exceeded_is_the_compilers_own_sentence(contest: Path) -> None:
    greedy = naive(
        ("[accumulator, accumulator, accumulator]", "[accumulator] * 3 + [pltpu.VMEM((1 << 16, 128), jnp.float32)]"),
        ("acc_ref, *, scale", "acc_ref, greed_ref, *, scale"),
        # It is used at unforeseeable places, so that none of it can be left out.
        (
            "    scores = scores * scale\n",
            "    at, zeros = pl.program_id(0), jnp.zeros((8, 128), jnp.float32)\n"
            "    greed_ref[pl.ds(at * 512, 8), :] = zeros\n    greed_ref[pl.ds(at * 1024, 8), :] = zeros\n"
            "    scores = scores * scale + greed_ref[pl.ds(at * 512, 8), :1][:1, :1]\n",
        ),
    )
    result = evaluated(contest, greedy, work="greedy", checked=False)
    assert_failed(result.failure, "compile", "vmem-exceeded")
    assert present(result.failure).message.startswith("Scoped allocation with size 32")
    assert "limit 16.00M" in present(result.failure).message


@pytest.mark.long
def test_what_the_compiler_cannot_do_is_a_named_failure(contest: Path) -> None:
    narrow = (
        "few = weights.astype(jnp.int8)\n    weights = jnp.where((few + few).astype(jnp.float32) < 9, weights, 0)\n"
    )
    adding = naive(
        ("    weights = jnp.exp(scores - new_max)\n", f"    weights = jnp.exp(scores - new_max)\n    {narrow}")
    )
    result = evaluated(contest, adding, work="adding", checked=False)
    assert_failed(result.failure, "compile", "unsupported", "i8")


@pytest.mark.long
def test_a_failed_trace_stops_everything_and_keeps_its_reason(contest: Path) -> None:
    result = evaluated(contest, naive(("BQ = 128\n", "BQ = = 128\n")), work="broken")
    assert present(result.failure).kind == "syntax-error"
    assert (result.trace, result.hlo, result.latency, result.checks) == (None, None, None, ())


@pytest.mark.long
def test_a_kernel_too_slow_for_the_policy_times_out(contest: Path) -> None:
    slow = naive(("import math\n", "import math\nimport time\ntime.sleep(60)\n"))
    result = evaluated(contest, slow, work="slow", policy=replace(POLICY, trace_seconds=5.0))
    assert_failed(result.failure, "contract", "timeout")


@pytest.mark.long
def test_what_after_trace_raises_ends_it_and_passes_through(contest: Path) -> None:
    def refuse(trace: Trace) -> NoReturn:
        raise RatchetError("identical-candidate", trace.fingerprint)

    with refused("identical-candidate"):
        evaluation.evaluate(request(contest, NAIVE, SMALL, work="refused"), Listener(after_trace=refuse))
    assert not (contest / "profile_data" / "refused" / "scratch").exists()


@pytest.mark.long
def test_measured_on_the_cpu_and_a_paired_benchmark(contest: Path) -> None:
    policy = replace(POLICY, measured_pairs=8)
    slower = evaluated(contest, norm(), work="0002-champion", problem=ROWS, policy=policy, on="cpu")
    assert slower.failure is None
    assert present(slower.latency).source == "measured cpu"
    assert slower.samples is not None
    assert len(slower.samples.host_seconds) == 8
    assert slower.samples.device_seconds == ()
    assert [check.mode for check in slower.checks].count("device") == 1
    assert list((contest / "profile_data" / "plugins" / "profile").glob("0002-champion-*/*.xplane.pb"))
    program = contest / "profile_data" / "0002-champion"
    looked: list[int] = []

    def is_settled(so_far: PairedBenchmark) -> bool:
        looked.append(len(so_far.candidate_seconds))
        return len(looked) == 2

    # No third look is taken, because the comparison is settled.
    policy = replace(policy, looks=(6, 8, 200))
    timed = paired_benchmark.run(program, program, ROWS, policy, is_settled=is_settled, on="cpu")
    assert not isinstance(timed, Failure), timed
    benchmark, champion, candidate = timed
    assert looked == [6, 8]
    assert benchmark.looks == 2
    assert benchmark.clock == "host"
    assert len(benchmark.champion_seconds) == len(benchmark.control_seconds) == len(benchmark.candidate_seconds) == 8
    assert benchmark.champion_seconds == champion.host_seconds != benchmark.control_seconds
    assert benchmark.candidate_seconds == candidate.host_seconds
    assert candidate.host_calls_per_sample >= 1


@pytest.mark.long
def test_a_paired_benchmark_needs_both_programs(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match="found none"):
        paired_benchmark.run(tmp_path, tmp_path, SMALL, POLICY, is_settled=lambda benchmark: True, on="cpu")


def test_sources() -> None:
    assert evaluation.source(V5E, "cpu") == "measured cpu"
    assert evaluation.source(V5E, "simulated") == "simulated"
    with pytest.raises(UsageError, match="expected --on"):
        evaluation.source(V5E, "gpu")


def test_the_environment_is_stable_and_named() -> None:
    first = evaluation.environment()
    assert first == evaluation.environment()
    assert first.jax[0].isdigit()
    assert first.libtpu
    assert "cores" in first.machine


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [(128, 256), (2048, 1024)])
def test_the_contest_itself(contest: Path, blocks: tuple[int, int]) -> None:
    kernel = naive(("BQ = 128\n", f"BQ = {blocks[0]}\n"), ("BKV = 256\n", f"BKV = {blocks[1]}\n"))
    result = evaluated(contest, kernel, problem=Attention(sequence=16384, head_dim=128), work="contest")
    assert result.failure is None
    assert present(result.latency).seconds is not None


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param("v4", marks=pytest.mark.slow), "v5p"])
def test_a_good_kernel_passes_on_chips_of_two_cores(contest: Path, name: str) -> None:
    result = evaluated(contest, norm(), work=name, problem=ROWS, chip=chip(name))
    assert result.failure is None
    assert present(result.latency).seconds is not None


@pytest.mark.long
def test_what_is_checked_is_what_was_compiled_whatever_changes_after_the_trace(contest: Path) -> None:
    result = evaluated(contest, CHANGING, work="changing", problem=MEDIUM)
    assert_failed(result.failure, "correctness", "wrong-result")
