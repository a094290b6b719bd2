"""Captures that several files read: each is written once for all tests of a process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from capture_examples import (
    REAL,
    counters_run,
    cpu_run,
    experts_run,
    four_devices_run,
    host_offload_run,
    one_device_run,
)
from memory_examples import memory_run

from harness.records import Capture
from harness.workbench.profiles import reading

MAKERS: dict[str, Callable[[Path], Path]] = {
    "one": one_device_run,
    "four": four_devices_run,
    "experts": experts_run,
    "offload": host_offload_run,
    "memory": memory_run,
    "counters": counters_run,
    "cpu": cpu_run,
    "real": lambda _: REAL,
}


class Runs(dict[str, Path]):
    """The files of captures by name, each written when it is first asked for."""

    def __init__(self, logdir: Path) -> None:
        super().__init__()
        self._logdir = logdir

    def __missing__(self, name: str) -> Path:
        return self.setdefault(name, MAKERS[name](self._logdir))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("captures"))


@pytest.fixture(scope="session")
def one_device(runs: Runs) -> Capture:
    return reading.read([runs["one"]])


@pytest.fixture(scope="session")
def four(runs: Runs) -> Capture:
    return reading.read([runs["four"]])
