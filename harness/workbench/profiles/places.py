"""Ways to name a capture: a log directory, a run's folder, a file, an attempt's number, or the contest's newest."""

import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.workbench.profiles import remote
from harness.workbench.profiles.remote import Source

SUFFIX = ".xplane.pb"
# The folder of runs below a log directory, as XProf and TensorBoard expect it.
RUNS = Path("plugins") / "profile"
# Files that people mistake for a capture, by the end of the name.
_NEIGHBOURS = {
    "trace.json.gz": "the timeline for a trace viewer, cut at a million events, without modules, memory and costs",
    "trace.json": "the timeline for a trace viewer, without modules, memory and costs",
    "memory_viewer.json": "an answer of XProf's memory viewer: the buffers of one module, without HLO and times",
    "op_profile.json": "an answer of XProf's op profile, without HLO and timeline",
}
# The prefix of places that XProf can read, but this project cannot.
CLOUD = "gs://"
# The number of runs that an error message lists.
_NAMED = 8
# The folder in which a contest keeps its captures.
PROFILE_DATA = "profile_data"
# Names of runs, here of attempt 3: `0003-1f2e3d4c`, `0003-paired-1f2e3d4c`, `0003-paired-1f2e3d4c-2`,
# `0003-simulated-v5e`; of a suite's member `0003-causal-simulated-v5e`. Earlier versions wrote `duel` for `paired`.
_OF_ATTEMPT = re.compile(r"(\d{4,})-(?:(?:[\w.-]+-)??(paired|duel|simulated|profile|snapshot)-)?[\w.]+(?:-\d+)?")
# Captures from the attempt's judgement are preferred to those that `profile` took of its kernel later.
_KINDS = {None: 4, "paired": 3, "duel": 3, "simulated": 2, "profile": 1, "snapshot": 0}
_NUMBER = re.compile(r"(\d+)(?::(simulated|measured))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFiles:
    """One run of a profiler: its files, one for each host, and the log directory in which XProf lists the run.

    `attempt` is the number of the attempt, if the run's name has one. For a run on an XProf server, `paths` are its
    hosts, and `log_directory` is the server's address.
    """

    name: str
    paths: tuple[Source, ...]
    log_directory: Path
    attempt: int | None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files on this machine; () for a run on a server."""
        return tuple(path for path in self.paths if isinstance(path, Path))

    @property
    def modified(self) -> float:
        """The time at which the newest file was written, in seconds since 1970."""
        return max(path.stat().st_mtime for path in self.files)


def host_name(source: Source) -> str:
    """The host's name in the name of a capture's file."""
    return source.name.removesuffix(SUFFIX)


def resolve(what: str | None, contest: Path, server: str = "") -> CaptureFiles:
    """The capture named by `what` (see `EXPECTED`), or the newest of several; for None, the newest of the contest.

    If the address of an XProf `server` is given, `what` may be a run on this server, and None stands for its newest
    run. But an existing path or a number is never a run on the server. Raises RatchetError `no-profile`, `no-server`,
    UsageError `remote-profile` or `no-such-place`.
    """
    profile_data = contest / PROFILE_DATA
    if server and (what is None or not (_NUMBER.fullmatch(what) or Path(what).expanduser().exists())):
        return _on_server(what, server)
    if what is None:
        return _newest(profile_data, f"in {profile_data}, the folder for captures of this contest")
    if what.startswith(CLOUD):
        raise UsageError(
            "remote-profile",
            f"expected files on this machine, got {what}. Copy the capture (gcloud storage cp -r {what} .), or let "
            f"XProf read it: ratchet.sh serve {what}, then {remote.URL_VARIABLE}={remote.LOCAL} ratchet.sh xprof ...",
        )
    if match := _NUMBER.fullmatch(what):
        return of_attempt(int(match[1]), profile_data, match[2])
    path = Path(what).expanduser()
    if path.is_file():
        refuse_neighbours(path)
        return _place((path,), path.resolve().parent)
    if path.is_dir():
        return _newest(path / PROFILE_DATA if (path / PROFILE_DATA).is_dir() else path, f"in {path}")
    if Path(what).name == what and (profile_data / RUNS / what).is_dir():
        return _newest(profile_data / RUNS / what, f"in {profile_data / RUNS / what}")
    raise UsageError("no-such-place", f"expected {EXPECTED}; got {what!r}, and there is no such file or folder")


EXPECTED = (
    "a log directory (with plugins/profile/RUN/), the folder of a run, the name of a run (if XPROF_URL is set, a run "
    "on that server), an .xplane.pb file, a module's .hlo_proto.pb, or the number of an attempt (N:simulated and "
    "N:measured name one of its captures)"
)


def refuse_neighbours(path: Path) -> None:
    """Raises UsageError `not-a-capture` for a file that people mistake for the capture next to it.

    The message names the file to use instead.
    """
    for ending, what in _NEIGHBOURS.items():
        if path.name.endswith(ending):
            beside = sorted(path.parent.glob(f"*{SUFFIX}"))
            serves = str(beside[0]) if beside else f"the *{SUFFIX} of the same run"
            raise UsageError("not-a-capture", f"{path} is {what}. Give {serves} instead, which has all data")


def _on_server(what: str | None, server: str) -> CaptureFiles:
    """The run `what` on an XProf server, or at a gs:// folder that the server reads; for None, the newest by name.

    Raises RatchetError `no-profile` or `no-server`, UsageError `no-such-place`.
    """
    base = remote.root(server)
    if what is not None and what.startswith(CLOUD):
        run, folder = _in_cloud(what.rstrip("/"), base)
    else:
        listed, folder = remote.runs(base), ""
        if not listed:
            raise RatchetError("no-profile", f"XProf at {base} lists no run")
        if what is not None and what not in listed:
            names = ", ".join(listed[:_NAMED]) + (", ..." if len(listed) > _NAMED else "")
            raise UsageError(
                "no-such-place",
                f"expected a path of this machine, the number of an attempt, or a run of XProf at {base} ({names}), "
                f"got {what!r}",
            )
        run = what or listed[0]
    return CaptureFiles(
        name=run.rpartition("/")[2], paths=remote.hosts(base, run, folder), log_directory=Path(base), attempt=None
    )


def _in_cloud(what: str, base: str) -> tuple[str, str]:
    """The name of a run at gs://, and its folder.

    `what` is the run's folder. If it is a folder of runs or a log directory, the newest run by name is used.
    """
    if what_runs := remote.runs(base, session_path=what):
        return what_runs[0], what
    for above in (what, f"{what}/{RUNS}"):
        if listed := remote.runs(base, run_path=above):
            return listed[0], f"{above}/{listed[0]}"
    raise RatchetError("no-profile", f"XProf at {base} finds no capture in {what}, nor in plugins/profile below it")


def of_attempt(number: int, profile_data: Path, source: str | None = None) -> CaptureFiles:
    """The capture of an attempt: preferably from its judgement, else the capture that `profile` took of its kernel.

    If `source` is given, only captures from this source count. Of several measured captures, the latest is used. Raises
    RatchetError `no-profile`, UsageError `which-member`.
    """
    captures = [place for place in runs(profile_data) if place.attempt == number]
    candidates = [
        place for place in captures if source is None or (_kind(place) == "simulated") == (source == "simulated")
    ]
    if not candidates:
        there = f"; its captures are {', '.join(place.name for place in captures)}" if captures else ""
        raise RatchetError(
            "no-profile",
            f"attempt {number} has no {f'{source} ' if source else ''}capture in {profile_data}{there}. An attempt's "
            "capture is only on the machine that judged it; old captures are removed. If its schedules still exist "
            f"(profile_data/{number:04d}): ratchet.sh timeline {number}; otherwise: ratchet.sh checkout {number} "
            "and ratchet.sh timeline",
        )
    best = max(candidates, key=lambda place: (_KINDS[_kind(place)], place.modified))
    alike = sorted(place.name for place in candidates if _kind(place) == _kind(best) == "simulated")
    if len(alike) > 1:
        raise UsageError(
            "which-member", f"attempt {number} has captures of several programs: name one of {', '.join(alike)}"
        )
    return best


def runs(directory: Path) -> tuple[CaptureFiles, ...]:
    """All runs in `directory` (a run's folder, a folder of runs, or a log directory), the newest first."""
    folders = {path.parent for path in _files(directory)}
    places = [_place(tuple(sorted(folder.glob(f"*{SUFFIX}"))), folder.resolve()) for folder in folders]
    return tuple(sorted(places, key=lambda place: (-place.modified, place.name)))


def _files(directory: Path) -> list[Path]:
    """The files of captures in this folder, in its runs, and in log directories up to two levels below it."""
    patterns = (
        f"*{SUFFIX}",
        f"*/*{SUFFIX}",
        *(f"{above}plugins/profile/*/*{SUFFIX}" for above in ("", "*/", "*/*/")),
        f"profile/*/*{SUFFIX}",
    )
    return sorted({path for pattern in patterns for path in directory.glob(pattern) if path.is_file()})


def _newest(directory: Path, where: str) -> CaptureFiles:
    captures = runs(directory)
    if not captures:
        raise RatchetError(
            "no-profile",
            f"expected {EXPECTED}; found no {SUFFIX} {where}. To capture kernel.py: ratchet.sh profile; to write the "
            "simulated run as a capture: ratchet.sh timeline",
        )
    return captures[0]


def _place(paths: tuple[Path, ...], folder: Path) -> CaptureFiles:
    match = _OF_ATTEMPT.fullmatch(folder.name)
    is_run = folder.parts[-3:-1] == RUNS.parts
    return CaptureFiles(
        name=folder.name,
        paths=paths,
        log_directory=folder.parents[2] if is_run else folder,
        attempt=int(match[1]) if match else None,
    )


def _kind(place: CaptureFiles) -> str | None:
    match = _OF_ATTEMPT.fullmatch(place.name)
    return match[2] if match else None
