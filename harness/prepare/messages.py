"""What is asked of the child that runs a prepare.py, and what it answers: records, and bytes for other children."""

from dataclasses import dataclass

from harness.records import Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The prepare.py that lies in this file, by the name that its tracebacks have."""

    source: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedShape:
    """One shape of a problem: what it states, and what it is called beside the others."""

    statement: Statement
    second: Statement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One problem: what it states, and what a judgement asks of it where no arrays are needed.

    `pickled` is the problem itself: it is read by confined children alone. `is_own`: its class stands in prepare.py.
    """

    name: str
    weight: float
    function: str
    statement: Statement
    full: tuple[str, ...]
    small: tuple[str, ...]
    reduced: tuple[StatedShape, ...]
    probes: tuple[str, ...]
    timing: dict[str, dict[str, list[int]]]
    pickled: bytes
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedContest:
    """What prepare.py states; `error` says why it states nothing. `may_lose` is that of a suite, else None."""

    chip: str = ""
    problems: tuple[Answered, ...] = ()
    may_lose: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaints:
    """What each problem does not keep of what every problem must keep, and what is wrong and passes its checks."""

    found: tuple[str, ...]
    weak: tuple[str, ...] = ()
