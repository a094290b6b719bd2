"""The process that compiles a kernel with the checks that its options leave out. The simulator runs these checks."""

from dataclasses import replace
from pathlib import Path

import jax

from harness.judge.evaluate.compile.compilation import compile_for_chip
from harness.judge.evaluate.compile.left_out import CheckedCompileRequest, with_checks
from harness.judge.evaluate.messages import CompileReply


def compile_with_checks(request: CheckedCompileRequest) -> CompileReply:
    """Compiles the program with all checks. Raises the same errors as `compile_for_chip`."""
    exported = jax.export.deserialize(bytearray(Path(request.artifact).read_bytes()))
    artifact = Path("candidate.checked")
    checked = replace(exported, mlir_module_serialized=with_checks(exported.mlir_module_serialized))
    artifact.write_bytes(checked.serialize())
    return compile_for_chip(replace(request, artifact=str(artifact)))


TASKS = {"compile_with_checks": (CheckedCompileRequest, compile_with_checks)}
