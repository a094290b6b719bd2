"""Simulates the best program of each side again, with each constant of the machine moved, for PEERS.md's ratios."""

import json
from pathlib import Path

import peers_plan
from peers_plan import Look, Plan
from peers_problems import AIMS, OURS, PEERS
from peers_tasks import Task, fingerprinted

from harness.advice.dump_directory import read
from harness.hardware import chip as chip_named
from harness.judge.simulate.machine_variants import doubts
from harness.judge.simulate.module import run_module

# The variation that changes a rule and not a factor (docs/SIMULATOR.md).
RULE = "prep_early_cycles 0"
_DEADLINE_SECONDS = 600.0


def pairs(plan: Plan, look: Look) -> dict[tuple[str, str], tuple[Task, Task]]:
    """The best task of ours and the best of all peers, for each aim for which both have a time."""
    best_pairs = {}
    for chip, problem in AIMS:
        if chip not in plan.chips or problem not in plan.problems:
            continue
        ours = peers_plan.ranking(plan.tasks(chip, problem, OURS, look), look)
        theirs = [task for peer in PEERS for task in plan.tasks(chip, problem, peer, look)]
        peers = peers_plan.ranking(theirs, look)
        if ours and peers:
            best_pairs[chip, problem] = (ours[0], peers[0])
    return best_pairs


def simulate(task: Task, cache: Path) -> None:
    """Simulates the task under every variation of its chip and caches the times, unless they are there already."""
    path = _path(task, cache)
    seconds_by_variant = read_times(task, cache)
    chip = chip_named(task.chip)
    wanted = [name for name in doubts(chip) if name not in seconds_by_variant]
    if not wanted:
        return
    dump = read(cache / "dumps" / task.place, chip)
    for name in wanted:
        seconds_by_variant[name] = run_module(
            dump, chip, machine=doubts(chip)[name], deadline_seconds=_DEADLINE_SECONDS
        ).seconds
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(seconds_by_variant, indent=1), encoding="utf-8")


def read_times(task: Task, cache: Path) -> dict[str, float | None]:
    """Seconds by variant, as far as they are known; None where the simulator has no time."""
    path = _path(task, cache)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _path(task: Task, cache: Path) -> Path:
    place = fingerprinted(cache, "variants") / task.place
    return place.with_name(place.name + ".json")


def ratios(ours: Task, peer: Task, cache: Path) -> dict[str, float]:
    """Our time over the peer's, for each variant with both times."""
    mine, theirs = read_times(ours, cache), read_times(peer, cache)
    both = {name: (mine.get(name), theirs.get(name)) for name in doubts(chip_named(ours.chip))}
    return {name: our_seconds / other for name, (our_seconds, other) in both.items() if our_seconds and other}
