"""A case of known_kernels.py: a program with its operands, by name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from harness.dumps.timing_tables import Assumption


@dataclass(frozen=True, slots=True)
class Program:
    """A function and its operands in their order: shapes, or arrays where the schedule depends on their contents.

    `donated` are operands whose memory the caller hands over, such as a cache.
    """

    function: Callable[..., Any]
    operands: Mapping[str, Any]
    donated: tuple[str, ...] = ()


Case = Callable[[], Program]


# Modules that have cases of several packages, by package.
_SHARED = {
    **dict.fromkeys(("jaxite", "pallas-forge", "recurrentgemma"), "small"),
    **dict.fromkeys(("flywheel-tpu", "deltanet-tpu", "gdn2-pallas", "deciax", "sglang-jax", "maxtext"), "attention"),
}


def module_of(origin: str) -> str:
    """The module with the cases of JAX, tokamax, XLA or a package."""
    return f"known_cases_{_SHARED.get(origin, origin.replace('-', '_'))}"


def cases(origin: str) -> dict[str, Case]:
    """The cases of JAX, tokamax, XLA or a package, by name. No package is imported before a case is called."""
    listed: dict[str, Any] = import_module(module_of(origin)).CASES
    return listed[origin] if origin in _SHARED else listed


def explained(origin: str, case: str, chip_name: str) -> str:
    """The reason why a case is refused or has a race or no latency, from reading the package; "" if none is known.

    An explanation for the case on one chip takes precedence over one for the case.
    """
    table = _table(origin, "EXPLAINED")
    text: str = table.get((case, chip_name), table.get(case, ""))
    return text


def assumed(origin: str, case: str) -> Assumption | None:
    """The assumption, true for the case's inputs, about branches on contents of vectors; None if there is none."""
    assumption: Assumption | None = _table(origin, "ASSUMED").get(case)
    return assumption


def _table(origin: str, name: str) -> dict[Any, Any]:
    """A table of a package's module by case; empty if there is none."""
    listed: dict[Any, Any] = getattr(import_module(module_of(origin)), name, {})
    of_origin: dict[Any, Any] = listed.get(origin, {}) if origin in _SHARED else listed
    return of_origin


def of(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    """An operand whose contents no schedule depends on."""
    return jax.ShapeDtypeStruct(shape, dtype)


def integers(values: Any) -> npt.NDArray[np.int32]:
    """An operand that a schedule reads: a table, or the lengths of sequences."""
    return np.asarray(values, np.int32)


def starts(queries: Sequence[int]) -> npt.NDArray[np.int32]:
    """The places where the queries of each sequence start if they lie one after the other, and last where all end."""
    return integers(np.concatenate([[0], np.cumsum(queries)]))


def lengths(queries: Sequence[int]) -> npt.NDArray[np.int32]:
    """Numbers of keys, all different, of sequences with these numbers of queries."""
    return integers([max(number, 640 + 70 * place) for place, number in enumerate(queries)])


def called(
    module: str, function: str, operands: Mapping[str, Any], positional: tuple[str, ...] = (), **options: Any
) -> Program:
    """A package's kernel, called with these options and with operands by keyword, except those named in `positional`.

    The package is imported now.
    """
    kernel, names = getattr(import_module(module), function), tuple(operands)

    def call(*arrays: Any) -> Any:
        arrays_by_name = dict(zip(names, arrays, strict=True))
        first = [arrays_by_name.pop(name) for name in positional]
        return kernel(*first, **arrays_by_name, **options)

    # The contents of operands are looked up in the compiled program by these names.
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return Program(call, operands)


def gradient(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The gradient of the function's sum with respect to its first `count` operands, with the forward pass."""

    # Keeps the function's own names for its operands, because contents are looked up by these names.
    @wraps(function)
    def total(*operands: Any) -> jax.Array:
        return function(*operands).astype(jnp.float32).sum()

    slopes: Callable[..., Any] = jax.grad(total, argnums=tuple(range(count)))
    return slopes
