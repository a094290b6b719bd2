"""What one evaluation is to find out, and where its files go."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.hardware import Chip
from harness.judge.evaluate.compile.seen_programs import SeenPrograms
from harness.judge.sandbox import environment
from harness.problems import Problem
from harness.records import KERNEL, Draw, Evidence, Policy, Simulation, Source

Progress = Callable[[str, str, float], None]
Simulate = Callable[..., Simulation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be found out, and where its files go."""

    contest: Path
    problem: Problem
    chip: Chip
    policy: Policy
    work: Path
    simulate: Simulate
    source: Source
    deep: bool
    timed: bool
    checked: bool = True
    # The function of kernel.py that computes the problem.
    function: str = KERNEL
    # Of an earlier evaluation, to be repeated beside what is drawn now.
    draws: tuple[Draw, ...] = ()
    # Whether evidence with a simulated latency is of a candidate that is too slow to be asked about further; None:
    # every candidate is asked about everything.
    is_slower: Callable[[Evidence], bool] | None = None
    # What was compiled and simulated before; None: everything is compiled and simulated anew.
    programs: SeenPrograms | None = None

    @property
    def scratch(self) -> Path:
        """What only lives as long as the children."""
        return self.work / "scratch"

    @property
    def dumps(self) -> Path:
        """The compiler's schedules."""
        return self.work / "dumps"

    @property
    def pickled_problem(self) -> Path:
        """The problem, for the children."""
        return self.scratch / "problem.pickle"

    def artifact(self, platform: str) -> Path:
        """The exported program for `tpu`, `cuda` or `cpu`: what is compiled, checked and timed."""
        return self.work / f"candidate.{platform}"

    def written(self, name: str) -> Path:
        """Where the candidate's process writes an exported program, before it is taken over."""
        return self.directory_of("candidate") / f"candidate.{name}"

    def outputs_of(self, family: str) -> Path:
        """Where the candidate's process writes what its interpreted run gave."""
        return self.directory_of("candidate") / "outputs" / family

    def directory_of(self, child: str) -> Path:
        """The working directory of a child."""
        return self.scratch / child

    def program_keys(self) -> tuple[str, ...]:
        """What the exported program is known by among `programs`, as it is compiled here first; asked before it is.

        Where no lines are asked for, one that was compiled with them serves as well: its schedule is the same.
        """
        assert self.programs is not None
        simulator = f"{self.simulate.__module__}.{self.simulate.__qualname__}"
        artifact = self.artifact(self.chip.platform)
        return tuple(
            self.programs.key(artifact, environment.compiling(self.chip, with_lines=with_lines), simulator, self.dumps)
            for with_lines in ((True,) if self.checked else (False, True))
        )
