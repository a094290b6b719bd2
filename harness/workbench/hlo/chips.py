"""The chips that predictions are made for: those of the harness, older ones, and figures given by hand."""

import difflib
from dataclasses import dataclass

from harness.errors import UsageError
from harness.hardware import CHIPS, TPUS

# Bits of the types that the MXU of some chips multiplies faster than bfloat16.
_SMALL = ("s8", "u8", "int8", "uint8", "f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e4m3", "fp8", "s4", "u4", "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a prediction rests on, per device as a program sees it.

    A device is a core on v2, v3 and v7x and a chip on the others. `small_factor` is how much faster 8-bit types are
    multiplied than bfloat16; None is not known. `hbm_bytes` is the capacity, `mxu_size` the rows and columns of a
    matrix unit. `source` says where the figures stand.
    """

    name: str
    device: str
    peak_flops_per_second: float
    hbm_bytes_per_second: float
    hbm_bytes: int
    small_factor: float | None
    source: str
    clock_hz: float | None = None
    mxu_size: int | None = None

    def peak(self, dtype: str) -> tuple[float, str]:
        """The peak of matmuls in this type, with a remark where it is not the bfloat16 peak's own."""
        if dtype in _SMALL:
            if self.small_factor is None:
                return self.peak_flops_per_second, f"the peak of {dtype} is not known: bfloat16's is taken"
            return (
                self.peak_flops_per_second * self.small_factor,
                f"{dtype} at {self.small_factor:g}x the bfloat16 peak",
            )
        if dtype in ("f32", "float32"):
            return self.peak_flops_per_second, "f32 operands in one bfloat16 pass, the default precision of a TPU"
        return self.peak_flops_per_second, ""


# int8 and fp8 peaks over bfloat16's: How to Scale Your Model, part 2 (v4 to v6e), Google Cloud TPU7x page (fp8).
_SMALL_FACTORS = {"v4": 1.0, "v5e": 2.0, "v5p": 2.0, "v6e": 2.0, "v7x": 2.0, "h100": 2.0, "h200": 2.0}
# Jouppi et al., A domain-specific supercomputer for training deep neural networks, CACM 63(7), 2020: 46 and 123
# TFLOP/s, 700 and 900 GB/s, 16 and 32 GiB a chip of two cores, each core a device.
_PAPER = "Jouppi et al., CACM 63(7), 2020, halved for one of the chip's two cores"
OLDER = (
    Target(
        name="v2",
        device="core",
        peak_flops_per_second=23e12,
        hbm_bytes_per_second=350e9,
        hbm_bytes=8 << 30,
        small_factor=None,
        source=_PAPER,
        mxu_size=128,
    ),
    Target(
        name="v3",
        device="core",
        peak_flops_per_second=61.5e12,
        hbm_bytes_per_second=450e9,
        hbm_bytes=16 << 30,
        small_factor=None,
        source=_PAPER,
        mxu_size=128,
    ),
)
_CORE_DEVICES = ("v7x",)
NAMES = (*(chip.name for chip in OLDER), *(chip.name for chip in CHIPS))


def target(name: str) -> Target:
    """The figures of the chip called `name` (any case). Raises UsageError `unknown-chip`."""
    word = name.strip().lower()
    for older in OLDER:
        if older.name == word:
            return older
    for chip in CHIPS:
        if chip.name == word:
            device = "core" if chip.name in _CORE_DEVICES else "chip" if chip in TPUS else "GPU"
            return Target(
                name=chip.name,
                device=device,
                peak_flops_per_second=chip.peak_bf16_flops_per_second,
                hbm_bytes_per_second=chip.hbm_bytes_per_second,
                hbm_bytes=chip.hbm_bytes,
                small_factor=_SMALL_FACTORS.get(chip.name),
                source=chip.source,
                clock_hz=chip.clock_hz,
                mxu_size=chip.mxu_size,
            )
    near = difflib.get_close_matches(word, NAMES, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError("unknown-chip", f"unknown chip {name!r}: expected one of {', '.join(NAMES)}{hint}")
