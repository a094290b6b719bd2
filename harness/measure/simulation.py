"""The process that runs the simulator: named by the caller, because measuring and simulating do not know each other."""

import importlib
from pathlib import Path

from harness.measure.messages import SimulateRequest
from harness.records import Simulation


def simulate(request: SimulateRequest) -> Simulation:
    """What the named function makes of the dumps."""
    function = getattr(importlib.import_module(request.module), request.function)
    found: Simulation = function(Path(request.dump_directory), request.chip, deadline_seconds=request.deadline_seconds)
    return found


TASKS = {"simulate": (SimulateRequest, simulate)}
