"""The operations of contests, and the rules for a correct answer, which no kernel can change.

An operator is loaded on demand, so that a contest depends on its own operator and on no other. A new operator is a
folder, or a file in one of the folders here: docs/ADD_AN_OPERATOR.md.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from harness.operators.conformance import complaints
from harness.operators.outputs import as_read
from harness.operators.probes import Probe, changed, check_determinism, check_probe
from harness.operators.problem import Problem
from harness.operators.space import Space
from harness.operators.state import check_state
from harness.operators.suite import Member, Suite
from harness.operators.timing import timing_inputs
from harness.operators.tolerance import check

# For type checkers only: an operator that is not listed here works as well.
if TYPE_CHECKING:
    from harness.operators.attention.backward import AttentionBackward
    from harness.operators.attention.forward import Attention
    from harness.operators.collectives.alone import AllGather, AllReduce, ReduceScatter
    from harness.operators.collectives.ring_attention import RingAttention
    from harness.operators.collectives.sharded_matmul import AllGatherMatmul, MatmulReduceScatter
    from harness.operators.norm.rmsnorm import RMSNorm
    from harness.operators.paged.attention import PagedAttention
    from harness.operators.paged.cache_rows import CacheRows
    from harness.operators.paged.latent_attention import LatentAttention
    from harness.operators.products.cross_entropy import CrossEntropy
    from harness.operators.products.grouped_matmul import GroupedMatmul
    from harness.operators.products.grouped_matmul_transposed import GroupedMatmulTransposed
    from harness.operators.products.matmul import Matmul
    from harness.operators.products.quantized_matmul import QuantizedMatmul
    from harness.operators.products.swiglu import SwiGLU
    from harness.operators.recurrent.gated_delta import GatedDelta
    from harness.operators.selection.top_k import TopK

# The module of each operator, as listed by the package of its family.
OPERATORS: dict[str, str] = {
    name: f"{family.name}.{home}"
    for family in iter_modules(__path__)
    if family.ispkg
    for name, home in import_module(f"{__name__}.{family.name}").OPERATORS.items()
}


def __getattr__(name: str) -> Any:
    if name not in OPERATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{OPERATORS[name]}"), name)
