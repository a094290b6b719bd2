"""What is said to and by the processes that take captures: of a program's calls, of a program that runs on and on."""

from dataclasses import dataclass

from harness.sandbox.profiles import TraceMode


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSubject:
    """The exported program to run, and the pickled problem whose inputs it gets; `reduced`: at which smaller shape."""

    artifact: str
    problem: str
    reduced: int | None
    seed: int
    warmup_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """Profile so many calls as `session` of `profile_directory`; write the compiled HLO to `hlo_text`."""

    subject: CaptureSubject
    calls: int
    mode: TraceMode
    profile_directory: str
    session: str
    hlo_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReply:
    """The profile that was written, and how long each call took on the host and, if the profile says it, the device."""

    profile: str
    device_kind: str
    host_seconds: tuple[float, ...]
    device_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """Run the program again and again, with JAX's profiler server listening on `port`."""

    subject: CaptureSubject
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReply:
    """It runs and listens; one call takes `call_seconds` of the host's time."""

    device_kind: str
    call_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """Answer when the program that is served has ended, which it does only where it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousRequest:
    """Start or stop continuous profiling at `address`."""

    address: str
    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """Wait `wait_seconds`, then have a snapshot written to a folder that is empty."""

    address: str
    wait_seconds: float
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReply:
    """The files that appeared: none where the profiler at the address keeps no history."""

    files: tuple[str, ...]


# The folder of the profile of a program's second call, and the annotation around that call in it.
SECOND_CALL = "second-call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """Run `path`: its function without arguments twice, or (`function` empty) the file as a main program, once.

    `home` and `directory` are the user's own; `scratch` is where dumps go.
    """

    path: str
    function: str
    home: str
    directory: str
    scratch: str
