"""The state that a program needs to decide what to try next: champion, floor, what was tried, and whether to go on."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source
from harness.records.note import TakenBack
from harness.records.report import Hint
from harness.records.verdict import Outcome

Setting = tuple[str, str]
Advised = Literal["baseline", "go on", "change the kind of idea", "stop"]
Why = Literal["no champion", "room left", "floor reached", "plateau", "same kinds", "no latency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The champion: its newest attempt, with the latency in seconds, from `source` for `chip`.

    `won_by` is the attempt that won the title with this program, and `hypothesis` what that attempt tried; attempts
    after it have only checked it again.
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
    """What the chip could do at best: useful FLOPs at peak, each array moved once at full bandwidth.

    `seconds` is the larger of the two. `gap_seconds` is the champion's time above it, `gap_fraction`
    that as a share of the champion's time: all that any change can still save. None: no latency of this
    chip is known.
    """

    compute_seconds: float
    memory_seconds: float
    seconds: float
    bound_by: Literal["compute", "memory"]
    gap_seconds: float | None
    gap_fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One attempt: what kinds of change it was, the constants of its kernel.py, and what it came to.

    `kinds` and `constants` are None where its kernel.py is not known here. `time_ratio` is
    new/old against the champion of its time. `taken_back` says of an accepted one that it was undone or revoked later.
    """

    attempt: int
    hypothesis: str
    kinds: tuple[str, ...] | None
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
    """All attempts of one kind of change: how many, how many won for good, and the least time ratio among them."""

    kind: str
    attempts: tuple[int, ...]
    accepted: int
    best_time_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant of kernel.py that `--set` can change: its present value, and the values it had in attempts."""

    name: str
    value: str
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Whether to go on: `do` and `why` are stable words for programs, `sentence` says them to people."""

    do: Advised
    why: Why
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """Where the search stands. `tried` is newest last; `hints` are the champion's, the most promising first.

    Attempts are neither rebaselines nor undos and revokes, as in the table's last line. A win is an accepted attempt
    that nobody took back.
    """

    contest: str
    problem: str
    champion: Standing | None
    floor: Floor
    attempts: int
    attempts_since_win: int
    advice: Advice
    hints: tuple[Hint, ...]
    kinds: tuple[KindTried, ...]
    constants: tuple[Constant, ...]
    tried: tuple[Tried, ...]
    messages: tuple[str, ...] = ()
