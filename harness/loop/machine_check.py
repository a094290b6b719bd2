"""Lines on this machine (versions, devices, room, git, ledger). Each is ok, or a note or a problem with a remedy."""

import importlib.metadata
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from git import Repo

from harness.errors import RatchetError
from harness.hardware import Chip, chip_of_device
from harness.ledger import git, lock
from harness.ledger.git.command import attempted
from harness.records import Environment, Isolation, LogState, Table
from harness.records.doctor import Line, State
from harness.sandbox.environment import cores
from harness.workbench.tables import columns

_COLUMNS = columns("state;what!;value;remedy=what to do")
_PYTHONS = ((3, 11), (3, 13))
# Room for the dumps of some seventy attempts, of 30 MB each (loop/kept_captures.py).
_DISK_BYTES = 2 << 30
# The measured need of the compiler and of one interpretation of a full shape.
_MEMORY_BYTES = 4 << 30
_REQUIREMENT = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(?:\s*;\s*([^\\]+))?")


def table(lines: tuple[Line, ...]) -> tuple[Table, bool]:
    """The lines as a table, and True if one of them is a problem."""
    rows = tuple((line.state, line.what, line.value, line.remedy or None) for line in lines)
    return (
        Table(name="machine", title="this machine", origin="static", columns=_COLUMNS, rows=rows),
        any(line.state == "problem" for line in lines),
    )


def _fine_if(is_fine: bool, what: str, value: str, remedy: str, otherwise: State = "note") -> Line:
    """The line of a fact: ok if `is_fine`, else in the state `otherwise` with its remedy."""
    return Line(what=what, value=value) if is_fine else _unfit(what, value, remedy, otherwise)


def _unfit(what: str, value: str, remedy: str, state: State = "note") -> Line:
    return Line(what=what, value=value, state=state, remedy=remedy)


def software(versions: Environment, lock_file: Path) -> Iterator[Line]:
    """Lines on Python and the packages, compared with the lock file."""
    is_known = _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]
    needed = "Python 3.11 to 3.13 is needed: ./ratchet.sh --python 3.12"
    yield _fine_if(is_known, "Python", versions.python, needed, "problem")
    yield Line(what="jax, jaxlib", value=f"{versions.jax}, {versions.jaxlib}")
    if versions.libtpu:
        yield Line(what="libtpu", value=versions.libtpu)
    elif platform.system() == "Linux" and platform.machine() == "x86_64":
        yield _unfit("libtpu", "not installed", "Remove .venv and run ratchet.sh again", "problem")
    else:
        elsewhere = "libtpu needs x86-64 Linux: here, no kernel can be compiled for a TPU or simulated"
        yield _unfit("libtpu", "not installed", elsewhere)
    yield _compare_with_lock(lock_file)


def _compare_with_lock(lock_file: Path) -> Line:
    """The line that compares the installed versions with the locked ones."""
    if not lock_file.is_file():
        return _unfit("requirements.lock", "not found", "Versions were not compared")
    different, count = [], 0
    for text in lock_file.read_text(encoding="utf-8").splitlines():
        match = _REQUIREMENT.match(text)
        if match is None:
            continue
        try:
            version = importlib.metadata.version(match[1])
        except importlib.metadata.PackageNotFoundError:
            # A marker may leave the package out on this platform.
            if not match[3]:
                different.append(f"{match[1]} {match[2]} is missing")
            continue
        count += 1
        if version != match[2] and not match[3]:
            different.append(f"{match[1]} is {version}, not {match[2]}")
    if not different:
        return Line(what="requirements.lock", value=f"{count} packages, all as locked")
    more = f" and {len(different) - 4} more" if len(different) > 4 else ""
    remedy = "Remove .venv and run ratchet.sh again; times of different versions are not comparable"
    return _unfit("requirements.lock", f"{'; '.join(different[:4])}{more}", remedy)


def devices(kinds: tuple[tuple[str, str], ...], failure: str, wanted: Chip | None) -> Iterator[Line]:
    """Lines on the devices that JAX sees (`kinds`: platform and kind of each), compared with the contest's chip."""
    if failure:
        yield _unfit("devices", failure, "JAX does not start: see the message", "problem")
        return
    names = [kind for _, kind in kinds]
    counts = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    yield Line(what="devices", value=counts)
    if wanted is None:
        return
    if wanted in [chip_of_device(kind) for _, kind in kinds]:
        yield Line(what="chip of the contest", value=f"{wanted.name}: is here")
        return
    remedy = "There is no simulator for GPUs; --on cpu runs everything except the timing on a device"
    if wanted.platform == "tpu":
        remedy = "Nothing to do: without a TPU, latencies are simulated"
    yield _unfit("chip of the contest", f"{wanted.name}: not here", remedy)


def room(folder: Path) -> Iterator[Line]:
    """Lines on cores, memory and disk."""
    yield Line(what="cores", value=str(cores()))
    free = _available_bytes()
    if free is None:
        yield _unfit("memory", "unknown", "The available memory is known on Linux only")
    else:
        remedy = f"Large shapes may need {_MEMORY_BYTES / 1e9:.1f} GB: end other programs"
        yield _fine_if(free >= _MEMORY_BYTES, "memory available", f"{free / 1e9:.1f} GB", remedy)
    disk = shutil.disk_usage(folder).free
    remedy = f"Make {_DISK_BYTES / 1e9:.1f} GB free: old captures lie in profile_data"
    yield _fine_if(disk >= _DISK_BYTES, "disk free", f"{disk / 1e9:.1f} GB", remedy, "problem")


def _available_bytes() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def isolation(layers: Isolation) -> Iterator[Line]:
    """Lines on the layers that confine a judged kernel.py."""
    has_landlock, is_filtered = layers.landlock is not None, layers.system_calls_filtered
    landlock = f"version {layers.landlock}" if has_landlock else "not offered by this Linux kernel"
    remedy = "kernel.py can read and write all of your files: read it before you run it"
    yield _fine_if(has_landlock, "Landlock", landlock, remedy)
    seccomp = "system calls are filtered" if is_filtered else "not available here"
    remedy = "kernel.py could start processes and open sockets: read it before you run it"
    yield _fine_if(is_filtered, "seccomp", seccomp, remedy)


def browser() -> Line:
    """The line on the browser, which only the tests of the report page need."""
    path = shutil.which("chromium")
    remedy = "Only tests of the report page need it: apt-get install chromium"
    return _fine_if(bool(path), "chromium", path or "not found", remedy)


def repository(folder: Path, lock_name: str) -> Iterator[Line]:
    """Lines on git, the identity for commits, and the lock of a run."""
    program = shutil.which("git")
    if program is None:
        yield _unfit("git", "not found", "Install git: the ledger lives in it", "problem")
        return
    try:
        repo = git.open_repository(folder)
    except RatchetError as error:
        yield _unfit("git", error.kind, str(error), "problem")
        return
    version = ".".join(map(str, repo.git.version_info))
    yield Line(what="git", value=version)
    yield _identity(repo)
    path = git.common_directory(repo) / lock_name
    holder = lock.holder(path)
    if holder:
        yield _unfit("lock", f"held by {holder}", "Wait: only one attempt can run at a time")
    elif path.is_file() and path.stat().st_size:
        yield _unfit("lock", "left by a run that was ended", "Nothing to do: the next run takes it over")
    else:
        yield Line(what="lock", value="free")


def _identity(repo: Repo) -> Line:
    status, output, _ = attempted(repo, "var", "GIT_COMMITTER_IDENT")
    if status != 0:
        remedy = 'git config --global user.name "Your Name"; git config --global user.email you@example.org'
        return _unfit("git identity", "not set", remedy, "problem")
    # Name and address, without the time that follows.
    return Line(what="git identity", value=output.decode("utf-8", "replace").rpartition(">")[0] + ">")


def log(state: LogState | None, messages: tuple[str, ...], repo: Repo | None = None) -> Iterator[Line]:
    """Lines on `messages` and on the log's `state` (None: not readable) compared with the remotes of `repo`."""
    command = "git" if repo is None else git.shell_command(repo)
    remedies: dict[LogState, str] = {
        "not pushed": f"{command} push origin 'refs/ratchet/*': a clone has only what is pushed",
        "not fetched": f"{command} fetch origin 'refs/ratchet/*:refs/ratchet/*'",
        "no remote": "The log is here only: add a remote and push refs/ratchet/*",
    }
    if state is None:
        yield _unfit("ledger", "not read", "; ".join(messages))
        return
    yield _fine_if(state not in remedies, "ledger's log", state, remedies.get(state, ""))
    for message in messages:
        yield _unfit("ledger", "see below", message)


def for_people(full: Table) -> Table:
    """The table with the remedies below it, because sentences do not fit into columns."""
    remedies = tuple(f"{row[1]}: {row[3]}" for row in full.rows if row[3])
    return replace(full, columns=full.columns[:3], rows=tuple(row[:3] for row in full.rows), notes=remedies)
