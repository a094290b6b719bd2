"""The modes of a TPU's profiler, for modules that do not import JAX."""

from typing import Literal, TypeAlias, get_args

# The modes of a TPU's profiler. They are listed here because JAX accepts any word and, on a CPU, does not report an
# unknown one.
TraceMode: TypeAlias = Literal["TRACE_ONLY_HOST", "TRACE_ONLY_XLA", "TRACE_COMPUTE", "TRACE_COMPUTE_AND_SYNC"]
TRACE_MODES: tuple[TraceMode, ...] = get_args(TraceMode)
