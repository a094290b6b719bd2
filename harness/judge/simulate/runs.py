"""The records of a simulator run: how often each bundle ran, and the cause of each cycle without an issue."""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.dumps.llo import Schedule
from harness.records import LinkTraffic, Offence, PartKind


@dataclass(frozen=True, slots=True)
class StallCycles:
    """Cycles in which bundle number `bundle` did not issue; `kind` and `name` give the reason (see records.Part)."""

    bundle: int
    kind: PartKind
    name: str
    cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRun:
    """All calls of one HLO op on one core.

    `executions[i]` is the number of runs of bundle i. `reason` states why the run has no end; "" if it has an end.
    `cycles` counts from each call to its return. For the top-level program, it includes the ops that the program calls.
    """

    schedule: Schedule
    calls: int
    cycles: int
    executions: tuple[int, ...]
    idle: tuple[StallCycles, ...]
    mxu_busy_cycles: float
    mxu_flops: int
    read_bytes: int
    written_bytes: int
    transfers: int
    reason: str
    remarks: tuple[str, ...]
    offences: tuple[Offence, ...] = ()

    @property
    def bundle_cycles(self) -> int:
        """Bundles issued, one cycle each."""
        return sum(self.executions)

    @property
    def empty_cycles(self) -> int:
        """Issued bundles without an operation, one cycle each."""
        return sum(self.executions[index] for index in self.schedule.empty)

    @property
    def top_level_waits(self) -> tuple[StallCycles, ...]:
        """The waits of the top-level program, for transfers and at barriers."""
        return tuple(idle for idle in self.idle if idle.kind in ("operand wait", "barrier wait"))

    @property
    def launch_cycles(self) -> int:
        """Cycles of the top-level program itself, without waits and without the ops that it calls."""
        waits = sum(idle.cycles for idle in self.top_level_waits)
        return self.bundle_cycles + sum(idle.cycles for idle in self.idle) - waits

    @property
    def wait_cycles(self) -> int:
        """Cycles of waiting for transfers."""
        return sum(idle.cycles for idle in self.idle if idle.kind in ("operand wait", "fill and drain"))

    @property
    def steps(self) -> int | None:
        """Executed grid steps, computed from the runs of the grid loop's exit test; None for an op without a grid."""
        if self.schedule.grid_exit is None:
            return None
        return self.executions[self.schedule.grid_exit] - self.calls * self.schedule.pipeline_depth


def grid_steps(runs: Iterable[OpRun]) -> int | None:
    """Executed grid steps of all Pallas kernels together; None without a grid."""
    steps = [run.steps for run in runs if run.steps is not None]
    return sum(steps) if steps else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRun:
    """One core's run of a module: clock at the end, the top-level program, ops in the order of their first call.

    `links` is the traffic between all chips if several run the module.
    """

    cycles: int
    top: OpRun
    ops: tuple[OpRun, ...]
    read_bytes: int
    written_bytes: int
    transfers: int
    reason: str
    links: tuple[LinkTraffic, ...] = ()
