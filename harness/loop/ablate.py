"""What each change is worth in the champion now: takes them out of it one at a time and judges what is left.

A change that cannot go alone goes with the fewest others that it takes: those that touched the same lines since, or
those without which what is left is right again.
"""

from dataclasses import replace

from harness.advice import report as reporting
from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import RatchetError
from harness.hardware import Chip
from harness.judge.evaluate.request import Progress
from harness.judge.verdict import compare_simulated, members, roofline
from harness.loop.bench import Bench, Texts, executed_spills, why_not
from harness.loop.pieces import Piece, Pieces, companions
from harness.records import Evidence, Policy
from harness.records.ablation import AblatedChange, Ablation, Effect, Tie


def ablate(contest: Contest, pieces: Pieces, progress: Progress) -> Ablation:
    """Takes each of `pieces` out and judges the rest, below `profile_data/ablate/`; nothing is recorded.

    A rest that takes no less time than the champion is checked as a slower attempt is: not at the full shape. Raises
    RatchetError `no-simulator`, `champion-fails`, `busy`.
    """
    bench = Bench(contest=contest, progress=progress)
    texts = Texts(bench, "ablate")
    with bench.held("ablate"):
        work = _Work(texts, contest.chip, pieces)
        pieces, reworded = work.in_the_words_before()
        rows = tuple(work.row(piece) for piece in pieces.asked)
        whole, failure = work.whole()
    return Ablation(
        chip=contest.chip.name,
        source="simulated",
        attempt=pieces.attempt,
        champion=pieces.champion,
        baseline=pieces.baseline,
        champion_seconds=work.seconds,
        champion_spills=executed_spills(work.champion),
        champion_vmem_bytes=_vmem_bytes(work.champion, contest.chip),
        whole_seconds=whole,
        whole_failure=failure,
        reworded=reworded,
        changes=rows,
    )


class _Work:
    def __init__(self, texts: Texts, chip: Chip, pieces: Pieces) -> None:
        self._texts, self._chip, self._pieces = texts, chip, pieces
        # It was accepted: that it passes now is asked at the reduced shapes.
        self.champion = self._texts.evidence("champion", pieces.candidate, is_slower=lambda _: True)
        latency = roofline.latency_seconds(self.champion)
        if self.champion.failure is not None or latency is None:
            raise RatchetError(
                "champion-fails",
                f"expected a champion that passes now, got attempt {pieces.champion}, which does not: "
                f"{why_not(self.champion)}; ./ratchet.sh revoke judges it again",
            )
        self.seconds = latency

    def in_the_words_before(self) -> tuple[Pieces, tuple[int, ...]]:
        """What is taken out of the oldest text of the champion's program, and the attempts that only reworded that.

        Words that were changed everywhere would tie every change to them.
        """
        gone: list[int] = []
        while (last := self._pieces.last_for_itself) is not None:
            before = self._texts.evidence(f"before {last.name}", last.before, checked=False)
            if not _is_same_program(self.champion, before):
                break
            self._pieces = self._pieces.before_last()
            gone.insert(0, last.attempt)
        return self._pieces, tuple(gone)

    def row(self, piece: Piece) -> AblatedChange:
        """What it is worth: alone if it can go alone."""
        row = AblatedChange(name=piece.name, attempt=piece.attempt, title=piece.title, effect="unknown")
        candidate = self._pieces.without((piece,))
        if candidate is not None and self._pieces.is_champion(candidate):
            return replace(row, effect="superseded")
        tie: Tie = ""
        others: tuple[Piece, ...] | None = ()
        if candidate is None:
            tie, others = "lines", companions(piece, self._pieces.after(piece), self._is_clean)
            if others and _is_verdict(apart := self._evidence((piece, *others))):
                more = self._relying_on(piece, others)
                row, others = replace(row, failure=why_not(apart) if more else ""), (*others, *more)
        elif _is_verdict(alone := self._evidence((piece,))):
            tie, others = "dependence", companions(piece, self._pieces.relying(piece), self._is_right)
            row = replace(row, failure=why_not(alone))
        if others is None:
            return replace(row, tie=tie, effect="needed" if row.failure else "unknown")
        taken = (piece, *others)
        evidence = self._evidence(taken)
        row = replace(
            row,
            tie=tie,
            together=tuple(other.name for other in others),
            failure=row.failure or why_not(evidence),
            spills=executed_spills(evidence),
            vmem_bytes=_vmem_bytes(evidence, self._chip),
            scratch=f"profile_data/{self._texts.work(_name(taken), self._candidate(taken))}",
        )
        row = with_worth(row, self.champion, evidence)
        return replace(row, own_seconds=self._own_seconds(row, others))

    def _relying_on(self, piece: Piece, others: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """What has to go with `piece` and the `others` for what is left to be right; nothing where that never is."""
        rest = [one for one in self._pieces.relying(piece) if one not in others]
        return companions(piece, rest, lambda taken: self._is_right((*taken, *others))) or ()

    def _own_seconds(self, row: AblatedChange, others: tuple[Piece, ...]) -> float | None:
        if not others or row.without_seconds is None or not self._is_right(others):
            return None
        without_others = roofline.latency_seconds(self._evidence(others))
        return None if without_others is None else row.without_seconds - without_others

    def whole(self) -> tuple[float | None, str]:
        """The time without any of them, and how that fails; of accepted attempts it is the time of the baseline."""
        if self._pieces.attempt is None:
            evidence = self._texts.evidence("baseline", self._pieces.asked[0].before, checked=False)
        elif not self._is_clean(self._pieces.asked):
            return None, "later changes touched the same lines"
        else:
            evidence = self._evidence(self._pieces.asked)
        return None if evidence.failure else roofline.latency_seconds(evidence), why_not(evidence)

    def _is_clean(self, taken: tuple[Piece, ...]) -> bool:
        return self._pieces.without(taken) is not None

    def _is_right(self, taken: tuple[Piece, ...]) -> bool:
        return self._is_clean(taken) and self._evidence(taken).failure is None

    def _evidence(self, taken: tuple[Piece, ...]) -> Evidence:
        return self._texts.evidence(_name(taken), self._candidate(taken), is_slower=self._is_no_faster)

    def _candidate(self, taken: tuple[Piece, ...]) -> Candidate:
        candidate = self._pieces.without(taken)
        assert candidate is not None, f"{_name(taken)}: nothing was merged"
        return candidate

    def _is_no_faster(self, found: Evidence) -> bool:
        latency = roofline.latency_seconds(found)
        return latency is not None and latency >= self.seconds


def with_worth(row: AblatedChange, champion: Evidence, rest: Evidence) -> AblatedChange:
    """`row` with what the difference between the champion and the `rest` without the change comes to."""
    with_it, without = roofline.latency_seconds(champion), roofline.latency_seconds(rest)
    if _is_verdict(rest):
        return replace(row, effect="needed")
    if rest.failure is not None or with_it is None or without is None:
        return row
    is_same = _is_same_program(champion, rest)
    off = 0.0 if is_same else compare_simulated.uncertainty(champion, rest)
    return replace(
        row,
        effect="none" if is_same else _effect(with_it, without, off),
        without_seconds=without,
        worth_seconds=without - with_it,
        worth_fraction=1 - with_it / without,
        uncertainty_seconds=None if off is None else off * with_it,
    )


def _is_same_program(champion: Evidence, other: Evidence) -> bool:
    """At every member of a suite."""
    if len(champion.programs) != len(other.programs):
        return False
    return all(members.is_same_program(ours, theirs) for (_, ours), (_, theirs) in members.pairs(other, champion))


def _effect(champion_seconds: float, without_seconds: float, uncertainty: float | None) -> Effect:
    """What the decision says of putting it in again, and of taking it out."""
    again = compare_simulated.rule(without_seconds, champion_seconds, uncertainty, Policy()).outcome
    out = compare_simulated.rule(champion_seconds, without_seconds, uncertainty, Policy()).outcome
    if again == "accept":
        return "gain"
    if out == "accept":
        return "loss"
    return "unclear" if "inconclusive" in (again, out) else "none"


def _is_verdict(evidence: Evidence) -> bool:
    return evidence.failure is not None and not evidence.failure.may_pass_next_time


def _name(taken: tuple[Piece, ...]) -> str:
    more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
    return f"without {taken[0].name}{more}"


def _vmem_bytes(evidence: Evidence, chip: Chip) -> int | None:
    """What the call takes that fills its VMEM limit most, of a suite the most of its members; None: not traced."""
    calls = [call for _, one in evidence.programs if (call := reporting.tightest_call(one, chip)) is not None]
    return max((call.vmem_bytes for call in calls), default=None)
