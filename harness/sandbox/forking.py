"""The process that imports JAX once and forks a child for each request; it never loads a candidate itself."""

import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from harness.sandbox import worker
from harness.sandbox.warm import ForkRequest

_MOST_BYTES = 1 << 16
# The kernel needs a moment to hand an orphan to the process that adopts it.
_ADOPTION_SECONDS = 5.0
_PR_SET_NAME = 15
_NO_CHILD = b"0"
# The first descriptor after input, output and errors.
_CHANNEL = 3


def main() -> None:
    """Imports the named modules, then forks a child for each request until the channel closes.

    Command-line arguments: the descriptor of the channel, then the names of the modules.
    """
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    # Ctrl-C goes to the whole group: the judging process gets it too, and closes the channel.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    judge = os.getppid()
    before = set(os.environ)
    for name in sys.argv[2:]:
        # An import that fails, for instance with another JAX, fails again in the child, which reports it.
        with suppress(ImportError):
            importlib.import_module(name)
    # The variables that importing JAX has set: a child that imported JAX itself would have them too.
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.collect()
    # Memory that forks share stays shared, because no garbage collection writes to it.
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, 2)
        if not data:
            return
        try:
            request = msgspec.json.decode(data, type=ForkRequest)
            pid = _fork(request, judge, added, *descriptors) if _is_alone() else 0
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        control.send(str(pid).encode())


def _is_alone() -> bool:
    """True if this process has only one thread. Otherwise a fork could wait forever for another thread's lock."""
    return len(os.listdir("/proc/self/task")) == 1


def _fork(request: ForkRequest, judge: int, added: Mapping[str, str], channel: int, output: int) -> int:
    """The id of the new child, which the judging process has adopted; 0 if the adoption failed.

    This forks twice. The process in between ends at once, so the nearest adopter of orphans adopts the second fork.
    """
    reading, writing = os.pipe()
    between = os.fork()
    if not between:
        try:
            if not os.fork():
                _become(request, judge, added, channel, output, writing)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(between, 0)
    with open(reading, "rb") as answer:
        return int(answer.read() or _NO_CHILD)


def _become(
    request: ForkRequest, judge: int, added: Mapping[str, str], channel: int, output: int, writing: int
) -> None:
    """Makes this process the requested child. Never returns."""
    code = 1
    try:
        deadline = time.monotonic() + _ADOPTION_SECONDS
        while os.getppid() != judge:
            if time.monotonic() > deadline:
                os._exit(1)
            time.sleep(0.0005)
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(request.directory)
        _set_environment({**added, **request.environment})
        ctypes.CDLL(None).prctl(_PR_SET_NAME, request.name.encode()[:15], 0, 0, 0)
        os.write(writing, str(os.getpid()).encode())
        # Descriptors of the process that forks, other than the child's own, are closed.
        if channel != _CHANNEL:
            os.dup2(channel, _CHANNEL)
        os.set_inheritable(_CHANNEL, False)
        os.closerange(_CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))
        worker.serve(request.module, socket.socket(fileno=_CHANNEL), request.confinement, parent=judge)
        code = 0
    except BaseException:  # noqa: BLE001  # the end of this process: it can only be printed
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)
    # A fresh interpreter would have put the folders of PYTHONPATH into sys.path.
    for path in reversed(variables.get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(0, path)
    # Each fresh interpreter would have another seed, so the fork gets a new one.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


if __name__ == "__main__":
    main()
    os._exit(0)
