"""What is computed and how an answer is judged right: owned by the judge, never by the kernel."""

from harness.problems.attention import Attention
from harness.problems.attention_backward import AttentionBackward
from harness.problems.conformance import complaints, require_conforming
from harness.problems.defined import Defined
from harness.problems.grouped_matmul import GroupedMatmul
from harness.problems.grouped_matmul_transposed import GroupedMatmulTransposed
from harness.problems.matmul import Matmul
from harness.problems.outputs import as_read
from harness.problems.paged_attention import PagedAttention
from harness.problems.probes import Probe, changed, check_determinism, check_probe
from harness.problems.problem import Problem
from harness.problems.quantized_matmul import QuantizedMatmul
from harness.problems.rmsnorm import RMSNorm
from harness.problems.space import Space
from harness.problems.state import check_state
from harness.problems.suite import Member, Suite
from harness.problems.swiglu import SwiGLU
from harness.problems.timing import timing_inputs
from harness.problems.tolerance import check
