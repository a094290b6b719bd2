"""Tries everything that is planted, two at a time: each in its own process, each kernel in its own repository."""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from harness.contest import PACKAGE
from harness.records.selftest import Planted, PlantedResult, PlantedVerdict
from harness.selftest import planted as plantings
from harness.selftest import scratch
from harness.selftest.callers import CALLERS
from harness.selftest.controls import control_names, controls

# A judgement keeps one core busy, and uses a little of another.
_AT_ONCE = 2
# Python 3.11 counts the recursion of all parsing threads together, so two threads that parse at the same time may get
# the error "AST constructor recursion depth mismatch".
_WRITING = threading.Lock()
# The longest judgement on a slow machine; every stage of it has a limit of its own.
_LIMIT_SECONDS = 600.0
# The module that judges each candidate that needs no repository.
_MODULES = {
    **{caller.planted.name: "harness.selftest.callers" for caller in CALLERS},
    **dict.fromkeys(control_names(), "harness.selftest.controls"),
}


def everything() -> tuple[Planted, ...]:
    """Everything planted: kernels, bad before good, then callers and controls. Raises as `planted.kernels` does."""
    return (*plantings.kernels(), *(caller.planted for caller in CALLERS), *controls())


def sweep(
    candidates: Sequence[Planted], tell: Callable[[PlantedResult], None], package: Path = PACKAGE
) -> Iterator[PlantedResult]:
    """The result for each of `candidates`, in their order; `tell` is called with each as soon as it is known.

    `package` is the judge: the harness that is copied, once for all of them. Everything is written to a temporary
    folder, which is deleted.
    """
    with tempfile.TemporaryDirectory(prefix="selftest-") as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        judge = Path(folder) / "harness"
        shutil.copytree(package, judge, ignore=shutil.ignore_patterns("candidates"))
        # Otherwise every process of every judgement would compile the sources that it imports, which takes a third of a
        # second. Compiling all sources once takes two seconds, and no time if their bytecode was copied with them.
        if len(candidates) > 1:
            compileall.compile_dir(judge, quiet=2)

        def attempt_one(candidate: Planted) -> PlantedResult:
            began = time.monotonic()
            module = _MODULES.get(candidate.name)
            judgement = _attempt(candidate, judge) if module is None else _answer(judge.parent, module, candidate.name)
            result = PlantedResult(planted=candidate, judgement=judgement, seconds=time.monotonic() - began)
            tell(result)
            return result

        yield from pool.map(attempt_one, candidates)


def _attempt(candidate: Planted, judge: Path) -> PlantedVerdict:
    home = judge.parent / "planted" / candidate.name
    with _WRITING:
        scratch.make(home, candidate, plantings.source(candidate), judge)
    try:
        return _answer(home, "harness.selftest.attempt", str(home), str(candidate.attempts))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _answer(home: Path, module: str, *arguments: str) -> PlantedVerdict:
    """The judgement that `module` of the harness in `home` prints; outcome `bug` if the module prints none in time."""
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_SECONDS,
        )
        return msgspec.json.decode(process.stdout, type=PlantedVerdict)
    except subprocess.TimeoutExpired:
        return PlantedVerdict(outcome="bug", refusal=None, message=f"no judgement within {_LIMIT_SECONDS:g} s")
    except msgspec.DecodeError:
        errors = process.stderr.decode("utf-8", errors="replace").strip().splitlines()
        ended = f"the judging process ended with exit code {process.returncode} and without a judgement"
        return PlantedVerdict(
            outcome="bug", refusal=None, message=f"{ended}: {errors[-1] if errors else 'it said nothing'}"
        )
