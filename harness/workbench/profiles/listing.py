"""The runs of a log directory: when, whose, how large, what they hold."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from harness.errors import RatchetError
from harness.records import Capture, Table
from harness.workbench.profiles import remote
from harness.workbench.profiles.op_times import is_sparse_core, origin
from harness.workbench.profiles.places import CaptureFiles
from harness.workbench.profiles.reading import read
from harness.workbench.tables import Field, Fields, table_of

# A run and what is in it; None: it cannot be read.
_Run: TypeAlias = tuple[CaptureFiles, Capture | None]
_RUNS: Fields[_Run] = (
    Field("run", "run", lambda run: run[0].name, is_whole=True),
    Field("written", "written (UTC)", lambda run: _time(run[0].modified), is_whole=True),
    Field("attempt", "attempt", lambda run: run[0].attempt),
    Field("hosts", "hosts", lambda run: len({path.name for path in run[0].files}) if run[1] else None, "count"),
    Field("devices", "devices", lambda run: _devices(run[1]) if run[1] else None),
    Field("origin", "origin", lambda run: origin(run[1]) if run[1] else None),
    Field("files", "files", lambda run: len(run[0].files), "count"),
    Field("bytes", "size", lambda run: sum(path.stat().st_size for path in run[0].files), "B"),
)


def list_runs(places: Sequence[CaptureFiles], where: str) -> tuple[Table, ...]:
    """One row for each run, newest first; a run that cannot be read is a row too, and a note says what is wrong."""
    found: list[_Run] = []
    notes = []
    for place in places:
        try:
            found.append((place, read(place.paths)))
        except RatchetError as error:
            notes.append(f"{place.name}: {error}")
            found.append((place, None))
    why = f"there is no .xplane.pb file in {where}; ratchet.sh profile makes one"
    return (table_of("runs", f"captures in {where}", "static", _RUNS, found, notes, why),)


def list_on_server(server: str) -> tuple[Table, ...]:
    """The runs that an XProf server lists, in its order."""
    fields: Fields[str] = (
        Field("run", "run", lambda run: run, is_whole=True),
        Field("hosts", "hosts", lambda run: len(remote.hosts(server, run)), "count"),
    )
    return (table_of("runs", f"runs of XProf at {server}", "static", fields, remote.runs(server), (), "it lists none"),)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def _devices(capture: Capture) -> str:
    """`4 TPU v6 lite`, `1 cpu`."""
    kinds = Counter(device.kind or device.platform for device in capture.devices if not is_sparse_core(device))
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
