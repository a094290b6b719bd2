"""Executes a kernel on a CPU step by step, with the memory, the cores and the transfers of the chip."""
