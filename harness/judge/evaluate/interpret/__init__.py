"""The kernel executed step by step on the CPU, as the chip would: its memory, its cores, its transfers."""
