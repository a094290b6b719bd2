"""Stand-ins for modules that a package imports although its kernels do not need them. STUBS in prepare.py names them.

For example, one package imports its whole serving stack for one kernel. Another package starts a program when it is
imported, which the sandbox forbids. A stand-in can be named, called and subclassed, so that such imports succeed. A
stand-in cannot be used in a computation or a condition.
"""

import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


class _Absent:
    """The stand-in for an attribute of a missing module, and for attributes of such an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self._name} is a stand-in (STUBS of prepare.py): it has no {name}")
        return _Absent(f"{self._name}.{name}")

    def __call__(self, *arguments: object, **options: object) -> Any:
        # As a decorator of a class, a stand-in returns the class unchanged, so that other decorators can be applied.
        is_decorator = len(arguments) == 1 and isinstance(arguments[0], type) and not options
        return arguments[0] if is_decorator else self

    def __or__(self, _: object) -> Any:
        # For annotations, such as `Absent | None`.
        return self

    __ror__ = __getitem__ = __or__

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, _: object) -> bool:
        # No object can have a type that does not exist.
        return False

    def __bool__(self) -> bool:
        raise RuntimeError(
            f"the code branches on {self._name}, which is a stand-in without a value: install "
            f"{self._name.partition('.')[0]}, and remove it from STUBS if there is a prepare.py"
        )

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


class _Module(types.ModuleType):
    """A module that has every attribute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self.__name__}.{name}")


class _Finder(MetaPathFinder, Loader):
    """Finds the modules called `names` before any other finder does, so that installed modules are ignored."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """The spec of a module, None if it has no stand-in."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in self.names else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """The stand-in."""
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing: a stand-in has no code."""


def stand_in(names: Sequence[str]) -> None:
    """Replaces these modules, and all modules below them, by stand-ins; modules that are already imported stay."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    if names:
        sys.meta_path.insert(0, _Finder(names))


def warnings() -> tuple[str, ...]:
    """Sentences that name the modules with stand-ins."""
    names = sorted(
        {name.partition(".")[0] for name, module in list(sys.modules.items()) if isinstance(module, _Module)}
    )
    return tuple(
        f"a stand-in replaces {name} (STUBS of prepare.py): nothing that a package sets up with it takes effect"
        for name in names
    )
