"""One configuration of one contender: compiled, simulated, and kept in a cache that says what it depends on."""

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import peers_problems
from fidelity import fingerprint
from fidelity_compile import environment
from peers_compile import KERNELS, REFUSED, REFUSES, VMEM_KIB
from peers_problems import OURS, ROOT, Configuration, Problem

from harness.advice.dump_directory import read
from harness.hardware import chip as chip_named
from harness.judge.simulate.module import run_module

HERE = Path(__file__).parent
# The longest schedules take this long on one slow core.
_DEADLINE_SECONDS = 600.0
# The compiler's message if a kernel exceeds its VMEM limit, and the share of the chip's VMEM that the kernel then gets.
_TOO_MUCH_VMEM = "exceeded scoped vmem limit"
_RAISED_VMEM_LIMIT = 0.75
# The exit code of a compiler that aborted. It counts as the refusal of a configuration.
_ABORTS = (-signal.SIGABRT, -signal.SIGSEGV)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """The compiler: the installed libtpu, or the one at `library`; `name` is for the page and for the cache."""

    name: str
    library: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One configuration of one contender at one problem, for one chip, with one compiler."""

    compiler: Compiler
    chip: str
    problem: Problem
    contender: str
    configuration: Configuration

    @property
    def words(self) -> list[str]:
        """The task as the child's arguments after the folder. They are not in its environment, which jax changes."""
        kernel = []
        if self.contender == OURS:
            kernel = [f"kernel={ROOT / peers_problems.our_kernel(self.problem, self.chip)}"]
        settings = [f"{name}={value}" for name, value in self.configuration]
        dialect = "own" if self.compiler.library is None else "older"
        return [dialect, self.chip, self.contender, *self.problem.words, *kernel, *settings]

    @property
    def place(self) -> Path:
        """The task's path in the cache, made of everything that the outcome depends on, the text of our kernel too."""
        compiler = "".join(sign if sign.isalnum() or sign in ".-" else "-" for sign in self.compiler.name)
        return Path(
            compiler,
            self.chip,
            self.problem.name,
            _version_of(self.contender, self.problem, self.chip),
            "-".join(f"{name}={value}" for name, value in self.configuration),
        )


@functools.cache
def _version_of(contender: str, problem: Problem, chip: str) -> str:
    if contender != OURS:
        return f"{contender}-{version('tokamax' if contender == 'tokamax' else 'jax')}"
    kernel = ROOT / peers_problems.our_kernel(problem, chip)
    return f"ours-{hashlib.sha256(kernel.read_bytes()).hexdigest()[:12]}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a task: a simulated time, or None and the reason (`refusal`).

    `around_seconds` is the time that the module spends outside of its Pallas kernels: copies, fusions, its own
    program. Spills are executed ones; `unknown` counts the things that the simulator did not understand.
    """

    seconds: float | None = None
    refusal: str = ""
    plus_minus_seconds: float | None = None
    around_seconds: float | None = None
    spills: int | None = None
    vmem_bytes: int | None = None
    unknown: int = 0


def cached_outcome(task: Task, cache: Path) -> Outcome | None:
    """The outcome of a task, from the cache; None if the task was not tried with this simulator."""
    path = _result_path(task, cache)
    return Outcome(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


@functools.cache
def _simulator() -> str:
    # Computed once, because the source may be edited while its older state runs.
    return fingerprint()


def fingerprinted(cache: Path, what: str) -> Path:
    """The folder of the results of this simulator."""
    return cache / what / _simulator()


def _result_path(task: Task, cache: Path) -> Path:
    place = fingerprinted(cache, "results") / task.place
    return place.with_name(place.name + ".json")


def outcome(task: Task, cache: Path, limit_seconds: float) -> Outcome:
    """The outcome of a task, from the cache, or compiled and simulated now."""
    task_outcome = cached_outcome(task, cache)
    if task_outcome is None:
        directory = cache / "dumps" / task.place
        refusal = _compiled(task, directory, limit_seconds)
        task_outcome = Outcome(refusal=refusal) if refusal else _simulated(task, directory)
        path = _result_path(task, cache)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(task_outcome), indent=1), encoding="utf-8")
    return task_outcome


def _compiled(task: Task, directory: Path, limit_seconds: float) -> str:
    """Leaves the dump in `directory`; returns "", or the text of the refusal, which is kept.

    If the compiler's own limit of VMEM is too low, it is raised, and the kernel is compiled once more.
    """
    refused = directory / REFUSED
    if not (directory / KERNELS).exists() and not refused.exists():
        _compile(task, directory, limit_seconds)
        if refused.exists() and _TOO_MUCH_VMEM in refused.read_text(encoding="utf-8"):
            kib = chip_named(task.chip).vmem_bytes * _RAISED_VMEM_LIMIT / 1024
            _compile(task, directory, limit_seconds, f"{VMEM_KIB}={kib:.0f}")
    return sentence(refused.read_text(encoding="utf-8")) if refused.exists() else ""


def _compile(task: Task, directory: Path, limit_seconds: float, *more: str) -> None:
    """Runs one child, in an empty `directory`."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    refused = directory / REFUSED
    command = [sys.executable, str(HERE / "peers_compile.py"), str(directory), *task.words, *more]
    paths = environment(directory, task.compiler.library) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        child = subprocess.run(command, env=paths, timeout=limit_seconds, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        refused.write_text(f"not compiled within {limit_seconds:.0f} s", encoding="utf-8")
        return
    if child.returncode in _ABORTS:
        refused.write_text(f"the compiler aborted: {_complaint(child.stderr)}", encoding="utf-8")
    elif child.returncode not in (0, REFUSES):
        raise SystemExit(f"{' '.join(task.words)}: exit code {child.returncode}: {child.stderr[-2000:]}")


def _complaint(text: str) -> str:
    """The message of an aborting compiler: a line that begins with F, for fatal."""
    lines = [line for line in text.splitlines() if line.startswith("F") or "Check failed" in line]
    return lines[0] if lines else "no message"


def sentence(text: str) -> str:
    """The most telling line of a refusal: the one that names the exceeded limit, otherwise the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = next((line for line in lines if _TOO_MUCH_VMEM in line), lines[0])
    return telling[max(telling.find("Scoped allocation"), 0) :][:300]


def _simulated(task: Task, directory: Path) -> Outcome:
    """The module's time on the chip. The dump's kernels are those that the compiling child named."""
    chip = chip_named(task.chip)
    kernels = json.loads((directory / KERNELS).read_text(encoding="utf-8"))
    simulation = run_module(read(directory, chip), chip, deadline_seconds=_DEADLINE_SECONDS)
    if simulation.seconds is None:
        return Outcome(refusal=f"no latency: {simulation.unknown[0]}", unknown=len(simulation.unknown))
    names = {kernel["name"] for kernel in kernels}
    inside = sum(op.seconds for op in simulation.ops if op.name in names)
    sizes = [kernel["vmem_bytes"] for kernel in kernels]
    return Outcome(
        seconds=simulation.seconds,
        plus_minus_seconds=simulation.plus_minus_seconds,
        around_seconds=simulation.seconds - inside if inside else None,
        spills=simulation.executed_spills,
        vmem_bytes=None if None in sizes else max(sizes, default=None),
        unknown=len(simulation.unknown),
    )
