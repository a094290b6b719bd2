"""A cache on disk of the compiler's and the simulator's results, keyed by everything that they depend on.

The results depend only on the exported program, the problem and its timing tables, the compiler and its flags, the chip
and the judge's code. So equal inputs always give equal results. Results of checks are not cached. An entry is a file in
a folder of the user. No child process may write to that folder: if children are not confined, the cache is neither read
nor written.
"""

import contextlib
import hashlib
import io
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from harness.judge.evaluate.messages import CompileReply
from harness.records import Simulation

# The limits on all entries together and on one entry. The entry of a kernel with 65 thousand bundles takes some MB.
_MOST_BYTES = 512 << 20
_MOST_BYTES_OF_ONE = 64 << 20
# The largest unpacked size of an entry. A larger entry is damaged, or another program wrote it.
_MOST_BYTES_UNPACKED = 2 << 30
_MARK = b"kernel-ratchet program 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_SUFFIX = ".program"
# The parts of an evaluation's folder that the compiler's process writes.
_FOLDERS, _TEXT = ("dumps", "mosaic"), "kernel.hlo.txt"
_REPLY = "reply.json"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The cached results of a program: the reply of the compiler's process, and the simulation of the schedule."""

    key: str
    compiled: CompileReply
    simulation: Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPrograms:
    """The entries of a folder for one judge, problem, chip and set of versions; `judge` identifies these four."""

    directory: Path
    judge: str
    most_bytes: int = _MOST_BYTES

    def key(self, artifact: Path, variables: Mapping[str, str], simulator: str, dumps: Path) -> str:
        """The key of an exported program, compiled with these environment variables and simulated by `simulator`.

        `dumps` is the folder to which the compiler will write. The key includes the files in it, because the simulator
        reads them.
        """
        dump_digests = [(path.name, _digest(path)) for path in sorted(dumps.iterdir())]
        key_parts = [self.judge, simulator, sorted(variables.items()), _digest(artifact), dump_digests]
        return hashlib.sha256(msgspec.json.encode(key_parts)).hexdigest()

    def restored(self, key: str, work: Path) -> Seen | None:
        """The cached results of a program; None if there is no valid entry. Puts the dumps and texts into `work`.

        Raises OSError if `work` cannot be written.
        """
        path = self._path(key)
        try:
            seen, files = _unpacked(path.read_bytes(), key)
        except (OSError, ValueError, zipfile.BadZipFile, EOFError, RuntimeError):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        for place, content in files.items():
            (work / place).parent.mkdir(parents=True, exist_ok=True)
            (work / place).write_bytes(content)
        # Marks the entry as used, because the least recently used entries are dropped first.
        with contextlib.suppress(OSError):
            os.utime(path)
        return seen

    def keep(self, key: str, work: Path, compiled: CompileReply, simulation: Simulation) -> None:
        """Caches the results. If all entries then exceed `most_bytes`, drops the least recently used entries.

        Does nothing if the entry is too large or the folder is not writable.
        """
        with contextlib.suppress(OSError, ValueError):
            data = _packed(Seen(key=key, compiled=compiled, simulation=simulation), work)
            if len(data) > min(_MOST_BYTES_OF_ONE, self.most_bytes):
                return
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            # The temporary name is unique, because two processes may write the same entry at once.
            temporary = self.directory / f".{key}.{secrets.token_hex(8)}"
            try:
                temporary.write_bytes(data)
                os.replace(temporary, self._path(key))
            finally:
                temporary.unlink(missing_ok=True)
            self._make_room()

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{_SUFFIX}"

    def _make_room(self) -> None:
        entries = []
        for path in self.directory.iterdir():
            with contextlib.suppress(OSError):
                state = path.stat()
                entries.append((state.st_mtime_ns, state.st_size, path))
        total = sum(size for _, size, _ in entries)
        # Temporary files of killed processes count as entries, and are dropped like entries.
        for _, size, path in sorted(entries, key=lambda entry: entry[:2]):
            if total <= self.most_bytes:
                return
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            total -= size


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _packed(seen: Seen, work: Path) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_REPLY, msgspec.json.encode(seen))
        for path in _files(work):
            archive.write(path, path.relative_to(work).as_posix())
    body = stream.getvalue()
    return _MARK + hashlib.sha256(body).digest() + body


def _files(work: Path) -> Iterator[Path]:
    for path in (work / _TEXT, *(path for name in _FOLDERS for path in sorted((work / name).rglob("*")))):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ValueError(f"expected files, got {path}")
        if path.is_file():
            yield path


def _unpacked(data: bytes, key: str) -> tuple[Seen, dict[str, bytes]]:
    """The cached results, and the files by path. Raises ValueError or an error of zipfile if the entry is damaged."""
    start = len(_MARK) + _DIGEST_BYTES
    body = data[start:]
    if data[:start] != _MARK + hashlib.sha256(body).digest():
        raise ValueError("expected an unchanged entry, got other bytes than were written")
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES_UNPACKED:
            raise ValueError(f"expected at most {_MOST_BYTES_UNPACKED} bytes to unpack, got more")
        # msgspec's errors are ValueErrors.
        seen = msgspec.json.decode(archive.read(_REPLY), type=Seen)
        if seen.key != key:
            raise ValueError(f"expected the entry {key}, got {seen.key}")
        files = {name: archive.read(name) for name in archive.namelist() if name != _REPLY}
    for name in files:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or (place.parts[0] not in _FOLDERS and name != _TEXT):
            raise ValueError(f"expected files of the compiler, got {name}")
    return seen, files
