"""The facts of one chip: a row of the table in harness/chips, which has one file for each chip."""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    # Imported only for types, so that no key depends on its contents.
    from harness.chips.workbench import Workbench

MIB = 1 << 20
# The pages in `CLOUD` also publish the peaks of int8 and fp8. Peaks of int4 are only in jax's TPU table, which has no
# int8 peak for v7x. The compiler's spacing of matmuls of these types agrees with the peaks (libtpu 0.0.50). Scoped VMEM
# is the compiler's default limit for one kernel, as its error message states it.
CLOUD = "Google Cloud TPU documentation, system architecture pages; VMEM and core counts from jax's own TPU table"
PAPER = "Jouppi et al., CACM 63(7), 2020, halved for one of the chip's two cores"
BOOK = "How to Scale Your Model, part 2 (jax-ml.github.io/scaling-book/tpus), table of interconnect figures"
NVIDIA = "NVIDIA data sheets of H100 SXM and H200 SXM (dense peaks), Hopper tuning guide (shared memory, L2)"

# The dtypes that Mosaic refuses to load on v4, v5e, v5p, v6e and v7x (each was tried with libtpu 0.0.42.1). Mosaic
# loads int8, int4, float8_e4m3fn and float8_e5m2 on all of these chips, and multiplies them on all except v4.
_NOT_ON_A_TPU = ("float16", "float64", "int64", "uint64", "complex64", "complex128")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The published figures of an accelerator, per JAX device. They suffice for predictions, but not for judging.

    `device` is the kind of a JAX device: a chip, one of its cores, or a GPU. `hbm_bytes` is the capacity. The peak of a
    narrower type is None unless it is published and above bfloat16's. `mxu_size` is the number of rows, and of columns,
    of a matrix unit; None if the unit is not square (tensor cores). `source` is the publication of the figures.
    """

    name: str
    device: Literal["chip", "core", "GPU"]
    peak_bf16_flops_per_second: float
    hbm_bytes_per_second: float
    hbm_bytes: int
    mxu_size: int | None
    source: str
    clock_hz: float | None = None
    peak_int8_ops_per_second: float | None = None
    peak_fp8_flops_per_second: float | None = None
    peak_int4_ops_per_second: float | None = None

    @property
    def ridge_flops_per_byte(self) -> float:
        """The operational intensity at which matmuls of bfloat16 and memory take equally long, in FLOP/byte."""
        return self.ridge("bfloat16")

    def narrow_peak(self, dtype: str) -> float | None:
        """The published peak of matmuls of `dtype` (numpy/ml_dtypes name); None unless it is above bfloat16's."""
        narrow = {
            "int8": self.peak_int8_ops_per_second,
            "float8": self.peak_fp8_flops_per_second,
            "int4": self.peak_int4_ops_per_second,
        }
        return narrow.get("float8" if dtype.startswith("float8") else dtype.removeprefix("u"))

    def peak_flops_per_second(self, dtype: str) -> float:
        """The peak of matmuls whose operands are of `dtype` (numpy/ml_dtypes name).

        A dtype without a peak gets bfloat16's peak. So does float32, because by default a TPU multiplies float32 in one
        bfloat16 pass.
        """
        return self.narrow_peak(dtype) or self.peak_bf16_flops_per_second

    def ridge(self, dtype: str) -> float:
        """The operational intensity at which matmuls of `dtype` and memory take equally long, in FLOP/byte."""
        return self.peak_flops_per_second(dtype) / self.hbm_bytes_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip(Figures):
    """An accelerator for which kernels are judged.

    Peaks are those of the unit that one Pallas program occupies:
    - v4 and v5p: the whole chip, whose two cores split `parallel` grid dimensions.
    - The other TPUs: one core.
    - A GPU: the whole chip; `cores` is its number of streaming multiprocessors.

    The peak of a narrower type is None if the chip multiplies this type no faster than bfloat16. The compiler then
    widens it.

    - `topology`: the smallest topology of the chip that the TPU compiler accepts, None for a GPU.
    - `cache_bytes`: the size of the chip-wide cache, in which arrays may stay from one call to the next (0 on a TPU).
    - `vmem_bytes`: the size of a core's memory for blocks (shared memory on a GPU).
    - `scoped_vmem_bytes`: the part of that memory that one kernel gets by default.

    The arithmetic of a TPU, as its compiler shows it (a GPU's arithmetic is not modelled):
    - `has_bfloat16_units`: the vector and transcendental units compute in bfloat16 (`vmul.bf16`, `vpow.bf16`,
      `vrcp.bf16`). Other chips compute in float32 and round once.
    - `divides_by_exact_reciprocal`: a float32 division multiplies by `vrcp.f32`, so exact and approximate reciprocals
      are the same instruction. Other chips refine the reciprocal by a Newton step (`vmul`, `vsub`, `vmul`, `vadd`).
    - `has_narrow_products`: the matrix unit multiplies operands of 8 bits and less.

    `mesh` has the name and size of each axis of the slice that one program runs on; () for one chip.
    """

    topology: str | None
    device_kinds: tuple[str, ...]
    cores: int
    vmem_bytes: int
    scoped_vmem_bytes: int
    clock_hz: float
    mxus_per_core: int
    has_bfloat16_units: bool
    divides_by_exact_reciprocal: bool
    has_narrow_products: bool
    platform: Literal["tpu", "cuda"] = "tpu"
    cache_bytes: int = 0
    mesh: tuple[tuple[str, int], ...] = ()

    @property
    def devices(self) -> int:
        """Number of chips that one program runs on."""
        return prod(size for _, size in self.mesh)

    @property
    def kind(self) -> Literal["TPU", "GPU"]:
        """The kind of accelerator."""
        return "TPU" if self.platform == "tpu" else "GPU"

    def vmem_limit(self, asked: int | None) -> int:
        """Bytes of VMEM that a kernel with this `vmem_limit_bytes` (None: not given) may use."""
        return min(asked or self.scoped_vmem_bytes, self.vmem_bytes)

    def lacks(self, dtype: str) -> bool:
        """True if no kernel on this chip can load an array of this dtype."""
        return self.platform == "tpu" and dtype in _NOT_ON_A_TPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Unit timings as the compiler's schedule shows them, in cycles: see Machine in judge/simulate/machine.py.

    `narrow_rate` follows from the published peaks of 8-bit types; `branch_slots` are bundles.
    """

    granule: int
    matmul_results: int
    push: int
    push_transposed: int
    push_float32: int
    push_float32_transposed: int
    matmul_latency: int
    matmul_narrow_latency: int
    xlu: int
    transpose_packed: int
    reduce_latency: int
    permute_latency: int
    transpose_latency: int
    transpose_packed_latency: int
    eup_latency: int
    narrow_rate: int
    branch_slots: int
    branch_slots_vary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Constants from published times of a chip, not from its data sheet: see Machine and benchmarks/FIDELITY.md.

    A constant keeps its default, unless a published time of the chip contradicts the default. A chip without published
    times is simulated with the defaults only, and its reports state this.
    """

    hbm_read_share: float = 1.0
    hbm_write_share: float = 1.0
    # In each step, unmasked attention on 512 rows waits for the previous step's transfer, because the transfer takes
    # longer than a step's work. Writes have a shorter latency: grouped products, which wait for each write, show it.
    dma_latency_seconds: float = 800e-9
    dma_write_latency_seconds: float = 350e-9
    # Many small transfers in flight take a few nanoseconds each (v7x, rotary embedding: 4163 transfers and 49 waits in
    # 53 us).
    transfer_seconds: float = 4e-9
    wait_seconds: float = 20e-9
    # On a v7x, HBM delivers 1942 bytes per cycle. When the group changes, grouped products wait for the large block
    # that they fetch. Their gradients wait for the large block that they store. Both waits fit 0.53 of the bandwidth.
    # On all other chips HBM delivers less than 1024 bytes per cycle to a core, so this constant changes nothing there.
    transfer_bytes_per_cycle: int = 1024
    # A binary fraction, so that sums of cycles are exact and states of the units repeat.
    matmul_slowdown: float = 33 / 32
    # The number of matmuls that can be queued in front of a matrix unit while the core continues. With a queue of one,
    # a slowed stream of matmuls delays nothing else. On v6e, attention and cross-entropy need this queue, and a longer
    # queue changes nothing. On v7x, a queue makes the times of backward attention and grouped products worse
    # (benchmarks/CALIBRATION.md).
    matmul_queue: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The 95 % interval of each constant of `Calibrated` with the others fixed (benchmarks/CALIBRATION.md).

    A simulated gain must exist at both ends of each interval. An interval's default is the range that the prior of
    `calibrate.py` allows. The default stays if no published time narrows the range.
    """

    hbm_read_share: tuple[float, float] = (0.822, 1.0)
    hbm_write_share: tuple[float, float] = (0.676, 1.0)
    dma_latency_seconds: tuple[float, float] = (365e-9, 1100e-9)
    dma_write_latency_seconds: tuple[float, float] = (108e-9, 900e-9)
    transfer_seconds: tuple[float, float] = (1.01e-9, 15.8e-9)
    wait_seconds: tuple[float, float] = (5.07e-9, 60e-9)
    transfer_bytes_per_cycle: tuple[int, int] = (400, 2728)
    matmul_slowdown: tuple[float, float] = (1.0, 69 / 64)
    matmul_queue: tuple[int, int] = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The inter-chip links of one kind of TPU.

    `one_way_bytes_per_second` is the bandwidth of one link in one direction. Along each of the torus's `axes` a chip
    has two neighbours. An axis closes to a ring if its length is `ring_size`. If optical switches join cubes of chips
    (`rings_are_multiples`), an axis also closes at multiples of `ring_size`. `source` is the publication. `hop_seconds`
    is the time that each link of the route adds to a transfer. `reached_share` is the fraction of the bandwidth that
    transfers reach.
    """

    one_way_bytes_per_second: float
    axes: int
    ring_size: int
    rings_are_multiples: bool
    source: str
    # "About 1 us" for one hop (How to Scale Your Model, part 3).
    hop_seconds: float = 1e-6
    # Permutations between neighbours reach 86.8 GB/s of 100 on v6e and 86.3 of 100 on v5p (marin-community/marin, issue
    # 6736). An all-gather on 8 x 16 chips of v5e reaches 95 % of 45 GB/s (AI-Hypercomputer,
    # accelerator-microbenchmarks).
    reached_share: float = 0.86

    @property
    def both_ways_bytes_per_second(self) -> float:
        """The bandwidth of one axis if a chip uses both directions."""
        return 2 * self.one_way_bytes_per_second

    @property
    def reached_bytes_per_second(self) -> float:
        """The bytes per second that transfers reach over one link in one direction."""
        return self.reached_share * self.one_way_bytes_per_second

    def closes(self, size: int) -> bool:
        """True if an axis of `size` chips is a ring."""
        return size % self.ring_size == 0 if self.rings_are_multiples else size == self.ring_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRow:
    """All facts of one chip.

    `chip` holds the published facts: a Chip, or only Figures if no kernel is judged for the chip. `units` holds the
    timings that the compiler shows, None for a chip that is not simulated. `calibrated` was fitted to published times;
    None without published times. `intervals` has the range that these times allow for each constant. `links` are the
    links to other chips, None if nothing is published.

    `relative_uncertainty` is one standard deviation of the simulated time of a long operation, as a fraction of the
    time. At further published times, 68.27 % of the errors should be smaller. It is estimated from published times to
    which no constant was fitted, leaving out each time in turn (benchmarks/FIDELITY.md).

    The keys of a contest hash the whole row of its chip except `workbench`, which the judge must not read.
    """

    chip: Figures
    units: Units | None = None
    calibrated: Calibrated | None = None
    intervals: Intervals = Intervals()
    relative_uncertainty: float | None = None
    links: Links | None = None
    workbench: "Workbench"

    def __post_init__(self) -> None:
        if self.units is None:
            return
        lacking = (
            ("chip", isinstance(self.chip, Chip), "figures alone compile no kernel"),
            ("mxu_size", self.chip.mxu_size is not None, "how many rows a matrix unit takes in follows from it"),
            ("relative_uncertainty", self.relative_uncertainty is not None, "no time is given without its plus/minus"),
        )
        for name, is_there, why in lacking:
            if not is_there:
                raise ValueError(f"expected {name} in the row of {self.chip.name}, which has units: {why}")
