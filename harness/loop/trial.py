"""A kernel.py tried before its contest is committed: whether it traces, and whether it is right at small shapes."""

import tempfile
from pathlib import Path
from typing import Any

from harness.contest import Contest
from harness.judge import simulate
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.plan import Progress
from harness.records import Evidence, Failure, Policy, Trace


class _Traced(Exception):
    """It traces, and nothing more was asked."""


def trace_failure(contest: Contest, kernel: bytes, progress: Progress) -> Failure | None:
    """Why `kernel` does not trace for this contest, None where it does. Raises RatchetError as `evaluate` does."""

    def enough(trace: Trace) -> None:
        raise _Traced

    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        try:
            return _evaluate(Path(folder), contest, kernel, progress, checked=False, after_trace=enough).failure
        except _Traced:
            return None


def evidence(contest: Contest, kernel: bytes, progress: Progress) -> Evidence:
    """All that is found out about `kernel` but what the contest's own shape would show. Raises as `evaluate` does."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        return _evaluate(Path(folder), contest, kernel, progress, is_slower=lambda found: True)


def _evaluate(folder: Path, contest: Contest, kernel: bytes, progress: Progress, **how: Any) -> Evidence:
    return evaluation.evaluate(
        folder, kernel, contest.problem, contest.chip, Policy(), work_directory=folder / "profile_data" / "new",
        simulate=simulate.run, on="simulated", progress=progress, **how,
    )  # fmt: skip
