"""The rules of the diagnosis, one per cause of lost time: each function with the decorator `@rule` in this folder.

docs/ADD_A_RULE.md says how to add one.
"""

from importlib import import_module
from pkgutil import iter_modules

from harness.advice.rules.rule import Rule, RuleCase, hint

# Rules with equal gains keep the published order of causes: modules in this order, rules in the order of their module.
_ORDER = ("stopping", "registers", "pipeline", "counts", "memory", "grids", "matrix", "units")


def _place(name: str) -> tuple[int, str]:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER), name


def _rules(name: str) -> tuple[Rule, ...]:
    module = import_module(f"{__name__}.{name}")
    rules = (value for value in vars(module).values() if isinstance(value, Rule))
    return tuple(found_rule for found_rule in rules if found_rule.look.__module__ == module.__name__)


_MODULES = sorted((module.name for module in iter_modules(__path__)), key=_place)
RULES = tuple(each for name in _MODULES for each in _rules(name))

__all__ = ["RULES", "Rule", "RuleCase", "hint"]
