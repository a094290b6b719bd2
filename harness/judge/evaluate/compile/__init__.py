"""The chip's program: compiled, and compared with the CPU's program that was checked."""
