"""What is asked of the process that writes profiles; it knows nothing of JAX."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

# What a TPU's profiler may be asked for. JAX takes any word and, on a CPU, says nothing about a wrong one.
TraceMode: TypeAlias = Literal["TRACE_ONLY_HOST", "TRACE_ONLY_XLA", "TRACE_COMPUTE", "TRACE_COMPUTE_AND_SYNC"]
TRACE_MODES: tuple[TraceMode, ...] = get_args(TraceMode)


@dataclass(frozen=True, slots=True, kw_only=True)
class XspaceRequest:
    """Write the XSpace whose text form is in `text` to `profile`, as the bytes that xprof reads; `host` ends it."""

    text: str
    profile: str
    host: str
