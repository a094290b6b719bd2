"""Checks that log, branch and experiments/ of a ledger agree; writes nothing."""

from harness.ledger import Ledger, history
from harness.ledger.fsck import accepts, checks, inventory, noted, rulings, signatures
from harness.records import Audit, Finding, Key, Replay
from harness.units import percent

# The same program takes the same simulated time. This tolerance is for seconds that were written as text.
_SAME_TIME = 1e-9


def audit(ledger: Ledger, present: Key | None = None, signed_by: str | None = None) -> Audit:
    """The findings on a ledger, each with its remedy.

    A finding is a disagreement between log, branch, experiments/ and the ratchet's own state, or a verdict or time that
    does not follow from its record. With `signed_by` (the `who` of `signatures.unsigned`), everything that these
    signers did not sign is a finding too. `present` is the key of new evidence, None if it is not known.
    """
    place = ledger.place
    findings: list[Finding] = []
    notes: list[str] = []
    commits = inventory.log(place, findings)
    logged = inventory.logged(place, commits, findings)
    filed = inventory.filed(place, findings)
    accepted = history.accepted_anywhere(place)
    apart = inventory.other_logs(place, findings, notes)
    findings += checks.numbers(place, logged, filed, all_read=len(logged) == len(commits))
    everything = tuple(checks.distinct((*logged, *filed)))
    for record in everything:
        findings += checks.derived(place, record, notes)
    findings += rulings.verdicts(everything, present, notes)
    findings += checks.fingerprints((*logged, *filed))
    kernels = checks.kernels(place, accepted, logged, filed, findings, notes)
    findings += checks.branch(place, accepted, logged, filed)
    findings += checks.files(place, logged, filed, apart)
    findings += checks.state(place, notes)
    findings += noted.notes_hold(place, everything)
    findings += accepts.without_commit(place, accepted, logged, filed, notes)
    findings += accepts.champion(place, logged, filed, present, notes)
    if signed_by is not None:
        findings += signatures.unsigned(place, commits, accepted, filed, signed_by)
    return Audit(
        contest=place.name,
        log_commits=len(commits),
        records=len(logged) + len(filed),
        kernels=kernels,
        accepts=len(accepted),
        files=len(filed),
        findings=tuple(dict.fromkeys(findings)),
        notes=tuple(dict.fromkeys(notes)),
    )


def replayed(again: Replay) -> tuple[list[Finding], list[str]]:
    """Findings and notes from comparing the champion's record with its replay."""
    where, then, now = f"attempt {again.number}, the champion, judged again", again.then, again.now
    findings = []
    remedy = (
        f"./ratchet.sh replay {again.number} shows both results; if the champion fails now, ./ratchet.sh revoke takes "
        "its title; if it passes under the same keys, its record was edited"
    )
    is_same_key = not again.differences
    if now.outcome != then.outcome:
        findings.append(
            inventory.finding("replay", where, f"recorded {then.outcome}, now {now.outcome}: {now.reasons[0]}", remedy)
        )
    if is_same_key and now.fingerprint != then.fingerprint:
        findings.append(inventory.finding("replay", where, "its kernel.py now traces to another program", remedy))
    if is_same_key and now.source == "simulated" and again.drift is not None and abs(again.drift - 1) > _SAME_TIME:
        more_or_less = "more" if again.drift > 1 else "less"
        words = f"it takes {percent(abs(again.drift - 1), 2)} {more_or_less} than the recorded time"
        findings.append(inventory.finding("replay", where, words, remedy))
    drift = "" if again.drift is None else f", {percent(again.drift - 1, 2)} off the recorded time"
    since = "" if is_same_key else f" (since then: {'; '.join(again.differences)})"
    return findings, [f"{where}: {now.outcome}{drift}{since}"]
