"""The constants of a traced program: JAX keeps the very arrays of kernel.py, which may change them later."""

import hashlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core


def take_over(closed: Any) -> None:
    """Puts copies in the places of all constants of the program, numbers in its kernels and index maps included.

    What is compiled and what is checked are made of one trace, one after the other. An array that kernel.py holds, and
    changes in between, would make two programs of it.
    """
    for constants, literals in _parts(closed):
        constants[:] = map(_copied, constants)
        for literal in literals:
            literal.val = _copied(literal.val)


def digests(closed: Any) -> Iterator[str]:
    """A hash of each constant, in order. The text of a program shows numbers only, and leaves out arrays."""
    for constants, literals in _parts(closed):
        for value in (*constants, *(literal.val for literal in literals)):
            if not isinstance(value, jax.core.Tracer):
                yield hashlib.sha256(_bytes(value)).hexdigest()


def _parts(closed: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """The constants and the literals of the program and of every program within it, each of them once."""
    seen: set[int] = set()
    todo = [closed]
    while todo:
        program = todo.pop()
        if id(program) in seen:
            continue
        seen.add(id(program))
        # In jax 0.12 a closed program is the one that it closes.
        jaxpr = getattr(program, "jaxpr", program)
        used = (*(var for equation in jaxpr.eqns for var in equation.invars), *jaxpr.outvars)
        yield getattr(program, "consts", []), [var for var in used if isinstance(var, core.Literal)]
        todo += [part for equation in jaxpr.eqns for value in equation.params.values() for part in _programs(value)]


def _programs(value: Any) -> Iterator[Any]:
    if isinstance(value, (core.ClosedJaxpr, core.Jaxpr)):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _programs(part)
    for block in getattr(value, "block_mappings", ()):
        yield block.index_map_jaxpr


def _copied(value: Any) -> Any:
    # In jax 0.12 a program within (of run_scoped) keeps values of the one around it, which are no constants.
    if isinstance(value, jax.core.Tracer):
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        # An array of JAX may be a view of one of numpy.
        return jnp.array(value, copy=True)
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        value = jax.random.key_data(value)
    return np.asarray(value).tobytes()
