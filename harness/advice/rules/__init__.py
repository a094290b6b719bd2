"""The rules of the diagnosis, one per cause of lost time, those first that the published order of causes puts first."""

from harness.advice.rules import counts, grids, matrix, memory, pipeline, registers, stopping, units
from harness.advice.rules.rule import Rule, RuleCase, hint

RULES: tuple[Rule, ...] = (
    *stopping.RULES,
    *registers.RULES,
    *pipeline.RULES,
    *counts.RULES,
    *memory.RULES,
    *grids.RULES,
    *matrix.RULES,
    *units.RULES,
)

__all__ = ["RULES", "Rule", "RuleCase", "hint"]
