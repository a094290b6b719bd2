"""The environment of evidence: versions, read without importing JAX, and the environment variables of children.

Variables that a kernel.py changes while it is imported are restored by judge/evaluate/trace/integrity.py.
"""

import importlib.metadata
import math
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import harness
from harness.hardware import Chip
from harness.records import Environment
from harness.sandbox import tracing_flags

# The only variables of the caller's environment that a child gets: paths of programs and libraries, locale and time
# zone. No setting among them changes the program, its compilation or its run, and none is a key, password or name.
_KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LANGUAGE", "TZ")
_KEPT_FAMILY = "LC_"

# The compiler passes whose dumps the simulator reads; for several chips also the pass that shows sync flags.
_PASSES = "final_(bundles|hlo-static-per-bundle)"
_PASSES_OF_SEVERAL = f"({_PASSES}|post-delay-converter)"
# When XLA compiles a large CPU program, the fusions take most of the time, each about equally long. If fusions may have
# several outputs, there are fewer fusions, and compiling takes half the time. Results may differ in the last place, as
# they do from one version of XLA to the next. jaxlib 0.10.2 and 0.12.0 know these options.
_FEWER_FUSIONS = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion,xla_cpu_disable_loop_unrolling"
# With instructions newer than AVX, XLA fuses a product and a sum into one operation, which rounds once. The chip's
# vector unit has no such instruction: it rounds twice. jaxlib 0.10.2 and 0.12.0 know this option.
ROUND_TWICE = "--xla_cpu_max_isa=AVX"
# When several devices ran side by side on a loaded machine, matrix products by YNNPACK failed twice with `unsupported
# parameter`. jaxlib 0.10.2 and 0.12.0 know this option.
_NO_YNNPACK = "--xla_cpu_experimental_ynn_fusion_type="
# Kernels with at least this many operations (1,266 to 7,460 in examples/) are compiled with fewer fusions: their
# programs compile 0.4 to 2.7 s faster and take at most 1 s more in each run. With fewer operations, few programs gain
# more than they lose, and some take twice as long to run (benchmarks/cpu_fusions.py).
_MANY_OPERATIONS = 1000


def environment() -> Environment:
    """Versions, machine and platform of this interpreter."""
    return Environment(
        python=platform.python_version(),
        jax=_version("jax") or "none",
        jaxlib=_version("jaxlib") or "none",
        libtpu=_version("libtpu"),
        machine=_machine(),
        platform=f"{platform.system()}-{platform.machine()}".lower(),
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _machine() -> str:
    """The processor model and the number of usable cores, as one text. It is stable on one machine."""
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{model}, {cores()} cores"


def cores() -> int:
    """The number of cores that this process may use: those of its affinity, at most as many as control groups grant."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = _cores_of_container()
    return bound if granted is None else max(1, min(bound, math.ceil(granted)))


@cache
def _cores_of_container() -> float | None:
    return granted_cores(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))


def granted_cores(memberships: Path, mount: Path) -> float | None:
    """The cores that control groups grant this process, 1.5 for example; None if they set no limit.

    The result is the lowest limit of this process's group and of the groups above it: `cpu.max` in version 2,
    `cpu.cfs_quota_us` in version 1 (cgroups(7)). `memberships` has a line for each hierarchy; `mount` is the folder
    where the hierarchies are mounted. In a container, `mount` may be the group itself.
    """
    try:
        lines = memberships.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    grants: list[float] = []
    for _, controllers, group in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = mount / controllers if controllers else mount
        group_folder = root / group.lstrip("/")
        grants += [
            limit
            for folder in (group_folder, *group_folder.parents)
            if folder.is_relative_to(root)
            for limit in _limits(folder)
        ]
    return min(grants, default=None)


def _limits(group: Path) -> Iterator[float]:
    """Yields the cores that one group grants, or nothing if the group has no limit that can be read."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        yield int(quota) / int(period)
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period"))
        # -1: no limit.
        if int(quota) > 0:
            yield int(quota) / int(period)


def warnings_about(caller: Mapping[str, str]) -> tuple[str, ...]:
    """One sentence for each setting of the caller that could change the result; children do not get these settings."""
    return tuple(
        f"{name}={caller[name]} of your environment was not used: an attempt runs without such variables of yours"
        for name in sorted(caller)
        if name.startswith(("XLA_", "LIBTPU_", "JAX_"))
    )


def base() -> dict[str, str]:
    """The environment that all children share; its PYTHONPATH is the folder that has the harness."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_FAMILY)}
    return {
        **kept,
        "PYTHONPATH": str(Path(harness.__file__).parent.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        # Fixes the hashes of strings, and so the order of sets, so that no result depends on them.
        "PYTHONHASHSEED": "0",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        # The children's numpy products are small, and BLAS threads that wait for the next product take time from other
        # processes.
        "OPENBLAS_NUM_THREADS": "1",
        # With the next two variables, glibc keeps the memory of large arrays for later arrays. New pages cost as much
        # as the work on them: without these settings, copies and squares of arrays take two to three times as long.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
        # Silences the search for a TPU host's metadata and its warnings.
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }


def recorded(variables: Mapping[str, str]) -> tuple[str, ...]:
    """`NAME=value` for each variable of a child that can matter; paths and names of this machine are left out."""
    private = (*_KEPT, "PYTHONPATH")
    return tuple(f"{name}={value}" for name, value in sorted(variables.items()) if name not in private)


def on_cpu() -> dict[str, str]:
    """The environment of children that trace, check and simulate: JAX sees the CPU only.

    XLA has a thread for each core, but at least two threads: in TPU interpret mode one callback of a kernel may wait
    for another callback.
    """
    return {**base(), "JAX_PLATFORMS": "cpu", "PJRT_NPROC": str(max(2, cores()))}


def interpreting() -> dict[str, str]:
    """The environment of the child that interprets kernel.py.

    It has the option for fewer fusions, because most fusions end at a callback anyway.
    """
    return {**on_cpu(), "XLA_FLAGS": f"{ROUND_TWICE} {_FEWER_FUSIONS}"}


# Interpreted chips wait for each other in threads that XLA counts as busy.
_THREADS_OF_A_DEVICE = 8


def checking(operations: int, devices: int = 1) -> dict[str, str]:
    """The environment of a child that runs the CPU reference programs of a kernel with `operations` operations.

    Reference programs have no callbacks. XLA gets half of the cores, because another process works at the same time.
    With more threads, each run waits for threads that have no core, and takes a tenth to a quarter longer. With several
    devices, the child interprets programs over a mesh; its chips wait for each other in threads.
    """
    if devices > 1:
        several = f"--xla_force_host_platform_device_count={devices} {ROUND_TWICE} {_FEWER_FUSIONS} {_NO_YNNPACK}"
        return {**on_cpu(), "XLA_FLAGS": several, "PJRT_NPROC": str(_THREADS_OF_A_DEVICE * devices)}
    flags = f"{ROUND_TWICE} {_FEWER_FUSIONS}" if operations >= _MANY_OPERATIONS else ROUND_TWICE
    return {**on_cpu(), "XLA_FLAGS": flags, "PJRT_NPROC": str(max(1, cores() // 2))}


def compiling(chip: Chip, *, with_lines: bool = True) -> dict[str, str]:
    """The environment of the child that compiles with libtpu and writes its dumps to `../../dumps`.

    This path is relative to the child's working directory, because the flags are split at white space, which an
    absolute path may contain. With `with_lines` the schedule names the line of kernel.py behind each operation. This
    makes compiling 5 to 20 % slower, and changes nothing else in the schedule
    (tests/judge/simulate/test_schedules.py). For a GPU the child compiles nothing and only reads programs.
    """
    if chip.platform != "tpu":
        return on_cpu()
    flags = (
        "--xla_jf_dump_to=../../dumps",
        "--xla_jf_dump_llo_text=true",
        f"--xla_jf_dump_llo_pass_label_regex=^{_PASSES_OF_SEVERAL if chip.mesh else _PASSES}",
        *(["--xla_mosaic_enable_llo_source_annotations=true"] if with_lines else []),
    )
    return {
        **on_cpu(),
        "TPU_ACCELERATOR_TYPE": "v5litepod-1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "LIBTPU_INIT_ARGS": " ".join(flags),
    }


def measuring(device: str) -> dict[str, str]:
    """The environment of the child that times on `cpu`, `cuda` or `tpu`; TPU profiles show the inside of kernels."""
    if device == "cpu":
        return on_cpu()
    kept = base()
    if device == "cuda":
        # These variables select a GPU and CUDA's folder. JAX takes memory as needed, instead of most of it at once.
        of_gpu = {name: value for name, value in os.environ.items() if name.startswith(("CUDA_", "NVIDIA_"))}
        return {**kept, **of_gpu, "JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    del kept["TPU_SKIP_MDS_QUERY"]
    return {**kept, "LIBTPU_INIT_ARGS": tracing_flags.inside_kernels()}
