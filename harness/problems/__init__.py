"""What is computed and how an answer is judged right: owned by the judge, never by the kernel.

An operator is loaded when it is asked for, so that a contest stands on its own operator and on no other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness.problems.conformance import complaints, require_conforming
from harness.problems.defined import Defined
from harness.problems.outputs import as_read
from harness.problems.probes import Probe, changed, check_determinism, check_probe
from harness.problems.problem import Problem
from harness.problems.space import Space
from harness.problems.state import check_state
from harness.problems.suite import Member, Suite
from harness.problems.timing import timing_inputs
from harness.problems.tolerance import check

if TYPE_CHECKING:
    from harness.problems.attention import Attention
    from harness.problems.attention_backward import AttentionBackward
    from harness.problems.grouped_matmul import GroupedMatmul
    from harness.problems.grouped_matmul_transposed import GroupedMatmulTransposed
    from harness.problems.matmul import Matmul
    from harness.problems.paged_attention import PagedAttention
    from harness.problems.quantized_matmul import QuantizedMatmul
    from harness.problems.rmsnorm import RMSNorm
    from harness.problems.swiglu import SwiGLU

# The file that defines each operator.
OPERATORS = {
    "Attention": "attention",
    "AttentionBackward": "attention_backward",
    "GroupedMatmul": "grouped_matmul",
    "GroupedMatmulTransposed": "grouped_matmul_transposed",
    "Matmul": "matmul",
    "PagedAttention": "paged_attention",
    "QuantizedMatmul": "quantized_matmul",
    "RMSNorm": "rmsnorm",
    "SwiGLU": "swiglu",
}


def __getattr__(name: str) -> Any:
    if name not in OPERATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{OPERATORS[name]}"), name)
