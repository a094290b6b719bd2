"""Operation counts inside Pallas TPU kernels, read from their Mosaic bytecode with jaxlib's MLIR bindings.

Only jaxlib's MLIR bindings are imported, because no other library reads the bytecode. JAX and devices are not needed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _tpu_ext
from jaxlib.mlir.passmanager import PassManager

from harness.errors import RatchetError
from harness.records import MosaicCounts

# Bytecode is stored in a frozen dialect, which this pass converts to the current dialects.
_DESERIALIZE = "builtin.module(mosaic-serde{serialize=false})"

_DIALECTS = frozenset(("arith", "builtin", "cf", "func", "llvm", "math", "memref", "scf", "tpu", "ub", "vector"))

# The operations in each count.
_NAMES = {
    "matmul": "tpu.matmul tpu.conv vector.contract",
    "exp": "math.exp math.exp2",
    "reduction": "vector.multi_reduction vector.reduction tpu.all_reduce tpu.reduce tpu.reduce_index",
    "load": """
        vector.load vector.maskedload vector.transfer_read tpu.load tpu.vector_load tpu.vector_load_idx
        tpu.strided_load tpu.shuffled_load
    """,
    "store": """
        vector.store vector.maskedstore vector.transfer_write tpu.store tpu.vector_store tpu.vector_store_idx
        tpu.strided_store tpu.shuffled_store
    """,
    "dma": "tpu.enqueue_dma tpu.enqueue_indirect_dma",
}


def counts(bodies: Sequence[bytes]) -> MosaicCounts:
    """Static counts over all bodies: each operation counts once, even if it is in a loop.

    Only loads and stores of vectors are counted. In some JAX versions a store through a reference comes with a load of
    the old value, which the compiler removes later. `dma` counts transfers that are started. `not_understood` names
    each operation of an unknown dialect once. Raises RatchetError `bad-mosaic` if a body does not parse, for example
    because a newer jaxlib wrote it.
    """
    names: Counter[str] = Counter()
    for body in bodies:
        with parsed(body) as module:
            # The module operation itself is the container, and is not counted.
            names.update(_names(module.operation))
    named = {field: sum(names[name] for name in alternatives.split()) for field, alternatives in _NAMES.items()}
    unknown = tuple(sorted(name for name in names if name.partition(".")[0] not in _DIALECTS))
    return MosaicCounts(**named, operations=names.total(), not_understood=unknown)


def fingerprint_text(body: bytes) -> str:
    """The kernel as text without source locations. Under one JAX version, kernels with equal texts are the same kernel.

    Raises RatchetError `bad-mosaic` if the body does not parse.
    """
    with parsed(body) as module:
        return str(module.operation.get_asm(enable_debug_info=False, print_generic_op_form=True))


@contextmanager
def parsed(body: bytes) -> Iterator[ir.Module]:
    """The kernel's module, in a separate context. Raises RatchetError `bad-mosaic` if the body does not parse."""
    with ir.Context() as context, ir.Location.unknown():
        _tpu_ext.register_dialect(context)
        # Only the pass knows the frozen dialect.
        context.allow_unregistered_dialects = True
        try:
            module = ir.Module.parse(body)
            PassManager.parse(_DESERIALIZE).run(module.operation)
        except ir.MLIRError as error:
            # The first two lines name the step and the error; the rest is the whole module.
            reason = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
            raise RatchetError(
                "bad-mosaic", f"expected Mosaic bytecode that this jaxlib reads, got {len(body)} bytes: {reason}"
            ) from error
        yield module


def _names(operation: ir.Operation) -> Iterator[str]:
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield inner.operation.name
                yield from _names(inner.operation)
