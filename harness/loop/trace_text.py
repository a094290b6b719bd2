"""A kernel.py tried before its contest is committed: whether it traces, and whether it is right at small shapes."""

import tempfile
from dataclasses import replace
from pathlib import Path

from harness.candidate import Candidate
from harness.contest import Contest
from harness.judge import simulate
from harness.judge.evaluate.evaluation import evaluate
from harness.judge.evaluate.request import Listener, Progress, Request
from harness.records import Evidence, Failure, Trace


class _TracesError(Exception):
    """The candidate traces; nothing else was asked."""


def trace_failure(contest: Contest, candidate: Candidate, progress: Progress) -> Failure | None:
    """The failure with which `candidate` does not trace, None if it traces. Raises RatchetError as `evaluate` does."""

    def enough(trace: Trace) -> None:
        raise _TracesError

    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        try:
            asked = replace(_request(Path(folder), contest, candidate), checked=False)
            return evaluate(asked, Listener(progress=progress, after_trace=enough)).failure
        except _TracesError:
            return None


def evidence(contest: Contest, candidate: Candidate, progress: Progress) -> Evidence:
    """The evidence about `candidate`, except at the contest's own shape. Raises as `evaluate` does."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        listener = Listener(progress=progress, is_slower=lambda evidence: True)
        return evaluate(_request(Path(folder), contest, candidate), listener)


def _request(folder: Path, contest: Contest, candidate: Candidate) -> Request:
    return Request(
        directory=folder,
        candidate=candidate,
        problem=contest.problem,
        chip=contest.chip,
        work=folder / "profile_data" / "new",
        simulate=simulate.run,
        on="simulated",
        stubs=contest.stubs,
        assumption=contest.assumption,
    )
