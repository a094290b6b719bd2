"""The runs of a log directory: time, attempt, size, devices."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from harness.errors import RatchetError
from harness.records import Capture, Cell, Table
from harness.workbench.profiles import remote
from harness.workbench.profiles.op_times import is_sparse_core, origin
from harness.workbench.profiles.places import CaptureFiles
from harness.workbench.profiles.reading import read
from harness.workbench.tables import table

_RUNS = "run!;written=written (UTC)!;attempt;hosts:count;devices;origin;files:count;bytes=size"


def list_runs(places: Sequence[CaptureFiles], where: str) -> tuple[Table, ...]:
    """One row for each run, newest first. A run that cannot be read also has a row, and a note gives the reason."""
    rows: list[tuple[Cell, ...]] = []
    notes = []
    for place in places:
        contents: tuple[Cell, ...] = (None, None, None)
        try:
            capture = read(place.paths)
            contents = (len({path.name for path in place.files}), _devices(capture), origin(capture))
        except RatchetError as error:
            notes.append(f"{place.name}: {error}")
        written = f"{datetime.fromtimestamp(place.modified, UTC):%Y-%m-%d %H:%M:%S}"
        size = sum(path.stat().st_size for path in place.files)
        rows.append((place.name, written, place.attempt, *contents, len(place.files), size))
    why = f"there is no .xplane.pb file in {where}; make a capture with ratchet.sh profile"
    return (table("runs", f"captures in {where}", "static", _RUNS, rows, notes, why),)


def list_on_server(server: str) -> tuple[Table, ...]:
    """The runs that an XProf server lists, in its order."""
    rows = [(run, len(remote.hosts(server, run))) for run in remote.runs(server)]
    return (
        table("runs", f"runs of XProf at {server}", "static", "run!;hosts:count", rows, (), "the server lists no run"),
    )


def _devices(capture: Capture) -> str:
    """The devices by kind, such as `4 TPU v6 lite` or `1 cpu`."""
    kinds = Counter(device.kind or device.platform for device in capture.devices if not is_sparse_core(device))
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
