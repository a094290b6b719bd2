"""The bench of a contest: evaluates candidates for every verb, and records nothing."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness import files
from harness.advice import dump_directory
from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import Limit, RatchetError
from harness.judge import simulate
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.compile.seen_programs import SeenPrograms
from harness.judge.evaluate.request import Listener, Progress, Request, any_trace, named, silent
from harness.judge.key import key_digest
from harness.judge.verdict import roofline
from harness.ledger import history
from harness.ledger import lock as locking
from harness.ledger.paths import place_of
from harness.loop import installed, kept_captures, simulated_capture
from harness.records import Draw, Evidence, Key, Policy, Source, Trace
from harness.records.titles import taken_back

Say = Callable[[str], None]

# Prefix of the champion's stages in the progress of an attempt.
CHAMPION = "champion"
# The value of `Bench.on` for each source of latencies; None uses a TPU if there is one.
ON_SOURCE: dict[Source, str | None] = {"simulated": "simulated", "measured cpu": "cpu", "measured": None}
# The number of newest attempts that are searched for the present kernel.py.
_NEWEST = 50
# The folder of profile_data for the judgement of the present kernel.py.
HERE = "judge"


# A slow or busy machine needs more time for each stage.
TIME_LIMITS = Limit(counts="times the time limits of a judgement", most=1, variable="RATCHET_TIME_LIMITS")


def policy_here() -> Policy:
    """The policy of judgements on this machine: `Policy`, with time limits multiplied by RATCHET_TIME_LIMITS.

    Raises UsageError `bad-limit` if the variable holds no whole number above 0.
    """
    policy, times = Policy(), TIME_LIMITS.value
    return replace(
        policy,
        trace_seconds=policy.trace_seconds * times,
        correctness_seconds=policy.correctness_seconds * times,
        compile_seconds=policy.compile_seconds * times,
        simulate_seconds=policy.simulate_seconds * times,
        resimulate_seconds=policy.resimulate_seconds * times,
        measure_seconds=policy.measure_seconds * times,
    )


# XLA's library for matrix products on the CPU fails now and then on a loaded machine, whatever it multiplies.
_OF_CPU_LIBRARY = "YNNPACK operation failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Judges candidates of `contest`, all in the same way; `progress` is called with each stage.

    The fields from `policy` to `draws` have the meaning that they have in `Request`. With `reuses`, a program that was
    already compiled and simulated under the same key is neither compiled nor simulated again.
    """

    contest: Contest
    progress: Progress = silent
    policy: Policy = field(default_factory=policy_here)
    on: str | None = None
    deep: bool = False
    timed: bool = True
    checked: bool = True
    with_lines: bool = False
    draws: tuple[Draw, ...] = ()
    reuses: bool = True

    @property
    def profile_data(self) -> Path:
        """The contest's folder for the files of judgements."""
        return self.contest.directory / "profile_data"

    @property
    def source(self) -> Source:
        """The source of the latencies of this bench."""
        return evaluation.source(self.contest.chip, self.on)

    @property
    def screening_source(self) -> Source:
        """The source of screened latencies."""
        return "simulated" if self.contest.chip.platform == "tpu" else self.source

    def judge(
        self,
        candidate: Candidate,
        work: str,
        name: str = "",
        *,
        after_trace: Callable[[Trace], None] = any_trace,
        is_slower: Callable[[Evidence], bool] | None = None,
    ) -> Evidence:
        """The evidence about `candidate` from a new judgement. `Listener` describes `after_trace` and `is_slower`.

        Files go to `profile_data/<work>`, and nothing in `profile_data` is pruned meanwhile. Progress shows `name`.
        Raises RatchetError `bad-problem` if prepare.py's own problem breaks a rule, and the errors of
        `evaluation.evaluate`. If a library of the CPU failed, the candidate is judged once more.
        """
        self.contest.require_conforming()
        progress = named(name, self.progress) if name else self.progress
        listener = Listener(progress=progress, after_trace=after_trace, is_slower=is_slower)
        with kept_captures.in_use(self.profile_data):
            evidence = evaluation.evaluate(self.request(candidate, self.profile_data / work), listener)
            if evidence.failure is not None and _OF_CPU_LIBRARY in evidence.failure.message:
                evidence = evaluation.evaluate(self.request(candidate, self.profile_data / work), listener)
            return evidence

    def request(self, candidate: Candidate, work: Path) -> Request:
        """The request for an evaluation whose files go to the folder `work`."""
        # Compilation and simulation do not depend on the machine. Without a home directory there is no cache.
        cache = files.cache_directory() if self.reuses else None
        digest = key_digest(self.contest.key("simulated")) if cache else ""
        return Request(
            directory=self.contest.directory,
            candidate=candidate,
            problem=self.contest.problem,
            chip=self.contest.chip,
            work=work,
            simulate=simulate.run,
            policy=self.policy,
            on=self.on,
            deep=self.deep,
            timed=self.timed,
            checked=self.checked,
            with_lines=self.with_lines,
            draws=self.draws,
            programs=SeenPrograms(directory=cache / "programs", judge=digest) if cache else None,
            stubs=self.contest.stubs,
            assumption=self.contest.assumption,
        )

    @contextmanager
    def locked(self, purpose: str) -> Iterator[None]:
        """Locks the bench for one command, and protects all files below profile_data from pruning.

        An attempt to be recorded holds the ledger's lock instead, so that other commands can judge meanwhile.
        Raises RatchetError `busy` at once, without waiting, if another process has the bench's lock.
        """
        with locking.hold(self.profile_data / "bench.lock", purpose), kept_captures.in_use(self.profile_data):
            yield


# --- kernel.py as it stands, kept for later commands -----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptJudgement:
    """The evidence of the last judgement, with the hash of the judged kernel and the key."""

    kernel_sha256: str
    key: Key
    evidence: Evidence
    is_checked: bool = True
    has_lines: bool


def judge_here(bench: Bench, settings: tuple[tuple[str, str], ...] = ()) -> Evidence:
    """The evidence about kernel.py from a new judgement; files stay in `profile_data/judge` until the next call.

    The constants in `settings` are rewritten in the judged text, not in the file.

    Raises RatchetError `busy` and the errors of `Bench.judge`.
    """
    with bench.locked("judge"):
        forget(bench.contest)
        candidate = bench.contest.candidate().set(settings)
        evidence = bench.judge(candidate, HERE)
        keep(bench, candidate.sha256, evidence)
        return evidence


def forget(contest: Contest) -> None:
    """Removes the kept evidence. Call this before `HERE` gets new files: evidence must not outlive its schedules."""
    path = _kept_path(contest)
    if path.exists():
        files.remove(path)


def keep(bench: Bench, kernel_sha256: str, evidence: Evidence) -> None:
    """Keeps the evidence (with files in `HERE`) for later commands, and writes a capture of the simulated run.

    `kernel_sha256` is the hash of the candidate that the evidence is about.
    """
    kept = _KeptJudgement(
        kernel_sha256=kernel_sha256,
        key=bench.contest.key("simulated"),
        evidence=evidence,
        is_checked=bench.checked,
        has_lines=bench.checked or bench.with_lines,
    )
    files.write_atomically(_kept_path(bench.contest), msgspec.json.encode(kept))
    # The capture is not a part of the evidence, so a failure to write it is not reported.
    simulated_capture.keep(evidence, bench.contest.directory, "kernel.py")


def evidence_here(bench: Bench) -> Evidence:
    """The evidence about the present kernel.py, from `kept_evidence`; if that is None, kernel.py is judged now."""
    return kept_evidence(bench.contest, checked=bench.checked, with_lines=bench.with_lines) or judge_here(bench)


def kept_evidence(contest: Contest, *, checked: bool = True, with_lines: bool = False) -> Evidence | None:
    """The evidence about the present kernel.py, from the last judgement or from an attempt.

    None if neither of them judged this text under the present key, or if a package that the kernel imports may have
    changed. With `checked`, only evidence with correctness checks counts; with `with_lines`, only evidence with cycles
    by line.
    """
    evidence = _kept_judgement(contest, checked=checked, with_lines=with_lines)
    evidence = evidence or _attempted_evidence(contest, checked=checked)
    return evidence if evidence is not None and installed.is_unchanged(evidence) else None


def _attempted_evidence(contest: Contest, *, checked: bool) -> Evidence | None:
    """The evidence of the newest attempt with this text under this key, if its schedules are still here.

    Failed and revoked attempts do not count; with `checked`, attempts that skipped checks do not count either.
    """
    digest, key = contest.candidate().sha256, contest.key("simulated")
    try:
        place = place_of(contest.directory)
        rows, _ = history.rows(place, _NEWEST)
        for row, fate in reversed(list(zip(rows, taken_back(rows), strict=True))):
            is_same = row.kernel_sha256 == digest and row.key is not None and row.key.counts_for(key)
            if is_same and fate != "revoked" and row.outcome != "failed" and row.source == "simulated":
                evidence = history.attempt(place, row.number).evidence
                if dump_directory.of(evidence, contest.directory) and not (checked and evidence.unchecked):
                    return evidence
    except RatchetError:
        # Without a ledger there is no attempt.
        pass
    return None


def _kept_judgement(contest: Contest, *, checked: bool, with_lines: bool) -> Evidence | None:
    try:
        judgement = msgspec.json.decode(_kept_path(contest).read_bytes(), type=_KeptJudgement)
    except (OSError, msgspec.DecodeError):
        return None
    if (checked and not judgement.is_checked) or (with_lines and not judgement.has_lines):
        return None
    # The key of simulated times is compared for measured times too, because it does not depend on the machine.
    is_same_key = judgement.key.counts_for(contest.key("simulated"))
    is_same_text = judgement.kernel_sha256 == contest.candidate().sha256
    return judgement.evidence if is_same_text and is_same_key else None


def _kept_path(contest: Contest) -> Path:
    return contest.directory / "profile_data" / HERE / "found.json"


# --- many texts, each judged once -----------------------------------------------------------------


class Texts:
    """Evidence about many candidates, each judged once; files go below `profile_data/<folder>`.

    Times are simulated, because a single run on a device decides nothing. Raises RatchetError `no-simulator`.
    """

    def __init__(self, bench: Bench, folder: str) -> None:
        chip = bench.contest.chip
        if chip.platform != "tpu":
            raise RatchetError(
                "no-simulator",
                f"expected a contest for a TPU, whose kernels are simulated, got one for {chip.name}, which has no "
                "simulator",
            )
        self._bench, self._folder = replace(bench, on="simulated"), folder
        self._judged: dict[tuple[Candidate, bool], Evidence] = {}

    def evidence(
        self,
        name: str,
        candidate: Candidate,
        *,
        checked: bool = True,
        is_slower: Callable[[Evidence], bool] | None = None,
    ) -> Evidence:
        """The evidence about one candidate, called `name` in progress.

        `Request` describes `checked`, `Listener` describes `is_slower`.
        """
        evidence = self._judged.get((candidate, checked))
        if evidence is None:
            bench = replace(self._bench, checked=checked)
            evidence = bench.judge(candidate, self.work(name, candidate), f"{name}:", is_slower=is_slower)
            self._judged[candidate, checked] = evidence
        return evidence

    def work(self, name: str, candidate: Candidate) -> str:
        """The folder of `profile_data` for the candidate of that name."""
        return f"{self._folder}/{name.replace(' ', '-')}-{candidate.sha256[:8]}"


# --- words and figures for records -----------------------------------------------------------------


def say_all(sentences: Iterable[str], say: Say) -> None:
    """Calls `say` with each sentence."""
    for sentence in sentences:
        say(sentence)


def now() -> str:
    """The present time in UTC, in the format of records."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def why_not(evidence: Evidence, *, timed: bool = True) -> str:
    """The failure in words; without a failure, the reason for a missing latency if `timed`; otherwise ""."""
    if evidence.failure is not None:
        return f"{evidence.failure.kind}: {evidence.failure.message}"
    if not timed or evidence.latency is None or evidence.latency.seconds is not None:
        return ""
    return f"its latency is unknown: {'; '.join(evidence.latency.reasons)}"


def executed_spills(evidence: Evidence) -> int | None:
    """Executed saves of vector registers to VMEM, summed over a suite's members; None if a count is not known."""
    counts = [
        run.executed_spills for _, program in evidence.programs if (run := roofline.finished_run(program)) is not None
    ]
    return sum(counts) if len(counts) == len(evidence.programs) else None
