"""The process that requests snapshots from a profiler server; separate because XProf's client may crash or hang."""

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
    """A snapshot of the latest runs, as many as the profiler's buffer holds.

    On a CPU xprof 2.24.2 returns normally but writes nothing, so the reply then lists no files.
    """
    time.sleep(request.wait_seconds)
    continuous_profiling_snapshot.get_snapshot(request.address, request.directory)
    return SnapshotReply(files=tuple(sorted(map(str, Path(request.directory).rglob("*.xplane.pb")))))


TASKS = {"continuous": (ContinuousRequest, continuous), "snapshot": (SnapshotRequest, snapshot)}
