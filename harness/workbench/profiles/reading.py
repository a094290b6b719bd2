"""The files of one run of a profiler, read as a Capture: devices, hosts, and sentences about ignored contents."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from harness import reading_limits
from harness.dumps import xplane
from harness.dumps.xplane import Described, Event, Line, Plane, Space, Value
from harness.errors import RatchetError
from harness.files import refusals_in_words
from harness.hardware import Chip, chip_of_device
from harness.records import Capture, Device, Execution, Operation, Period
from harness.records.capture import Platform
from harness.units import quantity, seconds
from harness.workbench.hlo.proto import Origin
from harness.workbench.profiles import executions, modules, remote_timeline
from harness.workbench.profiles.executions import DeviceClock, Serial
from harness.workbench.profiles.modules import Modules, protos
from harness.workbench.profiles.places import RUNS, SUFFIX, host_name
from harness.workbench.profiles.remote import Remote, Source, source
from harness.workbench.traces.xspace import DRAWN

_PICOSECONDS = 1e12
TPU_PLANE = re.compile(r"/device:(TPU:\d+)")
# The planes and lines of SparseCores, as XProf's schema names them (tsl/profiler/utils/xplane_schema).
_SPARSE_CORE = re.compile(r"/device:(TPU:\d+ SparseCore \d+)")
_SPARSE = {"Sparse Core Ops": "XLA Ops", "Sparse Core Modules": "XLA Modules", "Sparse Core Steps": "Steps"}
_GPU = re.compile(r"/device:(GPU:\d+)")
HOST_PLANE, _METADATA = "/host:CPU", "/host:metadata"
# Planes with data about the capture itself.
_ENVIRONMENT = "Task Environment"
_ABOUT_THE_CAPTURE = (_METADATA, _ENVIRONMENT)
OPS_LINE, _ASYNC_OPS, MODULES_LINE, _STEPS = "XLA Ops", "Async XLA Ops", "XLA Modules", "Steps"
# The line of a TPU's runtime, and two of its events: waits for the other chips of a program with collectives, and waits
# for a program's dependencies. A v6e shows both between the start of a program and its first operation.
_RUNTIME = "XLA TraceMe"
BARRIER = "barrier-cores"
_WAITS = (BARRIER, "dependency-wait")
# The lines of a TPU's plane that make operations, modules and steps.
KNOWN_LINES = (OPS_LINE, _ASYNC_OPS, MODULES_LINE, _STEPS)
_STREAM = "Stream #"
# The least notable difference between the two clocks of a device: 1 ms, a hundred times their drift in a second.
_NOTABLE_PS = 1_000_000_000
# The profiler's own bookkeeping on the threads of a host.
_BOOKKEEPING = ("ThreadpoolListener::", "end: ")
# The annotation that `./ratchet.sh profile` and the judge write around each call.
_CALL = re.compile(r"kernel_step_(\d+)")
# The operations so far with their numbers; equal operations share a number.
Numbered: TypeAlias = dict[Operation, int]


def read(paths: Sequence[Source]) -> Capture:
    """The capture in `paths`: one source for each host, either an .xplane.pb file or a run on a server.

    Raises RatchetError `no-profile` (no file), `bad-profile` (empty, cut off, not a profile) or `several-captures`.
    """
    if not paths:
        raise RatchetError("no-profile", "expected an .xplane.pb file of a capture, got none")
    spaces = [(path, space(path)) for path in paths]
    _refuse_several(spaces)
    zero_ps = min((space.start_ps for _, space in spaces if space.start_ps is not None), default=0)
    hosts = [_Host(path, space, zero_ps) for path, space in spaces]
    return Capture(
        name=_run_name(paths),
        paths=tuple(map(str, paths)),
        devices=tuple(device for host in hosts for device in host.devices),
        host_periods=tuple(sorted((p for host in hosts for p in host.periods), key=lambda period: period.start)),
        is_simulated=any("simulated" in device.kind for host in hosts for device in host.devices),
        left_out=tuple(sentence for host in hosts for sentence in host.left_out()),
    )


def hlo_protos(paths: Sequence[Source]) -> dict[str, bytes]:
    """The serialized HloProto of every module in the files, by the module's name with its number: `jit_f(4)`.

    Raises RatchetError like `read`.
    """
    return {name: proto for path in paths for name, proto in _protos(path)}


def chip_of(paths: Sequence[Source]) -> Chip | None:
    """The chip that the files name; None if they name no known chip, or several chips."""
    kinds = {str(plane.stats.get("device_type_string", "")) for path in paths for plane in space(path).planes}
    named = {chip_of_device(kind.removesuffix(DRAWN)) for kind in kinds if kind}
    return named.pop() if len(named) == 1 else None


def sources(capture: Capture) -> tuple[Source, ...]:
    """The sources that the capture was read from, one for each host."""
    return tuple(map(source, capture.paths))


def spaces(capture: Capture) -> Iterator[tuple[str, Space]]:
    """Host name and contents of each file of the capture. Raises RatchetError like `read`."""
    for path in sources(capture):
        contents = space(path)
        yield _host(path, contents), contents


def _host(path: Source, space: Space) -> str:
    return space.hostnames[0] if space.hostnames else host_name(path)


def _protos(path: Source) -> Iterable[tuple[str, bytes]]:
    return remote_timeline.protos(path).items() if isinstance(path, Remote) else protos(space(path))


def _run_name(paths: Sequence[Source]) -> str:
    """The run's name, followed by the file's name if the folder contains other captures too."""
    first = paths[0]
    if isinstance(first, Remote):
        return first.run.rpartition("/")[2]
    if modules.is_module(first):
        return first.name
    folder = first.resolve().parent
    beside = {path.name for path in folder.glob(f"*{SUFFIX}")} - {path.name for path in paths}
    return f"{folder.name}/{host_name(first)}" if beside else folder.name


def distinguish(captures: Sequence[Capture]) -> tuple[Capture, ...]:
    """The captures with distinct names: equal names get the differing part of their paths as a prefix."""
    if len(captures) == 1:
        return tuple(captures)
    return tuple(
        replace(capture, name=_distinct_name(capture, [other for other in captures if other.paths != capture.paths]))
        for capture in captures
    )


def _distinct_name(capture: Capture, others: Sequence[Capture]) -> str:
    alike = [_parts(other) for other in others if other.name == capture.name]
    path = _parts(capture)
    for length in range(1, len(path) + 1) if alike else ():
        if all(parts[-length:] != path[-length:] for parts in alike):
            return "/".join(path[-length:])
    return capture.name


def _parts(capture: Capture) -> list[str]:
    """The parts of the path to a capture, without the parts that every log directory has."""
    path = source(capture.paths[0])
    if isinstance(path, Remote):
        return [path.server, path.run]
    above = path.resolve().parts[:-2]
    return [*(above[:-2] if above[-2:] == RUNS.parts else above), *capture.name.split("/")]


def _refuse_several(spaces: Sequence[tuple[Source, Space]]) -> None:
    """Raises RatchetError `several-captures` if files of one host were taken at different times."""
    times_of_host: dict[str, list[tuple[int, int, Source]]] = {}
    for path, space in spaces:
        stats = next((plane.stats for plane in space.planes if plane.name == _ENVIRONMENT), {})
        start, stop = stats.get("profile_start_time"), stats.get("profile_stop_time")
        if space.hostnames and isinstance(start, int) and isinstance(stop, int):
            times_of_host.setdefault(space.hostnames[0], []).append((start, stop, path))
    for host, times in times_of_host.items():
        for (_, stop, earlier), (start, _, later) in pairwise(sorted(times, key=lambda time: time[:2])):
            if start > stop:
                raise RatchetError(
                    "several-captures",
                    f"expected one capture in a folder, got two of {host}: {earlier} and {later}; give one of these "
                    "files, or compare both with `xprof compare`",
                )


def space(path: Source) -> Space:
    """The contents of a capture's file, or of a run on a server. Raises RatchetError like `read`."""
    if isinstance(path, Remote):
        return remote_timeline.space(path)
    if modules.is_module(path):
        return xplane.read(modules.xspace(path), str(path))
    with refusals_in_words(f"reading {path}"):
        data = reading_limits.read(path)
    reading_limits.note_objects(len(data))
    return xplane.read(data, str(path))


class _Host:
    """One file: the devices of a host and its threads."""

    def __init__(self, path: Source, space: Space, zero_ps: int) -> None:
        self._space = space
        self._path = path
        self._zero_ps = zero_ps
        self._host = _host(path, space)
        self._modules = Modules(dict(protos(space)))
        self._unread_lines: Counter[str] = Counter()
        self._unread_planes: Counter[str] = Counter()
        self._timeless = 0
        self._clocks: dict[str, int] = {}
        self.periods: list[Period] = []
        self.devices: list[Device] = []
        for plane in space.planes:
            if match := TPU_PLANE.fullmatch(plane.name) or _SPARSE_CORE.fullmatch(plane.name):
                self.devices.append(self._tpu(plane, match[1]))
            elif match := _GPU.fullmatch(plane.name):
                self.devices.append(self._gpu(plane, match[1]))
            elif plane.name == HOST_PLANE:
                self.devices += self._cpu(plane)
            elif plane.name not in _ABOUT_THE_CAPTURE:
                self._unread_planes[plane.name] += sum(len(line.events) for line in plane.lines)

    def left_out(self) -> Iterator[str]:
        """Sentences about contents of the profile's file that the Capture leaves out."""
        name = self._path.name
        if isinstance(self._path, Remote):
            yield f"{name}: read through the trace viewer of XProf at {self._path.server}, not from the file itself"
        if not self._space.is_whole:
            yield f"{name} does not end with the host's name, as profilers write it: it was made by hand, or is cut off"
        if self._unread_planes:
            yield f"{name}: ignored planes: {_count_words(self._unread_planes)}"
        simulated = [line for line in self._unread_lines if line.endswith(DRAWN)]
        if simulated:
            events = sum(self._unread_lines.pop(line) for line in simulated)
            yield (
                f"{name}: drawn by the simulator: {quantity(len(simulated), 'line')} (units, transfers, stalls; "
                f"{quantity(events, 'event')}), shown by the trace viewer and in the table `lanes` of `xprof sql`"
            )
        # `+` removes lines without unread events.
        if lines := +self._unread_lines:
            yield f"{name}: ignored lines of devices: {_count_words(lines)}"
        unnamed = sum(line.unnamed_events for plane in self._space.planes for line in plane.lines)
        if unnamed:
            yield f"{name}: {quantity(unnamed, 'event')} of a kind that the file does not describe"
        if self._timeless:
            yield f"{name}: {quantity(self._timeless, 'event')} without a place in time (sums)"
        if self._clocks:
            most = max(self._clocks, key=lambda device: self._clocks[device])
            spread = seconds(self._clocks[most] / _PICOSECONDS)
            yield (
                f"{name}: the profiler's clock jumps relative to the devices' own clocks, by up to {spread} on {most}. "
                "Times of devices are by their own clocks, so events of the host may be off by the same time"
            )
        if self._modules.not_understood:
            unread = quantity(self._modules.not_understood, "module")
            yield f"{name}: {unread} could not be read, so their operations have no source line"
        for sentence in (*self._space.errors, *self._space.warnings):
            yield f"{name}: the profiler reported: {sentence}"

    def _tpu(self, plane: Plane, name: str) -> Device:
        """A TPU core: `XLA Ops` (nested), `Async XLA Ops` (in parallel), `XLA Modules`, `Steps`; or a SparseCore."""
        lines = {_SPARSE.get(line.name, line.name): line for line in plane.lines}
        for kind, line in lines.items():
            if kind not in KNOWN_LINES:
                events = self._events_in_time(line)
                self._unread_lines[kind] += sum(kind != _RUNTIME or event.of.name not in _WAITS for event in events)
        for event in self._events_in_time(lines.get(MODULES_LINE)):
            program = event.stats.get("program_id", event.of.stats.get("program_id"))
            self._modules.learn(_name(event))
            if isinstance(program, int):
                self._modules.names.setdefault(program, _name(event))
        operations: Numbered = {}
        numbers: dict[int, int] = {}

        def number(of: Described) -> int:
            if id(of) not in numbers:
                numbers[id(of)] = operations.setdefault(self._instruction(of), len(operations))
            return numbers[id(of)]

        serial, clock = Serial(), DeviceClock()
        for event in self._events_in_time(lines.get(OPS_LINE)):
            serial.add(*clock.learn(event), number(event.of))
        if clock.spread_ps > _NOTABLE_PS:
            self._clocks[name] = clock.spread_ps

        def periods(kind: str) -> tuple[Period, ...]:
            return tuple(
                self._period(event, kind, *clock.span(event)) for event in self._events_in_time(lines.get(kind))
            )

        def beside(event: Event) -> Execution:
            start_ps, duration_ps = clock.span(event)
            start, length = (start_ps - self._zero_ps) / _PICOSECONDS, duration_ps / _PICOSECONDS
            return Execution(operation=number(event.of), start=start, seconds=length, self_seconds=length)

        return replace(
            self._device(plane, name, "tpu"),
            executions=tuple(serial.executions(self._zero_ps)),
            asynchronous=executions.sorted_by_start(map(beside, self._events_in_time(lines.get(_ASYNC_OPS)))),
            modules=periods(MODULES_LINE),
            waits=tuple(wait for wait in periods(_RUNTIME) if wait.name in _WAITS),
            steps=periods(_STEPS),
            # This comes last, because reading the executions numbers the operations.
            operations=tuple(operations),
        )

    def _instruction(self, of: Described) -> Operation:
        """An HLO instruction from a TPU's capture: its text is the metadata's name, all else is in the statistics."""
        is_text = " = " in of.name
        name = of.display_name or (of.name.partition(" = ")[0].lstrip("%") if is_text else of.name)
        module, text = self._modules.name(of.stats.get("program_id"), ""), of.name if is_text else ""
        return _operation(of.stats, name, module, _word(of.stats, "hlo_category"), text=text)

    def _gpu(self, plane: Plane, name: str) -> Device:
        """A GPU: kernels and copies of its streams become executions of the HLO operations that they name."""
        operations: Numbered = {}
        runs: list[Execution] = []
        for line in plane.lines:
            if not line.name.startswith(_STREAM):
                self._unread_lines[line.name] += sum(1 for _ in self._events_in_time(line))
                continue
            serial = Serial()
            for event in self._events_in_time(line):
                number = operations.setdefault(self._thunk(event, event.of.name), len(operations))
                serial.add(event.start_ps, event.duration_ps, number)
            runs += serial.executions(self._zero_ps)
        serial_line = executions.sorted_by_start(runs)
        return replace(self._device(plane, name, "gpu"), operations=tuple(operations), executions=serial_line)

    def _cpu(self, plane: Plane) -> Iterator[Device]:
        """The host's CPU devices. Events with an HLO operation become executions; all other events become periods.

        All threads count, because XLA's thread differs between releases (`tf_XLAExecute`, `tf_XLAEigen`,
        `tf_XLAPjRtCpuClient`, the caller's own thread).
        """
        operations: dict[int, Numbered] = {}
        executed: dict[int, list[Execution]] = {}
        runs: dict[int, dict[tuple[str, Value | None], tuple[int, int]]] = {}
        for line in plane.lines:
            by_device: dict[int, Serial] = {}
            for event in self._events_in_time(line):
                if "hlo_op" not in event.stats:
                    if not event.of.name.startswith(_BOOKKEEPING):
                        self.periods.append(self._period(event, line.name, event.start_ps, event.duration_ps))
                    continue
                ordinal = event.stats.get("device_ordinal")
                device = ordinal if isinstance(ordinal, int) else 0
                thunk = self._thunk(event, "")
                numbers = operations.setdefault(device, {})
                number = numbers.setdefault(thunk, len(numbers))
                start, end = event.start_ps, event.start_ps + event.duration_ps
                by_device.setdefault(device, Serial()).add(start, event.duration_ps, number)
                run = thunk.module, event.stats.get("run_id")
                first, last = runs.setdefault(device, {}).get(run, (start, end))
                runs[device][run] = (min(first, start), max(last, end))
            for device, serial in by_device.items():
                executed.setdefault(device, []).extend(serial.executions(self._zero_ps))
        steps = [period for period in self.periods if period.step is not None]
        # If the program marks steps, the calls that the harness annotates inside them are not steps.
        steps = [period for period in steps if not _CALL.fullmatch(period.name)] or steps
        for device in sorted(executed):
            modules = (self._span(name, first, last - first) for (name, _), (first, last) in runs[device].items())
            yield replace(
                self._device(plane, f"CPU:{device}", "cpu"),
                operations=tuple(operations[device]),
                executions=executions.sorted_by_start(executed[device]),
                modules=tuple(sorted(modules, key=lambda period: period.start)),
                steps=tuple(steps),
            )

    def _thunk(self, event: Event, kernel: str) -> Operation:
        """The HLO operation to which an event of a CPU or GPU belongs; the module's proto gives its origin."""
        stats = event.stats
        module = self._modules.name(stats.get("program_id"), _word(stats, "hlo_module"))
        name = _word(stats, "hlo_op") or kernel
        origin = self._modules.origin(module, name)
        category = _word(stats, "hlo_category") or (origin.opcode if origin else "")
        return _operation(stats, name, module, category, origin)

    def _device(self, plane: Plane, name: str, platform: Platform) -> Device:
        """The device, without its executions."""
        return Device(
            name=name,
            host=self._host,
            platform=platform,
            kind=_word(plane.stats, "device_type_string"),
            peak_flops_per_second=_number_of(plane.stats, "peak_teraflops_per_second", 1e12),
            hbm_bytes_per_second=_number_of(plane.stats, "peak_hbm_bw_gigabytes_per_second", 1e9)
            or _number_of(plane.stats, "memory_bandwidth", 1.0),
        )

    def _events_in_time(self, line: Line | None) -> Iterator[Event]:
        """The events of a line that have a place in time. Counts the others."""
        for event in line.events if line else ():
            if event.occurrences is None:
                yield event
            else:
                self._timeless += 1

    def _period(self, event: Event, line: str, start_ps: int, duration_ps: int) -> Period:
        number = event.stats.get("step_num")
        call = _CALL.fullmatch(event.of.name)
        step = number if isinstance(number, int) else int(call[1]) if call else None
        return self._span(_name(event), start_ps, duration_ps, line, step)

    def _span(self, name: str, start_ps: int, duration_ps: int, line: str = "", step: int | None = None) -> Period:
        start, seconds = (start_ps - self._zero_ps) / _PICOSECONDS, duration_ps / _PICOSECONDS
        return Period(name=name, start=start, seconds=seconds, line=line, step=step)


def _operation(
    stats: Mapping[str, Value], name: str, module: str, category: str, origin: Origin | None = None, text: str = ""
) -> Operation:
    return Operation(
        name=name,
        text=text,
        category=category,
        framework_name=_word(stats, "tf_op") or (origin.framework_name if origin else ""),
        source=_word(stats, "source") or (origin.source if origin else ""),
        module=module,
        flops=executions.cost(stats, "flops", category),
        bytes_accessed=executions.cost(stats, "bytes_accessed", category),
        hbm_bytes=executions.hbm_bytes(stats),
    )


def _name(event: Event) -> str:
    return _word(event.stats, "step_name") or event.of.display_name or event.of.name


def _word(stats: Mapping[str, Value], name: str) -> str:
    value = stats.get(name, "")
    return value if isinstance(value, str) else ""


def _number_of(stats: Mapping[str, Value], name: str, factor: float) -> float | None:
    value = stats.get(name)
    return value * factor if isinstance(value, (int, float)) and value > 0 else None


def _count_words(events: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name or 'one without a name'} ({quantity(count, 'event')})" for name, count in sorted(events.items())
    )
