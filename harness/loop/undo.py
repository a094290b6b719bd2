"""Brings an attempt's kernel.py back into the working tree, and takes the last accept back by a new commit."""

from contextlib import suppress
from dataclasses import replace

from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import RatchetError
from harness.ledger import Ledger, diff, git, history, recording
from harness.ledger import champion as champions
from harness.loop import preconditions
from harness.loop.bench import now
from harness.loop.opponent import champion_record
from harness.loop.revoke import record
from harness.records import Policy, Verdict


def checkout(ledger: Ledger, number: int, *, force: bool) -> tuple[str, ...]:
    """Puts the kernel.py of attempt `number` into the working tree and returns messages; the index stays as it is.

    Raises RatchetError `unknown-attempt`, `no-kernel` and, without `force`, `unsaved-kernel` if a text would be lost:
    that of a kernel.py that neither HEAD nor an attempt has, or of a helper that differs from HEAD's.
    """
    with ledger.lock(f"checkout {number}"):
        messages = ledger.recover()
        candidate = history.candidate(ledger.place, number)
        if not force and not _is_saved(ledger):
            raise RatchetError(
                "unsaved-kernel",
                f"{ledger.place.kernel_path} holds a text that neither HEAD nor any attempt has; it would be lost. "
                "Try it as an experiment first, commit it, or add --force",
            )
        overwritten = () if force else recording.would_lose(ledger.place, candidate)
        if overwritten:
            raise RatchetError(
                "unsaved-kernel",
                f"the text of {', '.join(overwritten)} in the folder of kernel.py would be overwritten, and HEAD does "
                "not have it. Commit it, or add --force",
            )
        ledger.restore(candidate)
        left_out = _left_out(ledger, number)
    return (*messages, f"kernel.py is now that of attempt {number}", *left_out)


def _left_out(ledger: Ledger, number: int) -> tuple[str, ...]:
    """A sentence on the checks that were skipped when the attempt's kernel was judged; () if all were run."""
    with suppress(RatchetError):
        missing = len(history.attempt(ledger.place, number).evidence.unchecked)
        if missing:
            return (
                f"attempt {number} was rejected for its time, with {missing} of its checks left out, so it may be "
                "wrong at the contest's own shape; ./ratchet.sh judge runs all checks",
            )
    return ()


def undo(contest: Contest, policy: Policy) -> tuple[str, ...]:
    """Takes the last accept back: a commit with the previous champion's kernel.py, and an attempt that records it.

    Raises RatchetError `nothing-to-undo`, `unsaved-kernel`, and the errors of recording an attempt.
    """
    ledger = Ledger.open(contest.directory)
    with ledger.lock("undo"):
        messages = ledger.recover()
        preconditions.refuse_unfit(ledger.place.repository, contest)
        champion = ledger.champion()
        before = champions.before(ledger.place, champion.number) if champion else None
        if champion is None or before is None:
            raise RatchetError(
                "nothing-to-undo", "expected an accepted attempt after the baseline, found none on this branch"
            )
        original = ledger.candidate_here()
        if original != ledger.champion_candidate():
            raise _not_the_champions(ledger, original, champion.number)
        candidate = history.candidate(ledger.place, before.number)
        reason = f"takes attempt {champion.number} back: kernel.py is that of attempt {before.number} again"
        started = now()
        attempt = replace(
            before,
            number=ledger.next_number(),
            hypothesis=f"undo attempt {champion.number}: {champion.hypothesis}",
            started=started,
            finished=started,
            judged_against=git.head_commit(ledger.place.repository),
            policy=policy,
            verdict=Verdict(outcome="accept", reasons=(reason,)),
            champion=champion_record(ledger, champion),
            champion_evidence=None,
            paired=None,
            expected_time_ratio=None,
            settings=(),
            sweep=None,
            revocation=None,
            diff=diff.unified(original.text, candidate.text),
            kind="undo",
        )
        recorded = record(ledger, attempt, candidate, f"undo of attempt {champion.number}")
    return (
        *messages,
        f"attempt {attempt.number} {reason}",
        f"to judge attempt {champion.number}'s text again: ./ratchet.sh checkout {champion.number}, then an "
        "experiment with --again, because the same program was judged before",
        *recorded,
    )


def _not_the_champions(ledger: Ledger, candidate: Candidate, champion: int) -> RatchetError:
    """The error if an undo would overwrite `candidate` in the working tree, with the remedy."""
    sha256 = candidate.sha256
    same = [row.number for row in history.rows(ledger.place)[0] if row.kernel_sha256 == sha256]
    if same or _is_saved(ledger):
        saved = f"attempt {same[-1]}" if same else "the last commit"
        got = f"that of {saved}: ./ratchet.sh checkout {champion}, then undo"
    else:
        got = (
            "a text that neither HEAD nor any attempt has: undo would overwrite it. Try it as an experiment, or commit "
            f"it and ./ratchet.sh checkout {champion}, or throw it away with ./ratchet.sh checkout --force {champion}; "
            "then undo"
        )
    expected = f"expected the champion's text (attempt {champion}) in {ledger.place.kernel_path}"
    return RatchetError("unsaved-kernel", f"{expected}, got {got}")


def _is_saved(ledger: Ledger) -> bool:
    """True if the bytes of kernel.py are those of HEAD or of some attempt."""
    path = ledger.place.kernel_path
    if not path.exists():
        return True
    candidate = ledger.candidate_here()
    if candidate == history.candidate_at(ledger.place, "HEAD"):
        return True
    return candidate.sha256 in {row.kernel_sha256 for row in history.rows(ledger.place)[0]}
