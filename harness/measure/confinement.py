"""Takes from a child what it does not need: files, network, processes, privileges; with what Linux gives without root.

Four layers, each of them inherited by everything the process starts and none of them to be undone:
`no_new_privs`; Landlock (landlock(7)): reads, and writes, below named paths only, no TCP, no signals
to processes outside; a seccomp filter (seccomp(2)): no new processes or programs, no sockets, and no
change of modes, owners, times and attributes of files, which Landlock does not see; and limits on the
size of files. Where the kernel lacks a layer the others hold, and the evidence says so.
"""

import ctypes
import os
import platform
import resource
import struct
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import harness
from harness.records import Isolation

# An exported program is a few MB with its constants, outputs are as large as the problem's arrays.
FILE_BYTES = 4 << 30

_PR_SET_NO_NEW_PRIVS = 38  # prctl(2)
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

# landlock(7): numbers of the system calls (the same on all architectures) and of the access rights.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
# Rights on files by the version that brought them: 13 at first, then REFER, TRUNCATE and IOCTL_DEV.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_ONE_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP_SINCE, _BIND_AND_CONNECT_TCP = 4, 3
_SCOPES_SINCE, _ABSTRACT_SOCKETS_AND_SIGNALS = 6, 3

# What an interpreter, its libraries and XLA read, wherever they are installed. Not /home, /root,
# /tmp, /var, /mnt: where people's files are.
_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/etc", "/sys",
    "/dev/random", "/dev/urandom",
    # Of /proc what is this process's own and the machine's: other processes' environments hold secrets.
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys", "/proc/version", "/proc/filesystems",
)  # fmt: skip

# Numbers of system calls, from the kernel's tables. fork and vfork exist on x86-64 only.
_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# fchmodat2, setxattrat, removexattrat, file_setattr: the same numbers on all architectures.
_NEWER_ATTRIBUTES = (452, 463, 466, 469)
_REFUSED = {
    # fork, vfork, execve, execveat, socket, ptrace, io_uring_setup (whose operations no filter sees); and what Landlock
    # leaves open on every file of the user's: chmod, chown, utime, setxattr, removexattr and file_setattr in all forms.
    "x86_64": (
        57, 58, 59, 322, 41, 101, 425, 90, 91, 268, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199,
        *_NEWER_ATTRIBUTES,
    ),
    "aarch64": (221, 281, 198, 117, 425, 52, 53, 54, 55, 88, 5, 6, 7, 14, 15, 16, *_NEWER_ATTRIBUTES),
}  # fmt: skip
_CLONE = {"x86_64": 56, "aarch64": 220}
# prlimit64, which sets the limits of any process of the same user: also of the judging one.
_LIMITS = {"x86_64": 302, "aarch64": 261}
_CLONE3 = 435
_CLONE_THREAD = 0x00010000
_X32_BIT = 0x40000000
_ALLOW, _REFUSE_AS_NOT_PERMITTED, _REFUSE_AS_UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The paths below which a child may read, and read and write, beside what every interpreter needs."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


@cache
def landlock_version() -> int | None:
    """The version of Landlock's interface in the running kernel, or None where there is none."""
    if sys.platform != "linux":
        return None
    version = _system_call(_CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
    return version if version > 0 else None


def offered(is_confined: bool) -> Isolation:
    """What children are confined by on this machine; nothing where they are not to be."""
    if not is_confined:
        return Isolation(landlock=None, system_calls_filtered=False)
    return Isolation(landlock=landlock_version(), system_calls_filtered=_can_filter())


def warnings(is_confined: bool) -> tuple[str, ...]:
    """What children are left to do for want of a layer, in sentences."""
    layers = offered(is_confined)
    said = []
    if layers.landlock is None:
        said.append("kernel.py ran without Landlock: it could read and write what you can; read it before you trust it")
    if not layers.system_calls_filtered:
        said.append("kernel.py ran without a filter of system calls: it could start processes and open sockets")
    return tuple(said)


def confine(confinement: Confinement) -> None:
    """Confines this process for good, as far as the kernel can. To be called while it has one thread.

    Raises OSError where the kernel has a layer and refuses to apply it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = FILE_BYTES if hard == resource.RLIM_INFINITY else min(FILE_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if sys.platform != "linux":
        return
    _checked(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    version = landlock_version()
    if version is not None:
        _restrict_files(version, confinement)
    if _can_filter():
        _filter_system_calls()


def _restrict_files(version: int, confinement: Confinement) -> None:
    """Reads what is installed and named, writes what is named; nothing else."""
    every = _FILE_RIGHTS[max(since for since in _FILE_RIGHTS if since <= version)]
    attributes = struct.pack(
        "QQQ",
        every,
        _BIND_AND_CONNECT_TCP if version >= _TCP_SINCE else 0,
        _ABSTRACT_SOCKETS_AND_SIGNALS if version >= _SCOPES_SINCE else 0,
    )
    # An older kernel knows fewer fields.
    size = 24 if version >= _SCOPES_SINCE else 16 if version >= _TCP_SINCE else 8
    ruleset = _checked(_system_call(_CREATE_RULESET, attributes, size, 0), "landlock_create_ruleset")
    try:
        reading = _EXECUTE | _READ_FILE | _READ_DIR
        for path in (*_installed(), *confinement.readable):
            _allow(ruleset, path, reading & every)
        # The import system lists the folder that holds the package; what else lies there stays closed.
        _allow(ruleset, str(Path(harness.__file__).parent.parent), _READ_DIR)
        for path in ("/dev/null", *confinement.writable):
            _allow(ruleset, path, every)
        _checked(_system_call(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _installed() -> Iterable[str]:
    """The system's folders, this Python, its packages, and the harness."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    own = (sys.prefix, sys.base_prefix, sys.exec_prefix, *(sysconfig.get_path(n) for n in ("purelib", "platlib")))
    packages = [path for path in sys.path if Path(path) != Path(harness.__file__).parent.parent]
    return (*_SYSTEM, *own, *packages, *filter(None, libraries), str(Path(harness.__file__).parent))


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # What is not there needs no rule.
        return
    try:
        if not os.path.isdir(path):
            rights &= _OF_ONE_FILE
        rule = struct.pack("=Qi", rights, descriptor)
        _checked(_system_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), f"landlock_add_rule for {path}")
    finally:
        os.close(descriptor)


def _can_filter() -> bool:
    return sys.platform == "linux" and platform.machine() in _AUDIT_ARCHITECTURES and sys.maxsize > 2**32


def _filter_system_calls() -> None:
    """Threads go on; new processes and programs, sockets, and other modes of files are refused as not permitted."""
    machine = platform.machine()
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, JEQ, JGE, JSET, RET
    # Each test jumps over the answer that follows it, or to it.
    code = [
        (load, 0, 0, 4),  # seccomp_data.arch
        (equal, 1, 0, _AUDIT_ARCHITECTURES[machine]),
        (answer, 0, 0, _REFUSE_AS_NOT_PERMITTED),
        (load, 0, 0, 0),  # seccomp_data.nr
        (at_least, 0, 1, _X32_BIT),
        (answer, 0, 0, _REFUSE_AS_NOT_PERMITTED),
        # glibc takes clone instead where this is unknown; of clone the flags can be seen.
        (equal, 0, 1, _CLONE3),
        (answer, 0, 0, _REFUSE_AS_UNKNOWN),
    ]
    for number in _REFUSED[machine]:
        code += [(equal, 0, 1, number), (answer, 0, 0, _REFUSE_AS_NOT_PERMITTED)]
    code += [
        (equal, 0, 4, _LIMITS[machine]),
        (load, 0, 0, 16),  # seccomp_data.args[0]: whose limits, 0 for its own
        (equal, 1, 0, 0),
        (answer, 0, 0, _REFUSE_AS_NOT_PERMITTED),
        (answer, 0, 0, _ALLOW),
        (equal, 0, 3, _CLONE[machine]),
        (load, 0, 0, 16),  # seccomp_data.args[0], its low half
        (any_bit, 1, 0, _CLONE_THREAD),
        (answer, 0, 0, _REFUSE_AS_NOT_PERMITTED),
        (answer, 0, 0, _ALLOW),
    ]
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    stored = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(stored)), 16)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    _checked(prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0), "a seccomp filter")


def _system_call(number: int, *arguments: int | bytes) -> int:
    words = [ctypes.c_char_p(word) if isinstance(word, bytes) else ctypes.c_long(word) for word in arguments]
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *words))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel refused {what}: {os.strerror(number)}")
    return result
