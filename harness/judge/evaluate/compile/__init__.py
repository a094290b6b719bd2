"""The chip's program: compiled, and held against the CPU's that was checked."""
