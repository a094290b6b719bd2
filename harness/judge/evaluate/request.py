"""The request for an evaluation, its plan for each member of a suite, and the listener of its stages."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.candidate import Candidate
from harness.dumps.timing_tables import Assumption
from harness.hardware import Chip, with_mesh
from harness.judge.evaluate.compile.seen_programs import SeenPrograms
from harness.operators import Member, Problem, Suite
from harness.records import Draw, Evidence, Policy, Simulation, Source, Trace
from harness.sandbox import environment
from harness.sandbox.dialogue import Progress as Progress

Simulate = Callable[..., Simulation]


def named(name: str, progress: Progress) -> Progress:
    """A `progress` that puts this name before each stage."""
    return lambda stage, state, seconds: progress(f"{name} {stage}", state, seconds)


def silent(stage: str, state: str, seconds: float) -> None:
    """Ignores the progress of a stage."""


def any_trace(trace: Trace) -> None:
    """Continues after any trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request for one evaluation.

    - `directory`: the contest's folder. `work`: the folder for programs, dumps and texts.
    - `simulate(dump_directory, chip, deadline_seconds=...)`: a function at the top level of a module.
    - `on`: the source of the latency (None: a device with the chip, if there is one, otherwise the simulator).
    - `timed`: if False, the kernel is not timed on a device, because a paired benchmark will time it.
    - `checked`: if False, no output is compared with a reference, so the evidence can support no verdict. In this case
      the contest's kernel.hlo.txt is not replaced, and the cost of each source line is computed only if `with_lines`.
    - `draws`: earlier draws, which are repeated in addition to fresh draws if a program of their shape exists.
    - `programs`: a cache. A program in the cache is not compiled or simulated again; a new program is added. Without a
      cache, or if children cannot be confined, each program is compiled and simulated.
    - `stubs`: the modules that the contest replaces by stand-ins.
    - `assumption`: the contest's statement on branches that depend on unknown values.
    """

    directory: Path
    candidate: Candidate
    problem: Problem | Suite
    chip: Chip
    work: Path
    simulate: Simulate
    policy: Policy = field(default_factory=Policy)
    on: str | None = None
    deep: bool = False
    timed: bool = True
    checked: bool = True
    with_lines: bool = False
    draws: tuple[Draw, ...] = ()
    programs: SeenPrograms | None = None
    stubs: tuple[str, ...] = ()
    assumption: Assumption | None = None

    @property
    def profile_data(self) -> Path:
        """The folder of the contest's captures and dumps."""
        return self.directory / "profile_data"

    @property
    def has_lines(self) -> bool:
        """True if the schedule and its simulation attribute the cost to source lines."""
        return self.checked or self.with_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The callbacks of a running evaluation.

    `progress` is called for each stage, and `after_trace` with the trace. If `after_trace` raises, the evaluation ends.
    If `is_slower` returns True for evidence with a simulated latency, the full shape is not checked. The evidence then
    names the omitted checks (`unchecked`). For a suite, `after_trace` and `is_slower` are called for the whole suite.
    """

    progress: Progress = silent
    after_trace: Callable[[Trace], None] = any_trace
    is_slower: Callable[[Evidence], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A request for one problem (the contest's problem, or a member of its suite), and the paths of its files.

    `source` is the source of the latency, which follows from `request.on` and the machine. `others` are the other
    members of the suite.
    """

    request: Request
    member: Member
    source: Source
    work: Path
    others: tuple[Member, ...] = ()

    @property
    def problem(self) -> Problem:
        """The problem that is computed."""
        return self.member.problem

    @property
    def chip(self) -> Chip:
        """The chip that the candidate is judged for, with the mesh of the problem."""
        return with_mesh(self.request.chip, self.problem.statement().mesh)

    @property
    def policy(self) -> Policy:
        """The limits of each stage."""
        return self.request.policy

    @property
    def scratch(self) -> Path:
        """The folder that is deleted when the evaluation ends."""
        return self.work / "scratch"

    @property
    def dumps(self) -> Path:
        """The folder of the compiler's schedules."""
        return self.work / "dumps"

    @property
    def checked(self) -> Path:
        """The folder of a program that is compiled again, with the checks that its options leave out."""
        return self.scratch / "checked"

    @property
    def pickled_problem(self) -> Path:
        """The file from which the children read the problem."""
        return self.scratch / "problem.pickle"

    def artifact(self, platform: str) -> Path:
        """The file of the exported program for `tpu`, `cuda` or `cpu`, or of the `traced` program."""
        return self.work / f"candidate.{platform}"

    def written(self, name: str) -> Path:
        """The file to which the candidate's process writes a program, and from which the judge copies it."""
        return self.directory_of("candidate") / f"candidate.{name}"

    def outputs_of(self, family: str) -> Path:
        """The file to which the candidate's process writes the outputs of its interpreted run."""
        return self.directory_of("candidate") / "outputs" / family

    def directory_of(self, child: str) -> Path:
        """The working directory of a child; the dumps of its compilations are two levels above it."""
        return self.checked / "scratch" / child if child == "checks compiler" else self.scratch / child

    def program_keys(self) -> tuple[str, ...]:
        """The keys of the exported program in `request.programs`; call before it is compiled. Empty without a cache.

        The first key is that of the program as this request compiles it. If source lines are not requested, the second
        key is that of the program with source lines. An entry under the second key can be used too, because the
        schedule is the same.
        """
        programs, simulate = self.request.programs, self.request.simulate
        if programs is None:
            return ()
        simulator = f"{simulate.__module__}.{simulate.__qualname__}"
        artifact = self.artifact(self.chip.platform)
        return tuple(
            programs.key(artifact, environment.compiling(self.chip, with_lines=with_lines), simulator, self.dumps)
            for with_lines in ((True,) if self.request.has_lines else (False, True))
        )
