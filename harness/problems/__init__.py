"""`harness.operators` under its former name, which older prepare.py files import."""

import sys
import warnings
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from harness import operators
from harness.operators.former_names import MOVED, present_name

warnings.warn("harness.problems is harness.operators now (docs/OPERATORS.md)", DeprecationWarning, stacklevel=2)

# The same modules, not copies of them: a class must be the same under both names.
for _name in (*MOVED, *(module.name for module in iter_modules(operators.__path__) if not module.ispkg)):
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = import_module(present_name(f"{__name__}.{_name}"))


def __getattr__(name: str) -> Any:
    return getattr(operators, name)
