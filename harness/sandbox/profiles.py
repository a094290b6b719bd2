"""The modes of a TPU's profiler, for modules that do not import JAX."""

from typing import Literal, TypeAlias, get_args

# The modes of a TPU's profiler. JAX takes any word and, on a CPU, says nothing about a wrong one.
TraceMode: TypeAlias = Literal["TRACE_ONLY_HOST", "TRACE_ONLY_XLA", "TRACE_COMPUTE", "TRACE_COMPUTE_AND_SYNC"]
TRACE_MODES: tuple[TraceMode, ...] = get_args(TraceMode)
