"""What a device's allocator did while a capture was taken, as XProf's memory_profile reads it from its events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.workbench.profiles import conversion
from harness.workbench.profiles.places import host_name
from harness.workbench.profiles.remote import Source

_PICOSECONDS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The memory at one moment, `seconds` after the first event.

    `reserved_bytes` (bytes_reserved) hold the programs' workspace, `allocated_bytes` (bytes_allocated) only what goes
    in and out of them, `free_bytes` is bytes_available.
    """

    seconds: float
    reserved_bytes: int
    allocated_bytes: int
    free_bytes: int

    @property
    def used_bytes(self) -> int:
        """Workspace and buffers together, as XProf adds them up."""
        return self.reserved_bytes + self.allocated_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Something alive at the peak; `count` are alike. `region` is the allocator's word (temp, output, stack ...)."""

    op_name: str
    region: str
    shape: str
    bytes_each: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorState:
    """One memory of one host: its levels in time, the peak among them, and what was alive then."""

    host: str
    name: str
    capacity_bytes: int
    lifetime_peak_bytes: int
    peak: Level
    fragmentation: float
    levels: tuple[Level, ...]
    alive: tuple[Allocation, ...]
    allocations: int
    deallocations: int


def memories(paths: Sequence[Source]) -> tuple[AllocatorState, ...]:
    """Every memory with allocator events, in the order of hosts and names; none on captures without such events.

    Raises RatchetError where the capture cannot be converted.
    """
    found = []
    # XProf reads one host at a time here.
    for path in paths:
        answer = conversion.tool((path,), "memory_profile")
        if not answer:
            # Nothing at all is said of a capture without a host, as that of a simulated run.
            continue
        said: dict[str, Any] = msgspec.json.decode(answer)
        host = host_name(path)
        found += [_memory(host, name, one) for name, one in sorted(said["memoryProfilePerAllocator"].items())]
    return tuple(found)


def _memory(host: str, name: str, said: Mapping[str, Any]) -> AllocatorState:
    summary = said["profileSummary"]
    peak = summary.get("peakStats", {})
    snapshots = said.get("memoryProfileSnapshots", ())
    timeline = said.get("sampledTimelineSnapshots", ())
    done = [event["activityMetadata"].get("memoryActivity", "ALLOCATION") for event in timeline]
    return AllocatorState(
        host=host,
        name=name,
        capacity_bytes=int(summary.get("memoryCapacity", 0)),
        lifetime_peak_bytes=int(summary.get("peakBytesUsageLifetime", 0)),
        peak=_level(int(summary.get("peakStatsTimePs", 0)), peak),
        fragmentation=float(peak.get("fragmentation", 0.0)),
        levels=tuple(_level(int(event.get("timeOffsetPs", 0)), event["aggregationStats"]) for event in timeline),
        alive=tuple(
            _allocation(active, snapshots, said.get("specialAllocations", ()))
            for active in said.get("activeAllocations", ())
        ),
        allocations=sum(word == "ALLOCATION" for word in done),
        deallocations=sum(word == "DEALLOCATION" for word in done),
    )


def _level(picoseconds: int, said: Mapping[str, Any]) -> Level:
    return Level(
        seconds=picoseconds / _PICOSECONDS,
        reserved_bytes=int(said.get("stackReservedBytes", 0)),
        allocated_bytes=int(said.get("heapAllocatedBytes", 0)),
        free_bytes=int(said.get("freeMemoryBytes", 0)),
    )


def _allocation(
    active: Mapping[str, Any], snapshots: Sequence[Mapping[str, Any]], special: Sequence[Mapping[str, Any]]
) -> Allocation:
    # An index of -1 and below says that the other list is meant.
    at = int(active.get("snapshotIndex", 0))
    said = snapshots[at]["activityMetadata"] if at >= 0 else special[int(active.get("specialIndex", 0))]
    return Allocation(
        op_name=said.get("tfOpName", ""),
        region=said.get("regionType", ""),
        shape=said.get("tensorShape", ""),
        bytes_each=int(said.get("allocationBytes", 0)),
        count=int(active.get("numOccurrences", 1)),
    )
