"""Converts SI values to text with their unit and prefix, and fractions and counts to text."""

import math
from collections.abc import Sequence

_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def seconds(value: float, digits: int = 3) -> str:
    """A time as text: `0.00216` -> `2.160 ms`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f} s"
    for scale, unit in _TIME:
        # Compares the number as it is printed: 999.9999999 ns are 1.000 us.
        if round(abs(value) / scale, digits + 3) >= 1:
            return f"{value / scale:.{digits}f} {unit}"
    return f"{value / 1e-9:.{digits}f} ns"


def column(times: Sequence[float | None]) -> list[str]:
    """Times for one column, all in the unit of the longest: `0.900 ms` and `2.000 ms`; `-` for None."""
    longest = max((value for value in times if value is not None), default=0.0)
    scale, unit = next(((scale, unit) for scale, unit in _TIME if longest >= scale), _TIME[-1])
    return ["-" if value is None else f"{value / scale:.3f} {unit}" for value in times]


def milliseconds(value: float, space: str = "") -> str:
    """A time as in the RESULT line: `0.00216` -> `2.16ms`; times below 0.1 ms, except 0, have four decimals."""
    return f"{value * 1e3:.{2 if abs(value) >= 1e-4 or value == 0 else 4}f}{space}ms"


def decimal(value: float, unit: str, digits: int = 1) -> str:
    """A value with a decimal prefix: `64.3e12, "FLOP/s"` -> `64.3 TFLOP/s`; also for bytes, in powers of 1000."""
    for scale, prefix in _DECIMAL:
        if round(abs(value) / scale, digits + 3) >= 1:
            return f"{value / scale:.{digits}f} {prefix}{unit}"
    return f"{value:.{digits}f} {unit}"


def percent(fraction: float, digits: int = 1) -> str:
    """A fraction in percent: `0.326` -> `32.6%`."""
    return f"{100 * fraction:.{digits}f}%"


def kibibytes(value: float) -> str:
    """The size of a memory on the chip, in KiB or MiB: `524288` -> `512.0 KiB`."""
    return f"{value / 1024:.1f} KiB" if value < 1 << 20 else f"{value / (1 << 20):.2f} MiB"


def count(value: float) -> str:
    """A number with thousands separated: `1048576` -> `1,048,576`."""
    return f"{value:,.0f}"


def short(value: float) -> str:
    """A count with three significant digits and a suffix: `1048576` -> `1.05M`; below 10,000 in full."""
    for least, scale, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / scale:.3g}{suffix}"
    return f"{value:.0f}"


def change(time_ratio: float, digits: int = 1) -> str:
    """A ratio new/old as a change in percent: `0.508` -> `-49.2%`, `1.0` -> `0.0%`."""
    text = f"{100 * (time_ratio - 1):+.{digits}f}"
    return f"{text.lstrip('+-') if float(text) == 0 else text}%"


def quantity(number: int, noun: str, many: str | None = None) -> str:
    """A number and its noun: `1200, "attempt"` -> `1,200 attempts`; `many` is the plural if an s is not enough."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"
