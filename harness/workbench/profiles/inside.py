"""The time inside kernels of a capture: cycles of a simulated run by cause, or rows that the device recorded."""

from collections.abc import Iterable, Iterator

from harness.dumps.xplane import Event, Plane
from harness.records import Capture, Table
from harness.workbench.profiles.analysis import Analysis, tables
from harness.workbench.profiles.database import Database, Row, database_of, made_on_demand
from harness.workbench.profiles.reading import KNOWN_LINES, MODULES_LINE, OPS_LINE, TPU_PLANE, spaces
from harness.workbench.profiles.spans import LEAST, Spans, length, shared_seconds, spans
from harness.workbench.traces.xspace import CYCLES, DRAWN, TRANSFERS

# Protocol, section 3, item 4: idle under 5 % is excellent, over 10 % a red flag.
EXCELLENT, RED_FLAG = 0.05, 0.10
_ISSUING, _KERNELS = "issuing", "all kernels"
_CUSTOM_CALL = "custom-call"
_PICOSECONDS = 1e12


def _cores(database: Database) -> Iterator[tuple[str, Plane]]:
    for _, space in spaces(database.capture):
        for plane in space.planes:
            if match := TPU_PLANE.fullmatch(plane.name):
                yield match[1], plane


@made_on_demand("""insides: a part of the time inside the kernels of a device
    device VARCHAR         its name
    part VARCHAR           a cause counted by the simulator, or a row recorded by the device
    amount DOUBLE          cycles, or seconds
    is_simulated BOOLEAN   true for cycles, false for seconds
""")
def insides_table(database: Database) -> Iterator[Row]:
    """The parts of each core's simulated cycles; if there are none, the rows recorded next to its operations."""
    for name, plane in _cores(database):
        parts = _cycles(plane, CYCLES)
        amounts = parts.items() if parts else _recorded_parts(plane)
        yield from ((name, part, amount, bool(parts)) for part, amount in amounts)


@made_on_demand("""kernel_transfers: the transfers of one simulated core
    device VARCHAR         its name
    flight_cycles BIGINT   cycles with a transfer in flight
    waited_cycles BIGINT   those cycles in which the core also waits for a transfer
    cycles BIGINT          cycles of the run
""")
def kernel_transfers_table(database: Database) -> Iterator[Row]:
    """Three counts for each simulated core: cycles with a transfer in flight, cycles spent waiting, all cycles."""
    for name, plane in _cores(database):
        moved, parts = _cycles(plane, TRANSFERS), _cycles(plane, CYCLES)
        if moved.keys() >= {"in flight", "waited for"}:
            yield name, moved["in flight"], moved["waited for"], sum(parts.values())


@made_on_demand("""lanes: an event on a lane of a simulated core; lanes are units, transfers, waits and grid steps
    device VARCHAR         the core's name
    lane VARCHAR           `MXU`, `DMA in`, `waits`, `steps`, `link to 1` ...
    name VARCHAR           the event's name
    start_seconds DOUBLE   its start
    seconds DOUBLE         its length
    bytes DOUBLE           bytes that a transfer moves in HBM, or over a link to another chip
""")
def lanes_table(database: Database) -> Iterator[Row]:
    """The lanes that the simulator drew next to the operations of each device."""
    for name, plane in _cores(database):
        for line in plane.lines:
            for event in line.events if line.name.endswith(DRAWN) else ():
                start, seconds = (ps / _PICOSECONDS for ps in (event.start_ps, event.duration_ps))
                moved = event.stats.get("hbm_bytes") or event.stats.get("link_bytes", 0)
                yield name, line.name.removesuffix(DRAWN), event.of.name, start, seconds, moved


BESIDE = Analysis(
    name="transfers_beside_compute",
    title="Transfers beside compute",
    columns="device;flight_cycles=in flight:count;waited_cycles=waited for:count;beside_share=beside compute;"
    "flight_share=of the run;reading!",
    query=f"""
        select device, flight_cycles, waited_cycles, 1 - waited_cycles / nullif(flight_cycles, 0) as beside,
            flight_cycles / nullif(cycles, 0), case when beside >= 1 - {RED_FLAG} then 'overlapped'
            when waited_cycles > {RED_FLAG} * cycles then 'waits: double buffering is off or too shallow, or HBM limits'
            else 'exposed, but short' end
        from kernel_transfers order by device""",
    notes=(
        "Beside compute: the share of the cycles with a transfer in flight in which the core does not wait for a "
        "transfer. Of the run: cycles in flight as a share of the simulated run.",
    ),
    is_optional=True,
)
INSIDE = Analysis(
    name="inside",
    title="Inside the kernels",
    columns="device;part=inside;{amount};share;reading!",
    query=f"""
        with wholes as (select device, sum(amount) filter (is_simulated or part = '{_KERNELS}') as whole
        from insides group by 1),
        bubbles as (
            select min(i.rowid) - 0.5 as place, device, 'bubbles' as part,
                sum(amount) filter (part != '{_ISSUING}') as amount
            from insides i where is_simulated group by device),
        every as (
            select place, device, part, amount, true as is_rated from bubbles
            union all
            select case when is_simulated then min(rowid) over (partition by device)
                + (row_number() over (partition by device order by amount desc, rowid)) / 1e6 else rowid end, device,
                    part, amount, false
            from insides where part != '{_KERNELS}')
        select device, part, case when (select bool_or(is_simulated) from insides) then amount::BIGINT else amount end,
            amount / nullif(whole, 0) as share, case when is_rated then
            case when share < {EXCELLENT} then 'excellent' when share > {RED_FLAG} then 'red flag' else 'fair' end end
        from every join wholes using (device) where whole > 0 order by place""",
    notes=("{note}",),
    empty="the capture shows nothing inside its kernels: a TPU records their inside only with LIBTPU_INIT_ARGS="
    "--xla_xprof_enable_custom_call_tracing=true and in the mode TRACE_COMPUTE (`ratchet.sh profile --mode "
    "TRACE_COMPUTE`); for an attempt, `ratchet.sh timeline N` writes a simulated capture with their inside",
)


def inside_tables(capture: Capture) -> tuple[Table, ...]:
    """Tables of the inside of kernels. Raises RatchetError if the capture's files cannot be read."""
    database = database_of(capture)
    is_simulated = database.rows("select bool_or(is_simulated) from insides")[0][0]
    amount = "cycles:count" if is_simulated else "seconds=time"
    note = (
        "Cycles of the whole simulated run; bubbles are cycles in which nothing is issued. By source line: "
        "`ratchet.sh lines N`; over time: `ratchet.sh timeline N`."
        if is_simulated
        else "Rows that the device recorded next to its operations; only their time inside custom calls counts."
    )
    return tables(database, (BESIDE, INSIDE), note=note, amount=amount)


def _cycles(plane: Plane, kind: str) -> dict[str, int]:
    """Simulated cycles of a core by cause; empty if the capture is measured, or written by an older version."""
    runs = (event for line in plane.lines if line.name == MODULES_LINE for event in line.events)
    stats = (stat for event in runs for stat in event.stats.items())
    return {name.removeprefix(kind): value for name, value in stats if name.startswith(kind) and isinstance(value, int)}


def _recorded_parts(plane: Plane) -> Iterator[tuple[str, float]]:
    """Seconds inside custom calls: of each recorded row, outside all rows, and in total."""
    # As seconds since 1970, times would lose their nanoseconds.
    zero = min((event.start_ps for line in plane.lines for event in line.events), default=0)
    kernels = _covered_spans(
        (event for line in plane.lines if line.name == OPS_LINE for event in line.events if _is_kernel(event)), zero
    )
    rows = [line for line in plane.lines if line.name not in KNOWN_LINES and not line.name.endswith(DRAWN)]
    filled = [
        (line.name, some) for line in rows if shared_seconds(some := _covered_spans(line.events, zero), kernels) > LEAST
    ]
    if not filled:
        return
    for name, some in filled:
        yield name, shared_seconds(some, kernels)
    together = spans(pair for _, some in filled for pair in zip(*some, strict=True))
    yield "in none of these rows", length(kernels) - shared_seconds(together, kernels)
    yield _KERNELS, length(kernels)


def _is_kernel(event: Event) -> bool:
    return (event.of.stats.get("hlo_category") or event.stats.get("hlo_category")) == _CUSTOM_CALL


def _covered_spans(events: Iterable[Event], zero_ps: int) -> Spans:
    """The time covered by any of the events, in seconds after `zero_ps`."""
    return spans(
        ((event.start_ps - zero_ps) / _PICOSECONDS, (event.start_ps + event.duration_ps - zero_ps) / _PICOSECONDS)
        for event in events
        if event.occurrences is None
    )
