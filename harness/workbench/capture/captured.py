"""The process that profiles some calls of a kernel's program, or calls it endlessly under JAX's profiler server."""

import itertools
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax

from harness.operators import Problem
from harness.sandbox import profiling
from harness.sandbox.messages import Done
from harness.workbench.capture.messages import (
    CaptureReply,
    CaptureRequest,
    CaptureSubject,
    ServeReply,
    ServeRequest,
    StepsWindow,
    WatchRequest,
)


def capture(request: CaptureRequest) -> CaptureReply:
    """The profile's path and the times of the profiled calls; also writes the text of the compiled module."""
    call, text = _warm(request.subject)
    host_seconds: list[float] = []

    def timed() -> None:
        began = time.perf_counter()
        call()
        host_seconds.append(time.perf_counter() - began)

    calls: Iterator[Callable[[], None]] = itertools.repeat(timed, request.calls)
    folder = profiling.trace(calls, Path(request.profile_directory), request.session, request.mode)
    Path(request.hlo_text).write_text(text, encoding="utf-8")
    return CaptureReply(
        profile=str(next(folder.glob("*.xplane.pb"))),
        device_kind=jax.devices()[0].device_kind,
        host_seconds=tuple(host_seconds),
        device_seconds=profiling.device_seconds(folder),
    )


@dataclass(slots=True)
class _Served:
    """A program that runs endlessly in a thread of its own, and the exception that ended it, if one did."""

    call: Callable[[], None]
    window: StepsWindow | None = None
    thread: threading.Thread | None = None
    captured: threading.Event = field(default_factory=threading.Event)
    raised: list[Exception] = field(default_factory=list)

    def start(self) -> None:
        """Starts the program's thread, which ends when the process does."""
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            steps = itertools.count()
            if self.window is not None:
                for step in itertools.islice(steps, self.window.first):
                    self._step(step)
                calls = (partial(self._step, step) for step in range(self.window.first, self.window.last + 1))
                window = self.window
                profiling.trace(calls, Path(window.profile_directory), window.session, window.mode, is_annotated=True)
                self.captured.set()
                steps = itertools.count(window.last + 1)
            for step in steps:
                self._step(step)
        # `watch` raises the exception again, in the thread that answers requests.
        except Exception as error:  # noqa: BLE001
            self.raised.append(error)
            self.captured.set()

    def _step(self, step: int) -> None:
        with jax.profiler.StepTraceAnnotation("kernel", step_num=step):
            self.call()


_served: _Served | None = None


def serve(request: ServeRequest) -> ServeReply:
    """The device and the time of one call; starts JAX's profiler server, on all interfaces, and the endless program."""
    global _served
    call, _ = _warm(request.subject)
    began = time.perf_counter()
    call()
    call_seconds = time.perf_counter() - began
    jax.profiler.start_server(request.port)
    _served = _Served(call, request.window)
    _served.start()
    return ServeReply(device_kind=jax.devices()[0].device_kind, call_seconds=call_seconds)


def watch(request: WatchRequest) -> Done:
    """With `window`, the folder of the captured steps, once it exists; otherwise waits until the program fails.

    Raises the exception that ended the program.
    """
    if _served is None or _served.thread is None:
        raise RuntimeError("expected a serve request before the watch request, got none")
    if request.window:
        _served.captured.wait()
        if not _served.raised and (window := _served.window) is not None:
            return Done(path=str(Path(window.profile_directory) / "plugins" / "profile" / window.session))
    _served.thread.join()
    raise _served.raised[0]


def _warm(subject: CaptureSubject) -> tuple[Callable[[], None], str]:
    """A function that calls the compiled, warmed-up program and waits for the result; and the program's HLO text."""
    problem: Problem = pickle.loads(Path(subject.problem).read_bytes())
    if subject.reduced is not None:
        problem = next(itertools.islice(problem.reduced(), subject.reduced, None))
    drawn = problem.make_inputs(problem.families(full=subject.reduced is None)[-1], subject.seed)
    inputs = [jax.device_put(array) for array in drawn]
    exported = jax.export.deserialize(bytearray(Path(subject.artifact).read_bytes()))
    compiled = jax.jit(exported.call).lower(*inputs).compile()
    call = partial(_call_and_wait, compiled, inputs)
    for _ in range(subject.warmup_calls):
        call()
    return call, compiled.as_text() or ""


def _call_and_wait(compiled: Callable[..., Any], inputs: list[Any]) -> None:
    jax.block_until_ready(compiled(*inputs))


TASKS = {"capture": (CaptureRequest, capture), "serve": (ServeRequest, serve), "watch": (WatchRequest, watch)}
