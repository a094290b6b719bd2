"""The program of a child process: answers requests on a socket, so that printed output cannot disturb the answers."""

import ctypes
import errno
import gc
import importlib
import os
import resource
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from harness.errors import RatchetError
from harness.records import Failure, Stage
from harness.sandbox import strip_paths
from harness.sandbox.confinement import FILE_BYTES, Confinement, confine
from harness.sandbox.messages import FAILURE, VALUE, Rejected, Request, description, traceback_text
from harness.tracebacks import PREPARE, place_in_prepare

HEADER = struct.Struct("!Q")
# PR_SET_PDEATHSIG of prctl(2): the kernel ends this child when its parent dies for any reason.
_PR_SET_PDEATHSIG = 1
_ALLOCATIONS_BETWEEN_COLLECTIONS = 100_000
# The errors that Python raises for wrong shapes, types and names.
_PROGRAM_ERRORS = (TypeError, ValueError, IndexError, KeyError, NameError, AttributeError, ZeroDivisionError)

Tasks = Mapping[str, tuple[type, Callable[[Any], Any]]]


def main() -> None:
    """Serves the tasks of a module on a socket until the socket closes; confines itself before it imports the module.

    Command-line arguments: the module, the socket's descriptor, the Confinement in JSON (`null`: not confined).
    """
    channel = socket.socket(fileno=int(sys.argv[2]))
    channel.set_inheritable(False)
    serve(sys.argv[1], channel, msgspec.json.decode(sys.argv[3], type=Confinement | None))


def serve(module_name: str, channel: socket.socket, confinement: Confinement | None, parent: int | None = None) -> None:
    """Serves tasks as `main` does; returns at once if the parent process is not `parent` (None: any parent)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if confinement is not None:
        confine(confinement)
    # An error of the import is kept, and reported with the first answer.
    tasks: Tasks | BaseException
    try:
        tasks = importlib.import_module(module_name).TASKS
    except ImportError as error:
        tasks = error
    # Garbage collections would free little: imported modules stay, and a traced program has few reference cycles.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS)
    while (data := receive(channel)) is not None:
        request = msgspec.json.decode(data, type=Request)
        body = request.nonce.encode() + _answer(tasks, request)
        channel.sendall(HEADER.pack(len(body)) + body)


def receive(channel: socket.socket) -> bytes | None:
    """One message from a blocking socket, or None when the other side has closed it."""
    header = _read(channel, HEADER.size)
    return None if header is None else _read(channel, *HEADER.unpack(header))


def _read(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        chunk = channel.recv(size - len(parts))
        if not chunk:
            return None
        parts += chunk
    return bytes(parts)


def _answer(tasks: Tasks | BaseException, request: Request) -> bytes:
    """The answer to one request. This is the only place in the project where every exception becomes a value."""
    try:
        if isinstance(tasks, BaseException):
            raise tasks
        request_type, function = tasks[request.task]
        value = function(msgspec.json.decode(request.arguments, type=request_type))
        return VALUE + msgspec.json.encode(value)
    except Rejected as rejected:
        return FAILURE + _encode(rejected.failure)
    except BaseException as error:  # noqa: BLE001  # the child-process border
        return FAILURE + _encode(_failure(error, request.stage))


def _encode(failure: Failure) -> bytes:
    """The failure's JSON; the texts are cut, and characters that JSON cannot hold are replaced."""
    message, detail = strip_paths.one_line(failure.message), strip_paths.several_lines(failure.detail)
    return msgspec.json.encode(replace(failure, message=message, detail=detail))


def _failure(error: BaseException, stage: Stage) -> Failure:
    """The Failure that reports an unexpected exception."""
    text = description(error)
    kind, message = "crash", text.splitlines()[0]
    # XLA reports a lack of memory by an error of its own type, and this word is in the error's text.
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text:
        kind, message = "out-of-memory", f"out of memory: {message}"
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        kind, message = "no-space", f"no space left on the device while writing {error.filename or 'a file'}"
    elif isinstance(error, OSError) and error.errno == errno.EFBIG:
        kind = "file-too-large"
        message = f"expected files of at most {FILE_BYTES >> 30} GiB, got a larger {error.filename or 'one'}"
    elif isinstance(error, RatchetError):
        kind, message = error.kind, str(error)
    elif _is_of_problem(error):
        kind, message = "problem-error", f"the problem raised this, not the kernel: {place_in_prepare(error)}{message}"
    is_of_program = kind == "crash" and type(error) in _PROGRAM_ERRORS
    return Failure(stage=stage, kind=kind, message=message, detail=traceback_text(error), is_of_program=is_of_program)


def _is_of_problem(error: BaseException) -> bool:
    """True if the last frame in the judge's code or in prepare.py belongs to the problem."""
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [name for name in modules if name.startswith(("harness.", PREPARE))]
    return bool(ours) and ours[-1].startswith(("harness.operators.", PREPARE))


if __name__ == "__main__":
    main()
    # The process ends without interpreter shutdown, so that exit handlers of libtpu and kernel.py do not run.
    sys.stdout.flush()
    os._exit(0)
