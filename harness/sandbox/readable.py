"""The files that an interpreter, its libraries, XLA and libtpu read: every confined child may open them."""

import contextlib
import os
import platform
import pwd
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import harness
from harness.sandbox.editable import editable_roots

# The files that children open under CPython 3.11 and 3.12 with JAX 0.10 and 0.12 on Debian, found by tracing, and paths
# of other distributions. Paths that do not exist are skipped. No path reveals facts about people: no /etc/passwd, hosts
# or hostname, no home folder, no settings of services.
_SHARED_LIBRARIES = ("/lib64", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/nix/store", "/gnu/store")
# These folders hold more than libraries. Only Debian's subfolder for this machine type is used if it exists.
_OF_EVERY_MACHINE = ("/lib", "/usr/lib")
_SETTINGS_OF_LIBRARIES = (
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/gai.conf",
    "/usr/share/zoneinfo",
    # OpenSSL's settings, which hashlib loads: on Debian and Arch, on Fedora, and the file that Fedora's file includes.
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/openssl.cnf",
    "/etc/crypto-policies/back-ends/opensslcnf.config",
)
_MACHINE = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/nr_hugepages",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/kernel/osrelease",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/hugepages",
    "/sys/kernel/mm/transparent_hugepage",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
)
# Single files of /proc/PID: the whole folder would also show the network's tables and the environment.
_OF_ITSELF = ("cmdline", "exe", "limits", "maps", "smaps", "stat", "statm", "status")


def installed() -> Iterator[str]:
    """Shared libraries, this Python, its packages, the harness, and files about the machine and the process itself."""
    yield from (*_SHARED_LIBRARIES, *_SETTINGS_OF_LIBRARIES, *_MACHINE)
    for folder in _OF_EVERY_MACHINE:
        narrower = f"{folder}/{platform.machine()}-linux-gnu"
        yield narrower if os.path.isdir(narrower) else folder
    # The path is resolved, because /proc/self is a different folder in each process.
    itself = f"/proc/{os.getpid()}"
    for name in _OF_ITSELF:
        yield f"{itself}/{name}"
        yield f"{itself}/task/{os.getpid()}/{name}"
    harness_folder = str(Path(harness.__file__).parent)
    yield harness_folder
    for path in (*_of_python(), *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        if _is_narrow(path):
            yield path


def _of_python() -> Iterator[str]:
    """The standard library, libpython, and every folder or archive that packages are imported from."""
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield sysconfig.get_path(name)
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        # The libraries next to libpython, as conda and pyenv install them.
        if f"{prefix}/lib" not in _OF_EVERY_MACHINE:
            yield from (f"{prefix}/{name}" for name in ("lib", "lib64", "pyvenv.cfg", "ssl/openssl.cnf"))
    yield from map(str, editable_roots())
    yield from (path for path in sys.path if Path(path) != Path(harness.__file__).parent.parent)


def _is_narrow(path: str) -> bool:
    """True if the path is absolute, and neither is nor contains /etc, a home folder or the clone of the harness.

    An entry in LD_LIBRARY_PATH or sys.path that is not narrow is the caller's mistake. It is left out, because it would
    let children read everything in that folder.
    """
    if not os.path.isabs(path):
        return False
    place = Path(path).resolve()
    kept = [Path("/etc"), Path("/home"), Path("/root")]
    project = Path(harness.__file__).resolve().parent.parent
    # In a clone this folder has contests. If the harness is installed from a wheel, the folder has all packages.
    if project not in {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}:
        kept.append(project)
    with contextlib.suppress(KeyError):
        kept.append(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    return not any(folder.is_relative_to(place) for folder in kept)
