"""The worth of each accepted change in the champion now: the record of `ablate`."""

from dataclasses import dataclass
from typing import Literal

# `gain`: the judge would accept the change again. `loss`: the judge would accept the removal of the change. `unclear`:
# the difference is within the simulator's uncertainty. `none`: the difference is below the minimum effect.
# `superseded`: none of the change's lines is left in the champion. `needed`: the rest fails without the change.
# `unknown`: the rest has no time, or may pass next time.
Effect = Literal["gain", "loss", "unclear", "none", "superseded", "needed", "unknown"]

# Why other changes were taken out with it: they changed the same lines, or the rest fails unless they are taken out
# too.
Tie = Literal["", "lines", "dependence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AblatedChange:
    """One change, and the champion without it.

    - `together` are the other changes that had to be taken out with it, for the reason in `tie`. Times and worth are
      then those of all of them.
    - `worth_seconds` is the time without it minus the champion's, `worth_fraction` this difference divided by the time
      without it, `uncertainty_seconds` one standard deviation of the simulator's error; None if one of the times is not
      known.
    - `own_seconds` is this change's part of a shared worth: the time without this change and the others, minus the time
      without only the others. None if the change was taken out alone, or if a time is not known.
    - `failure` is how the champion fails if only this change is taken out; if others rely on this change, how it fails
      without this change and those of the same lines. "" if it does not fail.
    - `scratch` is the folder below the contest's with the judged files, "" if nothing was judged.
    - `spills` are executed saves of vector registers, `vmem_bytes` the largest need of any call, both without the
      change.
    """

    name: str
    attempt: int
    title: str
    effect: Effect
    tie: Tie = ""
    together: tuple[str, ...] = ()
    without_seconds: float | None = None
    worth_seconds: float | None = None
    worth_fraction: float | None = None
    uncertainty_seconds: float | None = None
    own_seconds: float | None = None
    spills: int | None = None
    vmem_bytes: int | None = None
    failure: str = ""
    scratch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """The champion, each change taken out of it, and the `whole`: the champion without any of them.

    `attempt` is the attempt whose hunks were taken out. If it is None, accepted attempts were taken out, and the whole
    is attempt `baseline`. `whole_seconds` is None if the whole has no time, for the reason in `whole_failure`.
    `reworded` are the last attempts, which changed the champion's text but not its program: changes were taken out of
    the text before them.
    """

    chip: str
    source: Literal["simulated"]
    attempt: int | None
    champion: int
    baseline: int
    champion_seconds: float
    champion_spills: int | None
    champion_vmem_bytes: int | None
    whole_seconds: float | None
    whole_failure: str
    reworded: tuple[int, ...]
    changes: tuple[AblatedChange, ...]

    @property
    def alone_seconds(self) -> float:
        """The sum of the worths of all changes that could be taken out alone."""
        return sum(change.worth_seconds or 0.0 for change in self.changes if not change.together)

    @property
    def gain_seconds(self) -> float | None:
        """Worth of all changes at once."""
        return None if self.whole_seconds is None else self.whole_seconds - self.champion_seconds
