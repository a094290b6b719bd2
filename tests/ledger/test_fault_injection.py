"""A real process is killed, starved and raced at every write; the next command leaves a ledger without a fault."""

import itertools
import json
import os
import random
import shutil
import stat
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fault_fixtures import Server
from ledger_fixtures import NAIVE, SETTING, candidate, git, mess, new_repository, run_attempt, users_state, without_ours

from harness.ledger import Ledger, history
from harness.ledger import notes as note_files
from harness.ledger.fsck import audit
from harness.ledger.paths import place_of

pytestmark = pytest.mark.long

MINE = NAIVE.replace(b"BQ = 128", b"BQ = 300")
LOG = "refs/ratchet/root/log"
REF_HOOK = ".git/hooks/reference-transaction"
# The default run kills at every n-th write, the slow run at every write. An accept and a reject begin alike: with every
# second write of each, odd and even, the default run kills an attempt at every write that they share.
SECOND, SOME = 2, 5


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest with a champion, a changed kernel.py, and work of the user's in every state git knows."""
    contest = new_repository(tmp_path_factory.mktemp("faults") / "user")
    mess(contest)
    run_attempt(Ledger.open(contest))
    candidate(contest, 300)
    return contest


class Case:
    """One copy of the contest, and the conditions that must hold however the attempt ended."""

    def __init__(self, template: Path, folder: Path) -> None:
        self.contest = folder
        shutil.copytree(template, folder, symlinks=True)
        self.before, self.tips = _as_it_was(template)

    def recover(self) -> tuple[str, ...]:
        ledger = Ledger.open(self.contest)
        with ledger.lock():
            sentences = ledger.recover()
            assert ledger.recover() == ()
        return sentences

    def check(self, outcome: str, where: object) -> bool:
        """True if attempt 2 is recorded, everywhere and once; False if it never was; anything else fails."""
        contest, ledger = self.contest, Ledger.open(self.contest)
        report = audit(ledger)
        assert report.findings == (), (where, report.findings)
        rows, skipped = history.rows(ledger.place)
        assert skipped == (), where
        numbers = [row.number for row in rows]
        assert numbers in ([1], [1, 2]), where
        recorded, accepted = numbers == [1, 2], numbers == [1, 2] and outcome == "accept"
        head, log = git(contest, "rev-parse", "HEAD", LOG).split()
        if recorded:
            assert git(contest, "rev-parse", f"{LOG}^").strip() == self.tips[1], where
            assert history.attempt(ledger.place, 2).verdict.outcome == outcome
            assert history.candidate(ledger.place, 2).text == SETTING
        else:
            # A commit of notes is no attempt.
            added = git(contest, "log", "--format=%B%x00", f"{self.tips[1]}..{log}").strip("\0\n").split("\0")
            assert all("Ratchet-Notes: " in body for body in added if body.strip()), where
        if accepted:
            assert git(contest, "rev-parse", "HEAD^").strip() == self.tips[0], where
            changed = git(contest, "diff", "--name-only", "HEAD^", "HEAD").split()
            assert changed == ["experiments/0002-idea-2.json", "kernel.py"], where
        else:
            assert head == self.tips[0], where
        kernel = (contest / "kernel.py").read_bytes()
        assert kernel == (SETTING if accepted else NAIVE if recorded else MINE), where
        assert without_ours(users_state(contest)) == self.before, where
        assert list((contest / ".git").rglob("*.lock")) == [], where
        git(contest, "fsck", "--strict", "--connectivity-only")
        return recorded

    def discard(self) -> None:
        shutil.rmtree(self.contest)


@cache
def _as_it_was(template: Path) -> tuple[dict[str, Any], list[str]]:
    """The user's state, and the commits of the branch and of the log: the same in every copy."""
    return without_ours(users_state(template)), git(template, "rev-parse", "HEAD", LOG).split()


@pytest.fixture
def copies(template: Path, tmp_path: Path) -> Iterator[Case]:
    return (Case(template, tmp_path / f"case{number}") for number in itertools.count())


def writes(server: Server, case: Case, action: str) -> list[list[str]]:
    """The writes of an undisturbed run, in order."""
    answer = server.obey(case.contest, action)
    assert answer["status"] == 0
    return list(answer["events"])


def points(number: int, *, every: int, first: int = 1) -> Sequence[int]:
    return range(first, number + 1, every)


@pytest.mark.parametrize("every", [SECOND, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("outcome", "first"), [("accept", 1), ("reject", 2)])
def test_killed_at_every_write_of_an_attempt(
    server: Server, copies: Iterator[Case], outcome: str, first: int, every: int
) -> None:
    events = writes(server, next(copies), outcome)
    assert len(events) > 30
    ends = set()
    for at in points(len(events), every=every, first=min(first, every)):
        case, where = next(copies), (outcome, at, events[at - 1])
        answer = server.obey(case.contest, outcome, "kill", at)
        assert answer["status"] == -9, where
        assert len(answer["events"]) == at
        begun = (case.contest / ".git/ratchet/root/journal.json").exists()
        sentences = case.recover()
        assert len(sentences) == begun, (where, sentences)
        ends.add(case.check(outcome, where))
        case.discard()
    assert ends == {True, False}


@pytest.mark.parametrize("every", [SECOND, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_every_write_of_a_rescale(server: Server, copies: Iterator[Case], every: int) -> None:
    events = writes(server, next(copies), "notes")
    assert len(events) > 10
    kept = set()
    for at in points(len(events), every=every):
        case, where = next(copies), (at, events[at - 1])
        assert server.obey(case.contest, "notes", "kill", at)["status"] == -9, where
        case.recover()
        notes, skipped = note_files.read(place_of(case.contest))
        assert skipped == (), where
        kept.add(len(notes))
        # No attempt is recorded or lost, and nothing of the user's is touched.
        assert case.check("accept", where) is False
        # The next run goes on from there: each note once, in the file and in the log.
        assert server.obey(case.contest, "notes")["status"] == 0, where
        assert [note.seconds for note in note_files.read(place_of(case.contest))[0]] == [2e-3, 1e-3], where
        logged = git(case.contest, "log", "--format=%B", "--first-parent", LOG)
        assert sum(int(line.rpartition(" ")[2]) for line in logged.splitlines() if "Ratchet-Notes: " in line) == 2
        assert audit(Ledger.open(case.contest)).findings == (), where
        case.discard()
    assert kept == {0, 1, 2}


@pytest.mark.parametrize("every", [SOME, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("outcome", ["accept", "reject"])
def test_killed_at_every_write_of_the_recovery(
    server: Server, copies: Iterator[Case], outcome: str, every: int
) -> None:
    events = writes(server, next(copies), outcome)
    decided = next(n for n, (kind, what) in enumerate(events, 1) if kind == "git" and what.startswith("update-ref"))
    case = next(copies)
    server.obey(case.contest, outcome, "kill", decided)
    again = writes(server, case, "recover")
    assert case.check(outcome, "recovered in one go")
    for at in points(len(again), every=every):
        case, where = next(copies), (outcome, at, again[at - 1])
        server.obey(case.contest, outcome, "kill", decided)
        assert server.obey(case.contest, "recover", "kill", at)["status"] == -9, where
        case.recover()
        assert case.check(outcome, where)
        case.discard()


@pytest.mark.parametrize("every", [SOME, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("outcome", ["accept", "reject"])
def test_no_space_from_any_write_on(server: Server, copies: Iterator[Case], outcome: str, every: int) -> None:
    events = writes(server, next(copies), outcome)
    ends = set()
    for at in points(len(events), every=every):
        case, where = next(copies), (outcome, at, events[at - 1])
        answer = server.obey(case.contest, outcome, "full", at)
        ends.add(answer["status"])
        if answer["status"] == 4:
            _, kind, message = answer["events"][-1]
            assert (kind, "no space" in message or "size of files" in message) == ("no-space", True), (where, message)
        case.recover()
        case.check(outcome, where)
        case.discard()
    assert 4 in ends


@pytest.mark.parametrize("outcome", ["accept", "reject"])
def test_git_is_killed_with_the_ratchet_while_it_holds_its_locks(
    server: Server, copies: Iterator[Case], outcome: str
) -> None:
    """Refs stay locked, as when a container is stopped or the machine is out of memory."""
    for ref in (LOG, "refs/heads/main")[: 2 if outcome == "accept" else 1]:
        case = next(copies)
        hook(case.contest, f'grep -q " {ref}$" && kill -9 $RATCHET_PID $PPID')
        assert server.obey(case.contest, outcome)["status"] == -9
        left = [path.name for path in (case.contest / ".git").rglob("*.lock")]
        assert Path(ref).name + ".lock" in left
        (case.contest / REF_HOOK).unlink()
        assert any(finding.kind == "git-lock" for finding in audit(Ledger.open(case.contest)).findings)
        sentences = case.recover()
        assert [sentence for sentence in sentences if "removed" in sentence and f"{ref}.lock" in sentence]
        assert case.check(outcome, ref)


def test_an_index_that_a_killed_git_left_locked_is_freed(server: Server, copies: Iterator[Case]) -> None:
    events = writes(server, next(copies), "accept")
    at = max(n for n, (kind, what) in enumerate(events, 1) if kind == "git" and what.startswith("update-index"))
    case = next(copies)
    server.obey(case.contest, "accept", "kill", at)
    (case.contest / ".git/index.lock").write_bytes((case.contest / ".git/index").read_bytes()[:100])
    assert any("index.lock" in sentence for sentence in case.recover())
    assert case.check("accept", "index.lock")


@pytest.mark.parametrize("outcome", ["accept", "reject"])
def test_git_outlives_a_killed_ratchet(server: Server, copies: Iterator[Case], outcome: str) -> None:
    """The ratchet dies while git holds a ref's lock; git ends only when the next command is at work already."""
    for ref in (LOG, "refs/heads/main")[: 2 if outcome == "accept" else 1]:
        case = next(copies)
        gate = case.contest / ".git/gate"
        os.mkfifo(gate)
        hook(
            case.contest, f'grep -q " {ref}$" && rm {REF_HOOK} && kill -9 $RATCHET_PID && read line < .git/gate; exit 0'
        )
        assert server.obey(case.contest, outcome)["status"] == -9
        server.send(case.contest, "recover")
        gate.write_text("go on\n")
        assert server.answer()["status"] == 0
        case.recover()
        assert case.check(outcome, ref)


def hook(contest: Path, then: str) -> None:
    """A hook that does `then` when git has locked the refs it is about to move."""
    path = contest / REF_HOOK
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = prepared ] || exit 0\n{then}\nexit 0\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("rounds", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_two_ratchets_race_and_are_killed(server: Server, copies: Iterator[Case], tmp_path: Path, rounds: int) -> None:
    """One in the repository, one in a linked worktree; both killed at drawn writes; no number twice, nothing lost."""
    dice = random.Random(20261121)
    other, case = Server(), next(copies)
    tree = tmp_path / "tree"
    git(case.contest, "worktree", "add", "-q", str(tree), "-b", "other")
    try:
        for _ in range(rounds):
            for contest in (case.contest, tree):
                candidate(contest, dice.randrange(1, 1 << 30))
            ends = []
            for process, contest in ((server, case.contest), (other, tree)):
                process.send(contest, dice.choice(["accept", "reject"]), "kill", dice.randrange(1, 90))
            for process in (server, other):
                answer = process.answer()
                ends.append(answer["events"][-1][1] if answer["status"] == 4 else answer["status"])
            assert set(ends) <= {0, -9, "busy", "ref-moved", "branch-moved"}, ends
            for contest in (case.contest, tree):
                ledger = Ledger.open(contest)
                with ledger.lock():
                    ledger.recover()
            for contest in (case.contest, tree):
                report = audit(Ledger.open(contest))
                assert [finding for finding in report.findings if finding.kind != "missing-file"] == []
        rows, _ = history.rows(place_of(case.contest))
        assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        assert len(rows) > 2
    finally:
        other.close()


def test_order_of_writes_survives_a_power_cut(server: Server, copies: Iterator[Case]) -> None:
    """Bytes are synced before their name, a name before its users, the journal before refs; it is cleared last."""
    events = writes(server, next(copies), "accept")
    for place, (kind, what) in enumerate(events):
        if kind == "rename":
            assert events[place - 1] == ["fsync", what]
            assert events[place + 1] == ["fsync", str(Path(what).parent)]
        if kind == "remove" and what.endswith("journal.json"):
            assert events[place + 1][0] == "fsync"
    kinds = [what.split()[0] if kind == "git" else f"{kind} {Path(what).name}" for kind, what in events]
    decided = [place for place, kind in enumerate(kinds) if kind == "rename .journal.json.ratchet-new"][-1]
    refs = [place for place, kind in enumerate(kinds) if kind == "update-ref"]
    assert kinds.index("commit-tree") < decided < refs[0] < refs[1] < kinds.index("remove journal.json")
    moves = [what.split() for kind, what in events if kind == "git" and what.startswith("update-ref")]
    # The update is a compare-and-swap: it names the new and the old commit.
    assert [len(words[-1]) for words in moves] == [40, 40]
    assert [words[-3] for words in moves] == [LOG, "refs/heads/main"]


def test_git_syncs_what_it_writes(server: Server, copies: Iterator[Case], tmp_path: Path) -> None:
    traced = tmp_path / "trace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_TRACE2_EVENT", str(traced))
        patch.setenv("GIT_TRACE2_NESTING", "0")
        started = Server()
    try:
        case = next(copies)
        assert started.obey(case.contest, "accept")["status"] == 0
    finally:
        started.close()
    synced: dict[str, int] = {}
    names: dict[str, str] = {}
    for line in traced.read_text().splitlines():
        message = json.loads(line)
        if message["event"] == "cmd_name":
            names[message["sid"]] = message["name"]
        if message["event"] == "data" and message.get("key") == "fsync/hardware-flush":
            name = names.get(message["sid"], "")
            synced[name] = synced.get(name, 0) + int(message["value"])
    if not synced:
        pytest.skip("this git does not say what it syncs")
    assert {name for name, count in synced.items() if count} >= {
        "hash-object",
        "write-tree",
        "commit-tree",
        "update-ref",
    }
