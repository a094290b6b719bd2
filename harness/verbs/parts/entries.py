"""An attempt as pages and pictures show it: its report, the champion at that time, the floor of its work."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from harness.advice import report as reporting
from harness.advice.comparison import figures
from harness.advice.source_names import name_lines
from harness.hardware import chip, with_mesh
from harness.judge.verdict import compare_simulated, roofline
from harness.judge.verdict.roofline import floor_of
from harness.ledger.bulk_read import Held
from harness.records import Report, ScaledRow, Statement
from harness.render.series import Against, Bound, Entry
from harness.render.traces.lanes import Lane, lanes_of


def entry_of(
    name: str,
    scaled_row: ScaledRow,
    stored: Held,
    before: Sequence[Entry],
    files: Path,
    page_folder: Path,
    recheck: str = "",
) -> Entry:
    """The attempt under the id `name` with its time on a scale; `before` are the entries of earlier attempts.

    `recheck` describes the run of checks of an unchanged champion that the attempt belongs to, if any. `files` is the
    folder of timelines; links to them are relative to `page_folder`.
    """
    row, attempt = scaled_row.row, stored.attempt
    kernel = None if stored.candidate is None else stored.candidate.text.decode("utf-8", "surrogateescape")
    entry = Entry(
        id=name,
        row=row,
        then=scaled_row.then,
        why_unknown=scaled_row.why_unknown,
        recheck=recheck,
        kernel=kernel,
        complaint=stored.complaint if attempt is None else "",
    )
    if attempt is None:
        return entry
    evidence, sweep = attempt.evidence, attempt.sweep
    report = reporting.report(evidence, chip(evidence.chip))
    attempt = replace(attempt, evidence=replace(evidence, simulation=name_lines(evidence, evidence.simulation)))
    trace = files / f"{row.number:04d}-simulated-{row.chip}.trace.json.gz"
    address = Path(os.path.relpath(trace, page_folder)).as_posix()
    return replace(
        entry,
        attempt=attempt,
        report=report,
        advice=reporting.advise(evidence, report),
        against=_against(stored, before),
        # A CPU's time must not be shown next to the floor of a TPU.
        bound=None if attempt.key.source == "measured cpu" else _bound(report, attempt.evidence.problem),
        score_range=_score_range(report) if row.score is not None and row.seconds == report.seconds else None,
        timeline=quote(address) if trace.is_file() else "",
        lanes=kept_lanes(trace),
        # Only the best of a simulated sweep has to win by more than the simulator's uncertainty.
        deviations=compare_simulated.deviations(max(1, sweep.looked_at))
        if sweep and sweep.source == "simulated"
        else None,
        compared=() if evidence.members else tuple((name, *pair) for name, pair in figures(evidence).items()),
    )


def kept_lanes(trace: Path) -> tuple[Lane, ...]:
    """The lanes of a kept trace; () if it is not there or cannot be read."""
    try:
        return lanes_of(trace.read_bytes()) if trace.is_file() else ()
    except OSError:
        return ()


def _against(stored: Held, before: Sequence[Entry]) -> Against | None:
    """The champion that the attempt was judged against, with its report under the attempt's own key if known."""
    attempt = stored.attempt
    # In a revoke, nothing is compared: the old champion failed, and the new holder is only checked.
    if attempt is None or attempt.champion is None or attempt.kind == "revoke":
        return None
    number, again = attempt.champion.attempt, attempt.champion_evidence
    if again is not None:
        return Against(number=number, report=reporting.report(again, chip(again.chip)), simulation=again.simulation)
    comparable = [entry for entry in before if (entry.then or entry.row).key_digest == stored.row.key_digest]
    for entry in reversed(comparable):
        if entry.row.number == number and entry.attempt is not None:
            return Against(number=number, report=entry.report, simulation=entry.attempt.evidence.simulation)
        # The first attempt under a key has the champion's evidence for all later attempts under this key.
        if entry.against is not None and entry.against.number == number and entry.against.report is not None:
            return entry.against
    why = (
        f"The champion at that time, attempt {number}, was judged under another key: its figures are not compared."
        if any(entry.row.number == number and entry.attempt is not None for entry in before)
        else f"The record of the champion at that time, attempt {number}, is not in this clone: its figures are not "
        "known."
    )
    return Against(number=number, report=None, why_unknown=why)


_BOUNDS = {"compute": "compute-only", "memory": "memory-only (every array once)", "links": "link-only (all links)"}


def _bound(report: Report, problem: Statement) -> Bound:
    """The least time of the useful work, and the score at that time."""
    floor = floor_of(problem.work, with_mesh(chip(report.chip), problem.mesh), None)
    return Bound(
        name=_BOUNDS[floor.bound_by],
        seconds=floor.seconds,
        score=roofline.score(floor.compute_seconds / floor.seconds, floor.seconds),
    )


def _score_range(report: Report) -> tuple[float, float] | None:
    """The score at the two ends of the latency's uncertainty; None unless the uncertainty is known and usable."""
    seconds, off = report.seconds, report.plus_minus_seconds
    if seconds is None or off is None or not 0 < off < seconds:
        return None
    compute = report.compute_only_seconds
    low, high = (roofline.score(compute / at, at) for at in (seconds + off, seconds - off))
    return low, high
