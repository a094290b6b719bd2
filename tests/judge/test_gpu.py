"""The contest for an NVIDIA GPU, up to the device: lowered, checked, timed on a CPU, and refused where it is wrong."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import pytest
from jax.profiler import ProfileData
from loop_fixtures import PROJECT, into_repository, ratchet
from narrowing import present
from planted import ROOT, request
from refusals import assert_failed, refused

from harness.candidate import rewrite
from harness.contest import load
from harness.errors import UsageError
from harness.hardware import GPUS, chip, chip_of_device
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.compile.certificate import certify
from harness.judge.evaluate.interpret import interpretation
from harness.judge.evaluate.messages import CertifyRequest
from harness.judge.evaluate.timing import device
from harness.judge.evaluate.trace import kernels, normal_form
from harness.judge.verdict import roofline
from harness.ledger.codec import decode_attempt
from harness.operators import Attention
from harness.records import Evidence
from harness.sandbox import asked_device, environment, profiling
from harness.sandbox.messages import Rejected

# jax 0.12 warns whenever such a kernel is lowered.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning"),
]

EXAMPLE = ROOT / "examples" / "attention-gpu"
KERNEL = (EXAMPLE / "kernel.py").read_text()
H100 = chip("h100")
SIZES = (("HEADS", "2"), ("KV_HEADS", "2"), ("SEQUENCE", "384"))
# This kernel is right only if the grid is walked in order; on a GPU no order of the two programs is defined.
CARRIED = (
    ("sequence // BQ),", "sequence // BQ, 2),"),
    ("lambda h, i: (h, 0, 0)", "lambda h, i, _: (h, 0, 0)"),
    ("lambda h, i: (h, i, 0)", "lambda h, i, _: (h, i, 0)"),
    (
        "    o_ref[...] = (acc / total[:, None]).astype(o_ref.dtype)",
        "    found = (acc / total[:, None]).astype(o_ref.dtype)\n"
        "    o_ref[...] = jnp.where(pl.program_id(2) == 0, found, o_ref[...])",
    ),
)
_INCONCLUSIVE = 3
_TRIES = 5
# Two blocks of keys suffice to show the fault, and each program of the grid costs the interpreter 3 CPU seconds.
FEW_PROGRAMS = (("BQ = 128", "BQ = 256"), ("BKV = 64", "BKV = 128"))
NOT_RESCALED = (("old_sum * rescale + weights", "old_sum + weights"), ("acc * rescale[:, None]", "acc"))


def kernel(*edits: tuple[str, str]) -> str:
    source = KERNEL
    for old, new in edits:
        assert source.count(old) == 1, f"kernel.py no longer holds {old!r} once"
        source = source.replace(old, new)
    return source


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small copy of the example, committed in a repository of its own."""
    folder = tmp_path_factory.mktemp("gpu")
    prepare = (EXAMPLE / "prepare.py").read_bytes()
    for name, value in SIZES:
        prepare = rewrite(prepare, name, value, "prepare.py")
    (folder / "prepare.py").write_bytes(prepare)
    (folder / "kernel.py").write_text(KERNEL)
    (folder / ".gitignore").write_text("profile_data/\n__pycache__/\n")
    return into_repository(folder, "A contest for a GPU")


def evaluated(contest: Path, source: str, work: str, sequence: int = 384) -> Evidence:
    """The evidence of everything but the timing."""
    problem = load(contest).problem
    assert isinstance(problem, Attention)
    long = replace(problem, sequence=sequence, kv_sequence=sequence)
    return evaluation.evaluate(request(contest, source, long, work=work, chip=H100, on="cpu", timed=False))


@pytest.fixture(scope="module")
def baseline(contest: Path) -> str:
    """The output of the first conclusive attempt: on a busy machine, samples may scatter too much for an answer."""
    done = ratchet(contest, "experiment: baseline", "--on", "cpu")
    for _ in range(_TRIES):
        if done.returncode != _INCONCLUSIVE:
            break
        done = ratchet(contest, "experiment: baseline, judged again", "--on", "cpu", "--again")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def good(contest: Path, baseline: str) -> Evidence:
    recorded = max((contest / "experiments").glob("*.json"))
    return decode_attempt(recorded.read_bytes(), recorded.name).evidence


def exported(source: str) -> jax.export.Exported:
    """The program that a kernel.py stands for on an H100."""
    module = ModuleType("kernel")
    exec(compile(source, "kernel.py", "exec"), module.__dict__)
    shape = jax.ShapeDtypeStruct((2, 384, 128), jnp.bfloat16)
    with asked_device.aiming_at(H100):
        closed = jax.make_jaxpr(module.__dict__["kernel_fn"])(shape, shape, shape)
        program: jax.export.Exported = interpretation.export(closed, (shape,) * 3, "cuda", H100)
    assert program.platforms == ("cuda",)
    return program


def certify_request(contest: Path, good: Evidence, for_chip: Path | None = None) -> CertifyRequest:
    """The certificate that the first attempt asked for; with another program for the chip."""
    work = contest / "profile_data"
    return CertifyRequest(
        program=str(work / "0001" / "candidate.traced"),
        for_chip=str(for_chip or work / "0001" / "candidate.cuda"),
        chip=H100,
        trace=present(good.trace),
        artifact=str(work / "again.cpu"),
        fill=None,
    )


def test_published_numbers_agree_with_each_other() -> None:
    for gpu in GPUS:
        # A multiprocessor of this generation does 4096 FLOP per cycle.
        assert gpu.peak_bf16_flops_per_second == pytest.approx(4096 * gpu.cores * gpu.clock_hz, rel=0.01)
        assert gpu.scoped_vmem_bytes < gpu.vmem_bytes
        assert all(chip_of_device(kind) == gpu for kind in gpu.device_kinds)
    ridges = [gpu.ridge_flops_per_byte for gpu in GPUS]
    assert ridges == pytest.approx([295, 206], abs=1)


@pytest.mark.slow
def test_it_passes_on_the_cpu_and_says_so(baseline: str) -> None:
    assert "checks passed" in baseline
    assert "[measured cpu, says nothing about a GPU]" in baseline
    assert "traffic unknown: on a GPU" in baseline
    assert "only its Triton form" in " ".join(baseline.split())


def test_what_is_known_before_the_device(good: Evidence) -> None:
    assert good.failure is None
    assert {check.mode for check in good.checks} == {"full", "reduced", "interpret", "device"}
    assert all(check.passed for check in good.checks)
    assert {stage.stage for stage in good.stages} == {
        "trace",
        "correctness",
        "reduced shapes",
        "interpret",
        "certificate",
        "measure",
    }
    (call,) = present(good.trace).pallas_calls
    assert call.grid == (2, 3)
    assert call.hbm_bytes is None
    assert roofline.traffic(good) == (None, "unknown")
    assert (good.hlo, good.mosaic, good.simulation) == (None, None, None)


def test_the_program_is_triton_for_cuda() -> None:
    (kernel_read,) = kernels.of_program(str(exported(KERNEL).mlir_module()))
    assert kernel_read.steps == 6
    assert kernel_read.text.count('"tt.dot"') == 2
    # CUDA's own exponential is counted as one.
    assert kernel_read.text.count('"math.exp"') == 2


@pytest.mark.slow
def test_a_fingerprint_is_of_what_is_computed() -> None:
    def digest_of(source: str) -> str:
        return normal_form.of_exported(str(exported(source).mlir_module())).digest

    digest = digest_of(KERNEL)
    renamed = kernel(('KERNEL_NAME = "attention_gpu"', '# Said at length.\nKERNEL_NAME = "another"'))
    assert digest_of(renamed) == digest
    assert digest_of(kernel(("WARPS = 8", "WARPS = 4"))) != digest
    assert digest_of(kernel(("BKV = 64", "BKV = 128"))) != digest


@pytest.mark.slow
def test_a_sum_that_is_not_rescaled_is_refused(contest: Path) -> None:
    result = evaluated(contest, kernel(*FEW_PROGRAMS, *NOT_RESCALED), "wrong", sequence=256)
    assert_failed(result.failure, "correctness", "wrong-result")


def test_the_program_of_another_kernel_is_noticed(contest: Path, good: Evidence, tmp_path: Path) -> None:
    # The other program has the same shapes and the same exponentials.
    program = exported(kernel(*NOT_RESCALED))
    mixed = certify_request(contest, good, for_chip=tmp_path / "candidate.cuda")
    Path(mixed.for_chip).write_bytes(program.serialize())
    forged = normal_form.of_exported(str(program.mlir_module()))
    with pytest.raises(Rejected, match=r"expected the traced program to be compiled for the .*, got another one: "):
        certify(replace(mixed, trace=replace(mixed.trace, fingerprint=forged.digest)))


def test_a_false_report_of_the_program_is_noticed(contest: Path, good: Evidence) -> None:
    trace = present(good.trace)
    (call,) = trace.pallas_calls
    lied = replace(trace, pallas_calls=(replace(call, grid=(1, 3)),))
    with pytest.raises(Rejected, match=r"kernels of \[3\] grid steps as reported, got \[6\]"):
        certify(replace(certify_request(contest, good), trace=lied))


@pytest.mark.slow
def test_programs_that_rely_on_their_order_are_a_race(contest: Path) -> None:
    result = evaluated(contest, kernel(*CARRIED), "carried")
    assert_failed(result.failure, "correctness", "race")
    # The kernel is right if its grid is walked in order, as in the CPU reference program.
    assert all(check.passed for check in result.checks if check.mode in ("full", "reduced"))


def test_only_the_form_that_can_be_checked_is_taken(contest: Path) -> None:
    plain = kernel(("        compiler_params=plgpu.CompilerParams(num_warps=WARPS, num_stages=STAGES),\n", ""))
    result = evaluated(contest, plain, "plain")
    assert_failed(result.failure, "static", "not-triton")


def test_the_peer_is_right_as_far_as_a_cpu_can_tell(contest: Path) -> None:
    script = contest / "peer.py"
    script.write_text((EXAMPLE / "peer.py").read_text())
    done = subprocess.run(
        [sys.executable, str(script), "--on", "cpu"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment.on_cpu(), "PYTHONPATH": PROJECT},
    )
    script.unlink()
    assert done.returncode == 0, done.stderr
    assert "allowed against float64" in done.stdout
    assert "host clock, median of 3 [measured cpu]" in done.stdout


def test_the_device_has_to_be_there(contest: Path) -> None:
    assert device.source(H100, "cpu") == "measured cpu"
    with refused("no-device", "no simulator for GPUs; --on cpu"):
        device.source(H100, "simulated")
    for asked, other in ((H100, "tpu"), (chip("v5e"), "gpu")):
        with pytest.raises(UsageError, match=f"for a {asked.name}, got '{other}'"):
            device.source(asked, other)
    if device.attached("cuda") is None:
        done = ratchet(contest, "judge", "--on", "gpu", expect=4)
        assert "expected an h100, JAX sees no GPU" in done.stderr
        assert "[no-device]" in done.stderr


def test_device_files_of_the_driver(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert not device._has_device_file("cuda", tmp_path)
    (tmp_path / "nvidia0").touch()
    assert device._has_device_file("cuda", tmp_path)
    assert not device._has_device_file("tpu", tmp_path)


def test_the_timer_on_a_gpu_gets_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    device = environment.measuring("cuda")
    assert device["CUDA_VISIBLE_DEVICES"] == "1"
    assert device["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert not {"XLA_FLAGS", "LIBTPU_INIT_ARGS"} & set(device)


def xspace(folder: Path, *kernels_ns: tuple[int, int]) -> Path:
    """A profile of two calls, at 1000 to 3000 ns and at 5000 to 9000 ns, with these kernels and one copy."""

    def plane(name: str, line: str, events: list[tuple[str, int, int]]) -> str:
        names = "".join(
            f'event_metadata {{ key: {i} value {{ id: {i} name: "{text}" }} }}\n'
            for i, (text, _, _) in enumerate(events, 1)
        )
        spans = "".join(
            f"events {{ metadata_id: {i} offset_ps: {start}000 duration_ps: {end - start}000 }}\n"
            for i, (_, start, end) in enumerate(events, 1)
        )
        return f'planes {{ name: "{name}" {names} lines {{ name: "{line}" timestamp_ns: 0 {spans} }} }}\n'

    host = plane("/host:CPU", "python", [("kernel_step_0", 1000, 3000), ("kernel_step_1", 5000, 9000)])
    device_events = [("MemcpyH2D", 100, 900), *(("attention_gpu", start, end) for start, end in kernels_ns)]
    text = host + plane("/device:GPU:0", "Stream #14(Compute,MemcpyH2D)", device_events)
    (folder / "a.xplane.pb").write_bytes(ProfileData.text_proto_to_serialized_xspace(text))
    return folder


def test_device_seconds_are_those_of_each_call(tmp_path: Path) -> None:
    seconds = profiling.device_seconds(xspace(tmp_path, (1200, 2500), (5100, 6000), (7000, 8600)))
    assert seconds == pytest.approx((1300e-9, 3500e-9))


def test_a_profile_that_is_not_understood_gives_no_device_seconds(tmp_path: Path) -> None:
    # There is no kernel in the second call; and then a kernel that belongs to no call.
    assert profiling.device_seconds(xspace(tmp_path, (1200, 2500))) == ()
    assert profiling.device_seconds(xspace(tmp_path, (1200, 2500), (3500, 3900), (5100, 6000))) == ()


def test_a_cache_may_hold_what_it_holds_and_no_more() -> None:
    work = load(EXAMPLE).problem.statement().work
    beyond = (work.minimum_hbm_bytes - H100.cache_bytes) / H100.hbm_bytes_per_second
    slower, faster = (" ".join(roofline.impossibilities(work, share * beyond, H100)) for share in (1.01, 0.99))
    assert "inputs and outputs" not in slower
    assert "of them cached" in faster
