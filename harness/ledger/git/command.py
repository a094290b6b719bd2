"""Runs one git command, and turns its refusals into errors with stable kinds."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from git import Repo
from git.exc import GitCommandNotFound

from harness import reading_limits
from harness.errors import RatchetError


def _as_options(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("-c", setting)]


# Settings that override the user's configuration. The output of git must be parsable, and objects must be UTF-8 and
# synced to disk. Every object is synced before the ref that needs it is written, because the command that wrote the
# object has ended. With `safecrlf=false`, mixed line endings in kernel.py are normalised as by `git add`, not refused.
_CONFIGURATION = (
    # A repository may name a program that tells git which files changed; this setting keeps git from running it.
    "core.fsmonitor=false",
    "safe.bareRepository=explicit",
    "core.quotePath=false",
    "core.safecrlf=false",
    "core.fsync=committed,reference,index",
    # A git command that outlived a killed ratchet may hold a ref for a moment. By default, git waits only 0.1 s.
    "core.filesRefLockTimeout=3000",
    "core.packedRefsTimeout=3000",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "log.showSignature=false",
    "color.ui=false",
)
_OPTIONS = ("--no-optional-locks", "--literal-pathspecs", *_as_options(_CONFIGURATION))

# git's words on stderr (in the C locale), the kind of the error and its remedy. The first match wins.
_REFUSALS = (
    ("No space left on device", "no-space", "free some space and run again"),
    ("Disk quota exceeded", "no-space", "free some space and run again"),
    ("Out of diskspace", "no-space", "free some space and run again"),
    ("unable to write new index file", "no-space", "free some space and run again"),
    ("File too large", "no-space", "free some space and run again"),
    ("Read-only file system", "read-only", "make the repository writable for you"),
    (
        "dubious ownership",
        "unsafe-repository",
        "the repository belongs to another user; if you trust it, run the command that git names",
    ),
    ("not a git repository", "not-a-repository", "run `git init` and commit, or use -C DIR"),
    ("empty ident", "identity", ""),
    ("tell me who you are", "identity", ""),
    ("but expected", "ref-moved", "another process moved the ref at the same moment; run again"),
    ("reference already exists", "ref-moved", "another process made the ref at the same moment; run again"),
    ("index.lock': File exists", "index-locked", "wait for the git command that made this file; if it died, remove it"),
    (".lock': File exists", "ref-locked", "wait for the git command that made this file; if it died, remove it"),
    ("insufficient permission", "read-only", "make the repository writable for you"),
    ("Permission denied", "read-only", "make the repository writable for you"),
)


def run(
    repository: Repo,
    *arguments: str,
    stdin: bytes = b"",
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """The standard output of `git ARGUMENTS` at the top of the working tree; `settings` are `NAME=VALUE`, for `-c`.

    Raises RatchetError if it fails.
    """
    status, output, complaint = attempted(
        repository, *arguments, stdin=stdin, settings=settings, environment=environment
    )
    if status != 0:
        raise refusal(arguments, status, complaint)
    return output


def attempted(
    repository: Repo,
    *arguments: str,
    stdin: bytes = b"",
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
) -> tuple[int, bytes, str]:
    """Exit status, standard output and standard error of `git ARGUMENTS`, for commands that answer by their status.

    Raises RatchetError `no-git`, or `too-large` if git prints too much.
    """
    try:
        process = repository.git.execute(
            ["git", *_OPTIONS, *_as_options(settings), *arguments],
            istream=subprocess.PIPE,
            as_process=True,
            env=dict(environment or {}),
        )
    except GitCommandNotFound as error:
        raise RatchetError("no-git", "the command `git` was not found: install git") from error
    try:
        output, complaint = _communicated(process.proc, stdin, timeout_seconds)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL, b"", f"no answer within {timeout_seconds:g} s"
    return process.returncode, output, complaint.decode("utf-8", "replace").strip()


def _communicated(process: Any, stdin: bytes, timeout_seconds: float | None) -> tuple[bytes, bytes]:
    """The standard output and standard error of a process until its end.

    Raises TimeoutExpired, or RatchetError `too-large` for too much output: a few KB in a repository may expand to any
    number of bytes.
    """
    most = reading_limits.LEDGER.value
    complaint: list[bytes] = []
    late = threading.Event()

    def feed() -> None:
        # git may stop reading once it has all that it needs.
        with suppress(OSError), process.stdin:
            process.stdin.write(stdin)

    def end() -> None:
        late.set()
        process.kill()

    with ExitStack() as ending:
        for target in (feed, lambda: complaint.append(process.stderr.read())):
            thread = threading.Thread(target=target)
            thread.start()
            ending.callback(thread.join)
        if timeout_seconds is not None:
            timer = threading.Timer(timeout_seconds, end)
            timer.start()
            ending.callback(timer.cancel)
        output = process.stdout.read(most + 1)
        if len(output) > most:
            process.kill()
        process.wait()
    process.stdout.close()
    process.stderr.close()
    if late.is_set():
        raise subprocess.TimeoutExpired("git", timeout_seconds or 0)
    if len(output) > most:
        reading_limits.LEDGER.refuse("the output of git", f"more than {most:,}")
    return output, b"".join(complaint)


def refusal(arguments: Sequence[str], status: int, complaint: str) -> RatchetError:
    """The error for a git command that failed: git's own words, a stable kind, and what to do."""
    command = f"git {arguments[0]}"
    # Signal for a write past RLIMIT_FSIZE.
    if status == -signal.SIGXFSZ:
        return RatchetError(
            "no-space", f"{command} exceeded the limit on the size of files; raise it (ulimit -f) and run again"
        )
    if status < 0:
        return RatchetError("git", f"{command} was ended by signal {-status}; run again. {complaint}".rstrip())
    for words, kind, advice in _REFUSALS:
        if words in complaint:
            return RatchetError(kind, f"{command}: {complaint}" + (f"\n{advice}" if advice else ""))
    return RatchetError("git", f"{command} failed with status {status}: {complaint}")


def environment_here(git_directory: str, common_directory: str, working_tree: str) -> dict[str, str]:
    """Values that make the GIT_* variables that a hook has set name the opened repository.

    Variables that are not set are left out, so that git finds the repository itself and checks its owner.
    """
    here = {
        "GIT_DIR": git_directory,
        "GIT_COMMON_DIR": common_directory,
        "GIT_WORK_TREE": working_tree,
        "GIT_INDEX_FILE": os.path.join(git_directory, "index"),
        "GIT_OBJECT_DIRECTORY": os.path.join(common_directory, "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
        "GIT_PREFIX": "",
        "GIT_NAMESPACE": "",
    }
    overrides = {name: value for name, value in here.items() if name in os.environ}
    if "GIT_DIR" in overrides:
        # With GIT_DIR alone, git would take the current folder for the top of the working tree.
        overrides["GIT_WORK_TREE"] = working_tree
    return overrides


def names_in(output: bytes) -> tuple[str, ...]:
    """The entries of a `-z` listing: paths, or lines that contain a path."""
    return tuple(name for name in output.decode("utf-8", "surrogateescape").split("\0") if name)
