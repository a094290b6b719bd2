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
    # Two observations may be about the same knob, and even want it turned apart: the stronger one speaks.
    by_knob: dict[str, Hint] = {}
    for finding in ranked:
        by_knob.setdefault(_knob(finding.hint.suggestion), finding.hint)
    return tuple(by_knob.values())


def _knob(suggestion: str) -> str:
    """What a suggestion changes: a block by its name, else the change itself (what stands before the colon)."""
    change = suggestion.partition(":")[0]
    return next((block for block in ("key/value block", "query block") if block in change), change)
