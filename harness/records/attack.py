"""The record that `attack` produces: the worst input of a search, and the means to generate it again."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Draw, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstInput:
    """One input and the kernel's error with it, relative to the tolerance.

    - `family` (the text `recipe {...}`) and `seed` generate the input again at `shape`: the contest's own shape, the
      reduced shape, or the second shape.
    - `ratio`: the error divided by the tolerance; None if an output was not finite, or if an output that must be exact
      was wrong.
    - `said`: the check's message for an error above the tolerance.
    - `output`: the shape of the first output; empty in files of earlier versions.
    - `honest_ratio`: the largest error of the judge's own honest computation, divided by the same tolerance. None if
      `ratio` is not the worst element's ratio, and in files of earlier versions.
    """

    shape: Literal["full", "reduced", "second"]
    title: str
    family: str
    seed: int
    ratio: float | None
    words: str
    said: str = ""
    output: tuple[int, ...] = ()
    honest_ratio: float | None = None

    @property
    def draw(self) -> Draw:
        """This input in the form in which evaluations record inputs."""
        # Evaluations have no CPU reference program at the second shape.
        mode: Mode = "interpret" if self.shape == "second" else self.shape
        return Draw(mode=mode, shape=self.output, family=self.family, seed=self.seed)

    @property
    def is_wrong(self) -> bool:
        """True if the kernel fails with this input."""
        return self.ratio is None or self.ratio > 1

    @property
    def is_doubtful(self) -> bool:
        """True if the error is less than twice the honest computation's: rounding alone may then explain it."""
        return self.ratio is not None and self.honest_ratio is not None and self.ratio < 2 * self.honest_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A search: its seed, the number of inputs that it tried, and the worst input, which `file` reproduces.

    For every input, each of the `exact_outputs` was compared bit for bit, and each of the `tolerated_outputs` against
    its tolerance.
    """

    problem: str
    kernel_sha256: str
    seed: int
    tried: int
    seconds: float
    worst: WorstInput | None
    file: str
    exact_outputs: tuple[str, ...] = ()
    tolerated_outputs: tuple[str, ...] = ()
