"""The process that asks a profiler server for snapshots, through XProf, whose client logs and may crash or hang."""

import time
from pathlib import Path

from xprof.api import continuous_profiling_snapshot

from harness.sandbox.messages import Done
from harness.workbench.capture.messages import ContinuousRequest, SnapshotReply, SnapshotRequest


def continuous(request: ContinuousRequest) -> Done:
    """Starts or stops continuous profiling."""
    if request.is_on:
        continuous_profiling_snapshot.start_continuous_profiling(request.address, {})
    else:
        continuous_profiling_snapshot.stop_continuous_profiling(request.address)
    return Done(path="")


def snapshot(request: SnapshotRequest) -> SnapshotReply:
    """One snapshot of the last runs, as far as the profiler's buffer reaches.

    On a CPU xprof 2.24.2 returns normally and writes nothing: only the missing files show it.
    """
    time.sleep(request.wait_seconds)
    continuous_profiling_snapshot.get_snapshot(request.address, request.directory)
    return SnapshotReply(files=tuple(sorted(map(str, Path(request.directory).rglob("*.xplane.pb")))))


TASKS = {"continuous": (ContinuousRequest, continuous), "snapshot": (SnapshotRequest, snapshot)}
