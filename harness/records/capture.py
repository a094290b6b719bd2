"""A captured profile as records: devices, their executed operations, modules, steps, and the host's work.

Times are seconds from the capture's first event; durations are of one execution. None: not in the capture.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Platform: TypeAlias = Literal["tpu", "gpu", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One HLO operation of one program, for all of its runs.

    - `name`: the instruction's name (`fusion.3`).
    - `text`: its HLO text, if the capture has it.
    - `category`: XProf's hlo_category.
    - `framework_name`: the tf_op (`jit(f)/jvp(g)/dot_general:`).
    - `source`: `file:line`.
    - `flops`: XLA's count for one execution. A Pallas call without a cost estimate has 0 in the capture, read as None.
    - `bytes_accessed`: the bytes of one execution.
    - `hbm_bytes`: the part of these bytes that is in HBM, None if the capture does not divide bytes by memory.
    """

    name: str
    text: str = ""
    category: str = ""
    framework_name: str = ""
    source: str = ""
    module: str = ""
    flops: float | None = None
    bytes_accessed: float | None = None
    hbm_bytes: float | None = None

    @property
    def hbm_bytes_at_most(self) -> float | None:
        """Bytes in HBM; all bytes if the capture does not divide them by memory."""
        return self.bytes_accessed if self.hbm_bytes is None else self.hbm_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run of `Device.operations[operation]`; self time excludes the operations nested in it."""

    operation: int
    start: float
    seconds: float
    self_seconds: float

    @property
    def end(self) -> float:
        """End in seconds from the capture's first event."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A named span of time: a module's run, a step, an annotation or any other event of the host.

    `step` is the number in a step annotation, None in other spans.
    """

    name: str
    start: float
    seconds: float
    line: str = ""
    step: int | None = None

    @property
    def end(self) -> float:
        """End in seconds from the capture's first event."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device's part of a capture: a TPU core, a GPU, or the host's CPU if XLA ran on it.

    - `executions`: the operations of the serial line `XLA Ops`, sorted by start; an operation precedes the operations
      nested in it. On a GPU, these are the operations of all streams, and on a CPU, of all threads; they may overlap.
    - `asynchronous`: the operations of the line `Async XLA Ops`, which overlap with `executions`.
    - `waits`: spans in which a TPU waited before a program.
    """

    name: str
    host: str
    platform: Platform
    kind: str = ""
    peak_flops_per_second: float | None = None
    hbm_bytes_per_second: float | None = None
    operations: tuple[Operation, ...] = ()
    executions: tuple[Execution, ...] = ()
    asynchronous: tuple[Execution, ...] = ()
    modules: tuple[Period, ...] = ()
    waits: tuple[Period, ...] = ()
    steps: tuple[Period, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One run of a profiler, called `name`; `paths` are its .xplane.pb files, one for each host.

    `host_periods` are the annotations and other events of the hosts' threads. `is_simulated` is True if the ratchet's
    simulator wrote the capture. `left_out` has a sentence for each part of a file that was not understood.
    """

    name: str
    paths: tuple[str, ...]
    devices: tuple[Device, ...]
    host_periods: tuple[Period, ...] = ()
    is_simulated: bool = False
    left_out: tuple[str, ...] = ()
