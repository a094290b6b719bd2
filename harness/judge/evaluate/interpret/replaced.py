"""Replaces functions of JAX within a context; reads their parameters, by which known versions are recognised."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import jax


@contextlib.contextmanager
def replaced(owner: Any, **functions: Any) -> Iterator[None]:
    """Within this context these attributes of `owner`, a module or a class of JAX, are replaced."""
    usual = {name: getattr(owner, name) for name in functions}
    _set(owner, functions)
    try:
        yield
    finally:
        _set(owner, usual)


def _set(owner: Any, functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        setattr(owner, name, function)


def parameters(function: Any) -> list[str]:
    """The names of the parameters of a Python function; empty for anything else."""
    return list(inspect.signature(function).parameters) if inspect.isfunction(function) else []


def unknown_version(consequence: str) -> NotImplementedError:
    """The error for a JAX whose TPU interpret mode lacks the functions that are replaced here."""
    return NotImplementedError(
        f"expected a JAX whose TPU interpret mode is known here (0.10.2 or 0.12.0), got {jax.__version__}, so "
        f"{consequence}; use the JAX of requirements.lock"
    )
