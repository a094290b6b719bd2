"""The simulated run of a kernel as a small capture; the timeline that it is made from is removed from the dumps."""

from pathlib import Path

import msgspec

from harness.advice import dump_directory
from harness.advice.operands import in_problem_names
from harness.errors import RatchetError
from harness.files import write_atomically
from harness.hardware import Chip, chip
from harness.judge.evaluate.stages import TIMELINE
from harness.records import Evidence, Timeline
from harness.workbench.profiles.places import PROFILE_DATA, RUNS
from harness.workbench.traces.xspace import xspace


def keep(evidence: Evidence, contest: Path, name: str) -> str:
    """Writes a capture called `name` of each program's run; returns why one could not be written, else ""."""
    for member, program in evidence.programs:
        dumps = dump_directory.of(program, contest)
        if dumps is None or not (dumps / TIMELINE).is_file():
            continue
        try:
            timeline = msgspec.json.decode((dumps / TIMELINE).read_bytes(), type=Timeline)
            capture_name = f"{name}-{member}" if member else name
            write(in_problem_names(timeline, program.problem), chip(program.chip), capture_name, contest)
            (dumps / TIMELINE).unlink()
        except (OSError, msgspec.MsgspecError, RatchetError) as error:
            return f"no capture of the simulated run of {name} was written: {error}"
    return ""


def write(timeline: Timeline, of_chip: Chip, name: str, contest: Path) -> Path:
    """Writes the capture into the folder of XProf's runs and returns its file. Raises like `write_atomically`."""
    title, host = f"{name} simulated {of_chip.name}", f"simulated-{of_chip.name}"
    path = contest / PROFILE_DATA / RUNS / title.replace(" ", "-") / f"{host}.xplane.pb"
    write_atomically(path, xspace(timeline, of_chip, title, host))
    return path
