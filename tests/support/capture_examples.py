"""Captures for tests: synthetic ones in the layout of a real TPU's, broken ones, and a real one of the CPU."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jax.profiler import ProfileData

from harness.sandbox import environment

# The one whole capture of TPUs at hand. The file lies beside the project and is not part of it.
REAL = Path(__file__).parents[2] / ".." / "shared" / "captures" / "v6e_host_offload.xplane.pb"
Stats = Mapping[str, int | float | str | bytes]

MICROSECOND = 1_000_000  # in picoseconds
PROGRAM = 9152
MODULE = f"jit_train_step({PROGRAM})"
HOST = "host-0"

V6E: Stats = {
    "device_type_string": "TPU v6 lite",
    "peak_teraflops_per_second": 918.0,
    "peak_hbm_bw_gigabytes_per_second": 1640.0,
}

# An instruction: its HLO text, then what XProf's profiler writes into its metadata.
Instruction = tuple[str, Stats]

# The layouts of a TPU's arrays.
_F32, _BF16 = "{1,0:T(8,128)}", "{1,0:T(8,128)(2,1)}"
_HEADS = "bf16[8,1024,128]{2,1,0:T(8,128)(2,1)}"


def _of_step(text: str, described: tuple[str, str, str], **counts: int) -> Instruction:
    """An instruction of `train_step` with its category, tf_op and source; "" stands for one that it does not have."""
    category, tf_op, source = described
    names = {"tf_op": tf_op and f"jit(train_step)/{tf_op}", "source": source and f"/src/{source}"}
    return text, {"hlo_category": category, **names, **counts}


# 2*1024*2048*4096 FLOPs: 94 % of a v6e's peak in 20 us.
_PRODUCT = {"flops": 17_179_869_184, "model_flops": 17_179_869_184, "bytes_accessed": 29_360_128}
MATMUL = _of_step(
    f"%fusion.3 = bf16[1024,4096]{_BF16} fusion(bf16[1024,2048]{_BF16} %param.1, bf16[2048,4096]{_BF16} %param.2), "
    "kind=kOutput, calls=%fused_computation.3",
    ("convolution fusion", "jvp(mlp)/dot_general:", "model.py:41"),
    **_PRODUCT,
)
MATMUL_BACKWARD = _of_step(
    f"%fusion.9 = bf16[2048,4096]{_BF16} fusion(bf16[1024,2048]{_BF16} %param.1, bf16[1024,4096]{_BF16} %fusion.3), "
    "kind=kOutput, calls=%fused_computation.9",
    ("convolution fusion", "transpose(jvp(mlp))/dot_general:", "model.py:41"),
    **_PRODUCT,
)
# XLA's counts of a Pallas kernel without a cost estimate.
PALLAS = _of_step(
    f'%splash_mha_fwd.1 = {_HEADS} custom-call({_HEADS} %param.3), custom_call_target="tpu_custom_call"',
    ("custom-call", "jvp(attention)/pallas_call:", "attention.py:12"),
    flops=0,
    bytes_accessed=6_291_456,
)
TANH = _of_step(
    f"%fusion.5 = f32[512,1024]{_F32} fusion(f32[512,1024]{_F32} %copy.2), kind=kLoop, calls=%fused_computation.5",
    ("loop fusion", "jvp(mlp)/tanh:", "model.py:42"),
    flops=524_288,
    bytes_accessed=4_194_304,
)
COPY = _of_step(
    f"%copy.2 = f32[512,1024]{_F32} copy(f32[512,1024]{{0,1:T(8,128)}} %param.4)",
    ("data formatting", "", ""),
    bytes_accessed=4_194_304,
)
WHILE = _of_step(
    f"%while.1 = (s32[], f32[512,1024]{_F32}) while((s32[], f32[512,1024]{_F32}) %tuple.1), condition=%cond.1, "
    "body=%body.1",
    ("while", "while:", "model.py:50"),
)
_SUM, _GATHER = "transpose(jvp(mlp))/psum:", "jvp(mlp)/all_gather:"
_PARTS = f"(bf16[128,1024]{_BF16}, bf16[512,1024]{_BF16})"
ALL_REDUCE_START = _of_step(
    f"%all-reduce-start.1 = f32[64,4096]{_F32} all-reduce-start(f32[64,4096]{_F32} %fusion.12), channel_id=1, "
    "replica_groups={{0,1,2,3}}, to_apply=%add.1",
    ("all-reduce-start", _SUM, "model.py:60"),
    bytes_accessed=2_097_152,
)
ALL_REDUCE_DONE = _of_step(
    f"%all-reduce-done.1 = f32[64,4096]{_F32} all-reduce-done(f32[64,4096]{_F32} %all-reduce-start.1)",
    ("all-reduce-done", _SUM, "model.py:60"),
)
ALL_GATHER_START = _of_step(
    f"%all-gather-start.2 = {_PARTS} all-gather-start(bf16[128,1024]{_BF16} %param.5), channel_id=2, "
    "replica_groups={{0,1,2,3}}, dimensions={0}",
    ("all-gather-start", _GATHER, "model.py:40"),
    bytes_accessed=1_310_720,
)
ALL_GATHER_DONE = _of_step(
    f"%all-gather-done.2 = bf16[512,1024]{_BF16} all-gather-done({_PARTS} %all-gather-start.2)",
    ("all-gather-done", _GATHER, "model.py:40"),
)


@dataclass(frozen=True, slots=True)
class Ran:
    """One event: its name, start and length in microseconds; for an instruction, also by the device's own clock."""

    what: Instruction | str
    start: float
    length: float
    stats: Stats = field(default_factory=dict)
    has_own_time: bool = True

    @property
    def end(self) -> float:
        """When it ended, in microseconds."""
        return self.start + self.length


def one_device() -> str:
    """One TPU v6e core: 3 steps of 100 us with a Pallas kernel, fusions, a copy inside a loop, and 6 us of idling.

    Per step: `splash_mha_fwd.1` 40, `fusion.3` 20, `while.1` 14 around `copy.2` 6 and `fusion.5` 5,
    `fusion.9` 20 us.
    """
    ops, modules, steps = [], [], []
    for step in range(3):
        at = 10.0 + 100.0 * step
        steps.append(Ran(str(step), at, 100.0, {"group_id": step}))
        modules.append(Ran(MODULE, at, 96.0, {"run_id": 70 + step, "program_id": PROGRAM}))
        ops += [
            Ran(PALLAS, at, 40.0),
            Ran(MATMUL, at + 40.0, 20.0),
            Ran(WHILE, at + 62.0, 14.0),
            Ran(COPY, at + 63.0, 6.0),
            Ran(TANH, at + 70.0, 5.0),
            Ran(MATMUL_BACKWARD, at + 76.0, 20.0),
        ]
    device = plane(1, "/device:TPU:0", {"Steps": steps, "XLA Modules": modules, "XLA Ops": ops}, V6E)
    calls = [Ran(f"kernel_step_{step}", 5.0 + 100.0 * step, 99.0) for step in range(3)]
    return space(device, plane(2, "/host:CPU", {"python": calls}, {}))


def four_devices() -> str:
    """Four TPU v6e cores: 3 steps with all-gather and all-reduce in the background, core 2 slower, the host idle.

    Per step of 150 us: `all-gather-start.2` 1, `splash_mha_fwd.1` 40, `all-gather-done.2` 4 (exposed), `fusion.3` 20,
    `fusion.9` 20 (core 2: 32), `all-reduce-start.1` 1, `fusion.5` 5, `all-reduce-done.1` 15 us (core 2: 3, for the
    others wait for it). On the asynchronous line the all-gather takes 45 and the all-reduce 21 us. Then the devices
    wait for the host until the next step.
    """
    planes = []
    for core in range(4):
        ops, beside, modules, steps = [], [], [], []
        slower = 12.0 if core == 2 else 0.0
        for step in range(3):
            at = 10.0 + 150.0 * step
            steps.append(Ran(str(step), at, 150.0, {"group_id": step}))
            modules.append(Ran(MODULE, at, 106.0, {"run_id": 70 + step, "program_id": PROGRAM}))
            reduced = at + 85.0 + slower
            ops += [
                Ran(ALL_GATHER_START, at, 1.0),
                Ran(PALLAS, at + 1.0, 40.0),
                Ran(ALL_GATHER_DONE, at + 41.0, 4.0),
                Ran(MATMUL, at + 45.0, 20.0),
                Ran(MATMUL_BACKWARD, at + 65.0, 20.0 + slower),
                Ran(ALL_REDUCE_START, reduced, 1.0),
                Ran(TANH, reduced + 1.0, 5.0),
                Ran(ALL_REDUCE_DONE, reduced + 6.0, 15.0 - slower),
            ]
            beside += [Ran(ALL_GATHER_START, at, 45.0), Ran(ALL_REDUCE_START, reduced, 21.0 - slower)]
        lines = {"Steps": steps, "XLA Modules": modules, "XLA Ops": ops, "Async XLA Ops": beside}
        planes.append(plane(core + 1, f"/device:TPU:{core}", lines, V6E))
    sparse = plane(9, "/device:TPU:0 SparseCore 0", {"Sparse Core Ops": [Ran("gather", 20.0, 5.0)]}, {})
    # The input pipeline: the devices have nothing to do meanwhile.
    waits = [Ran("next_batch", 116.0 + 150.0 * step, 40.0) for step in range(3)]
    train = [Ran("train", 6.0 + 150.0 * step, 148.0, {"step_num": step}) for step in range(3)]
    return space(*planes, sparse, plane(10, "/host:CPU", {"python": train, "loader": waits}, {}))


# A training step of a mixture of experts: name, category and tf_op, 10 us each.
_EXPERTS = (
    ("splash_mha_fwd.1", "custom-call", "jvp(attention)/pallas_call:"),
    ("sort.1", "sort", "jvp(moe)/router/sort:"),
    ("all-to-all.1", "all-to-all", "jvp(moe)/all_to_all:"),
    *((f"gmm.{number}", "custom-call", "") for number in range(1, 5)),
    ("fusion.1", "loop fusion", "jvp(norm)/mul:"),
    ("fusion.2", "custom fusion", "jvp(embed)/gather:"),
    ("fusion.3", "convolution fusion", "jvp(mlp)/dot_general:"),
    ("copy.1", "data formatting", ""),
    ("chunk_gla.1", "custom-call", "jvp(gla)/pallas_call:"),
    ("splash_mha_dq.1", "custom-call", "transpose(jvp(attention))/pallas_call:"),
    *((f"tgmm.{number}", "custom-call", "") for number in (1, 2)),
)


def experts() -> str:
    """One TPU v6e core: a step with an operation of each class, and the grouped matmuls of one layer of experts."""
    ran: list[Instruction] = [
        (
            f"%{name} = bf16[512,1024]{{1,0}} {'fusion' if category.endswith('fusion') else category}(%param.1)",
            {"hlo_category": category, "tf_op": scope and f"jit(train_step)/{scope}", "bytes_accessed": 2_097_152},
        )
        for name, category, scope in _EXPERTS
    ]
    ops = [Ran(what, 10.0 * number, 10.0) for number, what in enumerate(ran)]
    whole = 10.0 * len(ran)
    lines = {"Steps": [Ran("0", 0.0, whole)], "XLA Modules": [Ran(MODULE, 0.0, whole)], "XLA Ops": ops}
    return space(plane(1, "/device:TPU:0", lines, V6E))


_HBM_ARRAY = "f32[1024,1024]{1,0:T(8,128)}"
_HOST_ARRAY = "f32[1024,1024]{1,0:T(8,128)S(5)}"
OFFLOADED_BYTES = 4 * 1024 * 1024


def _hbm(*accesses: int) -> bytes:
    """XProf's memory_access_breakdown: one read (1) or write (2) of the whole array in HBM for each number."""
    size = bytes([0x18, 0x80, 0x80, 0x80, 0x02])
    return b"".join(b"\x0a\x09\x08" + bytes([access]) + b"\x10\x01" + size for access in accesses)


def _moved(name: str, opcode: str, result: str, operand: str, hbm: bytes) -> Instruction:
    return (
        f"%{name} = {result} {opcode}({operand})",
        {"hlo_category": opcode, "bytes_accessed": OFFLOADED_BYTES, "memory_access_breakdown": hbm},
    )


def _pair(to: str, of: str) -> str:
    return f"({to}, {of}, u32[]{{:S(2)}})"


FETCH_START = _moved("copy-start", "copy-start", _pair(_HBM_ARRAY, _HOST_ARRAY), f"{_HOST_ARRAY} %param", _hbm())
FETCH_DONE = _moved("copy-done", "copy-done", _HBM_ARRAY, f"{_pair(_HBM_ARRAY, _HOST_ARRAY)} %copy-start", _hbm(2))
STORE_START = _moved("copy-start.1", "copy-start", _pair(_HOST_ARRAY, _HBM_ARRAY), f"{_HBM_ARRAY} %add_fusion", _hbm(1))
STORE_DONE = _moved("copy-done.1", "copy-done", _HOST_ARRAY, f"{_pair(_HOST_ARRAY, _HBM_ARRAY)} %copy-start.1", _hbm())
ADD: Instruction = (
    f"%add_fusion = {_HBM_ARRAY} fusion({_HBM_ARRAY} %copy-done), kind=kLoop, calls=%fused_computation",
    {
        "hlo_category": "loop fusion",
        "flops": 1024 * 1024,
        "bytes_accessed": 2 * OFFLOADED_BYTES,
        "memory_access_breakdown": _hbm(1, 2),
    },
)
OFFLOAD_RUNS = 6


def _adjusted(core_clock: float) -> float:
    """The profiler's clock at the time `core_clock` of the core's own, both in microseconds."""
    leapt = 100_000.0 if core_clock >= 500.0 else 0.0
    stood = min(max(core_clock - 1371.5, 0.0), 182.5)
    return core_clock + 3.0 + leapt - stood


def host_offload() -> str:
    """One TPU v6e core: 6 runs of 382.6 us, 1.4 us apart, that fetch from and store to the host's memory, and wait.

    Per run, by the core's own clock: `copy-start` 0.1, `copy-done` 189, `add_fusion` 10, `copy-start.1` 0.1 and
    `copy-done.1` 183 us, each 0.1 us after the one before. The profiler's clock, on which alone runs and asynchronous
    operations are, begins 3 us late; it leaps by 100 ms within the fetch of run 1 and stands still from the store's
    start on to the end of run 3, so that what it places there has no length or lies in the operation before.
    """
    ops, beside, modules = [], [], []
    at = 20.0
    program = ((FETCH_START, 0.1), (FETCH_DONE, 189.0), (ADD, 10.0), (STORE_START, 0.1), (STORE_DONE, 183.0))
    for _ in range(OFFLOAD_RUNS):
        first = at
        for what, length in program:
            shown, end = _adjusted(at), _adjusted(at + length)
            timing = {"device_offset_ps": round(at * MICROSECOND), "device_duration_ps": round(length * MICROSECOND)}
            ops.append(Ran(what, shown, end - shown, timing))
            if what is FETCH_DONE:
                beside.append(Ran(FETCH_START, _adjusted(first), end - _adjusted(first), has_own_time=False))
            at += length + 0.1
        begun = _adjusted(first) - 0.3
        modules.append(Ran("jit_f(9152)", begun, ops[-1].end - begun, {"program_id": PROGRAM}))
        at += 1.3
    lines = {"XLA Modules": modules, "XLA Ops": ops, "Async XLA Ops": beside}
    return space(plane(1, "/device:TPU:0", lines, {**V6E, "device_type_string": "TPU v6 Lite"}))


PSUM: Instruction = (
    f"%all-reduce = {_HBM_ARRAY} all-reduce({_HBM_ARRAY} %param), replica_groups={{{{0,1}}}}, to_apply=%add",
    {"hlo_category": "all-reduce", "bytes_accessed": 2 * OFFLOADED_BYTES},
)


def late_start(recorded: int = 6) -> str:
    """Two TPU v6e cores: two runs of a program that adds up over both, then six steps of 1 ms, 1 us apart.

    A sum takes 50 us, from 10 ms and from 200 ms on. Core 1 begins early and waits 3 and 0.4 ms for core 0, which waits
    0.5 us (`barrier-cores`). The steps begin at 400 ms; only the first `recorded` have an operation. The profiler's
    clock, on which alone runs and waits are, is fast by 20 millionths and leaps by 100 ms in the fourth step.
    """

    def adjusted(at: float) -> float:
        return at * (1 + 20e-6) + (100_000.0 if at >= 403_350.0 else 0.0)

    def shown(what: Instruction | str, at: float, length: float) -> Ran:
        timing = {"device_offset_ps": round(at * MICROSECOND), "device_duration_ps": round(length * MICROSECOND)}
        start = adjusted(at)
        return Ran(what, start, adjusted(at + length) - start, {} if isinstance(what, str) else timing)

    planes = []
    for core in range(2):
        ops, modules, waits = [], [], []
        for at, early in ((10_000.0, 3_000.0), (200_000.0, 400.0)):
            wait = early if core else 0.5
            modules.append(shown("jit_psum(1)", at - wait, wait + 50.0))
            waits.append(shown("barrier-cores", at - wait, wait))
            ops.append(shown(PSUM, at, 50.0))
        for step in range(6):
            at = 400_000.0 + 1_001.0 * step
            modules.append(shown("jit_f(9152)", at, 1_000.0))
            if step < recorded:
                ops.append(shown(TANH, at, 1_000.0))
        lines = {"XLA Modules": modules, "XLA Ops": ops, "XLA TraceMe": waits}
        planes.append(plane(core + 1, f"/device:TPU:{core}", lines, V6E))
    return space(*planes, plane(3, "/host:CPU", {"python": [Ran("main", 0.0, 600_000.0)]}, {}))


# Numbers of xprof's utils/tpu_counter_ids_v6e.h, by the name after `..._COUNTERS_UNPRIVILEGED_COUNT_`.
_COUNTER_IDS = {"CYCLES": 3257466888, "MATMUL_VREG_BF16_MXU_0": 3257467288, "MATMUL_LMR_BF16_MXU_1": 3257467360}
_COUNTER = "VF_CHIP_TC_TCS_TC_MISC_TCS_STATS_TCS_STATS_COUNTERS_UNPRIVILEGED_COUNT_"


def counters_run(logdir: Path) -> Path:
    """Counters of kernels on a v6e: 1000 cycles with 50 and 20 products on the two MXUs, 500 with 25 and none.

    One value of a third kernel could not be read.
    """

    def sample(**values: int) -> list[Ran]:
        return [
            Ran(_COUNTER + name, 0.0, 0.0, {"counter_value": value, "performance_counter_id": _COUNTER_IDS[name]})
            for name, value in values.items()
        ]

    lines = {
        "fusion.3": sample(CYCLES=1000, MATMUL_VREG_BF16_MXU_0=50, MATMUL_LMR_BF16_MXU_1=20),
        "fusion.9": sample(CYCLES=500, MATMUL_VREG_BF16_MXU_0=25, MATMUL_LMR_BF16_MXU_1=0),
        "fusion.12": sample(CYCLES=-1),
    }
    # xprof 2.24 knows the device by this spelling alone.
    stats: Stats = {"device_type_string": "TPU v6 Lite", "device_id": 3, "global_chip_id": 3}
    return run_folder(logdir, "counters", serialized(space(plane(1, "/device:TPU:0", lines, stats))))


def space(*planes: str) -> str:
    """The XSpace of these planes as profilers end it: with the host's name."""
    return "\n".join((*planes, f'hostnames: "{HOST}"'))


def one_core(ops: Iterable[Ran], stats: Stats = V6E) -> str:
    """The XSpace of a TPU core that ran these operations."""
    return space(plane(1, "/device:TPU:0", {"XLA Ops": ops}, stats))


def plane(number: int, name: str, lines: Mapping[str, Iterable[Ran]], stats: Stats) -> str:
    """One plane in text form; an instruction's statistics stand in its metadata, as a TPU's profiler writes them."""
    names: dict[str, int] = {}
    described: dict[str, tuple[int, str]] = {}

    def stat(of: Stats) -> str:
        return " ".join(
            f"stats {{ metadata_id: {names.setdefault(key, len(names) + 1)} {_value(value)} }}"
            for key, value in of.items()
        )

    def kind(what: Instruction | str) -> int:
        text, own_stats = (what, {}) if isinstance(what, str) else what
        if text not in described:
            at = len(described) + 1
            shown = text.partition(" = ")[0].lstrip("%")
            display = f"display_name: {json.dumps(shown)}" if own_stats else ""
            more = {"program_id": PROGRAM, "symbol_id": at, **own_stats} if own_stats else {}
            described[text] = (at, f"id: {at} name: {json.dumps(text)} {display} {stat(more)}")
        return described[text][0]

    body = [stat(stats)]
    for at, (line, events) in enumerate(lines.items(), 1):
        body.append(f"lines {{ id: {at} name: {json.dumps(line)} timestamp_ns: 1000000")
        for event in events:
            offset, length = round(event.start * MICROSECOND), round(event.length * MICROSECOND)
            timed = f"metadata_id: {kind(event.what)} offset_ps: {offset} duration_ps: {length}"
            is_own = event.has_own_time and not isinstance(event.what, str)
            clock = {"device_offset_ps": offset, "device_duration_ps": length} if is_own else {}
            body.append(f"events {{ {timed} {stat({**clock, **event.stats})} }}")
        body.append("}")
    entries = [f"event_metadata {{ key: {at} value {{ {text} }} }}" for at, text in described.values()]
    entries += [
        f"stat_metadata {{ key: {at} value {{ id: {at} name: {json.dumps(key)} }} }}" for key, at in names.items()
    ]
    return "\n".join((f"planes {{ id: {number} name: {json.dumps(name)}", *body, *entries, "}"))


def _value(value: int | float | str | bytes) -> str:
    if isinstance(value, bytes):
        octal = "".join(f"\\{byte:03o}" for byte in value)
        return f'bytes_value: "{octal}"'
    if isinstance(value, str):
        return f"str_value: {json.dumps(value)}"
    return f"int64_value: {value}" if isinstance(value, int) else f"double_value: {value}"


def serialized(text: str) -> bytes:
    """The bytes of an XSpace in text form."""
    data = ProfileData.text_proto_to_serialized_xspace(text)
    # A mistake in the text is only logged: the end of the data shows whether the whole text was read.
    assert data.endswith(HOST.encode()), "not the text form of an XSpace"
    return bytes(data)


def varint(value: int) -> bytes:
    """A number as protocol buffers store it."""
    more, last = divmod(value, 128)
    return bytes([last | 128]) + varint(more) if more else bytes([last])


def packed(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def run_folder(logdir: Path, run: str, data: bytes, host: str = HOST) -> Path:
    """Writes a capture where XProf looks for it, and returns its file."""
    path = logdir / "plugins" / "profile" / run / f"{host}.xplane.pb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _written(make: Callable[[], str], run: str) -> Callable[[Path], Path]:
    """A function that writes the capture below a log directory, and returns its file."""
    return lambda logdir: run_folder(logdir, run, serialized(make()))


one_device_run = _written(one_device, "one-device")
four_devices_run = _written(four_devices, "four-devices")
experts_run = _written(experts, "experts")
host_offload_run = _written(host_offload, "host-offload")


def empty_run(logdir: Path) -> Path:
    """A file without a byte."""
    return run_folder(logdir, "empty", b"")


def corrupt_run(logdir: Path) -> Path:
    """A file that is not a profile."""
    return run_folder(logdir, "corrupt", b"\x0a\xff\xff\xff\xff\x0f" + bytes(range(256)) * 8)


def truncated_run(logdir: Path) -> Path:
    """Two thirds of `one_device`."""
    data = serialized(one_device())
    return run_folder(logdir, "truncated", data[: len(data) * 2 // 3])


# A program, compiled and warm before its captures: each has 3 calls in step annotations.
_BEFORE = """
import sys
import jax
import jax.numpy as jnp
"""
_AFTER = """
for _ in range(2):
    jax.block_until_ready(call())
for session in sys.argv[2:]:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.session_id = session
    with jax.profiler.trace(sys.argv[1], profiler_options=options):
        for number in range(3):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                jax.block_until_ready(call())
"""
# A small model with two named scopes.
_MODEL = """
def loss(x, w):
    with jax.named_scope("mlp"):
        y = jnp.tanh(x @ w)
    with jax.named_scope("attention"):
        return jnp.sum(jax.nn.softmax(y @ y.T))

step = jax.jit(jax.grad(loss, argnums=1))
x, w = jnp.ones((256, 256)), jnp.ones((256, 256))
call = lambda: step(x, w)
"""


def profiled(logdir: Path, program: str, *sessions: str) -> list[Path]:
    """Real captures of this machine's CPU, taken in a process of its own that calls the program's `call`."""
    subprocess.run(
        [sys.executable, "-c", _BEFORE + program + _AFTER, str(logdir), *sessions],
        check=True,
        env=environment.on_cpu(),
        timeout=120,
        capture_output=True,
    )
    return [path for name in sessions for path in (logdir / "plugins" / "profile" / name).glob("*.xplane.pb")]


def cpu_run(logdir: Path) -> Path:
    """A real capture of a small model on this machine's CPU; about two seconds."""
    (path,) = profiled(logdir, _MODEL, "cpu")
    return path
