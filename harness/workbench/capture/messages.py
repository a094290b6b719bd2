"""Messages to and from the processes that take captures: of a program's calls, of a program that runs endlessly."""

from dataclasses import dataclass

from harness.hardware import Chip
from harness.sandbox.profiles import TraceMode


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSubject:
    """The exported program to run, and the pickled problem for its inputs; `reduced`: the number of a smaller shape."""

    artifact: str
    problem: str
    reduced: int | None
    seed: int
    warmup_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """Profile `calls` calls as `session` of `profile_directory`; write the compiled HLO to `hlo_text`."""

    subject: CaptureSubject
    calls: int
    mode: TraceMode
    profile_directory: str
    session: str
    hlo_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReply:
    """The profile, and seconds of each call on the host and, if the profile states them, on the device."""

    profile: str
    device_kind: str
    host_seconds: tuple[float, ...]
    device_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsWindow:
    """The steps of a running loop that are captured, `first` to `last`, as `session` of `profile_directory`."""

    first: int
    last: int
    mode: TraceMode
    profile_directory: str
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """Run the program in a loop, with JAX's profiler server listening on `port`, and capture the steps of `window`."""

    subject: CaptureSubject
    port: int
    window: StepsWindow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReply:
    """The program runs and listens; one call takes `call_seconds` of the host's time."""

    device_kind: str
    call_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """Answer when the program that is served has ended, which happens only if it fails.

    With `window`, answer with the profile as soon as the steps of the window are captured.
    """

    window: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousRequest:
    """Start or stop continuous profiling at `address`."""

    address: str
    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """Wait `wait_seconds`, then have a snapshot written to an empty folder."""

    address: str
    wait_seconds: float
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReply:
    """The files that appeared: none if the profiler at the address keeps no history."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerRequest:
    """Trace, lower and compile the function of `path`, with arguments of these shapes (`f32[8,128]`).

    The device is one of the TPU `topology` (None: the device that JAX finds); if the function asks for its device, the
    answer is `chip`. With a `mesh` (axes with their sizes) the function is compiled for all devices of the topology, in
    the order of their numbers; a dimension `512@x` of an argument is split over the axis x. The texts go to `jaxpr`,
    `stablehlo` and `hlo` in the folder `scratch`, the executable into the folder `dumps` if there is one; `directory`
    is the user's own.
    """

    path: str
    function: str
    arguments: tuple[str, ...]
    topology: str | None
    chip: Chip | None
    directory: str
    scratch: str
    mesh: tuple[tuple[str, int], ...] = ()
    dumps: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerReply:
    """The texts are written; `compiled_for` is the device."""

    compiled_for: str


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
