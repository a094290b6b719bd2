"""The record that `ablate` produces: the worth of each accepted change in the present champion."""

from dataclasses import dataclass
from typing import Literal

# `gain`: the judge would accept the change again. `loss`: the judge would accept the removal of the change. `unclear`:
# the difference is within the simulator's uncertainty. `none`: the difference is below the minimum effect.
# `superseded`: none of the change's lines is left in the champion. `needed`: the champion fails without the change.
# `unknown`: the champion without the change has no time, or the machine may have caused its failure.
Effect = Literal["gain", "loss", "unclear", "none", "superseded", "needed", "unknown"]

# The reason for taking other changes out together with a change: they changed the same lines, or the champion fails
# while they are left in.
Tie = Literal["", "lines", "dependence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AblatedChange:
    """One change, and the champion without it.

    - `together` are the other changes that had to be taken out with it, for the reason in `tie`. Times and worth then
      apply to all these changes together.
    - `worth_seconds` is the time without the change minus the champion's, `worth_fraction` this difference divided by
      the time without the change, `uncertainty_seconds` one standard deviation of the simulator's error; None if one of
      the times is not known.
    - `own_seconds` is this change's part of a worth that it shares with `together`: the time without this change and
      without `together`, minus the time without `together` alone. None if the change was taken out alone, or if a time
      is not known.
    - `failure` is the champion's failure if only this change and changes of the same lines are taken out; "" if the
      champion passes.
    - `scratch` is the folder with the judged files, relative to the contest's folder; "" if nothing was judged.
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
    """The champion, each change taken out of it, and the champion without any of the changes (`whole`).

    `attempt` is the attempt whose hunks were taken out. If it is None, accepted attempts were taken out, and `baseline`
    is the attempt without any of the changes. `whole_seconds` is None if that kernel has no time, for the reason in
    `whole_failure`. `reworded` are the newest attempts, which changed the champion's text but not its program. The
    changes were taken out of the text that the first of these attempts started from.
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
        """The joint worth of all changes; None if the kernel without any of them has no time."""
        return None if self.whole_seconds is None else self.whole_seconds - self.champion_seconds
