"""Bisects a history for the change that made a contest's kernel slower, spill more, or fail.

Every kernel is judged by the present judge and prepare.py, unless an attempt under the same key has recorded the
metric.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from git import Repo

from harness.advice.comparison import ComparedSide, compare
from harness.candidate import KERNEL, Candidate
from harness.contest import Contest
from harness.errors import RatchetError, UsageError
from harness.judge.evaluate.request import Progress
from harness.judge.verdict import roofline
from harness.ledger import Ledger, git, history
from harness.ledger.diff import unified
from harness.loop.bench import Bench, Texts, executed_spills, why_not
from harness.loop.gate import candidate_at
from harness.records import MAY_PASS_NEXT_TIME, Evidence, Row
from harness.records.bisection import Bisection, JudgedVersion, Metric
from harness.records.comparison import Comparison
from harness.units import percent, seconds

# Kinds of attempts in which the attempt's kernel was evaluated.
_JUDGED = ("baseline", "experiment", "rebaseline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One kernel of a history: its name, its title, its files."""

    name: str
    title: str
    candidate: Candidate


def attempts(ledger: Ledger, first: int, last: int) -> tuple[Version, ...]:
    """The kernels of attempts `first` and `last`, and of those between them that changed this branch's champion.

    Undos and revokes count as changes of the champion. Raises UsageError `usage` if `first` is not before `last`, and
    the errors of reading an attempt.
    """
    if first >= last:
        raise UsageError("usage", f"expected --from before --to, got attempts {first} and {last}")
    titles = {row.number: row.hypothesis for row in history.rows(ledger.place)[0] if _is_of_branch(ledger, row)}
    for number in {first, last} - titles.keys():
        titles[number] = history.attempt(ledger.place, number).hypothesis
    return _distinct(
        [
            Version(name=f"attempt {number}", title=title, candidate=history.candidate(ledger.place, number))
            for number, title in sorted(titles.items())
            if first <= number <= last
        ]
    )


def _is_of_branch(ledger: Ledger, row: Row) -> bool:
    """True for an accepted attempt, unless its commit is known not to be in HEAD's history."""
    if row.outcome != "accept" or row.is_on_branch is False:
        return False
    return row.is_on_branch is None or git.is_ancestor(ledger.place.repository, row.commit, "HEAD")


def commits(ledger: Ledger, first: str, last: str) -> tuple[Version, ...]:
    """The commits from `first` to `last`, along first parents, that contain `first` and changed the candidate.

    Raises UsageError, and RatchetError `nothing-to-find` if `first` or `last` has no candidate.
    """
    repository = ledger.place.repository
    old, new = (_commit(repository, name) for name in (first, last))
    if old == new or not git.is_ancestor(repository, old, new):
        raise UsageError("usage", f"expected --from to be an ancestor of --to, got {first} and {last}")
    after = git.log(repository, [new], hidden=[old], first_parent=True, path=ledger.place.directory)
    # A commit that does not descend from `first` says nothing about changes after `first`.
    containing = bisect_left(after, True, key=lambda commit: not git.is_ancestor(repository, old, commit.id))
    versions = []
    for commit in (*git.log(repository, [old], limit=1), *reversed(after[:containing])):
        candidate = _candidate(ledger, commit.id)
        if candidate is not None:
            versions.append(Version(name=commit.id[:10], title=commit.message.partition("\n")[0], candidate=candidate))
    for option, name, commit_id, place in (("--from", first, old, 0), ("--to", last, new, -1)):
        if _candidate(ledger, commit_id) is None:
            nearest = f"; the nearest commit in the range that has one is {versions[place].name}" if versions else ""
            kernel = "/".join(filter(None, (ledger.place.directory, KERNEL)))
            raise _nothing(f"{option} to have {kernel}, got {name}, which has none that can be judged{nearest}")
    return _distinct(versions)


def _nothing(expected: str) -> RatchetError:
    return RatchetError("nothing-to-find", f"expected {expected}")


def _candidate(ledger: Ledger, commit: str) -> Candidate | None:
    """The candidate of a commit; None if there is none, or if it has a reserved line and cannot be recorded."""
    try:
        return candidate_at(ledger.place.repository, commit, ledger.place.directory)
    except RatchetError as error:
        if error.kind != "reserved-line":
            raise
        return None


def _commit(repository: Repo, name: str) -> str:
    commit = git.commit_of(repository, name)
    if commit is None:
        hint = "; name two attempts, or two commits" if name.isdecimal() else ""
        raise UsageError(
            "unknown-commit", f"expected attempts' numbers or commits, got {name!r}, which is not a commit here{hint}"
        )
    return commit


def _distinct(steps: Sequence[Version]) -> tuple[Version, ...]:
    """The first step, and each step whose candidate differs from the candidate of the step before."""
    return tuple(step for at, step in enumerate(steps) if not at or step.candidate != steps[at - 1].candidate)


class Records:
    """Evidence that attempts recorded under the contest's present key.

    `used` has the names of the versions for which recorded evidence was used.
    """

    def __init__(self, ledger: Ledger, contest: Contest) -> None:
        key = contest.key("simulated")
        self._ledger = ledger
        self._numbers = {
            row.kernel_sha256: row.number
            for row in history.rows(ledger.place)[0]
            if row.key is not None
            and row.key.counts_for(key)
            and row.kind in _JUDGED
            and row.failure_kind not in MAY_PASS_NEXT_TIME
        }
        self.used: list[str] = []

    def evidence(self, name: str, candidate: Candidate, answers: Callable[[Evidence], bool]) -> Evidence | None:
        """The newest evidence about `candidate` if it can be read and `answers` is True for it, else None."""
        number = self._numbers.get(candidate.sha256)
        if number is None:
            return None
        try:
            evidence = history.attempt(self._ledger.place, number).evidence
        except RatchetError:
            return None
        if not answers(evidence):
            return None
        words = name if name == f"attempt {number}" else f"{name} (attempt {number})"
        self.used += [words] if words not in self.used else []
        return evidence


def bisect(
    contest: Contest, steps: Sequence[Version], metric: Metric, threshold: float, progress: Progress, records: Records
) -> Bisection:
    """The range in which `steps` become worse in `metric`: judges both ends, then halves the range between them.

    Evidence in `records` is used instead of judging again. Files go below `profile_data/bisect/`.

    Raises RatchetError `nothing-to-find`, `no-simulator`, `busy`.
    """
    bench = Bench(contest=contest, progress=progress)
    texts = Texts(bench, "bisect")
    if len(steps) < 2:
        raise _nothing(
            f"two kernels or more from --from to --to, got the same text in all ({steps[0].name}): choose --from and "
            "--to so that kernel.py changed between them"
        )
    search = _Search(texts, steps, metric, threshold, records)
    with bench.locked("bisect"):
        search.require_worse(0, len(steps) - 1)
        good, bad = search.ends()
        while left := search.undecided(good, bad):
            search.judge(min(left, key=lambda at: abs(2 * at - good - bad)))
            good, bad = search.ends()
        comparison = search.compared(good, bad)
    return Bisection(
        metric=metric,
        chip=contest.chip.name,
        threshold=threshold,
        kernels=len(steps),
        judged=tuple(search.judged.values()),
        suspects=tuple(step.name for step in steps[good + 1 : bad + 1]),
        comparison=comparison,
    )


class _Search:
    def __init__(
        self, texts: Texts, steps: Sequence[Version], metric: Metric, threshold: float, records: Records
    ) -> None:
        self._texts, self._steps, self._metric, self._threshold = texts, steps, metric, threshold
        self._records = records
        # In the order of judging.
        self.judged: dict[Candidate, JudgedVersion] = {}

    def ends(self) -> tuple[int, int]:
        """The index of the last good text, and of the next bad text after it.

        A bad text that comes before a good text cannot be the cause, because its change was taken back.
        """
        judged = [
            (at, self.judged[step.candidate].is_bad)
            for at, step in enumerate(self._steps)
            if step.candidate in self.judged
        ]
        good = max(at for at, is_bad in judged if is_bad is False)
        return good, min(at for at, is_bad in judged if is_bad and at > good)

    def undecided(self, good: int, bad: int) -> list[int]:
        """The indices of the texts between `good` and `bad` that were not judged."""
        return [at for at in range(good + 1, bad) if self._steps[at].candidate not in self.judged]

    def require_worse(self, good: int, bad: int) -> None:
        first, last = self.judge(good), self.judge(bad)
        if first.failure:
            raise _nothing(f"a kernel without a failure at --from, got {first.name}: {first.failure}; name a later one")
        unknown = f"the metric `{self._metric}` is unknown"
        if (first.seconds if self._metric == "time" else first.spills) is None and self._metric != "correctness":
            raise _nothing(f"a kernel that can be judged at --from, got {first.name}: {unknown}; name a later one")
        if last.is_bad is None:
            why = last.failure or unknown
            raise _nothing(f"a kernel that can be judged at --to, got {last.name}: {why}; name an earlier one")
        if not last.is_bad:
            raise _nothing(
                f"--to to be worse than --from in {self._metric}, but {last.name} is no worse than {first.name}: "
                f"{self._figures_in_words(first, last)}; name other ends, or another --metric or --threshold"
            )

    def judge(self, at: int) -> JudgedVersion:
        """The judged step at index `at`; judges it now unless the same text was judged before."""
        step = self._steps[at]
        if step.candidate in self.judged:
            return self.judged[step.candidate]
        # Correctness is checked only if it is the metric.
        evidence = self._evidence(step, checked=self._metric == "correctness")
        latency, spills = roofline.latency_seconds(evidence), executed_spills(evidence)
        judgment = self.judged[step.candidate] = JudgedVersion(
            name=step.name,
            title=step.title,
            seconds=latency,
            spills=spills,
            failure=why_not(evidence, timed=self._metric != "correctness"),
            is_bad=self._is_bad(evidence, latency, spills) if at else False,
        )
        return judgment

    def _evidence(self, step: Version, *, checked: bool) -> Evidence:
        recorded = self._records.evidence(
            step.name, step.candidate, partial(_answers, self._metric, with_lines=checked)
        )
        if recorded is not None:
            return recorded
        is_slower = None if self._metric == "correctness" else lambda _: True
        return self._texts.evidence(step.name, step.candidate, checked=checked, is_slower=is_slower)

    def _is_bad(self, evidence: Evidence, latency: float | None, spills: int | None) -> bool | None:
        if evidence.failure is not None:
            # A kernel that does not compile has no time, which does not count as a slowdown.
            is_verdict = self._metric == "correctness" and not evidence.failure.may_pass_next_time
            return True if is_verdict else None
        first = self.judged[self._steps[0].candidate]
        if self._metric == "correctness":
            return False
        old, new = (first.seconds, latency) if self._metric == "time" else (first.spills, spills)
        return None if old is None or new is None else new > old * (1 + self._threshold)

    def _figures_in_words(self, first: JudgedVersion, last: JudgedVersion) -> str:
        if self._metric == "correctness":
            return "it passes"
        if self._metric == "time":
            return f"{_time(first)} -> {_time(last)}, at most {percent(self._threshold)} more"
        return f"{first.spills} -> {last.spills} executed spills"

    def compared(self, good: int, bad: int) -> Comparison | None:
        """The comparison of the last good kernel with the first bad one; None if undecided kernels lie between."""
        if bad - good > 1:
            return None
        # Cycles by line need a checked judgement.
        before, after = (
            ComparedSide(
                name=f"{step.name} ({step.title})",
                candidate=step.candidate,
                evidence=self._evidence(step, checked=True),
            )
            for step in (self._steps[good], self._steps[bad])
        )
        return compare(before, after, unified(before.candidate.text, after.candidate.text))


def _answers(metric: Metric, evidence: Evidence, *, with_lines: bool) -> bool:
    """True if recorded evidence has a failure or all that `metric` needs: every check (correctness), or its figure.

    With `with_lines`, a figure counts only together with the cycles by line.
    """
    if metric == "correctness":
        return evidence.failure is not None or not evidence.unchecked
    if evidence.failure is not None:
        return True
    figure = roofline.latency_seconds(evidence) if metric == "time" else executed_spills(evidence)
    runs = [roofline.finished_run(program) for _, program in evidence.programs]
    return figure is not None and (not with_lines or all(run and run.breakdown for run in runs))


def _time(judgment: JudgedVersion) -> str:
    return "unknown" if judgment.seconds is None else seconds(judgment.seconds)
