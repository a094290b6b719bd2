"""Profiles a few calls, writes the profile to the folder that xprof reads, and reads the device time of each call."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData

from harness.sandbox.profiles import TraceMode

_STEP = "kernel_step_"
# The beginnings of the names of a GPU stream's events that are not kernels.
_COPIES = ("Memcpy", "Memset")


def capture(calls: Iterable[Callable[[], None]], directory: Path, session: str, *, deep: bool) -> Path:
    """Profiles the calls in the mode for kernel work, or in the most detailed mode if `deep`; returns the folder."""
    return trace(calls, directory, session, "TRACE_COMPUTE_AND_SYNC" if deep else "TRACE_COMPUTE")


def trace(
    calls: Iterable[Callable[[], None]], directory: Path, session: str, mode: TraceMode, *, is_annotated: bool = False
) -> Path:
    """Profiles the calls; returns the folder `directory/plugins/profile/<session>`.

    Each call must block until its results are ready. `session` must be new, because a capture overwrites an older
    capture of the same name. The options are the published options for kernel work: no Python tracer, host level 1.
    `mode` has an effect on a TPU only. Each call gets an annotation, unless the calls are already annotated
    (`is_annotated`).
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    options.session_id = session
    # Newer releases of JAX lack this field, although documents still list it.
    with contextlib.suppress(AttributeError):
        options.device_tracer_level = 1
    if jax.default_backend() != "gpu":
        # The property returns a copy: only whole dictionaries can be assigned.
        options.advanced_configuration = {"tpu_trace_mode": mode}
    with jax.profiler.trace(str(directory), profiler_options=options):
        for step, call in enumerate(calls):
            if is_annotated:
                call()
                continue
            with jax.profiler.TraceAnnotation(f"{_STEP}{step}"):
                call()
    return directory / "plugins" / "profile" / session


def device_seconds(folder: Path) -> tuple[float, ...]:
    """The device time of each profiled call, in order; empty if the profile shows no device.

    On a TPU these are the durations of the module executions of the first device. On a GPU a time lasts from the
    start of a call's first kernel to the end of its last. No times are returned if a call shows no kernels.
    """
    for path in sorted(folder.glob("*.xplane.pb")):
        profile = ProfileData.from_file(str(path))
        planes = tuple(profile.planes)
        for plane in planes:
            if plane.name.startswith("/device:TPU:"):
                for line in plane.lines:
                    if line.name == "XLA Modules":
                        events = sorted(line.events, key=lambda event: event.start_ns)
                        return tuple(event.duration_ns * 1e-9 for event in events)
        on_gpu = _gpu_seconds(planes)
        if on_gpu:
            return on_gpu
    return ()


def _gpu_seconds(planes: Sequence[Any]) -> tuple[float, ...]:
    """The seconds of each call on a GPU; () if the planes do not show them.

    XLA's CUPTI collector writes a plane for each GPU and a line `Stream #N(...)` for each stream. This is from XLA's
    source; no profile was available to confirm it. A kernel belongs to the call whose annotation on the host's plane
    covers the kernel's midpoint. If a call has no kernels, or a kernel belongs to no call, no times are returned.
    """
    calls, kernels = [], []
    for plane in planes:
        is_gpu = plane.name.startswith("/device:GPU:")
        for line in plane.lines:
            if is_gpu and line.name.startswith("Stream #"):
                kernels += [_span(event) for event in line.events if not event.name.startswith(_COPIES)]
            elif not is_gpu:
                calls += [_span(event) for event in line.events if event.name.startswith(_STEP)]
    seconds, placed = [], 0
    for start, end in sorted(calls):
        of_call = [kernel for kernel in kernels if start <= sum(kernel) / 2 <= end]
        if not of_call:
            return ()
        placed += len(of_call)
        seconds.append((max(last for _, last in of_call) - min(first for first, _ in of_call)) * 1e-9)
    return tuple(seconds) if placed == len(kernels) else ()


def _span(event: Any) -> tuple[float, float]:
    return event.start_ns, event.start_ns + event.duration_ns
