"""Exports the traced program, for its chip or for a CPU, and sets up TPU interpret mode with its checks."""

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import dispatch
from jax._src.pallas import primitives
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax._src.pallas.mosaic.interpret import utils as interpret_utils
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core

from harness.hardware import Chip
from harness.judge.evaluate.interpret import chip_model, outside, pallas_on_cpu, transfers, undefined
from harness.judge.evaluate.interpret.discharge_rules import copies_of_any_size, scopes_of_any_depth
from harness.judge.evaluate.interpret.fused import as_fused
from harness.judge.evaluate.interpret.grid_loop import quick_grid_loop
from harness.judge.evaluate.interpret.left_memory import clipped
from harness.judge.evaluate.interpret.replaced import parameters, replaced
from harness.judge.evaluate.messages import Fill
from harness.judge.evaluate.trace import jaxprs, kernels, meshes, packages, program_codec
from harness.sandbox import asked_device
from harness.sandbox.messages import Rejected

_RACE = "RACE DETECTED"
# The custom call that `with_layout_constraint` produces.
_LAYOUT_CALL = "LayoutConstraint"
# The vector clock that JAX prints after each access; messages leave it out.
_CLOCK = re.compile(r"\n +clock: (?:\[[\d\s]*\]|<[^>]*>)")
# The time of a run grows with the number of cores: 0.6 s with 2, 4.5 s with 16 (jax 0.10.2, blocks of 128 by 128).
_MOST_CORES = 16


def runnable(
    closed: Any, interpret: object, chip: Chip, *, is_flipped: bool = False, joins_windows: bool = False
) -> Callable[..., list[Any]]:
    """The traced program as a function of its inputs; its Pallas calls return the results of `chip`.

    `interpret` is the mode in which Pallas calls are interpreted, False for the compiler. `is_flipped` and
    `joins_windows` are passed to `pallas_on_cpu.with_interpret`.
    """
    jaxpr = closed.jaxpr
    if interpret:
        jaxpr = outside.without_memory_spaces(jaxpr)
        # On one chip, TPU interpret mode does not mark undefined results outside kernels, because the reference program
        # marks them on the same inputs. It also leaves operations as they are written, because not all may be fused.
        if interpret is True or chip.mesh:
            fused = as_fused(jaxpr) if chip.platform == "tpu" else jaxpr
            jaxpr = outside.with_marked_results(fused, chip)
        jaxpr = chip_model.with_roundings(jaxpr)
    jaxpr = pallas_on_cpu.with_interpret(jaxpr, interpret, chip, is_flipped=is_flipped, joins_windows=joins_windows)
    return core.jaxpr_as_fun(closed.replace(jaxpr=jaxpr))  # type: ignore[no-any-return]


def get_ready_for(chip: Chip) -> None:
    """Loads the modules that JAX loads for lowering, so that kernel.py is not blamed for their effects on settings."""
    importlib.import_module("jax._src.pallas.mosaic.pallas_call_registration")
    if chip.platform == "cuda":
        importlib.import_module("jax.experimental.pallas.mosaic_gpu")
        importlib.import_module("jax._src.pallas.triton.pallas_call_registration")


def checking_parameters(chip: Chip, steps: int, most_under_way: int = transfers.MOST_UNDER_WAY[0]) -> Any:
    """Parameters with which TPU interpret mode finds races, reads out of bounds, and reads of unwritten memory (NaN).

    On a GPU, no program of the grid may rely on another program. So each of the `steps` programs runs on a separate
    core, and a write to memory that another program accesses is a race. If there are more than `_MOST_CORES` programs,
    they share this number of cores, and races between programs on the same core are not found. At most `most_under_way`
    transfers may be under way at a time.
    """
    cores = chip.cores if chip.platform == "tpu" else min(steps, _MOST_CORES)
    return pltpu.InterpretParams(
        detect_races=True,
        uninitialized_memory="nan",
        out_of_bounds_reads="raise",
        num_cores_or_threads=cores,
        vector_clock_size=cores * chip.devices + most_under_way,
    )


def race_of(error: BaseException | None, printed: str) -> str | None:
    """The interpreter's description of a race in the last run, from its `error` and `printed` text, or None.

    jax 0.12 raises an error; jax 0.10 prints the race, and notes it in the state of its module.
    """
    for text in (str(error), printed):
        if _RACE in text:
            return _CLOCK.sub("", text[text.index(_RACE) :])
    races = getattr(interpret_pallas_call, "races", None)
    if races is not None and races.races_found:
        return f"{_RACE}: two accesses of the same memory without synchronisation between them"
    return None


def reset() -> None:
    """Clears the state of the last interpreted run; otherwise the next run would raise the old error again."""
    pltpu.reset_tpu_interpret_mode_state()
    dispatch.runtime_tokens.clear()


@contextlib.contextmanager
def memory_filled_with(value: Fill) -> Iterator[None]:
    """Within this context unwritten memory of an interpreted kernel holds `value`.

    On a chip, unwritten memory holds the values that the last kernel left there.

    - None: NaN, as JAX fills the memory. Nearly every kernel that reads it fails. A kernel that tests for NaN may still
      pass, for example because it replaces NaN or uses NaN as a tag.
    - A number: this number.
    - "marked": the NaN that `undefined.with_flipped_comparisons` recognises.
    - "mixed": successive elements hold the marked NaN, a plain NaN, a large positive and a large negative number.
    """
    made: Any = getattr(primitives, "uninitialized_value", None)
    value_of: Any = getattr(interpret_utils, "get_uninitialized_value", None)
    if value is None or not len(parameters(made)) == len(parameters(value_of)) == 2:
        yield
        return

    if isinstance(value, str):
        content = undefined.marked_memory if value == "marked" else undefined.mixed_memory
        with replaced(primitives, uninitialized_value=lambda shape, dtype: content(made(shape, dtype))):
            yield
        return

    def filled(shape: Any, dtype: Any) -> Any:
        empty = made(shape, dtype)
        # JAX fills semaphores with zero, and other integers with their smallest or largest number.
        is_float = jnp.issubdtype(empty.dtype, jnp.floating)
        return jnp.full_like(empty, clipped(value, empty.dtype)) if is_float else empty

    def number_of(dtype: Any, uninitialized_memory: Any) -> Any:
        is_float = jnp.issubdtype(dtype, jnp.floating)
        return clipped(value, dtype) if is_float else value_of(dtype, uninitialized_memory)

    with replaced(primitives, uninitialized_value=filled), replaced(interpret_utils, get_uninitialized_value=number_of):
        yield


def export(
    closed: Any,
    shapes: tuple[jax.ShapeDtypeStruct, ...],
    platform: str,
    chip: Chip,
    fill: Fill = None,
    *,
    results: meshes.Splits = (),
    joins_windows: bool = False,
) -> Any:
    """The program for `chip` as a `jax.export.Exported`.

    - `platform`: for `tpu` or `cuda`, the kernels are lowered for the device. For `cpu`, they are interpreted and
      compute the results of `chip`.
    - `fill`: the content of unwritten memory on the CPU (None: NaN). If it is "marked" or "mixed", comparisons of
      marked memory give the reversed result.
    - `results`: the splits of the results over a mesh.
    """
    # JAX exports these custom calls only on request, because their form may change between its versions. Here the same
    # version of JAX runs the program.
    named = [_LAYOUT_CALL, *([kernels.TRITON_CALL] if platform == "cuda" else [])]
    unchecked = [jax.export.DisabledSafetyCheck.custom_call(name) for name in named]
    if platform != "cpu":
        split = meshes.placements(results, asked_device.abstract_mesh(chip)) if chip.mesh else None
        compiled = jax.jit(runnable(closed, False, chip), out_shardings=split and list(split))
        return jax.export.export(compiled, platforms=[platform], disabled_checks=unchecked)(*shapes)
    with quick_grid_loop(), copies_of_any_size(), scopes_of_any_depth(), memory_filled_with(fill):
        program = runnable(closed, True, chip, is_flipped=isinstance(fill, str), joins_windows=joins_windows)
        return jax.export.export(jax.jit(program), platforms=[platform], disabled_checks=unchecked)(*shapes)


def checked_program(
    closed: Any, shapes: tuple[jax.ShapeDtypeStruct, ...], chip: Chip, fill: Fill, *, joins_windows: bool = False
) -> bytes:
    """The program whose outputs are checked: the CPU reference program, or over a mesh the traced program itself.

    Raises Rejected `not-interpretable`.
    """
    if chip.mesh:
        return program_codec.encode(closed)
    try:
        return bytes(export(closed, shapes, "cpu", chip, fill, joins_windows=joins_windows).serialize())
    except NotImplementedError as error:
        raise not_interpretable(error) from error
    except ValueError as error:
        # JAX's interpreter raises errors with these words if it cannot turn a reference into a value.
        if " Ref " not in str(error) and "discharged" not in str(error):
            raise
        scopes = (equation for equation in jaxprs.equations(closed.jaxpr) if equation.primitive.name == "run_scoped")
        where = next(map(packages.place_of, scopes), "")
        reason = str(error).splitlines()[0]
        raise not_interpretable(f"{where}memory of run_scoped ({reason}); use scratch_shapes") from error


def not_interpretable(error: object) -> Rejected:
    """The Rejected for a kernel that JAX's interpreter cannot run."""
    return Rejected(
        "correctness",
        "not-interpretable",
        f"the CPU interpreter of Pallas cannot run this kernel, so it cannot be checked: {error}",
    )
