"""What each accepted change is worth in the champion now: what `ablate` finds out."""

from dataclasses import dataclass
from typing import Literal

# `gain`: the decision would accept it again. `loss`: it would accept taking it out. `unclear`: the difference is within
# the simulator's uncertainty; `none`: below the minimum effect. `superseded`: the champion has no line of it any more.
# `needed`: what is left without it fails. `unknown`: that has no time, or failed for what may pass next time.
Effect = Literal["gain", "loss", "unclear", "none", "superseded", "needed", "unknown"]

# Why others went out with it: they changed the same lines, or what is left fails as long as they stand.
Tie = Literal["", "lines", "dependence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablated:
    """One change, and the champion without it.

    `together` are the other changes that had to go with it, `tie` says why; times and worth are of all of them then.
    `worth_seconds` is the time without it less the champion's, `worth_fraction` that over the time without it,
    `uncertainty_seconds` one standard deviation of the simulator's error, as the decision has it; None where one of
    the times is not known. `own_seconds` is its part in that where the others are out: the time without all of them
    less the time without the others; None where it went alone, or that is not known. `failure` is how what is left
    without it alone fails, or without those of the same lines as well where others rely on these; "" where it does
    not. `scratch` is the folder below the contest's that holds what was judged, "" where nothing was. `spills` are
    executed saves of vector registers, `vmem_bytes` what the tightest call takes, both of the kernel without it.
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
    """The champion of a contest, each change taken out of it, and the `whole`: the champion without any of them.

    `attempt` is the one whose hunks were taken out; None: accepted attempts were, and the whole is `baseline`.
    `whole_seconds` is None where that has no time, and `whole_failure` says why. `reworded` are the last attempts that
    changed the champion's text and not its program: the changes were taken out of the text before them.
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
    changes: tuple[Ablated, ...]

    @property
    def alone_seconds(self) -> float:
        """What the changes that could go alone are worth, added up."""
        return sum(one.worth_seconds or 0.0 for one in self.changes if not one.together)

    @property
    def gain_seconds(self) -> float | None:
        """What all of them are worth at once."""
        return None if self.whole_seconds is None else self.whole_seconds - self.champion_seconds
