"""What a kernel.py did to the process that traces it: functions it replaced, files that no attempt records."""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
from harness.measure.messages import Rejected

_GUARDED = ("harness", "jax", "jaxlib", "numpy", "ml_dtypes")
_Functions = dict[tuple[str, str], Any]


def functions() -> _Functions:
    """Every callable that the judge's modules, JAX's and numpy's hold now, by module and name."""
    found = {}
    for name, module in list(sys.modules.items()):
        if module is not None and name.partition(".")[0] in _GUARDED:
            found.update({(name, key): value for key, value in list(vars(module).items()) if callable(value)})
    return found


def require_untouched(before: _Functions) -> None:
    """Raises Rejected `judge-patched` where a function of `before` is no longer the same.

    Stops what is done by accident or in passing. Code that runs in this process and is out to
    hide its changes (patching objects rather than modules, or undoing it in time) is not stopped.
    """
    now = functions()
    for (module, name), value in before.items():
        if now.get((module, name), value) is not value:
            said = f"expected kernel.py to leave other modules alone, but it replaced {module}.{name}"
            raise Rejected("static", "judge-patched", said)


def require_self_contained() -> None:
    """Raises Rejected `foreign-import` where a module was imported from a file that is no installed package's.

    An attempt records kernel.py and nothing beside it: what it was judged with must be there again.
    """
    installed = [Path(path) for path in _installed()]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in ("__main__", "kernel") or not file:
            continue
        path = Path(file).resolve()
        if not any(path.is_relative_to(home) for home in installed):
            said = f"expected kernel.py to import installed packages only, but it imported {name} from {path.name}"
            detail = "An attempt records kernel.py alone, so everything it needs has to be in it."
            raise Rejected("contract", "foreign-import", said, detail)


def _installed() -> Iterator[Path]:
    yield Path(harness.__file__).parent.resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield Path(sysconfig.get_path(name)).resolve()
    yield Path(sys.base_prefix, sys.platlibdir).resolve()
