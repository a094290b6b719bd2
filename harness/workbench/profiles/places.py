"""Where captures lie: a log directory, a run's folder, a file, an attempt's number, or the newest of the contest."""

import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RatchetError, UsageError

SUFFIX = ".xplane.pb"
# Below a log directory, as XProf and TensorBoard look for it.
_RUNS = Path("plugins") / "profile"
# Where a contest keeps its captures.
PROFILE_DATA = "profile_data"
# The runs of attempt 3: `0003-1f2e3d4c`, `0003-paired-1f2e3d4c`, `0003-paired-1f2e3d4c-2`, `0003-simulated-v5e`.
# Captures of earlier versions say `duel` for `paired`.
_OF_ATTEMPT = re.compile(r"(\d{4,})-(?:(paired|duel|simulated|profile|snapshot)-)?[\w.]+(?:-\d+)?")
_KINDS = {"profile": 3, None: 2, "paired": 1, "duel": 1, "snapshot": 1, "simulated": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One run of a profiler: its files, one for each host, and the log directory that XProf has to be given to list it.

    `attempt` is the contest's attempt that it shows, where its name says one.
    """

    name: str
    paths: tuple[Path, ...]
    log_directory: Path
    attempt: int | None

    @property
    def modified(self) -> float:
        """When its newest file was written, in seconds since 1970."""
        return max(path.stat().st_mtime for path in self.paths)


def resolve(what: str | None, contest: Path) -> Place:
    """The one capture that `what` means: see `expected`; the newest of several, None: of the contest in `contest`.

    Raises RatchetError `no-profile`, UsageError `remote-profile` or `no-such-place`.
    """
    own = contest / PROFILE_DATA
    if what is None:
        return _newest(own, f"in {own}, where captures of this contest lie")
    if what.startswith("gs://"):
        raise UsageError(
            "remote-profile",
            f"{what}: captures are read from files of this machine. Copy it (gcloud storage cp -r {what} .), or look "
            f"at it in XProf's own pages, which read gs:// themselves: ratchet.sh serve {what}",
        )
    if re.fullmatch(r"\d+", what):
        return of_attempt(int(what), own)
    path = Path(what).expanduser()
    if path.is_file():
        return _place((path,), path.resolve().parent)
    if path.is_dir():
        return _newest(path / PROFILE_DATA if (path / PROFILE_DATA).is_dir() else path, f"in {path}")
    if Path(what).name == what and (own / _RUNS / what).is_dir():
        return _newest(own / _RUNS / what, f"in {own / _RUNS / what}")
    raise UsageError("no-such-place", f"expected {EXPECTED}; got {what!r}, and there is no such file or folder")


EXPECTED = (
    "a log directory (with plugins/profile/RUN/), the folder or the name of a run, an .xplane.pb file, or the number "
    "of an attempt"
)


def of_attempt(number: int, profile_data: Path) -> Place:
    """The capture of an attempt: its own before that of its paired benchmark, a simulated one where there is no other.

    Raises RatchetError `no-profile`.
    """
    found = [place for place in runs(profile_data) if place.attempt == number]
    if not found:
        raise RatchetError(
            "no-profile",
            f"attempt {number} has no capture in {profile_data}. Only attempts that were timed on a device or with "
            "--on cpu have one, it stays on the machine that judged, and old ones are removed. To write its simulated "
            f"run as one: ratchet.sh timeline {number}",
        )
    return max(found, key=lambda place: (_rank(place), place.modified))


def runs(directory: Path) -> tuple[Place, ...]:
    """Every run at or below `directory`, newest first: it is one itself, holds them, or is a log directory."""
    folders = {path.parent for path in _files(directory)}
    places = [_place(tuple(sorted(folder.glob(f"*{SUFFIX}"))), folder.resolve()) for folder in folders]
    return tuple(sorted(places, key=lambda place: (-place.modified, place.name)))


def _files(directory: Path) -> list[Path]:
    """Its captures: of this folder, of runs in it, of log directories in it to two levels down."""
    patterns = (
        f"*{SUFFIX}",
        f"*/*{SUFFIX}",
        *(f"{above}plugins/profile/*/*{SUFFIX}" for above in ("", "*/", "*/*/")),
        f"profile/*/*{SUFFIX}",
    )
    return sorted({path for pattern in patterns for path in directory.glob(pattern) if path.is_file()})


def _newest(directory: Path, where: str) -> Place:
    found = runs(directory)
    if not found:
        raise RatchetError(
            "no-profile",
            f"expected {EXPECTED}; found no {SUFFIX} {where}. To capture kernel.py: ratchet.sh profile; to write the "
            "simulated run as a capture: ratchet.sh timeline",
        )
    return found[0]


def _place(paths: tuple[Path, ...], folder: Path) -> Place:
    match = _OF_ATTEMPT.fullmatch(folder.name)
    is_run = folder.parts[-3:-1] == _RUNS.parts
    return Place(
        name=folder.name,
        paths=paths,
        log_directory=folder.parents[2] if is_run else folder,
        attempt=int(match[1]) if match else None,
    )


def _rank(place: Place) -> int:
    match = _OF_ATTEMPT.fullmatch(place.name)
    return _KINDS[match[2]] if match else 0
