"""The process that runs the simulator. This file imports no simulator, so requests name the function to call."""

import importlib
from pathlib import Path

from harness.judge.evaluate.messages import ResimulateReply, ResimulateRequest, SimulateRequest
from harness.records import Simulation


def simulate(request: SimulateRequest) -> Simulation:
    """The simulation that the function named in the request makes from the dumps."""
    function = getattr(importlib.import_module(request.module), request.function)
    simulation: Simulation = function(
        Path(request.dump_directory),
        request.chip,
        deadline_seconds=request.deadline_seconds,
        with_lines=request.with_lines,
        timeline=Path(request.timeline) if request.timeline else None,
    )
    return simulation


def resimulate(request: ResimulateRequest) -> ResimulateReply:
    """The seconds on each machine that the function named in the request computes from the dumps."""
    function = getattr(importlib.import_module(request.module), request.function)
    dumps, deadline = Path(request.dump_directory), request.deadline_seconds
    return ResimulateReply(seconds=function(dumps, request.chip, names=request.names, deadline_seconds=deadline))


TASKS = {"simulate": (SimulateRequest, simulate), "resimulate": (ResimulateRequest, resimulate)}
