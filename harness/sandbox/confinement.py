"""Denies a child the files, network, processes and privileges that it does not need, without root, on Linux.

This module applies four layers. All processes that the child starts inherit them, and nothing can undo them:
- `no_new_privs`;
- Landlock (landlock(7)): reads and writes of named files and folders only (`readable`), no TCP, no signals to processes
  outside;
- a seccomp filter (seccomp(2)) that refuses every system call except those that `system_calls` names;
- limits on the size of a written file and on the number of open files.

The limit on memory is `child_memory_bytes` in records/judging_limits.py; sandbox/child.py enforces it.

If the Linux kernel lacks a layer, the other layers still apply, and the evidence names the layers that applied.
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from dataclasses import dataclass
from functools import cache

from harness.records import Isolation
from harness.sandbox import readable, system_calls

# An exported program with its constants has a few MB; outputs are as large as the problem's arrays.
FILE_BYTES = 4 << 30
# Libraries, programs and the queues between threads of XLA need fewer than 300 files. A pipe holds 64 KiB that belong
# to no process, so the memory limit does not count these bytes. With this many files, pipes hold 64 MiB at most.
_OPEN_FILES = 2048

_PR_SET_NO_NEW_PRIVS = 38  # prctl(2)
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

# landlock(7): numbers of the system calls (the same on all architectures) and of the access rights.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
# All rights on files, by the version of Landlock: 13 at first, then also REFER, TRUNCATE and IOCTL_DEV.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_MAKE_CHARACTER_DEVICE, _MAKE_SOCKET, _MAKE_FIFO, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 9, 1 << 10, 1 << 11
_READING = _READ_FILE | _READ_DIR
# Rights that a child does not have even in its own folder.
_NEVER = _EXECUTE | _MAKE_CHARACTER_DEVICE | _MAKE_SOCKET | _MAKE_FIFO | _MAKE_BLOCK_DEVICE | _IOCTL_DEV
_OF_ONE_FILE = _WRITE_FILE | _READ_FILE | _TRUNCATE
_TCP_SINCE, _BIND_AND_CONNECT_TCP = 4, 3
_SCOPES_SINCE, _ABSTRACT_SOCKETS_AND_SIGNALS = 6, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The paths below which a child may read, or read and write, in addition to what every interpreter needs."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


@cache
def landlock_version() -> int | None:
    """The version of Landlock's interface in the running kernel, or None if it has none."""
    if sys.platform != "linux":
        return None
    version = _system_call(_CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
    return version if version > 0 else None


def isolation(is_confined: bool) -> Isolation:
    """The layers that confine children on this machine; no layers if `is_confined` is False."""
    if not is_confined:
        return Isolation(landlock=None, system_calls_filtered=False)
    return Isolation(landlock=landlock_version(), system_calls_filtered=_can_filter())


def warnings(is_confined: bool) -> tuple[str, ...]:
    """One sentence for each missing layer, about the actions that children can take without it."""
    layers = isolation(is_confined)
    sentences = []
    if layers.landlock is None:
        sentences.append(
            "kernel.py ran without Landlock, so it could read and write every file that you can; read kernel.py before "
            "you trust the result"
        )
    if not layers.system_calls_filtered:
        sentences.append("kernel.py ran without a filter of system calls, so it could start processes and open sockets")
    return tuple(sentences)


def confine(confinement: Confinement) -> None:
    """Confines this process permanently, as far as the Linux kernel can. Call it while the process has one thread.

    Raises OSError if the kernel has a layer and refuses to apply it.
    """
    for what, most in ((resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_NOFILE, _OPEN_FILES)):
        _, hard = resource.getrlimit(what)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))
    if sys.platform != "linux":
        return
    _require(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    version = landlock_version()
    if version is not None:
        _restrict_files(version, confinement)
    if _can_filter():
        _filter_system_calls()


def _restrict_files(version: int, confinement: Confinement) -> None:
    """Allows reading installed files and all paths of `confinement`, and writing its `writable` paths and /dev/null."""
    every = _FILE_RIGHTS[max(since for since in _FILE_RIGHTS if since <= version)]
    attributes = struct.pack(
        "QQQ",
        every,
        _BIND_AND_CONNECT_TCP if version >= _TCP_SINCE else 0,
        _ABSTRACT_SOCKETS_AND_SIGNALS if version >= _SCOPES_SINCE else 0,
    )
    # An older kernel knows fewer fields.
    size = 24 if version >= _SCOPES_SINCE else 16 if version >= _TCP_SINCE else 8
    ruleset = _require(_system_call(_CREATE_RULESET, attributes, size, 0), "landlock_create_ruleset")
    try:
        for path in dict.fromkeys((*readable.installed(), *confinement.readable)):
            _allow(ruleset, path, _READING)
        _allow(ruleset, "/dev/null", _READ_FILE | _WRITE_FILE)
        for path in confinement.writable:
            _allow(ruleset, path, every & ~_NEVER)
        _require(_system_call(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # A path that does not exist needs no rule.
        return
    try:
        if not os.path.isdir(path):
            rights &= _OF_ONE_FILE
        rule = struct.pack("=Qi", rights, descriptor)
        _require(_system_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), f"landlock_add_rule for {path}")
    finally:
        os.close(descriptor)


def _can_filter() -> bool:
    return sys.platform == "linux" and platform.machine() in system_calls.AUDIT_ARCHITECTURES and sys.maxsize > 2**32


def _filter_system_calls() -> None:
    """Refuses every system call that `system_calls` does not name."""
    program = system_calls.program(platform.machine(), os.getpid())
    stored = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(stored)), 16)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    _require(prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0), "a seccomp filter")


def _system_call(number: int, *arguments: int | bytes) -> int:
    words = [ctypes.c_char_p(word) if isinstance(word, bytes) else ctypes.c_long(word) for word in arguments]
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *words))


def _require(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the operating system refused {what}: {os.strerror(number)}")
    return result
