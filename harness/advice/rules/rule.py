"""A rule of the diagnosis: its sentence, its published source, and the pure function that looks for its case."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.advice.edits import SimulatedEdits
from harness.advice.kernel_changes import Kind
from harness.advice.observed import Observed
from harness.records import Edit, Hint

# Where the rules come from. The protocol is the published method of profiling a TPU kernel that this project follows.
COUNTS = "published protocol, expected counts inside a kernel"
CAUSES = "published protocol, causes of a gap"
TIMELINE = "published protocol, patterns in a timeline"
OP_PROFILE = "published protocol, op profile"
UTILISATION = "published protocol, utilisation table"
REGIMES = "published protocol, regimes"
GAP = "published protocol, roofline and gap"
LEVERS = "published protocol, levers"
BUDGET = "published protocol, VMEM budget"
PIPELINING = "JAX documentation, Pallas software pipelining"
GRIDS = "JAX documentation, Pallas grids and BlockSpecs"
TPU_DETAILS = "JAX documentation, Pallas TPU details"
CORES = "JAX documentation, Pallas TPU pipelining in Megacore configuration"
SCALING_BOOK = "scaling book, how to think about TPUs"
XPROF = "XProf documentation, roofline model"
PRACTICE = "this project's ledger"

ROOFLINE = "roofline"
SCHEDULE = "simulated schedule"
# A gain with this source is the simulated effect of an edit. All other gains are bounds.
SIMULATED_EDIT = "simulated edit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCase:
    """One case of a rule.

    - `gain`: an upper bound on the share of the time that the change saves; None if there is no bound. A change of a
      block size has no bound from a single cause, because a larger block means fewer steps, rescalings and re-reads at
      the same time (benchmarks/RULES.md).
    - `cost`: the share of the time that the observed cause takes now. It ranks a case whose gain is not known.
    - `edits`: the advised changes of block sizes.
    - `knob`: the thing that is changed, if other rules change it too. Of several cases with one knob, only the
      strongest is reported.
    - `kind`: overrides the rule's kind of change.
    - `weight`: the factor of the gain or cost in the ranking. It is less than 1 if the bound on the gain is loose, or
      if many attempts that followed the advice lost.
    - `comes_first`: True for a case that makes all other advice pointless.
    """

    observation: str
    suggestion: str
    gain: float | None = None
    gain_source: str = SCHEDULE
    knob: str = ""
    kind: Kind | None = None
    weight: float = 1.0
    comes_first: bool = False
    edits: tuple[Edit, ...] = ()
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: `says` is its sentence. A simulated what-if in which the resource `ceiling` costs less bounds the gain.

    `keeps_traffic` marks a change that moves as many bytes as before, so that transfers take as long as before.
    """

    name: str
    says: str
    source: str
    kind: Kind | None
    look: Callable[[Observed], RuleCase | None] = field(repr=False)
    ceiling: str = ""
    keeps_traffic: bool = False


def rule(
    name: str, kind: Kind | None, source: str, says: str, *, ceiling: str = "", keeps_traffic: bool = False
) -> Callable[[Callable[[Observed], RuleCase | None]], Rule]:
    """A decorator that makes a rule of a function; the function looks for a case of the rule."""
    return lambda look: Rule(
        name=name, says=says, source=source, kind=kind, look=look, ceiling=ceiling, keeps_traffic=keeps_traffic
    )


def hint(rule: Rule, finding: RuleCase, seen: Observed, simulated: Sequence[SimulatedEdits] = ()) -> Hint:
    """The hint for the case `finding`, with the gain of the fastest simulated edit, otherwise with a bound on the gain.

    The bound never exceeds the share of the time above the roofline, or above what the simulator lets pass.
    """
    gain, source = finding.gain, finding.gain_source
    ceiling = next((c for c in seen.ceilings if c.resource == rule.ceiling and rule.ceiling), None)
    # A ceiling is a bound for this schedule, but not for the schedule of another block size.
    ceiling = None if finding.edits else ceiling
    if ceiling is not None and (gain is None or 1 - ceiling.time_ratio < gain):
        gain, source = max(0.0, 1 - ceiling.time_ratio), f"simulated what-if: {ceiling.words}"
    room = seen.room
    if rule.keeps_traffic:
        room = min(room, 1 - seen.transfer_share)
    if gain is not None and gain > room:
        gain, source = room, seen.room_source
    # The fastest of the simulated edits that follow the advice.
    timed = [
        edit for edit in simulated if edit.time_ratio is not None and not set(edit.edits).isdisjoint(finding.edits)
    ]
    best = min(timed, key=lambda edit: edit.time_ratio or 0.0, default=None)
    if best is not None and best.time_ratio is not None:
        gain, source = 1 - best.time_ratio, f"{SIMULATED_EDIT}: {best.words}"
    return Hint(
        observation=finding.observation,
        suggestion=finding.suggestion,
        rule=rule.name,
        because=rule.says,
        rule_source=rule.source,
        kind=finding.kind or rule.kind or "",
        gain=gain,
        gain_source=source if gain is not None else "",
        edits=finding.edits,
    )
