"""CPU seconds of each test, its fixtures and the processes that it waits for: a plugin of pytest, for time_of_tests.py.

Each process of a run writes its own file into the folder that CPU_OF_TESTS names: each line has a test's seconds and
id.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = "CPU_OF_TESTS"


def _cpu_seconds() -> float:
    used, forked = os.times(), sys.modules.get("forked_commands")
    seconds = used.user + used.system + used.children_user + used.children_system
    return seconds + (forked.cpu_seconds if forked else 0.0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Appends a line for the test to the process's file."""
    began = _cpu_seconds()
    try:
        return (yield)
    finally:
        with (Path(os.environ[FOLDER]) / f"{os.getpid()}.txt").open("a", encoding="utf-8") as lines:
            lines.write(f"{_cpu_seconds() - began:.2f} {item.nodeid.splitlines()[0]}\n")


def costs(folder: Path) -> list[tuple[float, str]]:
    """CPU seconds and id of each test of a run, the longest first."""
    lines = [line for file in folder.iterdir() for line in file.read_text(encoding="utf-8").splitlines()]
    pairs = [(float(seconds), test_id) for seconds, _, test_id in (line.partition(" ") for line in lines)]
    return sorted(pairs, reverse=True)
