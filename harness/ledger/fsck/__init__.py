"""A ledger checked against itself: log, branch and experiments/ must tell the same story. Nothing is written."""

from harness.ledger import Ledger, history, messages
from harness.ledger.fsck import checks, inventory
from harness.records import Audit, Finding


def audit(ledger: Ledger) -> Audit:
    """Everything in which log, branch, experiments/ and the ratchet's own state do not agree, with what to do."""
    place = ledger.place
    findings: list[Finding] = []
    notes: list[str] = []
    commits = inventory.log(place, findings)
    logged = inventory.logged(place, commits, findings)
    filed = inventory.filed(place, findings)
    accepted = history.accepted_anywhere(place)
    apart = inventory.other_logs(place, findings, notes)
    findings += checks.numbers(place, logged, filed, all_read=len(logged) == len(commits))
    for known in checks.distinct((*logged, *filed)):
        findings += checks.derived(place, known, notes)
    findings += checks.fingerprints((*logged, *filed))
    kernels = checks.kernels(place, logged, filed, findings, notes)
    findings += checks.branch(place, accepted, logged, filed)
    findings += checks.files(place, logged, filed, apart)
    findings += checks.state(place, notes)
    on_branch = {(one.number, one.kernel_digits) for one in accepted}
    for known in logged:
        digits = known.attempt.kernel_sha256[: messages.KERNEL_DIGITS]
        if known.row.outcome == "accept" and (known.row.number, digits) not in on_branch:
            notes.append(f"attempt {known.row.number} was accepted, but no branch here has its commit")
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
