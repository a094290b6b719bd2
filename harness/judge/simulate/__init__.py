"""Executes the TPU compiler's final schedule: cycles, stalls, traffic and use of the units, without a TPU."""

from harness.judge.simulate.module import run

__all__ = ["run"]
