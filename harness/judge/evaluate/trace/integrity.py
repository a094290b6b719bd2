"""The effects of kernel.py on its process: replaced functions, changed settings, running threads, imports."""

import contextlib
import gc
import itertools
import logging
import os
import signal
import sys
import sysconfig
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType as _Function
from typing import Any

import jax
from jax._src import monitoring

# Imported for its effect: it adds rules for JAX's primitives on the SparseCore. Packages with kernels for both kinds of
# core import it too, so the snapshot must already contain these rules.
from jax.experimental.pallas import tpu_sc  # noqa: F401
from jax.extend import core

import harness
from harness.judge.evaluate.trace import jaxprs
from harness.operators import prepare_module
from harness.sandbox.editable import editable_roots
from harness.sandbox.messages import Rejected

# JAX sets this variable when its GPU modules are imported. Packages with kernels for both TPUs and GPUs import them.
# Tracing, compiling and running a program for a TPU or a CPU do not depend on the variable.
_SET_BY_JAX = frozenset(("MOSAIC_GPU_CUDA_ROOT",))
# Prefixes of JAX's settings for caching programs and for printing. These settings change no program.
_CACHING_AND_PRINTING = (
    "jax_compilation_cache_ jax_enable_compilation_cache jax_explain_cache_misses jax_log_compiles jax_logging_level "
    "jax_persistent_cache_ jax_raise_persistent_cache_errors jax_traceback_filtering"
)
_ABOUT_NO_PROGRAM = tuple(_CACHING_AND_PRINTING.split())
_GUARDED = ("builtins", "harness", "jax", "jaxlib", "ml_dtypes", "numpy", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of the process: the callables of `_GUARDED` modules by module, class and name, and all settings.

    `primitives` are JAX's primitives by identity, with the attributes of each. `rules` are JAX's tables of rules for
    lowering, batching and interpreting primitives, by module and name. A table within a table (one for each platform or
    kind of kernel) has its key as a third part.
    """

    callables: dict[tuple[str, str], tuple[Any, ...]]
    configuration: dict[str, Any]
    variables: dict[str, str]
    handlers: tuple[Any, ...]
    threads: frozenset[threading.Thread]
    modules: frozenset[str]
    primitives: dict[int, tuple[Any, dict[str, Any]]]
    rules: dict[tuple[str, ...], dict[Any, Any]]


def snapshot() -> Snapshot:
    """A snapshot of this process now. Takes about 0.2 s, mostly for the classes of JAX and numpy."""
    rules = dict(_rules())
    return Snapshot(
        callables=dict(_callables()),
        configuration=dict(jax.config.values),
        variables=dict(os.environ),
        handlers=_handlers(),
        threads=frozenset(threading.enumerate()),
        modules=frozenset(sys.modules),
        primitives={id(primitive): (primitive, dict(vars(primitive))) for primitive in _primitives(rules)},
        rules=rules,
    )


def put_back(before: Snapshot) -> tuple[str, ...]:
    """Restores settings that the candidate's import changed, if they affect no program. Returns sentences on them.

    These settings are environment variables, and settings of JAX that change no program. Environment variables affect
    no program, because JAX has already read its variables, and the compilers run in other processes. If any other
    setting changed, `require_untouched` refuses the candidate.
    """
    variables = _differing(before.variables, os.environ)
    for name in variables:
        if name in before.variables:
            os.environ[name] = before.variables[name]
        else:
            del os.environ[name]
    changed = _differing(before.configuration, jax.config.values)
    settings = [name for name in changed if name.startswith(_ABOUT_NO_PROGRAM)]
    for name in settings:
        jax.config.update(name, before.configuration[name])
    return (*_sentences("the environment variable", variables, before), *_sentences("JAX's setting", settings, before))


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*old, *new} - _SET_BY_JAX if old.get(name) != new.get(name))


def _sentences(noun: str, names: Sequence[str], before: Snapshot) -> tuple[str, ...]:
    """One sentence for each module that sets some of `names`; `noun` says what they name ("JAX's setting")."""
    places: dict[str, list[str]] = {}
    for name in names:
        places.setdefault(_set_in(name, before), []).append(name)
    return tuple(
        f"importing kernel.py sets {noun}{'s' * (len(together) > 1)} {', '.join(together)}{place}, which "
        f"{'is' if len(together) == 1 else 'are'} put back: the kernel is checked, compiled and timed without "
        f"{'it' if len(together) == 1 else 'them'}"
        for place, together in places.items()
    )


def _set_in(name: str, before: Snapshot) -> str:
    """The file that may set `name`, as ` (in PATH)`: a package's module imported since `before` that contains `name`.

    "" if there is no such module.
    """
    for module, loaded in sorted(sys.modules.items()):
        path = getattr(loaded, "__file__", None) or ""
        if module in before.modules or not path.endswith(".py") or "site-packages" not in path:
            continue
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if name in Path(path).read_text(encoding="utf-8"):
                return f" (in {path.rpartition('site-packages/')[2]})"
    return ""


def require_known_primitives(before: Snapshot, jaxpr: Any) -> None:
    """Raises Rejected `foreign-primitive` if the program holds a primitive that JAX did not have `before`.

    A foreign primitive may have the name of a primitive of JAX, and its lowering for each platform is unknown.
    """
    for equation in jaxprs.every_equation(jaxpr):
        if id(equation.primitive) not in before.primitives:
            message = f"expected primitives of JAX, got the foreign primitive {equation.primitive.name!r}"
            reason = "a CPU cannot check its lowering for the chip; use operations of JAX"
            raise jaxprs.refusal(equation, "foreign-primitive", f"{message}: {reason}")


def require_untouched(before: Snapshot) -> None:
    """Raises Rejected `judge-patched`, `settings-changed` or `left-behind` if this process has changed since `before`.

    Detects accidental and careless changes. It cannot detect code that hides its changes, by undoing them in time or by
    patching compiled code or this check.
    """
    now = dict(_callables())
    for place, value in before.callables.items():
        there = now.get(place, ())
        if len(there) != len(value) or any(new is not old for new, old in zip(there, value, strict=True)):
            message = f"expected kernel.py to change no other module, got a change of {'.'.join(place)}; remove it"
            raise Rejected("static", "judge-patched", message)
    if (changed_rule := _changed_rule(before)) is not None:
        message = f"expected kernel.py to change no primitive of JAX, got a change of {changed_rule}; remove it"
        raise Rejected("static", "judge-patched", message)
    for noun, old, new in (
        ("the setting", before.configuration, jax.config.values),
        ("the environment variable", before.variables, os.environ),
    ):
        if changed := _differing(old, new):
            message = f"expected kernel.py to change no setting, got a change of {noun} {', '.join(changed)}; remove it"
            raise Rejected("static", "settings-changed", message)
    if _handlers() != before.handlers:
        message = (
            "expected kernel.py to install no callback that other code triggers, got a new signal handler, trace "
            "function or listener of JAX; remove it"
        )
        raise Rejected("static", "settings-changed", message)
    started = [thread.name for thread in threading.enumerate() if thread not in before.threads]
    if started:
        message = f"expected kernel.py to leave no threads running, got {', '.join(started)}; start no threads"
        raise Rejected("static", "left-behind", message)


def _callables() -> Iterator[tuple[tuple[str, str], tuple[Any, ...]]]:
    """Functions of the guarded modules and methods of the classes that they define, with their code."""
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if module is None or not (top in _GUARDED or prepare_module.is_prepare(top)):
            continue
        for key, value in list(vars(module).items()):
            if callable(value):
                yield (name, key), _with_code(value)
            if isinstance(value, type) and value.__module__ == name:
                for attribute, member in list(vars(value).items()):
                    if type(member) in (_Function, staticmethod, classmethod, property):
                        yield (name, f"{key}.{attribute}"), _with_code(member)


def _with_code(value: Any) -> tuple[Any, ...]:
    """The value; for a function also its code, which can be replaced in place."""
    return (value, value.__code__) if type(value) is _Function else (value,)


def _names_of_jax() -> Iterator[tuple[str, str, Any]]:
    """The module, the name and the value of each attribute of JAX's modules."""
    for module_name, module in list(sys.modules.items()):
        if module is not None and module_name.partition(".")[0] == "jax":
            yield from ((module_name, name, value) for name, value in list(vars(module).items()))


def _primitives(rules: dict[tuple[str, ...], dict[Any, Any]]) -> Iterator[Any]:
    """The primitives that are attributes of JAX's modules, and the primitives that have a rule."""
    values = itertools.chain((value for _, _, value in _names_of_jax()), *rules.values())
    return (value for value in values if isinstance(value, core.Primitive))


def _rules() -> Iterator[tuple[tuple[str, ...], dict[Any, Any]]]:
    """The dictionaries with primitives as keys in JAX's modules, including dictionaries within a dictionary."""
    for module, name, value in _names_of_jax():
        if isinstance(value, dict):
            if _is_of_primitives(value):
                yield (module, name), dict(value)
            for part, inner in list(value.items()):
                if _is_of_primitives(inner):
                    yield (module, name, str(part)), dict(inner)


def _is_of_primitives(table: Any) -> bool:
    return isinstance(table, dict) and isinstance(next(iter(table), None), core.Primitive)


def _changed_rule(before: Snapshot) -> str | None:
    """The first changed rule or primitive of JAX, in words; None if all are the same.

    Rules that a module of JAX adds for its own primitives when it is imported do not count.
    """
    now = dict(_rules())
    for place, table in before.rules.items():
        there = now.get(place, {})
        for primitive, _ in before.primitives.values():
            if there.get(primitive) is not table.get(primitive):
                return f"the rule of {primitive.name} in {'.'.join(place)}"
    for primitive, methods in before.primitives.values():
        there = vars(primitive)
        if there.keys() != methods.keys() or any(there[name] is not methods[name] for name in methods):
            return f"the primitive {primitive.name}"
    return None


def _handlers() -> tuple[Any, ...]:
    """The callbacks that Python and JAX call on signals or while other code runs."""
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.startswith("jax")]
    return (
        *(signal.getsignal(number) for number in sorted(signal.valid_signals())),
        sys.gettrace(),
        sys.getprofile(),
        sys.excepthook,
        sys.unraisablehook,
        sys.displayhook,
        sys.breakpointhook,
        warnings.showwarning,
        tuple(sys.get_asyncgen_hooks()),
        tuple(gc.callbacks),
        tuple(sys.path_hooks),
        *(tuple(listeners) for listeners in vars(monitoring).values() if isinstance(listeners, list)),
        # New loggers do not count: imports create them, and they have neither handlers nor filters.
        *(called for logger in loggers for called in (*logger.handlers, *logger.filters)),
    )


def require_self_contained(helpers: Collection[str]) -> None:
    """Raises Rejected `foreign-import` if a module's file is neither part of an installed package nor a helper.

    All code behind a verdict must be reproducible, so an attempt records kernel.py and its `helpers`.
    """
    installed = [Path(path) for path in _installed()]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in ("__main__", "kernel") or not file or (file == f"{name}.py" and file in helpers):
            continue
        path = Path(file).resolve()
        if not any(path.is_relative_to(home) for home in installed):
            message = f"expected kernel.py to import only installed packages and its helpers, got {name}; copy its code"
            detail = "An attempt records only kernel.py and the files next to it that its import statements name."
            raise Rejected("contract", "foreign-import", message, detail)


def _installed() -> Iterator[Path]:
    yield Path(harness.__file__).parent.resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield Path(sysconfig.get_path(name)).resolve()
    yield Path(sys.base_prefix, sys.platlibdir).resolve()
    yield from editable_roots()
