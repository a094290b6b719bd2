"""The records that `doctor` produces: settings as read, the libraries' answers to them, and the run of a program."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

# The severities of findings, worst first: the process ends; two settings exclude each other; a setting has no effect;
# something is missing; times or dumps are distorted.
Severity: TypeAlias = Literal["ends the process", "contradiction", "no effect", "missing", "harmful"]
Phase: TypeAlias = Literal["import", "first call", "second call", "run"]
State: TypeAlias = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A flag in a variable of flags (`variable` XLA_FLAGS, `name` xla_dump_to), or a variable that is itself a setting.

    - `value`: None if the setting was written without a value.
    - `word`: the setting as it was written.
    - `place`: where it was written, in words.
    - `is_certain`: False inside a condition, where the setting is perhaps never made.
    - `is_final`: False if a later assignment overrides it.
    - `too_late`: the code that reads the variable before it is set, "" if none is known.
    - `unreached`: the reason why the setting does not reach the library that reads the variable, or "".
    - `scope`: the number of the only command, container or process that gets the variable; 0 if all later ones get it.
    """

    variable: str
    name: str
    value: str | None
    word: str
    place: str
    is_certain: bool = True
    is_final: bool = True
    too_late: str = ""
    unreached: str = ""
    scope: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one subject in order; `not_understood` has a sentence for each line that was not read."""

    subject: str
    settings: tuple[Setting, ...]
    not_understood: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """One library's answer to flags: unknown flags with the library's suggestions, and values that it refuses.

    `library` is its name and version; None if it is not installed or did not answer, for the reason in `why_not`.
    `similar` maps unknown names to known ones.
    """

    library: str | None
    why_not: str = ""
    unknown: Mapping[str, str]
    refused: Mapping[str, str]
    similar: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The installed libraries' answers: jaxlib's to XLA_FLAGS, libtpu's to LIBTPU_INIT_ARGS, JAX's variables.

    `elsewhere` are flags that are set in the variable of one library but that only the other library knows.
    """

    jaxlib: Answers
    libtpu: Answers
    jax_variables: frozenset[str]
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One compilation: the function, its caller, the phase, the time, and the arguments that were new."""

    name: str
    place: str
    phase: Phase
    seconds: float
    cause: str
    # The arguments that differ from the nearest call before; empty for a first compilation.
    arguments: tuple[str, ...] = ()
    is_redefinition: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """Transfers of one direction in one phase; for `unsized` of them JAX does not give the size."""

    direction: str
    phase: Phase
    count: int
    num_bytes: int
    unsized: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Matrix products of one kind in the compiled modules: operand and result types, precision, count.

    Each is `batch` products of [rows, summed] x [summed, columns]; a size is 0 if the text does not give it. `part` is
    the pass of a training step that they belong to, "" if not known. `weights` is the side of the operand that is
    a weight, `weights_stored` the type in which the program gets this weight; both are "" if no operand is a weight.
    """

    module: str
    left: str
    right: str
    result: str
    precision: str
    count: int
    batch: int = 0
    rows: int = 0
    summed: int = 0
    columns: int = 0
    part: Literal["forward", "backward", ""] = ""
    weights: Literal["left", "right", ""] = ""
    weights_stored: str = ""

    @property
    def flops(self) -> float:
        """FLOPs of all `count` products."""
        return 2.0 * self.count * self.batch * self.rows * self.summed * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """A compiled module: convolutions by their order of dimensions, logarithms and exponentials by type."""

    module: str
    convolutions: Mapping[str, int]
    transcendentals: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """A jitted function or operation that the host dispatched in the second call: how often, and how long."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """One run of a user's program: either imported, with its function called twice, or run once as a main program.

    `seconds` are host wall clock, by phase. `configuration` holds JAX's settings after the run, by name. `unread` has a
    sentence for each thing that could not be counted. `dispatched` and `own_seconds` are of the second call, which is
    profiled. `own_seconds` is the part of that call in which no operation ran or was dispatched (None: not known).
    """

    platform: str
    device_kind: str
    devices: int
    seconds: Mapping[Phase, float]
    lowering_seconds: float
    compilations: tuple[Compilation, ...]
    transfers: tuple[Transfers, ...]
    dots: tuple[Dots, ...]
    configuration: Mapping[str, str]
    unread: tuple[str, ...] = ()
    modules: tuple[ModuleFacts, ...] = ()
    dispatched: tuple[Dispatched, ...] = ()
    own_seconds: float | None = None

    @property
    def total_seconds(self) -> float:
        """The seconds of all phases together."""
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One fact about the machine: its name, its value, its state, and the remedy."""

    what: str
    value: str
    state: State = "ok"
    remedy: str = ""
