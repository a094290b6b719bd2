"""Hardware counters, if a capture has them: the use of each unit, and each counter by kernel."""

import re
from collections.abc import Iterator, Mapping

from harness import chips
from harness.errors import RatchetError
from harness.records import Capture, Table
from harness.workbench.profiles import conversion
from harness.workbench.profiles.analysis import Analysis, tables
from harness.workbench.profiles.conversion import Value, number
from harness.workbench.profiles.database import Database, Row, made_on_demand
from harness.workbench.profiles.reading import sources

# If a counter could not be read, all 64 bits of its value are 1.
_UNREADABLE = 0.999 * 2**64
# A counter's name begins with its place in the chip.
_PLACE = re.compile(r"^.*_counters_(?:unprivileged_)?(?:count_)?")
_FIRST = chips.having(lambda row: row.workbench.has_counters)[0]
_FIRST_PERIODIC = chips.having(lambda row: row.workbench.has_periodic_counters)[0]
_WITH_UNITS = " and ".join(chips.having(lambda row: row.workbench.has_unit_counters))
_WHY = (
    f"the capture has no hardware counters: only TPUs from {_FIRST} on write counters; from {_FIRST_PERIODIC} on they "
    "write periodic samples if the profiler's advanced_configuration has tpu_enable_periodic_counter_sampling; a CPU "
    "and the simulator have no counters"
)


def _tool_rows(database: Database, tool: str) -> Iterator[Mapping[str, Value]]:
    """The rows of a tool's answers; no rows if it has no answer, as for most captures."""
    for path in sources(database.capture):
        try:
            yield from conversion.ask((path,), tool)[0].rows
        except RatchetError as error:
            if error.kind != "no-answer":
                raise


@made_on_demand("""counters: a sample of a hardware counter of one kernel on one chip
    host VARCHAR           its host
    chip INTEGER           its number on the host
    kernel VARCHAR         the kernel
    counter VARCHAR*       its name, without its place in the chip
    value DOUBLE           the count; NULL if the chip could not read it
    meaning VARCHAR        what it counts
    name VARCHAR           its whole name
""")
def counters_table(database: Database) -> Iterator[Row]:
    for row in _tool_rows(database, "perf_counters"):
        value = number(row, "Value") or 0.0
        name, meaning = str(row["Counter"]), str(row["Description"] or "") or None
        where = str(row["Host"]), int(number(row, "Chip") or 0), str(row["Kernel"])
        yield *where, _PLACE.sub("", name), None if value >= _UNREADABLE else value, meaning, name


@made_on_demand("""units: a sample of a unit of a device, computed by XProf from the counters
    device INTEGER         its number
    name VARCHAR           the unit's name
    unit VARCHAR           what is counted
    achieved DOUBLE        the number counted
    peak DOUBLE            the largest possible number
""")
def units_table(database: Database) -> Iterator[Row]:
    for row in _tool_rows(database, "utilization_viewer"):
        achieved, peak = number(row, "achieved"), number(row, "peak")
        if achieved is not None and peak and max(achieved, peak) < _UNREADABLE:
            node = int(number(row, "node") or 0)
            name = f"{row['name']}, core {node}" if node else str(row["name"])
            yield int(number(row, "device") or 0), name, str(row["unit"]), achieved, peak


_MOVED = "exists (from counters where value > 0)"
_UNITS = Analysis(
    name="units",
    title="Use of the units, by the hardware's counters",
    columns="device:;name=unit;achieved_fraction=busy;busiest_fraction=busiest sample;achieved:count;"
    "peak=possible:count;unit=in",
    query=f"""
        select device, name, sum(achieved) / sum(peak), max(achieved / peak), sum(achieved) as did, sum(peak), unit
        from units
        where {_MOVED} group by device, name, unit having did > 0 order by min(rowid)""",
    facts=f"""
        select (select count(*) from (select sum(achieved) as did from units group by device, name, unit
        having did = 0)) as idle,
            case when {_MOVED} then $by_hand else $no_counters end as why""",
    notes=(
        "Figures include idle time between kernels. So units look idle if a short kernel runs in a long capture; the "
        "busiest sample shows more of the kernel's use of them.",
        "XProf computes achieved and possible from the chip's counters and its clock (xprof 2.24 knows "
        f"{_WITH_UNITS}). Number of units left out because their counters are 0 (idle, or not counted): {{idle}}.",
    ),
    empty="{why}",
)
_COUNTS = Analysis(
    name="counters",
    title="Counters, largest first",
    columns="host;chip:;kernel;count;counter;meaning=what it counts;name=whole name",
    query="""
        select host, chip, kernel, sum(value) as counted, counter, meaning, name from counters where value > 0
        group by host, chip, kernel, counter, meaning, name order by counted desc, name""",
    rows="counters",
    facts="""
        select case when count(*) > 0 then count(*) || case count(*) when 1 then ' value' else ' values' end end
            as unreadable from counters where value is null""",
    notes=(
        "{top} of {known} counters are shown.",
        "Left out: {unreadable} that the chip could not read (all 64 bits are 1).",
    ),
    empty=_WHY,
)


def counters(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Tables of units (from XProf's utilization_viewer) and of the `top` counters (from perf_counters; None: all).

    Raises RatchetError if the capture cannot be converted.
    """
    by_hand = f"XProf computes the use of units only for {_WITH_UNITS}; the counters themselves follow"
    return tables(capture, (_UNITS, _COUNTS), is_about_devices=False, top=top, no_counters=_WHY, by_hand=by_hand)
