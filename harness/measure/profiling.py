"""A profile of a few calls, written where xprof finds it, and the device time of each call read from it."""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import jax
from jax.profiler import ProfileData

from harness.measure.messages import Done, XspaceRequest

_MODES = {False: "TRACE_COMPUTE", True: "TRACE_COMPUTE_AND_SYNC"}


def capture(calls: Iterable[Callable[[], None]], directory: Path, session: str, *, deep: bool) -> Path:
    """Profiles each call, which has to block; returns the folder `directory/plugins/profile/<session>`.

    `session` must be new: two captures of one name overwrite each other. Options as published
    for kernel work: no Python tracer, host level 1, TPU trace mode by `deep`.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    options.session_id = session
    # Newer releases have no such field; documents still list it.
    with contextlib.suppress(AttributeError):
        options.device_tracer_level = 1
    # The property returns a copy: only whole dictionaries can be assigned.
    options.advanced_configuration = {"tpu_trace_mode": _MODES[deep]}
    with jax.profiler.trace(str(directory), profiler_options=options):
        for step, call in enumerate(calls):
            with jax.profiler.TraceAnnotation(f"kernel_step_{step}"):
                call()
    return directory / "plugins" / "profile" / session


def device_seconds(folder: Path) -> tuple[float, ...]:
    """Device time of each profiled call in turn: the module executions of the first TPU plane; empty without one."""
    for path in sorted(folder.glob("*.xplane.pb")):
        for plane in ProfileData.from_file(str(path)).planes:
            if plane.name.startswith("/device:TPU:"):
                for line in plane.lines:
                    if line.name == "XLA Modules":
                        events = sorted(line.events, key=lambda event: event.start_ns)
                        return tuple(event.duration_ns * 1e-9 for event in events)
    return ()


def write_xspace(request: XspaceRequest) -> Done:
    """Turns the text form of an XSpace into its bytes. Raises ValueError where it is no XSpace."""
    text = Path(request.text).read_text(encoding="utf-8")
    profile = ProfileData.text_proto_to_serialized_xspace(f'{text}\nhostnames: "{request.host}"\n')
    # What is wrong in the text is only logged, and what stands before it comes back: the last field says if all did.
    if not profile.endswith(request.host.encode()):
        raise ValueError("the text form is not that of an XSpace; the output of this process says where")
    Path(request.profile).write_bytes(profile)
    return Done(path=request.profile)


TASKS = {"xspace": (XspaceRequest, write_xspace)}
