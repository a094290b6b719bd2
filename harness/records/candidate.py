"""Facts about a traced kernel.py (claims, Pallas calls, buffers, traffic), and the failure of a candidate."""

from dataclasses import dataclass
from typing import Literal

from harness.records.problem import Array

Stage = Literal["contract", "static", "correctness", "compile", "counters", "latency", "profile"]


# Kinds of failures that the machine may have caused: the same candidate may pass when it is tried again.
MAY_PASS_NEXT_TIME = ("timeout", "killed", "crash", "out-of-memory", "judge-changed", "tampered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The failure of a candidate, as a value and not as an exception. `kind` is stable for programs.

    `is_of_program` is True for a crash with one of Python's errors about shapes, types or names. The same source fails
    in the same way every time, so the machine is not the cause of such a crash.
    """

    stage: Stage
    kind: str
    message: str
    detail: str = ""
    is_of_program: bool = False

    @property
    def may_pass_next_time(self) -> bool:
        """True if the machine may be the cause rather than the candidate."""
        return self.kind in MAY_PASS_NEXT_TIME and not self.is_of_program


@dataclass(frozen=True, slots=True, kw_only=True)
class TilingClaim:
    """The values of `get_tiling_meta()` in a comparable form; they are checked, never trusted. None: not stated."""

    grid: tuple[int, ...] | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None
    buffer_bytes: int | None = None
    vregs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The kernel's statements about itself."""

    kernel_name: str
    problem_description: str
    flops: int | None
    tiling: TilingClaim | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One operand of a Pallas call: its block, and its HBM traffic over all grid steps, by its index map.

    - `fetches`: the number of steps at which the block index changes, including the first step.
    - `hbm_bytes`: `fetches` x the bytes of a block. Both are None if the kernel moves the operand by hand (memory space
      ANY/HBM). In this case only the simulator knows the traffic.
    - `buffers`: the number of copies of the block in VMEM (2: double buffering; 1: the block never changes).
    """

    name: str
    role: Literal["input", "output"]
    array: Array
    block_shape: tuple[int, ...]
    memory_space: str
    buffers: int
    fetches: int | None
    hbm_bytes: int | None
    vmem_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """One scratch buffer of a Pallas call, padded to the tiles of its dtype."""

    shape: tuple[int, ...]
    dtype: str
    memory_space: str
    vmem_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PallasCall:
    """One Pallas call of the trace. Grid bounds that depend on tables have the values of the first timing input."""

    name: str
    grid: tuple[int, ...]
    dimension_semantics: tuple[str, ...]
    windows: tuple[Window, ...]
    scratch: tuple[Scratch, ...]
    vmem_limit_bytes: int | None

    @property
    def steps(self) -> int:
        """Grid steps of one call."""
        product = 1
        for bound in self.grid:
            product *= bound
        return product

    @property
    def hbm_bytes(self) -> int | None:
        """HBM bytes in and out of one call; None if the kernel moves an operand with explicit copies."""
        total = 0
        for window in self.windows:
            if window.hbm_bytes is None:
                return None
            total += window.hbm_bytes
        return total

    @property
    def vmem_bytes(self) -> int:
        """VMEM that the windows and scratch of the call need."""
        return sum(window.vmem_bytes for window in self.windows) + sum(s.vmem_bytes for s in self.scratch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A package that a candidate imports: the number of its imported files, and one hash over all of these files."""

    name: str
    version: str
    files: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file of an installed package that defines traced operations: its path below site-packages, and its hash."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The facts from the single trace of a candidate.

    - `fingerprint` is a hash of the traced program without source locations, and of the `imported` packages except
      JAX's own tools: candidates with equal fingerprints are the same program. `sources` are the files of these
      packages that define traced operations.
    - `pallas_flops` and `outside_flops` are counted from the trace (dots and elementwise floating-point operations,
      full shapes, grid steps included), and so are `exponentials` in Pallas calls.
    - The following are source lines: `one_pass_lines` multiply float32 numbers in one pass of bfloat16, `narrow_sums`
      add up numbers in bfloat16, `narrow_maxima` round a row's maximum to bfloat16, `transposes` transpose outside
      kernels.
    - `written_over` are inputs that a call overwrites although the caller keeps them, with source lines.
    """

    fingerprint: str
    pallas_calls: tuple[PallasCall, ...]
    pallas_flops: int
    outside_flops: int
    seconds: float
    exponentials: int = 0
    one_pass_lines: tuple[str, ...] = ()
    written_over: tuple[str, ...] = ()
    narrow_sums: tuple[str, ...] = ()
    narrow_maxima: tuple[str, ...] = ()
    transposes: tuple[str, ...] = ()
    imported: tuple[Imported, ...] = ()
    sources: tuple[SourceFile, ...] = ()
