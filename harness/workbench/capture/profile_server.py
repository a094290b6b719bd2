"""A kernel that runs endlessly under JAX's profiler server, for captures from XProf's page and for snapshots."""

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RatchetError
from harness.files import refusals_in_words
from harness.sandbox.jobs import Child
from harness.sandbox.messages import Done
from harness.workbench.capture.capturing import Exported
from harness.workbench.capture.messages import (
    ContinuousRequest,
    ServeReply,
    ServeRequest,
    SnapshotReply,
    SnapshotRequest,
    StepsWindow,
    WatchRequest,
)
from harness.workbench.profiles.places import RUNS

_START_SECONDS = 300.0
# Only a slow disk needs most of this time: a snapshot is written from memory.
_SNAPSHOT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The running program and the address of its profiler."""

    program: Exported
    child: Child
    reply: ServeReply
    address: str

    def wait(self) -> None:
        """Waits until Ctrl-C or until the program fails. Raises RatchetError with the failure."""
        self._watch(WatchRequest())

    def capture_folder(self) -> Path:
        """The folder with the capture of the program's steps, once it exists. Raises RatchetError as `wait` does."""
        return Path(self._watch(WatchRequest(window=True)).path)

    def _watch(self, request: WatchRequest) -> Done:
        return self.program.dialogue.ask(self.child, "watch", request, Done, float("inf"))


@contextmanager
def serving(program: Exported, port: int, window: StepsWindow | None = None) -> Iterator[Served]:
    """The program, running endlessly while JAX's profiler server listens on `port`; both end with `program`'s context.

    The steps of `window` are captured while the program runs. jax (0.10 to 0.12) always binds its profiler server to
    all interfaces. The child process needs sockets, so it is not confined; it runs the exported program, never
    kernel.py. Raises RatchetError `port-in-use`.
    """
    require_free(port)
    child = program.start("served", "harness.workbench.capture.captured", is_confined=False)
    request = ServeRequest(subject=program.subject, port=port, window=window)
    reply = program.dialogue.ask(child, "serve", request, ServeReply, _START_SECONDS)
    yield Served(program=program, child=child, reply=reply, address=f"localhost:{port}")


def snapshots(
    served: Served, count: int, every_seconds: float, session: Callable[[int], str]
) -> Iterator[tuple[Path, ...]]:
    """The files of `count` snapshots of the kernel's latest runs, taken every `every_seconds`.

    The files of snapshot i are in the run `session(i)` below profile_data. Raises RatchetError `no-snapshot` if the
    profiler writes no snapshot.
    """
    program, dialogue = served.program, served.program.dialogue
    child = program.start("snapshots", "harness.workbench.capture.snapshots", is_confined=False)
    switch = ContinuousRequest(address=served.address, is_on=True)
    dialogue.ask(child, "continuous", switch, Done, _SNAPSHOT_SECONDS)
    for number in range(count):
        folder = Path(tempfile.mkdtemp(dir=program.scratch))
        request = SnapshotRequest(address=served.address, wait_seconds=every_seconds, directory=str(folder))
        files = dialogue.ask(child, "snapshot", request, SnapshotReply, every_seconds + _SNAPSHOT_SECONDS).files
        if not files:
            raise RatchetError(
                "no-snapshot",
                f"expected a snapshot from the profiler of the {served.reply.device_kind}, got none: only a TPU's "
                "profiler keeps the history that snapshots come from; use ratchet.sh profile, which captures calls",
            )
        yield _keep(files, program.kernel.profiles / RUNS / session(number))
    dialogue.ask(child, "continuous", ContinuousRequest(address=served.address, is_on=False), Done, _SNAPSHOT_SECONDS)


def require_free(port: int) -> None:
    """Raises RatchetError `port-in-use` if no server can listen on `port`; JAX's server would only log the failure."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise RatchetError(
                "port-in-use", f"cannot listen on port {port} ({error.strerror}); choose another port: --serve PORT"
            ) from error


def _keep(files: tuple[str, ...], run: Path) -> tuple[Path, ...]:
    with refusals_in_words(f"writing {run}"):
        run.mkdir(parents=True)
        return tuple(Path(shutil.move(file, run / Path(file).name)) for file in files)


def free_port() -> int:
    """A port that is free at the moment."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
