"""What a search of the space of inputs found: the input with the worst error, and how it is made again."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Draw, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One input and the error that a kernel has with it, relative to its tolerance.

    `family` (a recipe, `recipe {...}`) and `seed` make the input again at the problem's shape `shape`: the contest's
    own, a reduced one, or the second beside that. `ratio` is None where an output was not finite; `said`
    is what the check said of an error above the tolerance. `output` is the shape of the first output there, empty in
    files of earlier versions.
    """

    shape: Literal["full", "reduced", "second"]
    title: str
    family: str
    seed: int
    ratio: float | None
    words: str
    said: str = ""
    output: tuple[int, ...] = ()

    @property
    def draw(self) -> Draw:
        """The same input as evaluations name it."""
        # Evaluations have no CPU reference program at the second shape.
        mode: Mode = "interpret" if self.shape == "second" else self.shape
        return Draw(mode=mode, shape=self.output, family=self.family, seed=self.seed)

    @property
    def is_wrong(self) -> bool:
        """Whether the kernel fails with this input."""
        return self.ratio is None or self.ratio > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A search: its seed, what it tried, and the worst that it found; `file` reproduces that."""

    problem: str
    kernel_sha256: str
    seed: int
    tried: int
    seconds: float
    worst: Found | None
    file: str
