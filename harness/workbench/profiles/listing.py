"""The runs of a log directory: when, whose, how large, what they hold."""

from collections.abc import Sequence
from datetime import UTC, datetime

from harness.errors import RatchetError
from harness.records import Capture, Column, Table
from harness.records.table import Cell
from harness.workbench.profiles.op_times import origin
from harness.workbench.profiles.places import Place
from harness.workbench.profiles.reading import read

_COLUMNS = (
    Column(name="run", title="run", is_whole=True),
    Column(name="written", title="written (UTC)", is_whole=True),
    Column(name="attempt", title="attempt"),
    Column(name="hosts", title="hosts", unit="count"),
    Column(name="devices", title="devices"),
    Column(name="origin", title="origin"),
    Column(name="files", title="files", unit="count"),
    Column(name="bytes", title="size", unit="B"),
)


def list_runs(places: Sequence[Place], where: str) -> tuple[Table, ...]:
    """One row for each run, newest first; a run that cannot be read is a row too, and a note says what is wrong."""
    rows, notes = [], []
    for place in places:
        try:
            capture = read(place.paths)
        except RatchetError as error:
            notes.append(f"{place.name}: {error}")
            rows.append(_row(place, None))
        else:
            rows.append(_row(place, capture))
    return (
        Table(
            name="runs",
            title=f"captures in {where}",
            origin="static",
            columns=_COLUMNS,
            rows=tuple(rows),
            notes=tuple(notes),
            why_empty="" if rows else f"there is no .xplane.pb file in {where}; ratchet.sh profile makes one",
        ),
    )


def _row(place: Place, capture: Capture | None) -> tuple[Cell, ...]:
    return (
        place.name,
        f"{datetime.fromtimestamp(place.modified, UTC):%Y-%m-%d %H:%M:%S}",
        place.attempt,
        len({path.name for path in place.paths}) if capture else None,
        _devices(capture) if capture else None,
        origin(capture) if capture else None,
        len(place.paths),
        sum(path.stat().st_size for path in place.paths),
    )


def _devices(capture: Capture) -> str:
    """`4 TPU v6 lite`, `1 cpu`."""
    kinds: dict[str, int] = {}
    for device in capture.devices:
        kind = device.kind or device.platform
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
