"""The flags with which a TPU's profiles show the inside of kernels, if the installed libtpu knows them."""

import importlib.util
import mmap
from functools import cache
from pathlib import Path

# libtpu ends the process at an unknown flag. Version 0.0.50.1 knows all three flags, 0.0.42.1 the last two; the first
# flag replaces the second (documentation of JAX's profiler).
_REGIONS = ("xla_xprof_enable_custom_call_tracing", "xla_enable_custom_call_region_trace")
_DEBUG_INFO = "xla_xprof_register_llo_debug_info"


@cache
def inside_kernels() -> str:
    """The value of LIBTPU_INIT_ARGS; empty if libtpu is missing or knows none of the flags."""
    flags = _in_libtpu((*_REGIONS, _DEBUG_INFO))
    regions = [name for name in _REGIONS if name in flags][:1]
    return " ".join(f"--{name}=true" for name in (*regions, *(name for name in (_DEBUG_INFO,) if name in flags)))


def _in_libtpu(names: tuple[str, ...]) -> frozenset[str]:
    """The names that the library contains; an unknown flag would make it end the process."""
    spec = importlib.util.find_spec("libtpu")
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0]) / "libtpu.so" if folders else None
    if path is None or not path.is_file():
        return frozenset()
    with path.open("rb") as library, mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return frozenset(name for name in names if text.find(name.encode()) >= 0)
