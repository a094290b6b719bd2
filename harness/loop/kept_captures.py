"""The folder of a contest's captures, dumps and scratch files: hidden from git, and pruned.

Pruning keeps the newest runs and those of accepted attempts, up to a total size, and all files of other programs.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RatchetError
from harness.files import make_directory, refusals_in_words, remove
from harness.records import Attempt
from harness.units import decimal
from harness.workbench.profiles.places import runs

# The number of captured runs, and of simulated runs, that are kept besides those of accepted attempts. A capture of
# three calls takes 10 KB to some MB, an attempt's simulated run 100 to 250 KB.
KEPT_RUNS = 20
# Enough for a hundred attempts with 30 MB of compiler dumps each, as in the root contest.
KEPT_BYTES = 3_000_000_000
RULE = (
    f"the newest {KEPT_RUNS} captured runs, the newest {KEPT_RUNS} simulated runs, all runs of accepted attempts, and "
    "every file that the ratchet did not write; other runs are removed. If runs, timelines, compiler dumps and scratch "
    "folders (of attempts, sweep, bisect, replay and other commands) together take more than "
    f"{decimal(KEPT_BYTES, 'B')}, the oldest are removed first, and those of accepted attempts last. Files of the "
    "champion, and files that a running command may be writing, always stay"
)
_SIMULATED = "-simulated-"
# The ratchet's own runs end with the eight digits of a session, or with the name of a simulated chip.
_OWN = re.compile(r"(\d{4,}|kernel|judge|snapshot)-([\w.]+-)*([0-9a-f]{8}(-\d+)?|simulated-\w+)")
# Timelines for Perfetto, named after a run or a simulated subject, and answers that were too long to send. They do not
# lie among the runs.
_FILES = ("*-simulated-*.trace.json.gz", "*.perfetto.json.gz", "answers/*.json")
_EXPORTED = ".perfetto.json.gz"
# Folders of evaluations, by command: programs, dumps, kept evidence. The inputs that `attack` found, the journal of
# `tune` (a search can continue from it), pages and plots lie elsewhere and are never removed.
_OF_MANY_TEXTS = tuple(f"{name}/*" for name in ("sweep", "edits", "bisect", "ablate", "revoke", "replay"))
_OF_COMMANDS = ("new", "judge", "champion", "diff-*", "attack/work", *_OF_MANY_TEXTS)
_OF_ATTEMPTS = re.compile(r"\d{4,}(-champion|-failed)?")
_ATTEMPT = re.compile(r"(\d{4,})(-simulated-.*)?")
_LOCK = ".lock"
# The number of removed entries that a message names.
_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removal:
    """A run, a file, or the files of one evaluation, to be removed together; `attempt` is its attempt's number."""

    path: Path
    name: str
    attempt: int | None
    modified: float
    num_bytes: int


def make_folder(profile_data: Path) -> Path:
    """The folder, created if missing, with a .gitignore of its own, because the contest may have none.

    Raises RatchetError `read-only` or `io`.
    """
    with refusals_in_words(f"writing {profile_data}"):
        make_directory(profile_data)
        # Several processes may start at once: the first one writes it.
        with contextlib.suppress(FileExistsError), open(profile_data / ".gitignore", "xb") as stream:
            stream.write(b"*\n")
    return profile_data


@contextlib.contextmanager
def in_use(profile_data: Path) -> Iterator[None]:
    """Creates the folder; while the body runs, no process prunes it.

    Raises RatchetError `read-only` or `io`.
    """
    make_folder(profile_data)
    with _lock(profile_data, fcntl.LOCK_SH):
        yield


def prune(
    profile_data: Path, accepted: Collection[int], champion: Attempt | None = None, kept_bytes: int = KEPT_BYTES
) -> tuple[str, ...]:
    """Prunes a contest's folder by RULE and returns the names of the removed entries.

    `accepted` are the numbers of accepted attempts; the `champion`'s runs stay, and so do the dumps that its record
    names. The newest entry stays, whatever its size. While another command uses the folder, nothing is removed; the
    next command prunes it. Raises RatchetError `read-only` or `io`.
    """
    if not profile_data.is_dir():
        return ()
    with _lock(profile_data, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
        if not is_ours:
            return ()
        with refusals_in_words(f"reading {profile_data}"):
            gone = _surplus(profile_data, set(accepted), champion, kept_bytes)
        for piece in gone:
            with refusals_in_words(f"removing {piece.path}"):
                if piece.path.is_dir():
                    shutil.rmtree(piece.path)
                else:
                    remove(piece.path)
    return tuple(piece.name for piece in gone)


def _surplus(profile_data: Path, accepted: set[int], champion: Attempt | None, kept_bytes: int) -> tuple[_Removal, ...]:
    own_runs = _runs(profile_data)
    dumps = tuple(_dumps_of(champion, profile_data)) if champion else ()
    needed = {champion.number, *(_attempt(path.parts[0]) for path in dumps)} if champion else set()

    def rank(piece: _Removal) -> int:
        """The rank of a run: 2 if it is the champion's, 1 if it is another accepted attempt's, otherwise 0."""
        if (piece.attempt is not None and piece.attempt in needed) or any(d.is_relative_to(piece.name) for d in dumps):
            return 2
        return int(piece.attempt in accepted)

    surplus = [piece for piece in own_runs if rank(piece) == 0]
    gone = [
        piece
        for is_simulated in (False, True)
        for piece in [piece for piece in surplus if (_SIMULATED in piece.name) == is_simulated][KEPT_RUNS:]
    ]
    rest = [piece for piece in (*own_runs, *_of_commands(profile_data)) if piece not in gone]
    newest = max((piece.modified for piece in rest), default=0.0)
    total = 0
    for piece in sorted(rest, key=lambda piece: (rank(piece), piece.modified), reverse=True):
        total += piece.num_bytes
        if total > kept_bytes and piece.modified < newest and rank(piece) < 2:
            gone.append(piece)
    return tuple(gone)


def _dumps_of(champion: Attempt, profile_data: Path) -> Iterator[Path]:
    """The folders of the champion's schedules below `profile_data`, from its record, such as `revoke/0003/dumps`."""
    for _, evidence in champion.evidence.programs:
        path = Path(evidence.dump_directory or "")
        if path.is_relative_to(profile_data.name) and path != Path(profile_data.name):
            yield path.relative_to(profile_data.name)


def tidy(profile_data: Path, accepted: Collection[int], champion: Attempt | None = None) -> Iterator[str]:
    """Prunes captures after a command, and yields sentences on what was removed or why nothing was."""
    try:
        gone = prune(profile_data, accepted, champion)
    except RatchetError as error:
        yield f"old captures stay: {error}"
    else:
        if gone:
            more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
            yield f"removed old captures and dumps ({len(gone)}): {', '.join(gone[:_NAMED])}{more}"


def _runs(profile_data: Path) -> list[_Removal]:
    """The ratchet's own runs, newest first. Anything behind a symbolic link belongs to somebody else."""
    places = [place for place in runs(profile_data) if _OWN.fullmatch(place.name)]
    folders = [(place.files[0].parent, place) for place in places]
    return [_piece(path, place.name, place.attempt) for path, place in folders if _is_within(path, profile_data)]


def _is_within(path: Path, profile_data: Path) -> bool:
    """True if no part of `path` below `profile_data` is a symbolic link."""
    return path.resolve() == profile_data.resolve() / path.relative_to(profile_data)


def _of_commands(profile_data: Path) -> list[_Removal]:
    """Other files of commands. Anything behind a symbolic link belongs to somebody else."""
    folders = [path for path in profile_data.iterdir() if _OF_ATTEMPTS.fullmatch(path.name)]
    folders += [path for pattern in _OF_COMMANDS for path in profile_data.glob(pattern)]
    paths = [path for path in folders if path.is_dir()]
    ours = {place.name for place in runs(profile_data)}
    for path in (path for pattern in _FILES for path in profile_data.glob(pattern) if path.is_file()):
        run = path.name.removesuffix(_EXPORTED)
        if run == path.name or run in ours or _OWN.fullmatch(run):
            paths.append(path)
    names = {path: str(path.relative_to(profile_data)) for path in paths if _is_within(path, profile_data)}
    return [_piece(path, name, _attempt(name)) for path, name in names.items()]


def _attempt(name: str) -> int | None:
    """The attempt in an entry's name: 3 for `0003` or `0003-simulated-v5e.trace.json.gz`; None if it names none."""
    match = _ATTEMPT.fullmatch(name)
    return int(match[1]) if match else None


def _piece(path: Path, name: str, attempt: int | None) -> _Removal:
    every = [status.lstat() for status in (path.rglob("*") if path.is_dir() else (path,)) if status.is_file()]
    return _Removal(
        path=path,
        name=name,
        attempt=attempt,
        modified=max((status.st_mtime for status in every), default=path.stat().st_mtime),
        num_bytes=sum(status.st_size for status in every),
    )


@contextlib.contextmanager
def _lock(profile_data: Path, operation: int) -> Iterator[bool]:
    """Holds the folder's lock by flock's `operation`; yields False if it is not free and `operation` does not wait."""
    doing = f"taking the lock of {profile_data}"
    # On NFS, a file must be open for writing to get an exclusive lock.
    mode = os.O_RDWR if operation & fcntl.LOCK_EX else os.O_RDONLY
    with refusals_in_words(doing):
        descriptor = os.open(profile_data / _LOCK, mode | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        is_ours = False
        with refusals_in_words(doing), contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, operation)
            is_ours = True
        yield is_ours
    finally:
        os.close(descriptor)
