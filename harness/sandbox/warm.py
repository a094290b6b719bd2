"""Child processes forked from an idle process that has imported JAX: a start costs 20 ms instead of a second.

The process that forks (`forking`) never sees a candidate. It has one thread and no device, so forking is safe, and it
ends when this process ends. Each fork is confined like any other child before it receives a request, serves one
candidate, and ends, so nothing is carried over.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

import harness
from harness.sandbox import environment
from harness.sandbox.confinement import Confinement, isolation

# Modules that the processes of every judgement import.
PRELOADED = (
    "harness.judge.evaluate.candidate",
    "harness.judge.evaluate.correctness",
    "harness.judge.evaluate.compile.certificate",
    "harness.judge.evaluate.compile.compilation",
    "harness.judge.evaluate.timing.simulation",
    "harness.judge.simulate",
    # JAX imports these when it first calls an exported program, and when it first lowers an interpreted one.
    "scipy.linalg.cython_blas",
    "scipy.linalg.cython_lapack",
    "jaxlib.mlir.dialects.mhlo",
    "jax._src.pallas.mosaic.pallas_call_registration",
    "jax._src.pallas.mosaic_gpu.interpret.interpret_pallas_call",
)
# Modules that never run in a fork: a fork shares memory with another process, and this could change the measured times.
_TIMED = ("harness.judge.evaluate.timing.device_timing",)
# Variables that a fork may set anew: nothing has read them yet, because libtpu is not loaded and XLA has not started.
# The folders of PYTHONPATH are added in each child.
_MAY_DIFFER = ("LIBTPU_", "TPU_", "PJRT_NPROC", "XLA_FLAGS", "PYTHONPATH")
# The time for importing JAX on a busy machine, and the time for one fork after that.
_IMPORT_SECONDS, _FORK_SECONDS = 120.0, 20.0
# After this many failed forks, each child is started as a new process instead.
_MOST_FAILURES = 2


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a forked child; it is sent along with the descriptors of the child's channel and output."""

    name: str
    module: str
    directory: str
    environment: dict[str, str]
    confinement: Confinement


class Forked:
    """A forked child that this process adopted, with the methods of subprocess.Popen that callers use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The child's exit code (negative: ended by a signal), or None while it runs."""
        if self.returncode is None:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
                return self.returncode
            # Another caller has reaped it, so the exit code is unknown.
            self.returncode = -9
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the child has ended; returns its exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(0.002)
        return code


@dataclass(slots=True)
class _Server:
    process: subprocess.Popen[bytes]
    control: socket.socket
    stamp: int
    environment: dict[str, str]
    is_ready: bool = False


_lock = threading.Lock()
_server: _Server | None = None
_failures = 0


def start() -> None:
    """Starts the process that forks, which imports JAX while the caller does something else."""
    if _is_possible():
        with _lock:
            _start_server()


def fork(
    name: str,
    module: str,
    directory: Path,
    variables: Mapping[str, str],
    confinement: Confinement | None,
    channel: int,
    output: int,
) -> Forked | None:
    """A confined child that serves `module` on the descriptor `channel`, or None if a new process must be started.

    Call it while this process adopts orphans: the fork is then a child of this process, and ends when this process
    ends. A child that is not fully confined is never forked, because it could reach the process that forks.
    """
    global _failures
    if confinement is None or module in _TIMED or not _is_possible():
        return None
    with _lock:
        server = _start_server()
        if server is None or not _is_like(variables, server.environment):
            return None
        request = ForkRequest(
            name=name,
            module=module,
            directory=str(directory),
            environment={**variables, "HOME": str(directory), "TMPDIR": str(directory)},
            confinement=confinement,
        )
        try:
            server.control.settimeout(_FORK_SECONDS if server.is_ready else _IMPORT_SECONDS)
            socket.send_fds(server.control, [msgspec.json.encode(request)], [channel, output])
            pid = json.loads(server.control.recv(64) or b"0")
        except (OSError, ValueError):
            pid = 0
        server.is_ready = True
        if pid:
            return Forked(pid)
        _failures += 1
        _end()
        return None


def close() -> None:
    """Ends the process that forks, if there is one."""
    with _lock:
        _end()


def _is_possible() -> bool:
    layers = isolation(is_confined=True)
    is_confined = layers.landlock is not None and layers.system_calls_filtered
    return sys.platform == "linux" and is_confined and _failures < _MOST_FAILURES


def _start_server() -> _Server | None:
    """The process that forks, or None if none can be started.

    A new process is started if the last has ended, or if the harness or the installed packages have changed since.
    """
    global _server, _failures
    now = _stamp()
    if _server is not None and (_server.stamp != now or _server.process.poll() is not None):
        _end()
    if _server is None:
        variables = environment.on_cpu()
        # Each packet is one request: no lengths are needed, and no part can be taken for a whole request.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # The server stays in this process's session; that distinguishes it from processes that a candidate started.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "harness.sandbox.forking", str(theirs.fileno()), *PRELOADED],
                cwd="/",
                env={**variables, "HOME": "/", "TMPDIR": "/"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        except OSError:
            _failures += 1
            ours.close()
            return None
        finally:
            theirs.close()
        _server = _Server(process, ours, now, variables)
    return _server


def _end() -> None:
    global _server
    if _server is None:
        return
    _server.control.close()
    # Killing it is safe: it holds no resources, and no fork is in progress.
    _server.process.kill()
    _server.process.wait()
    _server = None


def _is_like(wanted: Mapping[str, str], present: Mapping[str, str]) -> bool:
    """True if the two environments differ only in variables that a fork may set anew."""
    left, right = (
        {name: value for name, value in variables.items() if not name.startswith(_MAY_DIFFER)}
        for variables in (wanted, present)
    )
    return left == right


def _stamp() -> int:
    """A number that changes when a file of the harness, or a version of an installed package, changes."""
    states: list[object] = [environment.environment()]
    for path in sorted(Path(harness.__file__).parent.rglob("*.py")):
        with suppress(OSError):
            state = path.stat()
            states.append((str(path), state.st_mtime_ns, state.st_size))
    return hash(tuple(map(repr, states)))


def _after_fork() -> None:
    """Forgets the process that forks, because it belongs to the parent and not to this forked copy."""
    global _server
    _server = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(close)
