"""Executes a kernel step by step on a CPU as the chip would, with its memory, cores and transfers."""
