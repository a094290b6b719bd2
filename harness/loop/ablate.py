"""Measures the worth of each change in the champion: takes out one change at a time and judges the remaining text.

If a change cannot be taken out alone, as few other changes as possible are taken out with it: later changes of the same
lines, or changes that do not work without it.
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
    """The worth of each requested change of `pieces`: judges the champion's text without that change.

    Nothing is recorded; files go below `profile_data/ablate/`. As in an attempt, a text that is no faster than the
    champion is not checked at the full shape. Raises RatchetError `no-simulator`, `champion-fails`, `busy`.
    """
    bench = Bench(contest=contest, progress=progress)
    texts = Texts(bench, "ablate")
    with bench.locked("ablate"):
        work = _Work(texts, contest.chip, pieces)
        pieces, reworded = work.skip_rewordings()
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
        # The champion was accepted, so its checks at the reduced shapes suffice to show that it still passes.
        self.champion = self._texts.evidence("champion", pieces.candidate, is_slower=lambda _: True)
        latency = roofline.latency_seconds(self.champion)
        if self.champion.failure is not None or latency is None:
            raise RatchetError(
                "champion-fails",
                f"expected a champion that passes its checks and has a latency, got attempt {pieces.champion}: "
                f"{why_not(self.champion)}; ./ratchet.sh revoke judges it again",
            )
        self.seconds = latency

    def skip_rewordings(self) -> tuple[Pieces, tuple[int, ...]]:
        """The changes without the rewordings at their end, and the attempts that made these rewordings.

        A rewording changes the text but not the traced program. Changes are taken out of the text from before these
        rewordings, because a change whose lines were reworded later could not be taken out alone.
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
        """The row of one change, with its worth.

        If the change cannot be taken out alone, the row has its worth together with the changes tied to it.
        """
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
        pieces = (piece, *others)
        evidence = self._evidence(pieces)
        row = replace(
            row,
            tie=tie,
            together=tuple(other.name for other in others),
            failure=row.failure or why_not(evidence),
            spills=executed_spills(evidence),
            vmem_bytes=_vmem_bytes(evidence, self._chip),
            scratch=f"profile_data/{self._texts.work(_name(pieces), self._candidate(pieces))}",
        )
        row = with_worth(row, self.champion, evidence)
        return replace(row, own_seconds=self._own_seconds(row, others))

    def _relying_on(self, piece: Piece, others: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """The changes to remove with `piece` and `others` so that the rest passes; () if there are none."""
        rest = [other for other in self._pieces.relying(piece) if other not in others]
        return companions(piece, rest, lambda pieces: self._is_right((*pieces, *others))) or ()

    def _own_seconds(self, row: AblatedChange, others: tuple[Piece, ...]) -> float | None:
        if not others or row.without_seconds is None or not self._is_right(others):
            return None
        without_others = roofline.latency_seconds(self._evidence(others))
        return None if without_others is None else row.without_seconds - without_others

    def whole(self) -> tuple[float | None, str]:
        """The time in seconds with every requested change taken out, and ""; or None, and why there is no time.

        If whole attempts are requested, this is the baseline's time.
        """
        if self._pieces.attempt is None:
            evidence = self._texts.evidence("baseline", self._pieces.asked[0].before, checked=False)
        elif not self._is_clean(self._pieces.asked):
            return None, "later changes touched the same lines"
        else:
            evidence = self._evidence(self._pieces.asked)
        return None if evidence.failure else roofline.latency_seconds(evidence), why_not(evidence)

    def _is_clean(self, pieces: tuple[Piece, ...]) -> bool:
        return self._pieces.without(pieces) is not None

    def _is_right(self, pieces: tuple[Piece, ...]) -> bool:
        return self._is_clean(pieces) and self._evidence(pieces).failure is None

    def _evidence(self, pieces: tuple[Piece, ...]) -> Evidence:
        return self._texts.evidence(_name(pieces), self._candidate(pieces), is_slower=self._is_no_faster)

    def _candidate(self, pieces: tuple[Piece, ...]) -> Candidate:
        candidate = self._pieces.without(pieces)
        assert candidate is not None, f"{_name(pieces)}: nothing was merged"
        return candidate

    def _is_no_faster(self, evidence: Evidence) -> bool:
        latency = roofline.latency_seconds(evidence)
        return latency is not None and latency >= self.seconds


def with_worth(row: AblatedChange, champion: Evidence, rest: Evidence) -> AblatedChange:
    """`row` with the worth of its change: the time of `rest` (the text without the change) minus the champion's."""
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
    """True if both trace to the same program, at every member of a suite."""
    if len(champion.programs) != len(other.programs):
        return False
    return all(members.is_same_program(ours, theirs) for (_, ours), (_, theirs) in members.pairs(other, champion))


def _effect(champion_seconds: float, without_seconds: float, uncertainty: float | None) -> Effect:
    """The effect of the change, from two verdicts: on adding it again, and on taking it out."""
    again = compare_simulated.rule(without_seconds, champion_seconds, uncertainty, Policy()).outcome
    out = compare_simulated.rule(champion_seconds, without_seconds, uncertainty, Policy()).outcome
    if again == "accept":
        return "gain"
    if out == "accept":
        return "loss"
    return "unclear" if "inconclusive" in (again, out) else "none"


def _is_verdict(evidence: Evidence) -> bool:
    return evidence.failure is not None and not evidence.failure.may_pass_next_time


def _name(pieces: tuple[Piece, ...]) -> str:
    more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    return f"without {pieces[0].name}{more}"


def _vmem_bytes(evidence: Evidence, chip: Chip) -> int | None:
    """VMEM of the Pallas call nearest to its VMEM limit; the largest over a suite's members. None if not traced."""
    calls = [call for _, program in evidence.programs if (call := reporting.tightest_call(program, chip)) is not None]
    return max((call.vmem_bytes for call in calls), default=None)
