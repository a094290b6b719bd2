"""The state of an evaluation, which each answer of a process replaces; the order of the steps; the type of a stage."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from harness.judge.evaluate.compile.seen_programs import Seen
from harness.judge.evaluate.messages import ShapesReply, TraceReply
from harness.judge.evaluate.request import Plan
from harness.judge.evaluate.tasks import ChildName
from harness.records import Check, Evidence, Failure, Offence, Policy
from harness.records import Stage as FailureStage

# The product that a stage waits for. If a device times the kernel, `device` exists once all other stages are done.
Need = Literal[
    "kernel",
    "trace",
    "shapes",
    "chip program",
    "schedule",
    "full program",
    "reduced program",
    "outputs",
    "full outputs",
    "unchecked program",
    "checked schedule",
    "device",
]

# The rank of a finding: of several findings, the one with the lowest rank counts. A stage's rank is its step and its
# place within the step. A request's rank is its stage's rank, followed by the request's number within the stage. All
# consequences of a request have a higher rank than the request.
Rank = tuple[int, ...]
# The steps, in the order in which their findings count.
TRACE, REDUCED, COMPILE, SIMULATE, COMPARE, FULL, DEVICE = range(7)

_ORDER: tuple[FailureStage, ...] = get_args(FailureStage)


@dataclass(frozen=True, slots=True)
class Product:
    """A result of a stage; `value` is passed to the stages that need it."""

    need: Need
    value: Any


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A request whose answer is already known, so it needs no process."""

    request: Any
    reply: Any


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """The reply of a process to a request, and the rank of its consequences."""

    request: Any
    reply: Any
    rank: Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The findings about one candidate so far.

    `checks` and `failures` have the rank of their request. `program_keys` are the keys of the exported program. `seen`
    has the results of an earlier evaluation of the same program. `offences` are the offences in the program compiled
    with the checks that its options leave out. `is_slower`: the candidate is too slow to be checked at the full shape.
    """

    evidence: Evidence
    trace: TraceReply | None = None
    shapes: ShapesReply | None = None
    program_keys: tuple[str, ...] = ()
    seen: Seen | None = None
    checks: tuple[tuple[Rank, Check], ...] = ()
    failures: tuple[tuple[Rank, Failure], ...] = ()
    offences: tuple[Offence, ...] = ()
    is_slower: bool = False

    def adding(self, **fields: Any) -> "State":
        """The same state with these fields of the evidence."""
        return replace(self, evidence=replace(self.evidence, **fields))

    def warning(self, *sentences: str) -> "State":
        """The same state with these warnings appended."""
        return self.adding(warnings=(*self.evidence.warnings, *sentences))

    def checked(self, rank: Rank, checks: Iterable[Check]) -> "State":
        """The same state with these checks. They count if no finding of a lower rank ends the evaluation."""
        return replace(self, checks=(*self.checks, *((rank, check) for check in checks)))

    def failing(self, rank: Rank, *failures: Failure) -> "State":
        """The same state with these failures; the failure of the lowest rank counts."""
        return replace(self, failures=(*self.failures, *((rank, failure) for failure in failures)))

    @property
    def last(self) -> Rank | None:
        """The lowest rank so far that ends the evaluation; None if no finding ends it.

        This is the rank of a failure, or COMPARE if the candidate is too slow.
        """
        ends = [rank for rank, _ in self.failures]
        return min([*ends, (COMPARE,)] if self.is_slower else ends, default=None)

    def ended(self, left_behind: Iterable[Failure], left_out: Callable[[], tuple[str, ...]]) -> Evidence:
        """The evidence, after all requests.

        `left_behind` are the failures for processes that kernel.py left behind. `left_out` returns the names of the
        checks that are not run on a candidate that is too slow.
        """
        last = self.last
        last_failures = [failure for rank, failure in self.failures if rank == last]
        first = min((*last_failures[:1], *left_behind), key=lambda failure: _ORDER.index(failure.stage), default=None)
        ranked = sorted(self.checks, key=lambda ranked_check: ranked_check[0])
        return replace(
            self.evidence,
            failure=first,
            checks=tuple(check for rank, check in ranked if last is None or rank <= last),
            unchecked=left_out() if last == (COMPARE,) and first is None else (),
        )


# The consequences of an answer: the new state, and the new products for other stages.
Taken = tuple[State, tuple[Product, ...]]


def _fail(plan: Plan, state: State, answer: StageAnswer) -> State:
    return state.failing(answer.rank, answer.reply)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of an evaluation, a row of `stages.STAGES`.

    `requests` makes the requests to the process `child`; `take` adds each answer to the state. The stage begins once
    the product `needs` exists. `name` is shown to people; several rows may have the same name. `rank` is the row's
    place in the order in which failures count. If an answer is a Failure, `failing` is its stage, and `fail` returns
    the new state. `seconds` is the time limit of each request.
    """

    name: str
    rank: Rank
    needs: Need
    child: ChildName
    failing: FailureStage
    requests: Callable[[Plan, State, Any], Iterable[Any]]
    take: Callable[[Plan, State, StageAnswer], Taken]
    seconds: Callable[[Policy], float]
    fail: Callable[[Plan, State, StageAnswer], State] = _fail
