"""The TPU compiler's final schedule, executed: cycles, stalls, traffic and unit use without a TPU."""

from harness.judge.simulate.module import run

__all__ = ["run"]
