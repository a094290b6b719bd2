"""A real Ray cluster on the loopback: its processes, and the faults that are injected."""

import os
import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Settings with which Ray listens only on the loopback, and sends nothing out of the machine.
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    # A machine that is silent for 5 s counts as dead, not after half a minute.
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_initial_delay_ms": "2000",
}


class Nodes:
    """A cluster of `count` machines with a CPU each; the first holds it together."""

    def __init__(self, count: int, environment: Mapping[str, str]) -> None:
        os.environ.update(ENVIRONMENT)
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "node_ip_address": "127.0.0.1", "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._environment = dict(environment)
        self.others = [self.begin() for _ in range(count - 1)]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def begin(self, **environment: str) -> Any:
        """Starts another machine."""
        env = {**self._environment, **environment}
        return self._cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", env_vars=env)

    def kill(self, node: Any) -> None:
        """Kills a machine, as if it lost power."""
        self._cluster.remove_node(node, allow_graceful=False)

    def end(self) -> None:
        self._cluster.shutdown()
        for name in ENVIRONMENT:
            os.environ.pop(name, None)


@contextmanager
def nodes(count: int, **environment: str) -> Iterator[Nodes]:
    cluster = Nodes(count, environment)
    try:
        yield cluster
    finally:
        cluster.end()


def below(pid: int) -> list[int]:
    """The processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    processes, todo = [], [pid]
    while todo:
        new = children.get(todo.pop(), [])
        processes += new
        todo += new
    return processes


def named(pids: list[int], words: str) -> list[int]:
    """The processes whose command line contains these words."""
    matching = []
    for pid in pids:
        with suppress(OSError):
            if words in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                matching.append(pid)
    return matching


def befall(cluster: Nodes, blows: int, seed: int) -> list[str]:
    """Injects `blows` random faults, seconds apart: kills or stops an actor or a screening process, or ends a machine.

    Ray begins machines in the main thread only.
    """
    chance = random.Random(seed)
    struck: list[str] = []
    while len(struck) < blows:
        time.sleep(chance.uniform(2.0, 8.0))
        kind = chance.choice(["actor", "actor", "process", "process", "machine", "stopped actor"])
        if kind == "machine":
            node = cluster.others.pop(chance.randrange(len(cluster.others)))
            cluster.kill(node)
            cluster.others.append(cluster.begin())
        else:
            words = "harness.loop.screening" if kind == "process" else "ray::_Screener"
            actors = named(below(os.getpid()), words)
            if not actors:
                continue
            with suppress(ProcessLookupError):
                os.kill(chance.choice(actors), signal.SIGSTOP if kind == "stopped actor" else signal.SIGKILL)
        struck.append(kind)
    return struck


def listening(pids: list[int]) -> set[str]:
    """The addresses at which these processes listen, as Linux writes them: hexadecimal, each word's bytes reversed."""
    sockets: set[str] = set()
    for pid in pids:
        with suppress(OSError):
            sockets |= {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    addresses: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                addresses.add(local.partition(":")[0])
    return addresses


def is_gone(pid: int, seconds: float = 20.0) -> bool:
    """True if the process ends in this time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False
