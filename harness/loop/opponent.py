"""The champion that a candidate is compared with: its evidence, its record, its drift, and what to do if it fails."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import RatchetError
from harness.judge.key import key_difference, key_digest, problem_digest
from harness.judge.verdict.champion_evidence import known_evidence
from harness.ledger import Ledger, history
from harness.ledger import notes as note_files
from harness.ledger.notes import outcome_of_checks
from harness.loop import draw_text, guard
from harness.loop.bench import CHAMPION, Bench, Say, say_all, why_not
from harness.loop.options import Options
from harness.records import MAY_PASS_NEXT_TIME, Attempt, Champion, Evidence, Key, Policy, Report, Row
from harness.units import percent, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The constant parts of an attempt.

    Its files are in the folder `folder` of profile_data; if that is "", in a folder named after the attempt's number.
    """

    ledger: Ledger
    bench: Bench
    options: Options
    say: Say
    number: int
    key: Key
    rows: tuple[Row, ...]
    folder: str = ""

    @property
    def contest(self) -> Contest:
        return self.bench.contest

    @property
    def policy(self) -> Policy:
        return self.bench.policy

    @property
    def work(self) -> str:
        """The folder of `profile_data` for the candidate."""
        return self.folder or f"{self.number:04d}"

    @property
    def champions_work(self) -> str:
        """The folder of `profile_data` for a champion that is evaluated within the attempt."""
        return f"{self.work}-champion"

    @property
    def digest(self) -> str:
        return key_digest(self.key)

    def put_right(self, watch: guard.Watch) -> guard.Tampering:
        """Undoes forbidden changes since the watch began, and returns sentences on all changes."""
        return guard.end(self.ledger, watch, self.work, is_confined=self.policy.is_confined)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opponent:
    """The champion that a candidate is compared with. `fresh`: True if it was evaluated inside this attempt."""

    attempt: Attempt
    candidate: Candidate
    evidence: Evidence
    fresh: bool


def opponent(run: Run, champion: Attempt, candidate: Candidate) -> Opponent:
    """The champion with evidence under this attempt's keys: recorded evidence or, without it, a new evaluation.

    A new evaluation runs all checks. Raises RatchetError `champion-fails` if the champion fails one.
    """
    evidence_kept = recorded_evidence(run.ledger, champion, run.key, run.rows, run.say)
    if evidence_kept:
        return Opponent(attempt=champion, candidate=candidate, evidence=evidence_kept, fresh=False)
    differs = key_difference(champion.key, run.key)
    if run.key.source == "simulated":
        run.say(f"the champion (attempt {champion.number}) is evaluated again first, under {differs}")
    evidence = replace(run.bench, timed=False).judge(candidate, run.champions_work, CHAMPION)
    if evidence.failure:
        raise RatchetError(
            "champion-fails",
            f"the champion (attempt {champion.number}) itself fails under {differs}: {why_not(evidence)}. There is "
            f"nothing to compare with and nothing was recorded. {_what_to_do(evidence)}; --rebaseline makes kernel.py "
            "the champion if it passes",
        )
    return Opponent(attempt=champion, candidate=candidate, evidence=evidence, fresh=True)


def recorded_evidence(
    ledger: Ledger, champion: Attempt, key: Key, rows: Sequence[Row], say: Say = lambda _: None
) -> Evidence | None:
    """The recorded evidence about the champion under `key`; None if the champion must be evaluated again."""
    notes, skipped = note_files.read(ledger.place)
    say_all(skipped, say)
    passes = outcome_of_checks(notes, champion.number, champion.kernel_sha256, key)
    if passes is False:
        return None
    commit, since = ledger.champion_commit() or "", _since(ledger, champion, key, rows)
    return known_evidence(champion, commit, key, since, is_checked=passes is True)


def _since(ledger: Ledger, champion: Attempt, key: Key, rows: Sequence[Row]) -> Iterator[tuple[Row, Attempt]]:
    """The attempts after the champion's, if they have the timing key of `key`; each with its row."""
    for row in rows:
        if row.number > champion.number and row.key_digest == key_digest(key):
            # Unreadable records were named when the rows were read.
            with suppress(RatchetError):
                yield row, history.attempt(ledger.place, row.number)


def champion_remedy(champion: Attempt, evidence: Evidence, put_back: str = "") -> tuple[str, ...]:
    """A sentence that the champion fails according to `evidence`, with the remedy; () if it passes.

    `put_back` has the commands that put the judge's files back; "" if none differs from HEAD.
    """
    if evidence.failure is None:
        return ()
    sentence = f"the champion (attempt {champion.number}) fails: {why_not(evidence)}".rstrip(".")
    cause = f"The judge differs from HEAD, so the cause may be there: {put_back} undoes the change" if put_back else ""
    return (f"{sentence}. {cause or _what_to_do(evidence)}",)


def _what_to_do(evidence: Evidence) -> str:
    """The remedy for a champion that fails: `revoke` with the failing inputs, or, for a busy machine, another run."""
    if evidence.failure is not None and evidence.failure.kind in MAY_PASS_NEXT_TIME:
        return "The cause may be this machine and not the kernel: run again when the machine is idle"
    return (
        f"./ratchet.sh revoke{draw_text.options(draw_text.failing(evidence))} judges the champion again and, if it "
        "fails, gives its title to the latest accepted attempt that passes"
    )


def champion_record(ledger: Ledger, champion: Attempt, report: Report | None = None) -> Champion:
    """The champion in an attempt's record, with the score and time of `report` if the attempt was compared with it."""
    return Champion(
        attempt=champion.number,
        commit=ledger.champion_commit() or "",
        score=report.score if report else None,
        seconds=report.seconds if report else None,
    )


def time_ratio(attempt: Attempt, before: float | None, key: Key, after: float | None) -> float | None:
    """`after` / `before` (the time of `attempt`); None if one is unknown or `key` differs in problem, chip, source."""
    timed = (problem_digest(attempt.evidence.problem), attempt.key.chip, attempt.key.source)
    return after / before if timed == (key.problem, key.chip, key.source) and after and before else None


def drift_since(champion: Attempt, key: Key, seconds_now: float | None) -> tuple[float | None, str]:
    """The `time_ratio` of a champion judged again, and its drift in words ("" if there is no ratio)."""
    then = champion.evidence.latency.seconds if champion.evidence.latency else None
    ratio = time_ratio(champion, then, key, seconds_now)
    if ratio is None or then is None or seconds_now is None:
        return None, ""
    return ratio, f": {seconds(seconds_now)} against {seconds(then)} then, drift {percent(ratio - 1, 2)}"
