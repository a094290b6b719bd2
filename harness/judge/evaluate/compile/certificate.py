"""Derives the CPU's program from the traced program, and proves that the chip's program equals the traced program.

kernel.py can change anything in the process that traces it. So this process could deliver two unrelated programs (one
for the CPU, one for the chip), or change JAX's lowering rules. Therefore it delivers the traced program as data, and
the judge works on this data in another process, where JAX's rules are unchanged:

- It lowers the traced program for the CPU, and checks the results of this program.
- It lowers the traced program for the chip. The chip's program itself comes from the candidate's process, because only
  that process knows the lines of kernel.py. The chip's program must equal the judge's lowering operation by operation,
  kernels included.
- It checks that the operations outside kernels are the same on both platforms.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
from jax._src import core as jax_core
from jax._src.interpreters import mlir
from jax.extend import core

from harness.hardware import Chip
from harness.judge.evaluate.interpret import interpretation
from harness.judge.evaluate.messages import CertifyRequest
from harness.judge.evaluate.trace import jaxprs, kernels, meshes, normal_form, program_codec, traced
from harness.judge.evaluate.trace.packages import digested
from harness.records import Certificate
from harness.sandbox import asked_device
from harness.sandbox.messages import Rejected

# Fields that are not compared: names, settings of the export, a function for derivatives, and the program's text. The
# normal form of the text is compared instead.
_NOT_COMPARED = ("fun_name", "mlir_module_serialized", "disabled_safety_checks", "_get_vjp")

# The name of the call that replaces each kernel while the operations around kernels are compared.
_OPAQUE = "opaque"
_opaque_p: Any = core.Primitive(_OPAQUE)
_opaque_p.multiple_results = True
_opaque_p.def_abstract_eval(lambda *_, avals, number: avals)


def _opaque_lowering(ctx: Any, *operands: Any, avals: Any, number: int) -> Any:
    types = [mlir.aval_to_ir_type(ctx.module_context, aval) for aval in avals]
    return mlir.custom_call(_OPAQUE, result_types=types, operands=operands, backend_config=str(number)).results


mlir.register_lowering(_opaque_p, _opaque_lowering)


def certify(request: CertifyRequest) -> Certificate:
    """The certificate that the chip's program is the traced program. Also writes the program for the checks on the CPU.

    Raises Rejected `forged-result` if the report or the traced program is forged; `program-differs` if the program for
    the chip is not the traced program; `foreign-primitive`, `not-interpretable`, and the kinds of
    `traced.refuse_unfit`.
    """
    chip = request.chip
    for_chip = jax.export.deserialize(bytearray(Path(request.for_chip).read_bytes()))
    form = normal_form.of_exported(for_chip.mlir_module())
    fingerprint = digested(form.digest, request.trace.imported)
    if fingerprint != request.trace.fingerprint:
        message = f"expected the program {request.trace.fingerprint[:12]} that was reported, got {fingerprint[:12]}"
        raise Rejected("static", "forged-result", message)
    _require_steps(kernels.of_program(for_chip.mlir_module()), {call.steps for call in request.trace.pallas_calls})
    with asked_device.aiming_at(chip):
        closed = program_codec.decode(Path(request.program).read_bytes())
        _require_sound(closed, chip)
        traced.refuse_unfit(closed, chip)
        splits, results = request.splits[: len(closed.in_avals)], request.splits[len(closed.in_avals) :]
        shapes = meshes.placed(closed.in_avals, splits, chip)
        compiled = interpretation.export(closed, shapes, chip.platform, chip, results=results)
        if chip.mesh:
            # Serializing and reading an exported program changes how it represents the splits of its arrays. The other
            # program was read from bytes too, so both have the same representation.
            compiled = jax.export.deserialize(bytearray(compiled.serialize()))
        _require_same(for_chip, form, compiled, chip)
        _require_same_around(closed, shapes, chip)
    checked = interpretation.checked_program(closed, shapes, chip, request.fill, joins_windows=request.joins_windows)
    Path(request.artifact).write_bytes(checked)
    return Certificate(
        sha256=normal_form.digest((*normal_form.of_traced(closed), form.digest)),
        platform=chip.platform,
        primitives=normal_form.primitives(closed),
    )


def _require_sound(closed: Any, chip: Chip) -> None:
    """Raises Rejected `foreign-primitive` if a primitive is not JAX's, `forged-result` if a value's type is wrong.

    No trace produces a program with wrong types. From such a program, the compiler and the interpreter could read
    different types, and so compute different results.
    """
    for name, _ in normal_form.primitives(closed):
        if name.startswith(normal_form.UNKNOWN):
            raise Rejected("static", "foreign-primitive", f"expected primitives of JAX, got a foreign one: {name}")
    for program in jaxprs.every_program(closed.jaxpr):
        try:
            # The body of a shard_map is checked without its surroundings, so the axes of the mesh must be defined.
            with jax_core.extend_axis_env_nd(chip.mesh):
                jax_core.check_jaxpr(program)
        except Exception as error:
            message = f"expected a program with values of their stated types, got {type(error).__name__}: {error}"
            raise Rejected("static", "forged-result", message.splitlines()[0]) from error


def _require_same(exported: Any, form: normal_form.ExportedForm, expected: Any, chip: Chip) -> None:
    """Raises Rejected `program-differs` if the program for the chip differs from the judge's lowering of the trace.

    `form` is the normal form of `exported`.
    """
    difference, wanted = None, expected.mlir_module()
    if form.digest != normal_form.of_exported(wanted).digest:
        difference = normal_form.difference(exported.mlir_module(), wanted)
    if difference is None:
        names = (field.name for field in fields(expected) if field.name not in _NOT_COMPARED)
        pairs = ((name, str(getattr(exported, name)), str(getattr(expected, name))) for name in names)
        differences = (f"{name}: {actual} instead of {other}" for name, actual, other in pairs if actual != other)
        difference = next(differences, None)
    if difference is not None:
        message = f"expected the traced program to be compiled for the {chip.name}, got another one: {difference}"
        raise Rejected("static", "program-differs", message)


def _require_same_around(closed: Any, shapes: tuple[Any, ...], chip: Chip) -> None:
    """Raises Rejected `program-differs` if the program around its kernels differs between the platforms."""
    function = jax.jit(core.jaxpr_as_fun(closed.replace(jaxpr=_with_opaque_kernels(closed.jaxpr))))
    for_chip, for_cpu = (
        function.trace(*shapes).lower(lowering_platforms=(platform,)).as_text(debug_info=True)
        for platform in (chip.platform, "cpu")
    )
    difference = normal_form.difference(for_chip, for_cpu)
    if difference is not None:
        message = f"expected the same operations around kernels on the {chip.name} and on the CPU, got a difference"
        raise Rejected("static", "program-differs", f"{message}: {difference}")


def _with_opaque_kernels(jaxpr: Any) -> Any:
    """The same program; each kernel is replaced by a call that is the same on every platform."""
    changed = []
    for number, equation in enumerate(jaxpr.eqns):
        if jaxprs.is_pallas_call(equation):
            params = {"avals": tuple(out.aval for out in equation.outvars), "number": number}
            equation = core.new_jaxpr_eqn(
                equation.invars, equation.outvars, _opaque_p, params, core.no_effects, equation.source_info
            )
        changed.append(jaxprs.with_inner(equation, _with_opaque_kernels))
    return jaxpr.replace(eqns=changed)


def _require_steps(mosaic_kernels: tuple[kernels.MosaicKernel, ...], reported: set[int]) -> None:
    steps = {kernel.steps for kernel in mosaic_kernels}
    if None not in steps and steps != reported:
        message = f"expected kernels of {sorted(reported)} grid steps as reported, got {sorted(filter(None, steps))}"
        raise Rejected("static", "forged-result", message)


TASKS = {"certify": (CertifyRequest, certify)}
