"""What is published about each chip: peaks, memories, names; nothing calibrated and nothing measured by us."""

from dataclasses import dataclass
from typing import Literal

from harness.errors import UsageError

# What Mosaic refuses to load on v4, v5e, v5p, v6e and v7x alike (libtpu 0.0.42.1, each tried); JAX makes 32 bits of
# 64. int8, int4, float8_e4m3fn and float8_e5m2 it loads on all of them, and multiplies on all but v4.
_NOT_ON_A_TPU = ("float16", "float64", "int64", "uint64", "complex64", "complex128")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One accelerator as its program sees it.

    Peaks are those of the unit that one Pallas program occupies (`cores` TensorCores): the
    whole chip on v4 and v5p, whose two cores split `parallel` grid dimensions, one core on
    the other TPUs; on a GPU the whole chip, `cores` being its streaming multiprocessors.
    Those of narrower types are None where the chip multiplies them no faster than bfloat16, to which its
    compiler then widens them. `topology` is the smallest name that the TPU compiler accepts for it, None for a GPU.
    `cache_bytes` is a cache of the whole chip that arrays may stay in from one call to the next (none on
    a TPU). `vmem_bytes` is the memory of a core that blocks live in (shared memory on a GPU),
    `scoped_vmem_bytes` what one kernel gets of it by default. `mxu_size` are the rows and columns
    of a matrix unit, None where they are not square (tensor cores).
    """

    name: str
    topology: str | None
    device_kinds: tuple[str, ...]
    cores: int
    peak_bf16_flops_per_second: float
    hbm_bytes_per_second: float
    hbm_bytes: int
    vmem_bytes: int
    scoped_vmem_bytes: int
    clock_hz: float
    mxus_per_core: int
    mxu_size: int | None
    source: str
    platform: Literal["tpu", "cuda"] = "tpu"
    cache_bytes: int = 0
    peak_int8_ops_per_second: float | None = None
    peak_fp8_flops_per_second: float | None = None
    peak_int4_ops_per_second: float | None = None

    @property
    def kind(self) -> Literal["TPU", "GPU"]:
        """What kind of accelerator it is."""
        return "TPU" if self.platform == "tpu" else "GPU"

    def lacks(self, dtype: str) -> bool:
        """Whether no kernel on it can load an array of this dtype, whatever it does with it."""
        return self.platform == "tpu" and dtype in _NOT_ON_A_TPU

    @property
    def ridge_flops_per_byte(self) -> float:
        """The operational intensity at which compute and memory take equally long."""
        return self.ridge("bfloat16")

    def peak_flops_per_second(self, dtype: str) -> float:
        """The peak of matmuls whose operands are of `dtype` (numpy/ml_dtypes name).

        Of float32 it is bfloat16's: one bfloat16 pass is the default precision of a TPU.
        """
        narrow = {
            "int8": self.peak_int8_ops_per_second,
            "float8": self.peak_fp8_flops_per_second,
            "int4": self.peak_int4_ops_per_second,
        }
        found = narrow.get("float8" if dtype.startswith("float8") else dtype.removeprefix("u"))
        return found or self.peak_bf16_flops_per_second

    def ridge(self, dtype: str) -> float:
        """The operational intensity at which matmuls of `dtype` and memory take equally long, in FLOP/byte."""
        return self.peak_flops_per_second(dtype) / self.hbm_bytes_per_second


_MIB = 1 << 20
# Peaks of int8 and fp8 are published there too; those of int4 stand in jax's TPU table alone, which has none for int8
# on v7x. The compiler spaces its matmuls of these types accordingly (libtpu 0.0.50).
_CLOUD = "Google Cloud TPU documentation, system architecture pages; VMEM and core counts from jax's own TPU table"

# Scoped VMEM: the compiler's default limit for one kernel, as its error message states it.
TPUS = (
    Chip(
        name="v4",
        topology="v4:2x2x1",
        device_kinds=("TPU v4",),
        cores=2,
        peak_bf16_flops_per_second=275e12,
        hbm_bytes_per_second=1228e9,
        hbm_bytes=32_000_000_000,
        vmem_bytes=16 * _MIB,
        scoped_vmem_bytes=16 * _MIB,
        clock_hz=1.05e9,
        mxus_per_core=4,
        mxu_size=128,
        source=_CLOUD,
    ),
    Chip(
        name="v5e",
        topology="v5e:2x2",
        device_kinds=("TPU v5 lite", "TPU v5e"),
        cores=1,
        peak_bf16_flops_per_second=197e12,
        peak_int8_ops_per_second=394e12,
        peak_int4_ops_per_second=788e12,
        hbm_bytes_per_second=819e9,
        hbm_bytes=17_200_000_000,
        vmem_bytes=128 * _MIB,
        scoped_vmem_bytes=16 * _MIB,
        clock_hz=1.5e9,
        mxus_per_core=4,
        mxu_size=128,
        source=_CLOUD,
    ),
    Chip(
        name="v5p",
        topology="v5p:2x2x1",
        device_kinds=("TPU v5p", "TPU v5"),
        cores=2,
        peak_bf16_flops_per_second=459e12,
        peak_int8_ops_per_second=918e12,
        peak_int4_ops_per_second=1836e12,
        hbm_bytes_per_second=2765e9,
        hbm_bytes=103_000_000_000,
        vmem_bytes=64 * _MIB,
        scoped_vmem_bytes=16 * _MIB,
        clock_hz=1.75e9,
        mxus_per_core=4,
        mxu_size=128,
        source=_CLOUD,
    ),
    Chip(
        name="v6e",
        topology="v6e:2x2",
        device_kinds=("TPU v6 lite", "TPU v6e"),
        cores=1,
        peak_bf16_flops_per_second=918e12,
        peak_int8_ops_per_second=1836e12,
        peak_int4_ops_per_second=3672e12,
        hbm_bytes_per_second=1640e9,
        hbm_bytes=34_400_000_000,
        vmem_bytes=128 * _MIB,
        scoped_vmem_bytes=32 * _MIB,
        clock_hz=1.75e9,
        mxus_per_core=2,
        mxu_size=256,
        source=_CLOUD,
    ),
    Chip(
        name="v7x",
        topology="tpu7x:2x2x1",
        device_kinds=("TPU7x", "TPU v7x", "TPU v7"),
        cores=1,
        peak_bf16_flops_per_second=1153.5e12,
        peak_fp8_flops_per_second=2307e12,
        hbm_bytes_per_second=3690e9,
        hbm_bytes=103_000_000_000,
        vmem_bytes=64 * _MIB,
        scoped_vmem_bytes=32 * _MIB,
        clock_hz=1.9e9,
        mxus_per_core=2,
        mxu_size=256,
        source=_CLOUD,
    ),
)

_NVIDIA = "NVIDIA data sheets of H100 SXM and H200 SXM (dense peaks), Hopper tuning guide (shared memory, L2)"

# The clock is the one at which the published peak holds: 4096 FLOP per cycle and multiprocessor.
GPUS = (
    Chip(
        name="h100",
        platform="cuda",
        topology=None,
        device_kinds=("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        cores=132,
        peak_bf16_flops_per_second=989.4e12,
        peak_int8_ops_per_second=1978.9e12,
        peak_fp8_flops_per_second=1978.9e12,
        hbm_bytes_per_second=3350e9,
        hbm_bytes=80_000_000_000,
        vmem_bytes=228 * 1024,
        scoped_vmem_bytes=227 * 1024,
        cache_bytes=50 * _MIB,
        clock_hz=1.83e9,
        mxus_per_core=4,
        mxu_size=None,
        source=_NVIDIA,
    ),
    Chip(
        name="h200",
        platform="cuda",
        topology=None,
        device_kinds=("NVIDIA H200",),
        cores=132,
        peak_bf16_flops_per_second=989.4e12,
        peak_int8_ops_per_second=1978.9e12,
        peak_fp8_flops_per_second=1978.9e12,
        hbm_bytes_per_second=4800e9,
        hbm_bytes=141_000_000_000,
        vmem_bytes=228 * 1024,
        scoped_vmem_bytes=227 * 1024,
        cache_bytes=50 * _MIB,
        clock_hz=1.83e9,
        mxus_per_core=4,
        mxu_size=None,
        source=_NVIDIA,
    ),
)

CHIPS = TPUS + GPUS


def chip(name: str) -> Chip:
    """The chip called `name` (`v5e`, any case). Raises UsageError `unknown-chip` naming those that exist."""
    for candidate in CHIPS:
        if candidate.name == name.strip().lower():
            return candidate
    known = ", ".join(candidate.name for candidate in CHIPS)
    raise UsageError("unknown-chip", f"unknown chip {name!r}: expected one of {known}")


def chip_of_device(device_kind: str) -> Chip | None:
    """The chip that a device reports as `device_kind` (`TPU v5 lite`, any case), or None if it is not in the table."""
    kind = device_kind.strip().lower()
    for candidate in CHIPS:
        if kind in (known.lower() for known in candidate.device_kinds):
            return candidate
    return None
