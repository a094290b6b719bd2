"""Messages to and from two kinds of processes: some capture a kernel, others run or compile a user's program."""

from dataclasses import dataclass

from harness.hardware import Chip
from harness.sandbox.profiles import TraceMode


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSubject:
    """The exported program, and the pickled problem that draws its inputs.

    `reduced` is the index of a smaller shape; None stands for the full shape.
    """

    artifact: str
    problem: str
    reduced: int | None
    seed: int
    warmup_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """Profile this number of `calls` as `session` of `profile_directory`; write the compiled HLO to `hlo_text`."""

    subject: CaptureSubject
    calls: int
    mode: TraceMode
    profile_directory: str
    session: str
    hlo_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReply:
    """The profile, the seconds of each call on the host, and those on the device if the profile states them."""

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
    """Run the program endlessly with JAX's profiler server on `port`; capture the steps of `window`, if any."""

    subject: CaptureSubject
    port: int
    window: StepsWindow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReply:
    """The program runs and the server listens. One call takes `call_seconds` of the host's clock."""

    device_kind: str
    call_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """Answer when the served program has failed; the program never ends otherwise.

    If `window` is True, answer with the capture's folder as soon as the window's steps are captured.
    """

    window: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousRequest:
    """Start or stop continuous profiling at `address`."""

    address: str
    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """Wait `wait_seconds`, then make the profiler at `address` write a snapshot to the empty folder `directory`."""

    address: str
    wait_seconds: float
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReply:
    """The files of the snapshot; none if the profiler at the address keeps no history."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerRequest:
    """Trace, lower and compile `function` of the file `path` for `arguments` such as `f32[8,128]`.

    - `topology`: the function is compiled for one device of this TPU topology; if None, for the device that JAX finds.
    - `chip`: the device that the function sees if it asks JAX for its device.
    - `mesh`: axes and sizes. The function is compiled for all devices of the topology, in the order of their numbers.
      A dimension `512@x` of an argument is split over the axis x.
    - `scratch`: the folder for the texts `jaxpr`, `stablehlo` and `hlo`.
    - `dumps`: the folder for the executable; "" writes none.
    - `directory`: the user's working directory.
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
    """The texts are written. `compiled_for` names the device and, for a mesh, the number of devices."""

    compiled_for: str


# The name of two things: the folder with the profile of a program's second call, and the annotation of that call.
SECOND_CALL = "second-call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """Call `function` of the file `path` twice, without arguments; if it is empty, run the file once as a main program.

    `home` and `directory` are the user's home and working directory. Dumps go to the folder `scratch`.
    """

    path: str
    function: str
    home: str
    directory: str
    scratch: str
