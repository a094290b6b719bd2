"""Requests to the child that runs a prepare.py, and its answers: records, and bytes for other children."""

from dataclasses import dataclass

from harness.records import Statement

# The most bytes of all timing inputs of a contest together.
MOST_TIMING_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A file with the text of a prepare.py, and the name that its tracebacks show."""

    source: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedShape:
    """The statement of a small shape, and that of its second shape, if any."""

    statement: Statement
    second: Statement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One problem: its statement, and its answers to those questions of a judgement that need no arrays.

    `timing` has the bytes of each table of the timing inputs, in the table's dtype. `pickled` is the problem itself,
    which only confined children unpickle. `is_own`: the problem's class is defined in prepare.py. `has_space`: the
    problem has recipes of inputs, among which `attack` searches.
    """

    name: str
    weight: float
    function: str
    statement: Statement
    full: tuple[str, ...]
    small: tuple[str, ...]
    reduced: tuple[StatedShape, ...]
    probes: tuple[str, ...]
    timing: dict[str, dict[str, bytes]]
    pickled: bytes
    is_own: bool
    has_space: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedContest:
    """The contents of a prepare.py; `error` says why it states no contest. `may_lose`: None except for a suite."""

    chip: str = ""
    problems: tuple[Answered, ...] = ()
    may_lose: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaints:
    """The rules that the problems break, and the wrong answers that pass their checks."""

    broken: tuple[str, ...]
    weak: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRecipe:
    """The request for a recipe of inputs of the member `name`, drawn with `seed`.

    `start` is the family to draw from, a recipe to change, or "" for any recipe.
    """

    asked: Asked
    name: str
    start: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRecipe:
    """A recipe as the name of a family, and its notable properties in words."""

    text: str
    words: str
