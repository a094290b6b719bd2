"""Forks one real process per order, breaks it at its k-th write, and answers with its end and its writes.

A write is every file opened for writing, renamed, removed, synced or made, and every git command
that writes. They are seen by an audit hook, so the code under test is the code that people run.
"""

import errno
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from ledger_fixtures import SETTING, git, note, ready, recovered, revocation

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger, history
from harness.loop import revoke as revoking

_WRITING_COMMANDS = {"hash-object", "read-tree", "update-index", "write-tree", "commit-tree", "update-ref", "add"}
_NEEDS_ROOM = {"open", "mkdir", "fsync", "git"}


def attempt(contest: Path, outcome: str) -> None:
    """The steps of `ratchet.attempt` around the evaluation; the evidence is a saved one."""
    ledger = Ledger.open(contest)
    with ledger.lock():
        ledger.recover()
        number = ledger.next_number()
        ledger.begin(Candidate(text=ledger.place.kernel_path.read_bytes()), f"attempt {number}")
        try:
            ledger.restore(Candidate(text=SETTING))
            made, row, kernel = ready(ledger, outcome)
            ledger.record(made, row, kernel, new_branch_commit=outcome == "accept")
        except BaseException:
            ledger.recover()
            raise


def revoke(contest: Path) -> None:
    """The steps of `revoke.revoke` when the failures are known: attempt 1, the champion, and all accepted ones."""
    ledger = Ledger.open(contest)
    with ledger.lock():
        ledger.recover()
        made, _, kernel = revocation(ledger, holder=None)
        revoking.record(ledger, made, kernel, "revoke")


def notes(contest: Path) -> None:
    """The steps of `rescale` with the times of two kernels, one after the other."""
    ledger = Ledger.open(contest)
    with ledger.lock("rescale"):
        ledger.recover()
        for seconds in (2e-3, 1e-3):
            ledger.keep_notes([note(history.attempt(ledger.place, 1), seconds)])
        ledger.log_notes()


class Injector:
    """Breaks this process at the `at`-th write whose description contains `before`.

    `kill`: the process ends before this write. `full`: the disk is full from this write on. `race`: somebody runs the
    git command `command` before each of the first `at` writes.
    """

    def __init__(self, order: dict[str, Any], report: int) -> None:
        self.fault, self.at, self.before = order["fault"], order["at"], order["before"]
        self.contest, self.command = order["contest"], order["command"]
        self.report, self.count, self.is_racing = report, 0, False
        real = os.fsync

        def fsync(descriptor: int) -> None:
            self.happens("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        # The one write that Python does not announce to audit hooks.
        os.fsync = fsync  # type: ignore[assignment]
        sys.addaudithook(self.hook)

    def hook(self, event: str, details: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = details
            if flags & (os.O_WRONLY | os.O_RDWR) and isinstance(path, str | bytes) and os.fsdecode(path) != os.devnull:
                self.happens("open", os.fsdecode(path))
        elif event in ("os.rename", "os.remove", "os.mkdir", "os.truncate"):
            there = not isinstance(details[0], int) and os.path.lexists(details[0])
            # Making an existing folder, or removing a missing file, is no write.
            if there is not (event == "os.mkdir") or event == "os.truncate":
                self.happens(event.removeprefix("os."), str(details[0]))
        elif event == "subprocess.Popen":
            command = next((place for place, word in enumerate(details[1]) if word in _WRITING_COMMANDS), None)
            words = details[1][command:] if command is not None else []
            if words and not (words[0] == "hash-object" and "-w" not in words):
                self.happens("git", " ".join(words))

    def happens(self, kind: str, what: str) -> None:
        if self.is_racing:
            return
        os.write(self.report, json.dumps([kind, what]).encode() + b"\n")
        self.count += self.before in f"{kind} {what}"
        if self.fault == "race" and self.before in f"{kind} {what}" and self.count <= self.at:
            self.is_racing = True
            git(Path(self.contest), *self.command)
            self.is_racing = False
        if self.count < self.at:
            return
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "full" and kind in _NEEDS_ROOM:
            # No file may grow any more, for git and for files that are open already.
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            if kind != "git":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def serve() -> None:
    """Orders on stdin, one JSON per line: contest, action, fault, at, before, command. An answer on stdout for each."""
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os._exit(obey(order, writing))
        os.close(writing)
        with open(reading, "rb") as stream:
            events = [json.loads(record) for record in stream.read().splitlines()]
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status), "events": events}), flush=True)


def obey(order: dict[str, Any], report: int) -> int:
    """The exit code: 0 if the action is done, 4 for a refusal with a kind, 5 for a bug."""
    contest = Path(order["contest"])
    # For hooks of git, which may also end this process.
    os.environ["RATCHET_PID"] = str(os.getpid())
    Injector(order, report)
    try:
        action = {"recover": recovered, "revoke": revoke, "notes": notes}.get(order["action"])
        action(contest) if action else attempt(contest, order["action"])
    except RatchetError as error:
        os.write(report, json.dumps(["error", error.kind, str(error)]).encode() + b"\n")
        return 4
    except BaseException:  # noqa: BLE001
        os.write(report, json.dumps(["bug", traceback.format_exc()]).encode() + b"\n")
        return 5
    return 0


if __name__ == "__main__":
    serve()
