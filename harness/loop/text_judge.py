"""Texts of kernel.py judged now, by the present judge and prepare.py, each once; no attempt is recorded."""

from collections.abc import Callable
from dataclasses import replace

from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import RatchetError
from harness.judge.evaluate.request import Listener, Progress, named
from harness.judge.verdict import roofline
from harness.loop.evaluate import evaluate, request
from harness.records import Evidence


class TextJudge:
    """What is found out about each goes below `profile_data/<folder>`. `progress` hears which one it is about.

    Times are simulated: of a device one run would not settle anything. Raises RatchetError `no-simulator`.
    """

    def __init__(self, contest: Contest, folder: str, progress: Progress) -> None:
        if contest.chip.platform != "tpu":
            raise RatchetError(
                "no-simulator", f"expected a contest of a TPU, whose kernels are simulated, got {contest.chip.name}"
            )
        self._contest, self._folder, self._progress = contest, folder, progress
        self._found: dict[tuple[Candidate, bool], Evidence] = {}

    def evidence(
        self,
        name: str,
        candidate: Candidate,
        *,
        checked: bool = True,
        is_slower: Callable[[Evidence], bool] | None = None,
    ) -> Evidence:
        """That on one candidate, which is called `name`; `checked` and `is_slower` as for `evaluate`."""
        found = self._found.get((candidate, checked))
        if found is None:
            work = self.work(name, candidate)
            asked = replace(request(self._contest, candidate, work, on="simulated"), checked=checked)
            listener = Listener(progress=named(f"{name}:", self._progress), is_slower=is_slower)
            found = self._found[candidate, checked] = evaluate(asked, listener)
        return found

    def work(self, name: str, candidate: Candidate) -> str:
        """The folder of `profile_data` that holds what was found out about the candidate of that name."""
        return f"{self._folder}/{name.replace(' ', '-')}-{candidate.sha256[:8]}"


def why_not(evidence: Evidence, *, timed: bool = True) -> str:
    """What failed; or, where a latency is asked for, why there is none; "" otherwise."""
    if evidence.failure is not None:
        return f"{evidence.failure.kind}: {evidence.failure.message}"
    if not timed or evidence.latency is None or evidence.latency.seconds is not None:
        return ""
    return f"its latency is unknown: {'; '.join(evidence.latency.reasons)}"


def executed_spills(evidence: Evidence) -> int | None:
    """Executed saves of vector registers to VMEM, of a suite those of all members; None where one is not known."""
    counts = [run.executed_spills for _, one in evidence.programs if (run := roofline.finished_run(one)) is not None]
    return sum(counts) if len(counts) == len(evidence.programs) else None
