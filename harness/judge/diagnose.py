"""What to try next, ranked by the share of the time that it could save."""

from collections.abc import Sequence

from harness.judge.next_steps import next_step
from harness.judge.observed import Observed
from harness.judge.roofline import finished_run
from harness.judge.rules import RULES
from harness.records import Evidence, Hint, Report, Row


def hints(evidence: Evidence, report: Report, previous: Sequence[Row] = ()) -> tuple[Hint, ...]:
    """The hints that the evidence supports, the most promising first; after a failure, what to do about it.

    `previous` are earlier attempts, oldest first; only those of the same source and chip are looked at.
    """
    if evidence.failure is not None:
        observation = f"{evidence.failure.stage} failed: {evidence.failure.kind}"
        return (Hint(observation=observation, suggestion=next_step(evidence.failure)),)
    if report.seconds is None or report.impossible:
        return ()
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    observed = Observed(
        evidence=evidence,
        report=report,
        seconds=report.seconds,
        call=calls[0] if len(calls) == 1 else None,
        run=finished_run(evidence),
        previous=tuple(row for row in previous if (row.source, row.chip) == (report.source, report.chip)),
    )
    found = [finding for rule in RULES if (finding := rule(observed)) is not None]
    ranked = sorted(found, key=lambda finding: finding.saves, reverse=True)
    # Two observations may ask for the same change (what stands before the colon): the stronger one speaks.
    by_change: dict[str, Hint] = {}
    for finding in ranked:
        by_change.setdefault(finding.hint.suggestion.partition(":")[0], finding.hint)
    return tuple(by_change.values())
