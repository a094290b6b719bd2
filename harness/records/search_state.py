"""The state that a program needs to choose the next attempt: champion, floor, past attempts, whether to go on."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source
from harness.records.note import TakenBack
from harness.records.report import Hint
from harness.records.verdict import Outcome

Setting = tuple[str, str]
# The kinds of change; advice/kernel_changes.py defines and distinguishes them.
ChangeKind = Literal["constants", "grid", "scratch", "dtype", "mask", "compiler", "body", "claims", "unreadable"]
Advised = Literal["baseline", "go on", "change the kind of idea", "stop"]
Why = Literal["no champion", "room left", "floor reached", "plateau", "same kinds", "no latency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchChampion:
    """The champion at its newest attempt; `seconds` is its latency on `chip`, by `source`.

    `won_by` is the attempt that won the title with this program, and `hypothesis` is the hypothesis of that attempt;
    later attempts only checked the program again. `is_present_key`: the time was taken under the present timing key.
    """

    attempt: int
    won_by: int
    hypothesis: str
    source: Source
    chip: str
    seconds: float | None
    plus_minus_seconds: float | None
    score: float | None
    is_present_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A lower bound on the chip's time (`seconds`): the largest of two or three times.

    `compute_seconds` is the time of the useful FLOPs at peak, `memory_seconds` the time to move each array once at full
    bandwidth. For several chips, `link_seconds` is the time in which all links of a chip carry the bytes from other
    chips; None for one chip. `gap_seconds` is the champion's time minus `seconds`, and `gap_fraction` this gap as a
    share of the champion's time: the most that any change can still save. Both are None if no latency on this chip is
    known.
    """

    compute_seconds: float
    memory_seconds: float
    seconds: float
    bound_by: Literal["compute", "memory", "links"]
    gap_seconds: float | None
    gap_fraction: float | None
    link_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempt:
    """One attempt: the kinds of change it made, the constants of its kernel.py, and its outcome.

    `kinds` and `constants` are None if its kernel.py is not known here. `time_ratio` is new/old against the champion at
    the attempt's time. `taken_back`: the attempt was accepted, and undone or revoked later.
    """

    attempt: int
    hypothesis: str
    kinds: tuple[ChangeKind, ...] | None
    constants: tuple[Setting, ...] | None
    outcome: Outcome
    failure_kind: str
    time_ratio: float | None
    expected_time_ratio: float | None
    seconds: float | None
    source: Source
    chip: str
    taken_back: TakenBack | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTried:
    """All attempts of one kind of change: their numbers, the count of valid wins, the least time ratio."""

    kind: ChangeKind
    attempts: tuple[int, ...]
    accepted: int
    best_time_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An attempt that was refused because its program or schedule is known, with the error's kind and message.

    `champion` held the title at that time; the refused kernel changed `lines` of its files (`kernel.py:18`).
    """

    champion: int
    hypothesis: str
    kind: str
    message: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant of kernel.py that `--set` can change: its present value, and those that attempts and sweeps tried."""

    name: str
    value: str
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice to go on or to stop: `do` and `why` are stable words for programs, `sentence` is the advice for people."""

    do: Advised
    why: Why
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """The state of the search. `tried` ends with the newest attempt; `hints` are the champion's, most promising first.

    Rebaselines, undos and revokes are not counted as attempts, as in the last line of `results`. A win is an accepted
    attempt that was neither undone nor revoked. `untried_kinds` are the kinds of change that are not in `kinds`;
    `refused` are the attempts against this champion that were refused in this working tree.
    """

    contest: str
    problem: str
    champion: SearchChampion | None
    floor: Floor
    attempts: int
    attempts_since_win: int
    advice: Advice
    hints: tuple[Hint, ...]
    kinds: tuple[KindTried, ...]
    constants: tuple[Constant, ...]
    tried: tuple[PastAttempt, ...]
    messages: tuple[str, ...] = ()
    untried_kinds: tuple[ChangeKind, ...] = ()
    refused: tuple[Refusal, ...] = ()
