"""Tries a kernel.py before its contest is committed: does it trace, and is it right at small shapes?"""

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.candidate import Candidate
from harness.contest import Contest
from harness.judge.evaluate.compile.seen_programs import SeenPrograms
from harness.judge.evaluate.evaluation import evaluate
from harness.judge.evaluate.request import Listener, Progress, Request
from harness.loop.bench import Bench
from harness.records import Evidence, Failure, Trace


class _TracesError(Exception):
    """Ends an evaluation after the trace, which is all that is needed."""


def trace_failure(contest: Contest, candidate: Candidate, progress: Progress) -> Failure | None:
    """The failure of tracing `candidate`, None if it traces. Raises RatchetError as `evaluate` does."""

    def enough(trace: Trace) -> None:
        raise _TracesError

    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        try:
            asked = replace(_request(Path(folder), contest, candidate), checked=False)
            return evaluate(asked, Listener(progress=progress, after_trace=enough)).failure
        except _TracesError:
            return None


@dataclass(slots=True)
class Trial:
    """Tries candidates one after the other at small shapes; `folder` keeps the compiled programs for the next ones."""

    contest: Contest
    folder: Path
    progress: Progress
    _programs: set[str] = field(default_factory=set)

    def evidence(self, candidate: Candidate) -> Evidence | None:
        """The evidence about `candidate`, unchecked at the contest's own shape; None if the program was tried before.

        A candidate that does not trace or that the compiler refuses is not checked. Raises as `evaluate` does.
        """

        def once(trace: Trace) -> None:
            if trace.fingerprint in self._programs:
                raise _TracesError
            self._programs.add(trace.fingerprint)

        programs = SeenPrograms(directory=self.folder / "programs", judge="new")
        request = replace(_request(self.folder, self.contest, candidate), programs=programs)
        timed = replace(request, checked=False, with_lines=True)
        try:
            evidence = evaluate(timed, Listener(progress=self.progress, after_trace=once))
        except _TracesError:
            return None
        if evidence.failure is not None:
            return evidence
        return evaluate(request, Listener(progress=self.progress, is_slower=lambda evidence: True))


def _request(folder: Path, contest: Contest, candidate: Candidate) -> Request:
    bench = Bench(contest=contest, on="simulated", reuses=False)
    return replace(bench.request(candidate, folder / "profile_data" / "new"), directory=folder)
