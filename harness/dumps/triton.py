"""The text of a Pallas kernel for NVIDIA GPUs, read from its Triton bytecode with jaxlib's MLIR bindings."""

from jaxlib.mlir import ir
from jaxlib.triton import dialect

from harness.errors import RatchetError


def fingerprint_text(body: bytes) -> str:
    """The kernel as text without source locations. Under one JAX version, kernels with equal texts are the same kernel.

    Raises RatchetError `bad-triton` if the body does not parse, for example because a newer jaxlib wrote it.
    """
    with ir.Context() as context, ir.Location.unknown():
        dialect.register_dialect(context)
        try:
            module = ir.Module.parse(body)
        except ir.MLIRError as error:
            sentence = f"expected Triton bytecode that this jaxlib reads, got {len(body)} bytes: {error}"
            raise RatchetError("bad-triton", sentence) from error
        return str(module.operation.get_asm(enable_debug_info=False, print_generic_op_form=True))
