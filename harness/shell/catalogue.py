"""All verbs, found by walking the folder harness/verbs; each is imported when it is needed.

A verb is added by adding its file to that folder: docs/ADD_A_VERB.md.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache

from harness.shell.verb import GROUPS, MESSAGE, Verb

_FOLDER = "harness.verbs"


class _Verbs(Mapping[str, Verb]):
    """The verbs by name, in the order of the overview; `in` and `len` import no verb."""

    def __getitem__(self, name: str) -> Verb:
        if name not in _names():
            raise KeyError(name)
        return _imported(name)

    def __contains__(self, name: object) -> bool:
        return name in _names()

    def __iter__(self) -> Iterator[str]:
        groups = list(GROUPS)
        verbs = sorted(map(_imported, _names()), key=lambda verb: (groups.index(verb.place[0]), verb.place[1]))
        return (verb.name for verb in verbs)

    def __len__(self) -> int:
        return len(_names())


EVERY = _Verbs()


def typed_verbs() -> Iterator[Verb]:
    """The verbs that are typed by name, all but `experiment`, in the order of the overview."""
    return (verb for name, verb in EVERY.items() if name != MESSAGE)


def valued_options() -> frozenset[str]:
    """All options, of any verb, that take a value."""
    return frozenset(name for verb in EVERY.values() for name in verb.parser().valued())


@cache
def _names() -> frozenset[str]:
    folder = importlib.import_module(_FOLDER)
    return frozenset(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.ispkg)


@cache
def _imported(name: str) -> Verb:
    module = importlib.import_module(f"{_FOLDER}.{name}")
    verbs = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Verb) and value.__module__ == module.__name__
    ]
    assert len(verbs) == 1, f"{module.__file__} should hold one class of a verb, holds {len(verbs)}"
    return verbs[0]()
