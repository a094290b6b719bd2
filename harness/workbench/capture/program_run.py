"""A user's program, run or compiled in a child process with the user's environment and a time limit."""

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TypeVar

import harness
from harness import reading_limits
from harness.errors import RatchetError, UsageError
from harness.hardware import Chip, slice_topology
from harness.records import Capture, Failure, Period
from harness.records.doctor import Dispatched, ProgramRun
from harness.sandbox.child import Children
from harness.sandbox.jobs import Child
from harness.workbench.capture.messages import SECOND_CALL, LowerReply, LowerRequest, ProgramRequest
from harness.workbench.doctor import jax_errors
from harness.workbench.profiles import reading
from harness.workbench.profiles.database import Database
from harness.workbench.profiles.spans import length, spans, within

# The user trusts this program, so it may use all memory of the machine.
_BYTES = 1 << 50
# For libtpu on a machine without a TPU: do not query a host's metadata, and let a second process load libtpu.
_QUIET = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
# The time limit of a function that is only traced and compiled.
_COMPILE_SECONDS = 600.0
# Dumps that the simulator reads. The last pass (post-delay-converter) shows where the flags of several chips are.
_DUMPS = (
    "--xla_jf_dump_llo_text=true",
    "--xla_jf_dump_llo_pass_label_regex=^(final_(bundles|hlo-static-per-bundle)|post-delay-converter)",
    "--xla_mosaic_enable_llo_source_annotations=true",
)
# JAX's dispatch events in a profile (0.10 and 0.12): one for each call of a jitted function, including the functions
# that JAX makes for single operations.
_DISPATCH = re.compile(r"PjitFunction\((.*)\)")
T = TypeVar("T")


def run_program(module: str, limit_seconds: float) -> ProgramRun:
    """The record of two calls of `MODULE.py:FUNCTION`, or of one run of `MODULE.py` as a main program.

    The program is not confined, because the user trusts it.

    Raises UsageError `no-module`, or RatchetError with the kind of the failure.
    """
    path, function = _path_and_function(module)
    with _process() as (children, child, scratch):
        request = ProgramRequest(
            path=str(path), function=function, home=str(Path.home()), directory=str(Path.cwd()), scratch=scratch
        )
        children.ask(child, path.name, "contract", "run", request, ProgramRun, limit_seconds)
        _, reply = children.wait()
        profile = next((Path(scratch) / SECOND_CALL).rglob("*.xplane.pb"), None)
        if isinstance(reply, ProgramRun) and profile is not None:
            reply = second_call(reply, profile)
    return _checked_reply(reply, path, ProgramRun)


def second_call(run: ProgramRun, profile: Path) -> ProgramRun:
    """`run`, with the dispatches and `own_seconds` of its second call; if the profile lacks them, `unread` says so."""
    try:
        capture = reading.read((profile,))
    except RatchetError as error:
        return replace(run, unread=(*run.unread, f"the profile of the second call could not be read: {error}"))
    window = next((period for period in capture.host_periods if period.name == SECOND_CALL), None)
    if window is None:
        return replace(run, unread=(*run.unread, "the profile of the second call does not show that call"))
    calls: dict[str, list[Period]] = defaultdict(list)
    for period in capture.host_periods:
        if (match := _DISPATCH.fullmatch(period.name)) and window.start <= period.start < window.end:
            calls[match[1]].append(period)
    # The profile has two events for each call, one inside the other.
    merged = {name: spans((call.start, call.end) for call in periods) for name, periods in calls.items()}
    dispatched = [
        Dispatched(name=name, count=len(periods[0]), seconds=length(periods)) for name, periods in merged.items()
    ]
    return replace(
        run,
        dispatched=tuple(sorted(dispatched, key=lambda operation: -operation.seconds)),
        own_seconds=_own_seconds(capture, window, [call for periods in calls.values() for call in periods]),
    )


def _own_seconds(capture: Capture, window: Period, handed_over: list[Period]) -> float:
    """Seconds of the second call in which XLA ran nothing and JAX dispatched nothing."""
    query = (
        "select start_seconds, end_seconds from busy join devices using (device) where is_main and of = 'everything'"
    )
    at_work = [*((call.start, call.end) for call in handed_over), *Database(capture).rows(query)]
    return window.seconds - within(spans(at_work), window.start, window.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredProgram:
    """The texts of a program at each level: jaxpr, StableHLO and HLO."""

    jaxpr: str
    stablehlo: str
    hlo: str
    compiled_for: str


def lower_program(
    module: str,
    arguments: Sequence[str],
    chip: Chip | None,
    *,
    mesh: Mapping[str, int] | None = None,
    dumps: Path | None = None,
    flags: Sequence[str] = (),
) -> LoweredProgram:
    """The texts of `MODULE.py:FUNCTION`, compiled in a child process for `chip` (None: the device that JAX finds).

    If a `mesh` (sizes by axis) is given, the function is compiled for as many chips as the mesh has. If a folder
    `dumps` is given, the compiler writes the simulator's dumps there. `flags` are additional flags of the compiler.
    Raises UsageError `no-module`, or RatchetError with the kind of the failure.
    """
    path, function = _path_and_function(module)
    topology = None
    if chip is not None:
        topology = slice_topology(chip, prod(mesh.values())) if mesh else chip.topology
    dumping = [*_DUMPS, f"--xla_jf_dump_to={dumps}"] if dumps else []
    all_flags = [os.environ.get("LIBTPU_INIT_ARGS", ""), *dumping, *flags]
    with _process({"LIBTPU_INIT_ARGS": " ".join(all_flags)}) as process:
        children, child, scratch = process
        request = LowerRequest(
            path=str(path),
            function=function,
            arguments=tuple(arguments),
            topology=topology,
            chip=chip,
            directory=str(Path.cwd()),
            scratch=scratch,
            mesh=tuple((mesh or {}).items()),
            dumps=str(dumps or ""),
        )
        children.ask(child, path.name, "contract", "lower", request, LowerReply, _COMPILE_SECONDS)
        _, reply = children.wait()
        compiled_for = _checked_reply(reply, path, LowerReply).compiled_for
        texts = {name: reading_limits.read(Path(scratch) / name).decode() for name in ("jaxpr", "stablehlo", "hlo")}
    return LoweredProgram(**texts, compiled_for=compiled_for)


def _path_and_function(module: str) -> tuple[Path, str]:
    name, _, function = module.partition(":")
    path = Path(name).resolve()
    if not path.is_file():
        raise UsageError("no-module", f"expected MODULE.py or MODULE.py:FUNCTION, got {module!r}: no file {path}")
    return path, function


@contextmanager
def _process(variables: Mapping[str, str] | None = None) -> Iterator[tuple[Children, Child, str]]:
    """A process for the user's program, with the user's environment and these `variables`, and a scratch folder."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as scratch, Children(_BYTES, are_confined=False) as children:
        paths = [str(Path(harness.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        environment = {**_QUIET, **os.environ, **(variables or {}), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        child = children.start("program", "harness.workbench.capture.programs", Path(scratch), environment)
        yield children, child, scratch


def _checked_reply(reply: object, path: Path, kind: type[T]) -> T:
    """The reply. Raises RatchetError if it is a failure."""
    if isinstance(reply, Failure):
        explanation = jax_errors.translate(reply.message, reply.detail, path.name)
        if explanation:
            raise RatchetError("jax-error", explanation)
        detail = f"\n{reply.detail}" if reply.detail else ""
        raise RatchetError(reply.kind, f"{path.name}: {reply.message}{detail}")
    assert isinstance(reply, kind)
    return reply
