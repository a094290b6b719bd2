"""The process that compiles the exported program with the real TPU compiler, dumps its schedule, and reads counters."""

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from harness.dumps import hlo, mosaic
from harness.dumps.executable import SUFFIX
from harness.errors import RatchetError
from harness.judge.evaluate.compile.topology import described_shapes
from harness.judge.evaluate.messages import CompileReply, CompileRequest
from harness.sandbox.messages import Rejected

if TYPE_CHECKING:
    # For types only: an import at run time would add the code of the checks to the timing key.
    from harness.operators import Problem

# The most characters of a compiler's sentence that a failure quotes.
_LONGEST = 600


def compile_for_chip(request: CompileRequest) -> CompileReply:
    """Compiles the program, writes its HLO and Mosaic text, and returns the counts of operations in both.

    Raises Rejected `vmem-exceeded`, `unsupported`, `compile-error`, `host-callback`, `no-kernel`, `no-schedule`,
    `work-outside-pallas`, `bad-hlo` or `bad-mosaic`; RatchetError `wrong-topology`.
    """
    problem: Problem = pickle.loads(Path(request.problem).read_bytes())
    shapes = described_shapes(problem.statement().inputs, request.chip)
    exported = jax.export.deserialize(bytearray(Path(request.artifact).read_bytes()))
    try:
        # The state's memory is donated, so that the kernel changes the state in place. Otherwise the time would include
        # a copy.
        donated = problem.statement().donated
        compiled = jax.jit(exported.call, donate_argnums=donated).lower(*shapes).compile()
    except Exception as error:
        # If Pallas is imported, JAX wraps the compiler's error in another error.
        cause = error.__cause__ if isinstance(error.__cause__, jax.errors.JaxRuntimeError) else error
        if not isinstance(cause, (jax.errors.JaxRuntimeError, NotImplementedError, ValueError)):
            raise
        raise _compile_failure(str(cause)) from error
    text = compiled.as_text()
    if request.chip.mesh:
        # Only the serialized executable contains XLA's tables of neighbouring chips.
        Path(f"../../dumps/program{SUFFIX}").write_bytes(compiled.runtime_executable().serialize())
    for path in request.hlo_texts:
        Path(path).write_text(text, encoding="utf-8")
    try:
        if request.chip.mesh and not problem.statement().work.matmul_flops:
            _refuse_collectives(compiled)
        return _count(compiled, text, request.mosaic_directory)
    except RatchetError as error:
        raise Rejected("counters", error.kind, str(error)) from error


def _refuse_collectives(compiled: Any) -> None:
    """Raises Rejected `work-outside-pallas` if XLA moves data between chips; used for problems without matmuls."""
    moved = hlo.collectives(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
    if moved:
        message = (
            f"expected the kernel to move the data between chips, got {', '.join(moved)} of XLA; let shard_map split "
            "inputs and results as the problem does, and let the kernel send the data that other chips need"
        )
        raise Rejected("compile", "work-outside-pallas", message)


def _count(compiled: Any, text: str, mosaic_directory: str) -> CompileReply:
    modules = compiled.runtime_executable().hlo_modules()
    proto = modules[0].as_serialized_hlo_module_proto()
    targets = [call.target for call in hlo.custom_calls(proto)]
    hosts = [target for target in targets if "callback" in target.lower() or "host" in target.lower()]
    if hosts:
        message = f"expected no call of the host in the compiled module, got {', '.join(hosts)}"
        raise Rejected("compile", "host-callback", message)
    kernels = hlo.kernel_bodies(proto)
    if not kernels:
        raise Rejected("compile", "no-kernel", "expected a Pallas kernel in the compiled module, got none")
    if not any(Path("../../dumps").glob("*final_bundles.txt")):
        message = "expected the compiler to write a schedule (*final_bundles.txt in dumps), got none"
        raise Rejected("compile", "no-schedule", message)
    # The kernels' texts are written here instead of by Mosaic's own dump, which has the text after every pass: 26 MB
    # for large blocks.
    for kernel in kernels:
        body = mosaic.fingerprint_text(kernel.body)
        (Path(mosaic_directory) / f"{kernel.name}.mlir").write_text(body, encoding="utf-8")
    return CompileReply(hlo=hlo.counts(proto, text), mosaic=mosaic.counts([kernel.body for kernel in kernels]))


def _compile_failure(text: str) -> Rejected:
    """The failure to raise; its detail is the end of the compiler's text."""
    kind = "compile-error"
    lower = text.lower()
    if "vmem" in lower and re.search(r"exceed|exhaust|out of memory|limit", lower):
        kind = "vmem-exceeded"
    elif re.search(r"(not|un)[ -]?(yet )?(implemented|supported)", lower):
        kind = "unsupported"
    return Rejected("compile", kind, _sentence(text), text[-8000:])


def _sentence(text: str) -> str:
    """The compiler's sentence about an exceeded VMEM limit; if there is none, its first line without error codes."""
    exceeded = re.search(r"Scoped allocation with size .*? exceeded scoped vmem limit by [\d.]*\w*", text)
    if exceeded:
        return exceeded.group()
    # The runtime puts codes in front: `RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:`.
    codes = re.compile(r"^(?:[A-Z_]+: |E\d+: \w+:|Mosaic failed to compile TPU kernel: )+")
    sentences = (codes.sub("", line.strip()) for line in text.splitlines())
    sentence = next(filter(None, sentences), "the compiler failed without a message")
    # A line may quote a whole operation. The failure's detail has the end of the text.
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]} ..."


TASKS = {"compile": (CompileRequest, compile_for_chip)}
