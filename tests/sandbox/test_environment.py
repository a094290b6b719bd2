"""The number of cores that a judgement may use: those it is bound to, and those its container grants."""

import os
from pathlib import Path

import pytest

from harness.sandbox import environment

TWO = "0::/pod/container\n"
ONE = "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n"


def groups(folder: Path, memberships: str, limits: dict[str, str]) -> float | None:
    for name, text in limits.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n", encoding="ascii")
    listed = folder / "memberships"
    listed.write_text(memberships, encoding="ascii")
    return environment.granted_cores(listed, folder)


@pytest.mark.parametrize(
    ("memberships", "limits", "cores"),
    [
        (TWO, {"pod/container/cpu.max": "150000 100000"}, 1.5),
        # The group above grants less.
        (TWO, {"pod/container/cpu.max": "400000 100000", "pod/cpu.max": "200000 100000"}, 2.0),
        (TWO, {"pod/container/cpu.max": "max 100000", "pod/cpu.max": "300000 100000"}, 3.0),
        # In a container the mount is the group itself, whatever it is called outside.
        (TWO, {"cpu.max": "50000 100000"}, 0.5),
        (TWO, {"pod/container/cpu.max": "max 100000"}, None),
        (TWO, {"pod/container/cpu.max": "nonsense"}, None),
        (TWO, {}, None),
        ("", {"cpu.max": "50000 100000"}, None),
        (ONE, {"cpu,cpuacct/box/cpu.cfs_quota_us": "250000", "cpu,cpuacct/box/cpu.cfs_period_us": "100000"}, 2.5),
        (ONE, {"cpu,cpuacct/box/cpu.cfs_quota_us": "-1", "cpu,cpuacct/box/cpu.cfs_period_us": "100000"}, None),
        # The memory controller's folder says nothing about cores.
        (ONE, {"memory/box/cpu.max": "100000 100000"}, None),
    ],
)
def test_the_smallest_limit_above_a_process_holds(
    tmp_path: Path, memberships: str, limits: dict[str, str], cores: float | None
) -> None:
    assert groups(tmp_path, memberships, limits) == cores


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert environment.granted_cores(tmp_path / "none", tmp_path) is None


@pytest.mark.parametrize(("granted", "most"), [(None, 1 << 20), (0.3, 1), (1.0, 1), (1.5, 2)])
def test_cores_are_those_it_is_bound_to_and_no_more_than_granted(
    monkeypatch: pytest.MonkeyPatch, granted: float | None, most: int
) -> None:
    monkeypatch.setattr(environment, "_cores_of_container", lambda: granted)
    assert environment.cores() == min(len(os.sched_getaffinity(0)), most)
