"""A capture of a training step with its memory: XLA's own buffer assignment for a v5e, and an allocator's events."""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from capture_examples import HOST, TANH, V6E, Ran, Stats, plane, run_folder, serialized, space

MODULE = "jit_step(7)"
# Made by libtpu 0.0.42.1, see fixtures/memory/make.py.
STEP = Path(__file__).parents[1] / "fixtures" / "memory" / "step-v5e-jax0.10.2-libtpu0.0.42.1.hlo_proto.pb.gz"
GIGABYTE = 1_000_000_000


def event(
    at: float,
    allocated: int,
    available: int,
    operation: str,
    size: int,
    *,
    reserved: int = 9 * GIGABYTE,
    fragmentation: float = 0.25,
) -> Ran:
    """An allocation as a runtime's allocator reports it: the memory in use afterwards, and its purpose."""
    stats: Stats = {
        "allocator_name": "0",
        "bytes_reserved": reserved,
        "bytes_allocated": allocated,
        "bytes_available": available,
        "fragmentation": fragmentation,
        "peak_bytes_in_use": reserved + allocated,
        "requested_bytes": size,
        "allocation_bytes": size,
        "addr": 4096 * (1 + round(at)),
        "tf_op": operation,
        "region_type": "temp",
        "shape": "[512,256]",
    }
    return Ran("MemoryAllocation" if operation else "MemoryDeallocation", at, 0.0, stats)


def events(reserved: int = 9 * GIGABYTE) -> list[Ran]:
    """Events of a memory of 16 GB: 1 GB, then 3 GB are allocated, then 2 GB are freed."""
    free = 16 * GIGABYTE - reserved
    moments = (
        (0.0, 1, "jit(step)/attention/dot_general", 1),
        (5.0, 3, "jit(step)/moe/expert/dot_general", 2),
        (9.0, 1, "", 2),
    )
    return [
        event(at, level * GIGABYTE, free - level * GIGABYTE, operation, size * GIGABYTE, reserved=reserved)
        for at, level, operation, size in moments
    ]


def metadata_plane(protos: Mapping[str, bytes]) -> str:
    """The plane in which profilers store the modules that ran, by their names."""
    entries = []
    for key, (name, proto) in enumerate(protos.items(), 1):
        escaped = "".join(f"\\{byte:03o}" for byte in proto)
        stored = f'stats {{ metadata_id: 1 bytes_value: "{escaped}" }}'
        entries.append(f'event_metadata {{ key: {key} value {{ id: {key} name: "{name}" {stored} }} }}')
    return (
        'planes { id: 90 name: "/host:metadata" stat_metadata { key: 1 value { id: 1 name: "Hlo Proto" } } '
        f"{' '.join(entries)} }}"
    )


def levels(*allocated: int, fragmentation: float = 0.0) -> list[Ran]:
    """Events of a memory of 33 GB, of which these GB are allocated one after the other."""
    pairs = [(level * GIGABYTE, (33 - level) * GIGABYTE) for level in allocated]
    return [
        event(at, *pair, "jit(step)/dot_general", GIGABYTE, reserved=0, fragmentation=fragmentation)
        for at, pair in enumerate(pairs)
    ]


def memory_run(logdir: Path, run: str = "memory", happened: Sequence[Ran] = ()) -> Path:
    """The capture on disk; its allocator's events are those of `events` if no others are given."""
    proto = gzip.decompress(STEP.read_bytes())
    host = plane(1, "/host:CPU", {"python": happened or events()}, {})
    return run_folder(logdir, run, serialized(space(metadata_plane({MODULE: proto}), host)), HOST)


def memories_run(logdir: Path, memories: Iterable[Sequence[Ran]]) -> Path:
    """A capture of several memories, each with its events; the number of a memory is the name of its allocator."""
    named = [
        replace(event, stats={**event.stats, "allocator_name": f"{number:02}"})
        for number, events_of_memory in enumerate(memories)
        for event in events_of_memory
    ]
    return run_folder(logdir, "memories", serialized(space(plane(1, "/host:CPU", {"python": named}, {}))), HOST)


def loaded_run(logdir: Path, run: str, kept: int = 0, workspace: int = 20, capacity: int = 32) -> Path:
    """A v6e with `capacity` GB of memory that loads a program with a workspace and runs it six times.

    Half of the memory is allocated at 4 us and free again at 199 us, when the workspace is reserved. The program keeps
    `kept` GB of each run. The first event of the capture is at 3 us of its line. With a workspace of 0, all of the
    memory is reserved from the beginning, as by an allocator that counts its whole pool.
    """
    half, ran = capacity // 2, range(6)
    levels = [(4.0, 0, half), *((199.0 + 100.0 * step, workspace, 1 + kept * step) for step in ran)]
    memory = [
        event(
            at,
            allocated * GIGABYTE,
            (capacity - reserved - allocated) * GIGABYTE,
            "jit(step)/dot_general",
            GIGABYTE,
            reserved=reserved * GIGABYTE if workspace else capacity * GIGABYTE,
        )
        for at, reserved, allocated in levels
    ]
    modules = [Ran("jit_load(1)", 100.0, 5.0), *(Ran(MODULE, 200.0 + 100.0 * step, 90.0) for step in ran)]
    device = plane(2, "/device:TPU:0", {"XLA Modules": modules, "XLA Ops": [Ran(TANH, 200.0, 90.0)]}, V6E)
    host = plane(1, "/host:CPU", {"python": [Ran("start", 3.0, 1.0)], "allocator": memory}, {})
    return run_folder(logdir, run, serialized(space(host, device)), HOST)
