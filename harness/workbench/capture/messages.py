"""Messages to and from the processes that capture a kernel, or that run or compile a user's program."""

from dataclasses import dataclass

from harness.hardware import Chip
from harness.sandbox.profiles import TraceMode


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSubject:
    """The exported program, and the pickled problem for its inputs; `reduced` numbers a smaller shape (None: full)."""

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
    """Steps of a running loop to capture, from `first` to `last` inclusive, as `session` of `profile_directory`."""

    first: int
    last: int
    mode: TraceMode
    profile_directory: str
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """Run the program endlessly with JAX's profiler server on `port`; capture the steps of `window`, if it is given."""

    subject: CaptureSubject
    port: int
    window: StepsWindow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReply:
    """The program runs and the server listens; one call takes `call_seconds` by the host's clock."""

    device_kind: str
    call_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """Answer when the served program has failed; it ends in no other way.

    With `window`, answer with the capture's folder as soon as the steps of the window are captured.
    """

    window: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousRequest:
    """Start or stop continuous profiling at `address`."""

    address: str
    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """Wait `wait_seconds`, then have a snapshot written to the empty folder `directory`."""

    address: str
    wait_seconds: float
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReply:
    """The files that appeared: none if the profiler at the address keeps no history."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerRequest:
    """Trace, lower and compile `function` of the file `path` for `arguments` such as `f32[8,128]`.

    The device is one of the TPU `topology` (None: the device that JAX finds); if the function asks for its device, the
    answer is `chip`. With a `mesh` (axes with their sizes) the function is compiled for all devices of the topology, in
    the order of their numbers; a dimension `512@x` of an argument is split over the axis x. The texts go to `jaxpr`,
    `stablehlo` and `hlo` in the folder `scratch`, the executable to the folder `dumps` if one is given; `directory` is
    the user's working directory.
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
    """The texts are written; `compiled_for` names the device, with a mesh also the number of devices."""

    compiled_for: str


# Names the folder with the profile of a program's second call, and the annotation around that call.
SECOND_CALL = "second-call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """Run `path`: its `function` twice, without arguments; if `function` is empty, the file once, as a main program.

    `home` and `directory` are the user's home and working directory; dumps go to the folder `scratch`.
    """

    path: str
    function: str
    home: str
    directory: str
    scratch: str
