"""Damage of every kind, planted in log, branch and files: fsck names each, and finds nothing in an undamaged ledger."""

import hashlib
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_examples import judgement
from ledger_fixtures import (
    LOG,
    NAIVE,
    OWN_KEY,
    candidate,
    git,
    identify,
    new_repository,
    plain_clone,
    ready,
    recovered,
    repository_after,
    run_attempt,
)
from ledger_fixtures import row as row_of
from loop_fixtures import into_repository, ratchet
from narrowing import present
from refusals import refused

from harness.errors import RatchetError, UsageError
from harness.ledger import Ledger, history
from harness.ledger import lock as locking
from harness.ledger.codec import decode_attempt, decode_attempt_row, encode_attempt, encode_row
from harness.ledger.fsck import audit, checks, inventory, replayed
from harness.ledger.git import read_blobs, readable_blobs
from harness.ledger.git.write import require_signing
from harness.ledger.messages import accept_message, log_message
from harness.ledger.paths import place_of
from harness.records import Attempt, Evidence, Finding, Latency, Replay, Row
from harness.records.stored import SCHEMA

pytestmark = pytest.mark.long

THIRD = "experiments/0003-idea-3.json"


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    return repository_after(4, tmp_path / "user")


@pytest.fixture
def clone(contest: Path) -> Ledger:
    """A clone of the contest's branch, without its log."""
    return plain_clone(contest, contest.parent / "clone")


def kinds(contest: Path) -> list[str]:
    report = audit(Ledger.open(contest))
    assert all(finding.where and finding.what and finding.remedy for finding in report.findings)
    return sorted({finding.kind for finding in report.findings})


def rewritten(contest: Path, number: int, change: Callable[[Attempt, Row], tuple[bytes, str, bytes]]) -> None:
    """The log with attempt `number` written anew, as somebody who edits history would: record, message, kernel."""
    commits = git(contest, "rev-list", "--first-parent", "--reverse", LOG).split()
    before = ""
    for place, commit in enumerate(commits, 1):
        data = git(contest, "show", f"{commit}:attempt.json").encode()
        message = git(contest, "log", "-1", "--format=%B", commit)
        kernel = git(contest, "show", f"{commit}:kernel.py").encode()
        if place == number:
            data, message, kernel = change(decode_attempt(data, ""), decode_attempt_row(data, ""))
        tree = "".join(
            f"100644 blob {git(contest, 'hash-object', '-w', '--stdin', stdin=content).strip()}\t{name}\n"
            for name, content in (("attempt.json", data), ("kernel.py", kernel))
        )
        parents = git(contest, "rev-list", "--parents", "-1", commit).split()[2:]
        options = [word for parent in ([before] if before else []) + parents for word in ("-p", parent)]
        made = git(contest, "mktree", stdin=tree.encode()).strip()
        before = git(contest, "commit-tree", made, *options, stdin=message.encode()).strip()
    git(contest, "update-ref", LOG, before)


def test_a_whole_ledger_is_clean(contest: Path) -> None:
    report = audit(Ledger.open(contest))
    assert (report.findings, report.notes) == ((), ())
    assert (report.log_commits, report.files, report.accepts, report.kernels) == (4, 4, 3, 4)
    assert audit(Ledger.open(new_repository(contest.parent / "new"))).findings == ()


ROW_DAMAGE: dict[str, dict[str, Any]] = {
    "row-score": {"score": 1e9},
    "row-seconds": {"seconds": 1e-9},
    "row-key-digest": {"key_digest": "0" * 12},
    "row-fingerprint": {"fingerprint": "0" * 64},
    "row-outcome": {"outcome": "accept"},
    "row-kernel-sha256": {"kernel_sha256": "0" * 64},
    "row-hypothesis": {"hypothesis": "what I always said"},
}


@pytest.mark.parametrize("kind", ROW_DAMAGE)
def test_a_row_that_its_record_does_not_give(contest: Path, kind: str) -> None:
    def change(attempt: Attempt, row: Row) -> tuple[bytes, str, bytes]:
        edited = replace(row, **ROW_DAMAGE[kind])
        return encode_attempt(attempt, edited), log_message(edited), NAIVE.replace(b"128", b"64")

    rewritten(contest, 3, change)
    # The file in experiments/ still has the old row.
    assert set(kinds(contest)) - {"fingerprint"} == {"file-differs", kind}


def test_a_row_that_differs_in_message_and_record(contest: Path) -> None:
    def change(attempt: Attempt, row: Row) -> tuple[bytes, str, bytes]:
        return encode_attempt(attempt, row), log_message(replace(row, score=1e9)), NAIVE.replace(b"128", b"64")

    rewritten(contest, 3, change)
    assert set(kinds(contest)) >= {"row-differs", "row-score"}


def test_a_log_commit_with_another_kernel(contest: Path) -> None:
    rewritten(contest, 3, lambda attempt, row: (encode_attempt(attempt, row), log_message(row), NAIVE + b"# faster\n"))
    assert kinds(contest) == ["kernel"]


def test_a_log_with_a_number_twice_or_none_or_out_of_order(contest: Path) -> None:
    def numbered(number: int) -> Callable[[Attempt, Row], tuple[bytes, str, bytes]]:
        def change(attempt: Attempt, row: Row) -> tuple[bytes, str, bytes]:
            attempt, row = replace(attempt, number=number), replace(row, number=number)
            return encode_attempt(attempt, row), log_message(row), NAIVE.replace(b"128", b"64")

        return change

    tip = git(contest, "rev-parse", LOG).strip()
    rewritten(contest, 3, numbered(2))
    assert "number-twice" in kinds(contest)
    git(contest, "update-ref", LOG, tip)
    rewritten(contest, 3, numbered(9))
    assert "number-order" in kinds(contest)
    git(contest, "update-ref", LOG, tip)
    (contest / THIRD).unlink()
    git(contest, "update-ref", LOG, f"{tip}~2")
    git(contest, "commit", "-qam", "forget a rejected attempt")
    assert kinds(contest) == ["accept-not-logged", "missing-attempt"]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("corrupt-record", lambda data: data[:300]),
        ("corrupt-record", lambda data: data.replace(b'"schema"', b'"sch\xffma"', 1)),
        ("newer-record", lambda data: data.replace(b'"schema": %d' % SCHEMA, b'"schema": %d' % (SCHEMA + 1))),
        ("foreign-record", lambda data: b'{"somebody": "else"}'),
    ],
)
def test_records_that_cannot_be_read_are_named_and_skipped(
    contest: Path, kind: str, content: Callable[[bytes], bytes]
) -> None:
    data = (contest / THIRD).read_bytes()
    (contest / THIRD).write_bytes(content(data))
    assert kind in kinds(contest)
    rows, skipped = history.rows(place_of(contest))
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert len(skipped) == 1
    assert (contest / THIRD).read_bytes() == content(data)
    (contest / THIRD).write_bytes(data)
    assert kinds(contest) == []

    def change(attempt: Attempt, row: Row) -> tuple[bytes, str, bytes]:
        message = f"attempt 3\n\nRatchet-Row: {content(encode_row(row).encode()).decode('utf-8', 'replace')}\n"
        return content(data), message, NAIVE.replace(b"128", b"64")

    rewritten(contest, 3, change)
    assert {"corrupt-record", "foreign-record", kind} & set(kinds(contest))
    rows, skipped = history.rows(place_of(contest))
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert len(skipped) == 1


def test_a_damaged_object_of_the_log(contest: Path) -> None:
    commit = git(contest, "rev-parse", f"{LOG}~1").strip()
    blob = git(contest, "rev-parse", f"{commit}:kernel.py").strip()
    kernels = [f"{git(contest, 'rev-parse', name).strip()}:kernel.py" for name in (f"{LOG}~2", f"{LOG}~1", LOG)]
    for name, kind in ((blob, "kernel"), (commit, "broken-log")):
        path = contest / ".git/objects" / name[:2] / name[2:]
        kept = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(b"damaged")
        assert kind in kinds(contest)
        # The table still shows what experiments/ has.
        assert [row.number for row in history.rows(place_of(contest))[0]] == [1, 2, 3, 4]
        # Git stops at a damaged object; the one before it and the one behind it are read.
        texts = readable_blobs(place_of(contest).repository, kernels)
        assert [text is None for text in texts] == [False, True, False]
        path.write_bytes(kept)
    assert kinds(contest) == []


def test_files_that_are_gone_or_edited(contest: Path) -> None:
    data = (contest / THIRD).read_bytes()
    (contest / THIRD).write_bytes(data.replace(b'"idea 3"', b'"idea X"'))
    assert "file-differs" in kinds(contest)
    (contest / THIRD).unlink()
    # HEAD still has it.
    assert kinds(contest) == []
    git(contest, "commit", "-qam", "forget a rejected attempt")
    (finding,) = audit(Ledger.open(contest)).findings
    assert finding.kind == "missing-file"
    subprocess.run(finding.remedy, shell=True, check=True, cwd=contest)
    assert kinds(contest) == []
    assert (contest / THIRD).read_bytes() == data
    (contest / "experiments/0003-copied.json").write_bytes(data.replace(b'"contest":"root"', b'"contest":"other"'))
    assert "other-contest" in kinds(contest)


def test_an_accept_that_was_amended(contest: Path) -> None:
    tip = git(contest, "rev-parse", "HEAD").strip()
    message = git(contest, "log", "-1", "--format=%B")
    git(contest, "commit", "-q", "--amend", "-m", message.replace("Ratchet-Key: ", "Ratchet-Key: 0"))
    assert kinds(contest) == ["trailers"]
    git(contest, "reset", "-q", "--soft", tip)
    (contest / "kernel.py").write_bytes(NAIVE + b"# another\n")
    git(contest, "commit", "-qa", "--amend", "-m", message)
    assert kinds(contest) == ["branch-kernel"]
    git(contest, "reset", "-q", "--hard", tip)
    git(contest, "rm", "-q", "--cached", "experiments/0004-idea-4.json")
    git(contest, "commit", "-q", "--amend", "-m", message)
    assert kinds(contest) == ["accept-without-record"]


def test_an_accept_that_is_on_no_branch_is_shown_as_that(contest: Path) -> None:
    git(contest, "reset", "-q", "--hard", "HEAD~1")
    report = audit(Ledger.open(contest))
    assert any("attempt 4 was accepted, but no branch" in note for note in report.notes)
    rows, _ = history.rows(place_of(contest))
    assert [row.is_on_branch for row in rows] == [True, True, None, False]
    assert rows[3].commit == git(contest, "rev-parse", LOG).strip()


def test_what_a_killed_process_left(contest: Path) -> None:
    state = contest / ".git/ratchet/root"
    (state / "journal.json").write_text('{"schema": 1, "purpose": "attempt 5", "branch": "refs/heads/main"}')
    (state / "index.4711").write_bytes(b"")
    (contest / ".kernel.py.ratchet-new").write_bytes(b"half")
    (contest / "experiments/.0005-x.json.ratchet-new").write_bytes(b"half")
    (contest / ".notes.ratchet-new").write_bytes(b"the user's own")
    (contest / ".git/refs/ratchet/root/log.lock").write_bytes(b"")
    assert kinds(contest) == ["git-lock", "journal", "temporary-file"]
    with locking.hold(contest / ".git/ratchet/lock", "attempt 5"):
        report = audit(Ledger.open(contest))
        assert report.findings == ()
        assert f"process {os.getpid()}" in report.notes[0]
    recovered(contest)
    assert kinds(contest) == ["git-lock"]
    assert (contest / ".notes.ratchet-new").read_bytes() == b"the user's own"


def test_two_clones_that_numbered_apart(contest: Path) -> None:
    clone = contest.parent / "clone"
    git(contest.parent, "clone", "-q", f"file://{contest}", "clone")
    identify(clone)
    git(clone, "fetch", "-q", "origin", "refs/ratchet/*:refs/ratchet/*")
    for place, bq in ((contest, 32), (clone, 16)):
        candidate(place, bq)
        run_attempt(Ledger.open(place), "reject", hypothesis=f"BQ {bq}")
    git(clone, "fetch", "-q", "origin", f"{LOG}:refs/remotes/origin/ratchet/root/log")
    (finding,) = audit(Ledger.open(clone)).findings
    assert (finding.kind, finding.where) == ("numbered-apart", "refs/remotes/origin/ratchet/root/log")
    # The advised remedy, applied in the clone whose log is replaced.
    git(clone, "update-ref", "refs/ratchet/root/apart", LOG)
    git(clone, "fetch", "-q", "origin", f"+{LOG}:{LOG}")
    shutil.copy(contest / "experiments/0005-bq-32.json", clone / "experiments")
    report = audit(Ledger.open(clone))
    assert report.findings == ()
    assert any("apart" in note for note in report.notes)
    assert sorted(row.hypothesis for row in history.rows(place_of(clone))[0] if row.number == 5) == ["BQ 16", "BQ 32"]
    git(clone, "update-ref", "-d", "refs/ratchet/root/apart")
    assert kinds(clone) == ["numbered-apart"]


# --- forgeries -----------------------------------------------------------------------------------


def edited(clone: Ledger, number: int, change: Callable[[Attempt], Attempt]) -> None:
    """A record changed by hand with all that is derived from it, and committed, as somebody who means to deceive."""
    (path,) = clone.place.experiments_directory.glob(f"{number:04d}-*.json")
    changed = change(decode_attempt(path.read_bytes(), ""))
    path.write_bytes(encode_attempt(changed, row_of(changed)))
    git(clone.place.root, "commit", "-qam", "Update the records")


def test_a_rejected_attempt_edited_to_an_accept(clone: Ledger) -> None:
    edited(clone, 3, lambda attempt: replace(attempt, verdict=replace(attempt.verdict, outcome="accept")))
    by_kind = {finding.kind: finding for finding in audit(clone).findings}
    assert sorted(by_kind) == ["accept-without-commit", "verdict"]
    assert by_kind["verdict"].what.startswith(
        "attempt 3 is recorded as accept, its evidence gives reject: 5.0% more time"
    )
    assert by_kind["accept-without-commit"].where == THIRD
    assert "2 findings; nothing was changed" in ratchet(clone.place.root, "fsck", expect=1).stdout
    assert "attempt 3: its outcome and its figures cannot all be true" in ratchet(clone.place.root, "results").stderr


def halved(evidence: Evidence) -> Evidence:
    """The same evidence with half of every time and cycle in it."""
    run, latency = present(evidence.simulation), present(evidence.latency)
    names = ("seconds", "cycles", "dma_wait_cycles", "unit_stall_cycles", "launch_cycles")
    cycles = {name: getattr(run, name) / 2 for name in names}
    run = replace(run, bundle_cycles=run.bundle_cycles // 2, **cycles)
    return replace(evidence, simulation=run, latency=replace(latency, seconds=run.seconds))


def forged_champion(clone: Ledger, made: Attempt, kernel: bytes, judged: bytes) -> None:
    """An accept as the ratchet commits it, written by hand: another kernel.py than was judged, and no log."""
    made = replace(made, kernel_sha256=hashlib.sha256(judged).hexdigest())
    (clone.place.kernel_path).write_bytes(kernel)
    path = clone.place.experiments_directory / f"{made.number:04d}-forged.json"
    path.write_bytes(encode_attempt(made, row_of(made)))
    git(clone.place.root, "add", "-A")
    git(clone.place.root, "commit", "-qF", "-", stdin=accept_message(made, row_of(made)).encode())


def test_a_forged_champion_with_half_of_its_time(clone: Ledger) -> None:
    champion = present(clone.champion())
    kernel = candidate(clone.place.root, 2048)
    made, _, _ = ready(clone, "accept")
    fast = halved(halved(made.evidence))
    forged_champion(clone, replace(made, evidence=fast), kernel + b"# slower\n", kernel)
    by_kind = {finding.kind: finding for finding in audit(clone).findings}
    assert sorted(by_kind) == ["branch-kernel", "impossible-time"]
    assert "that a v5e can do in bfloat16" in by_kind["impossible-time"].what
    assert clone.champion() != champion, "it is shown as the champion, which is why somebody has to look"
    assert [
        sentence
        for sentence in history.rows(clone.place)[1]
        if f"attempt {made.number}: its outcome and its figures cannot all be true" in sentence
    ]


FAST = Latency(source="simulated", seconds=1e-3, plus_minus_seconds=None)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("time", lambda attempt: replace(attempt, evidence=replace(attempt.evidence, latency=FAST))),
        (
            "time",
            lambda attempt: replace(
                attempt, champion=replace(attempt.champion, seconds=9.0), champion_evidence=attempt.evidence
            ),
        ),
        ("policy", lambda attempt: replace(attempt, policy=replace(attempt.policy, minimum_effect=-1.0))),
        ("key", lambda attempt: replace(attempt, key=replace(attempt.key, problem="0" * 16))),
        ("verdict", lambda attempt: replace(attempt, verdict=replace(attempt.verdict, time_ratio=0.1))),
        ("verdict", lambda attempt: replace(attempt, champion=None)),
        ("verdict", lambda attempt: replace(attempt, champion=replace(attempt.champion, attempt=9))),
    ],
)
def test_a_record_that_contradicts_itself(clone: Ledger, kind: str, change: Callable[[Attempt], Attempt]) -> None:
    edited(clone, 3, change)
    assert kind in kinds(clone.place.root)
    assert set(kinds(clone.place.root)) <= {kind, "verdict", "impossible-time"}


def test_under_the_present_judge_a_verdict_is_the_same_to_the_letter(clone: Ledger) -> None:
    edited(
        clone,
        3,
        lambda attempt: replace(attempt, verdict=replace(attempt.verdict, reasons=("as fast as the champion",))),
    )
    assert audit(clone).findings == ()
    (finding,) = audit(clone, OWN_KEY).findings
    assert "is recorded with other reasons or figures than the same judge gives" in finding.what


def judged_again(**now: Any) -> Replay:
    """The champion, attempt 4, judged again under its own key: the same except for these fields."""
    then = judgement(reasons=("5 % less time",))
    return Replay(
        number=4,
        hypothesis="",
        kernel_sha256="",
        then=then,
        now=replace(then, **now),
        differences=(),
        drift=now.get("seconds", 1e-3) / 1e-3,
        changes=(),
        scratch="",
    )


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({}, None),
        ({"outcome": "failed", "reasons": ("wrong result",)}, "recorded accept, now failed: wrong result"),
        ({"seconds": 2e-3}, "it takes 100.00% more than the recorded time"),
        ({"seconds": 0.9e-3}, "it takes 10.00% less than the recorded time"),
        ({"fingerprint": "b2"}, "its kernel.py now traces to another program"),
    ],
)
def test_what_judging_the_champion_again_says_against_its_record(now: dict[str, Any], words: str | None) -> None:
    findings, (note,) = replayed(judged_again(**now))
    assert [finding.what for finding in findings] == ([] if words is None else [words])
    assert note.startswith("attempt 4, the champion, judged again: ")
    # Another judge may give another time.
    again = replace(judged_again(**now), differences=("judge 01 -> 23",))
    assert len(replayed(again)[0]) == (1 if "outcome" in now else 0)


# --- signatures ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_the_allowed_signers_did_not_sign(tmp_path: Path) -> None:
    contest = new_repository(tmp_path / "user")
    for name in ("own", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    allowed = tmp_path / "allowed"
    allowed.write_text(f"user@example.org {(tmp_path / 'own.pub').read_text()}")
    for name, value in (
        ("gpg.format", "ssh"),
        ("user.signingkey", str(tmp_path / "own.pub")),
        ("commit.gpgsign", "true"),
    ):
        git(contest, "config", name, value)
    ledger = Ledger.open(contest)
    run_attempt(ledger)
    candidate(contest, 64)
    run_attempt(ledger, "reject")
    assert audit(ledger, signed_by=str(allowed)).findings == ()
    assert "clean" in ratchet(contest, "fsck", "--signed-by", str(allowed), expect=0).stdout
    # A record that an ordinary commit edited, signed or not, is not part of a commit that was signed as an attempt.
    clone = plain_clone(contest, tmp_path / "clone")
    edited(clone, 1, lambda attempt: replace(attempt, finished="2026-01-01T00:00:10+00:00"))
    (altered,) = (finding for finding in audit(clone, signed_by=str(allowed)).findings if finding.kind == "not-signed")
    assert (altered.where[:16], altered.what) == ("experiments/0001", "no signed commit holds this record")
    # The commits are signed by another key, then by none.
    git(contest, "config", "user.signingkey", str(tmp_path / "other.pub"))
    candidate(contest, 512)
    run_attempt(ledger)
    git(contest, "config", "commit.gpgsign", "false")
    candidate(contest, 32)
    run_attempt(ledger, "reject")
    unsigned = [finding for finding in audit(ledger, signed_by=str(allowed)).findings if finding.kind == "not-signed"]
    assert [finding.what for finding in unsigned if finding.where.startswith("log")] == [
        "its signer is not among the allowed ones",
        "it is not signed",
    ]
    assert len([finding for finding in unsigned if finding.where.startswith("commit")]) == 1
    with pytest.raises(UsageError, match="expected --signed-by a file of allowed signers"):
        audit(ledger, signed_by=str(tmp_path / "nobody"))


def test_a_key_that_does_not_sign_is_told_before_anything_is_judged(contest: Path) -> None:
    git(contest, "config", "gpg.format", "ssh")
    git(contest, "config", "user.signingkey", "/nowhere/key.pub")
    git(contest, "config", "commit.gpgsign", "true")
    with refused("signing"):
        require_signing(place_of(contest).repository)


def test_the_table_is_rebuilt_from_a_clone_and_the_log(contest: Path, clone: Ledger) -> None:
    bare = audit(clone)
    assert bare.findings == ()
    assert any(note.startswith(f"there is no log here to check against ({LOG};") for note in bare.notes)
    assert "there is no log here to check them against" in ratchet(clone.place.root, "fsck", expect=0).stdout
    git(clone.place.root, "fetch", "-q", "origin", "refs/ratchet/*:refs/ratchet/*")
    assert history.rows(clone.place) == history.rows(Ledger.open(contest).place)
    assert (audit(clone).findings, audit(clone).notes) == ((), ())
    shutil.rmtree(clone.place.root / "experiments")
    git(clone.place.root, "commit", "-qam", "nothing but the log")
    assert history.rows(clone.place) == history.rows(Ledger.open(contest).place)


def test_the_verb_says_what_to_do_and_exits_1(contest: Path) -> None:
    assert "clean" in ratchet(contest, "fsck", expect=0).stdout
    (contest / THIRD).write_text("{")
    done = ratchet(contest, "fsck", expect=1)
    assert "[corrupt-record]" in done.stdout
    assert f"->git-C{contest}checkoutHEAD" in "".join(done.stdout.split())
    document = json.loads(ratchet(contest, "fsck", "--json", expect=1).stdout)
    assert [finding["kind"] for finding in document["findings"]] == ["corrupt-record"]


def test_a_record_of_any_number_takes_no_more_than_a_record(contest: Path) -> None:
    """Missing numbers are reported as ranges: listing 900 million of them took 11.7 GB."""
    (contest / "experiments" / "900000000-x.json").write_bytes(
        encode_attempt(
            replace(history.attempt(place_of(contest), 3), number=900_000_000),
            replace(decode_attempt_row((contest / THIRD).read_bytes(), ""), number=900_000_000),
        )
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    missing = next(finding for finding in audit(Ledger.open(contest)).findings if finding.kind == "missing-attempt")
    assert "attempt numbers that neither the log nor a file has: 5 to 899999999" in missing.what
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_a_number_of_a_thousand_digits_in_a_message_is_nobodys(contest: Path) -> None:
    place = place_of(contest)
    before = history.accepted_at_head(place)
    digits = "9" * 5000
    for number, rest in ((digits, ""), ("900", f"Ratchet-Undoes: {digits}\nRatchet-Revokes: 1 {digits}\n")):
        text = f"x\n\nRatchet-Attempt: {number}\nRatchet-Contest: root\nRatchet-Kernel: ab\n{rest}"
        git(contest, "commit", "-q", "--allow-empty", "-m", text)
    newest, *others = history.accepted_at_head(place)
    assert (newest.number, newest.undoes, newest.revokes) == (900, None, (1,))
    assert tuple(others) == before


def test_a_record_nested_without_end_is_unreadable(contest: Path) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    (contest / THIRD).write_bytes(b'{\n  "schema": 3,\n  "row": {"x": ' + deep + b'},\n  "attempt": {}\n}\n')
    assert "corrupt-record" in kinds(contest)


def test_a_record_that_is_too_large_or_no_file_is_told_with_its_limit(
    contest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (contest / THIRD).unlink()
    (contest / THIRD).symlink_to("/dev/zero")
    findings = audit(Ledger.open(contest)).findings
    assert any("a regular file, got a pipe, socket or device" in finding.what for finding in findings)
    (contest / THIRD).unlink()
    with (contest / THIRD).open("wb") as stream:
        stream.truncate(1 << 40)
    findings = audit(Ledger.open(contest)).findings
    assert any("RATCHET_MAX_RECORD_BYTES" in finding.what for finding in findings)
    for verb in ("results", "report"):
        ratchet(contest, verb, expect=0)
    monkeypatch.setenv("RATCHET_MAX_LEDGER_BYTES", "1000")
    with pytest.raises(RatchetError, match=r"at most 1,000 bytes from git at once.*RATCHET_MAX_LEDGER_BYTES"):
        read_blobs(place_of(contest).repository, [f"HEAD:{THIRD}"])


def test_rows_of_older_schemas_lack_what_they_did_not_have(tmp_path: Path) -> None:
    """The committed contests hold rows of many schemas; a field that a later one adds is no contradiction."""
    folder = tmp_path / "examples" / "rmsnorm"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).parents[2] / "examples" / "rmsnorm" / "attempts.jsonl", folder)
    into_repository(tmp_path, "a ledger")
    place, findings, notes = Ledger.open(folder).place, list[Finding](), list[str]()
    filed = inventory.filed(place, findings)
    # Each row is made again from the one before it, as the other checks of an audit do many times.
    assert len(filed) > 20
    for record in filed:
        findings += checks.derived(place, record, notes)
    assert {finding.kind for finding in findings if finding.kind.startswith("row-")} == set()
