"""The process that profiles some calls of a kernel's program, or calls it endlessly under JAX's profiler server."""

import itertools
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from pathlib import Path

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
    """The path of the profile and the times of the profiled calls. Also writes the compiled module's text."""
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


# `_captured` gets the folder of the captured steps, `_failed` the exception that ended the endless program.
_captured: Future[Path] = Future()
_failed: Future[Path] = Future()


def serve(request: ServeRequest) -> ServeReply:
    """The device and the time of one call. Starts JAX's profiler server (on all interfaces) and the endless program."""
    call, _ = _warm(request.subject)
    began = time.perf_counter()
    call()
    call_seconds = time.perf_counter() - began
    jax.profiler.start_server(request.port)
    # The thread ends when the process does.
    threading.Thread(target=_call_endlessly, args=(call, request.window), daemon=True).start()
    return ServeReply(device_kind=jax.devices()[0].device_kind, call_seconds=call_seconds)


def _call_endlessly(call: Callable[[], None], window: StepsWindow | None) -> None:
    def annotate(step: int) -> None:
        with jax.profiler.StepTraceAnnotation("kernel", step_num=step):
            call()

    try:
        steps = itertools.count()
        if window is not None:
            for step in itertools.islice(steps, window.first):
                annotate(step)
            calls = (partial(annotate, next(steps)) for _ in range(window.first, window.last + 1))
            directory = Path(window.profile_directory)
            _captured.set_result(profiling.trace(calls, directory, window.session, window.mode, is_annotated=True))
        for step in steps:
            annotate(step)
    # `watch`, in the thread that answers requests, raises the exception again.
    except Exception as error:  # noqa: BLE001
        _failed.set_exception(error)


def watch(request: WatchRequest) -> Done:
    """Waits for the captured steps of the request's `window` and returns their folder.

    If the request has no `window`, waits until the program fails. Raises the exception that ended the program.
    """
    if request.window:
        futures.wait((_captured, _failed), return_when=futures.FIRST_COMPLETED)
        if not _failed.done():
            return Done(path=str(_captured.result()))
    _failed.result()
    raise AssertionError("the program runs until it fails")


def _warm(subject: CaptureSubject) -> tuple[Callable[[], None], str]:
    """A function that calls the compiled, warmed-up program and waits for its result, and the program's HLO text."""
    problem: Problem = pickle.loads(Path(subject.problem).read_bytes())
    if subject.reduced is not None:
        problem = next(itertools.islice(problem.reduced(), subject.reduced, None))
    drawn = problem.make_inputs(problem.families(full=subject.reduced is None)[-1], subject.seed)
    inputs = [jax.device_put(array) for array in drawn]
    exported = jax.export.deserialize(bytearray(Path(subject.artifact).read_bytes()))
    compiled = jax.jit(exported.call).lower(*inputs).compile()

    def call() -> None:
        jax.block_until_ready(compiled(*inputs))

    for _ in range(subject.warmup_calls):
        call()
    return call, compiled.as_text() or ""


TASKS = {"capture": (CaptureRequest, capture), "serve": (ServeRequest, serve), "watch": (WatchRequest, watch)}
