"""Checks of a kernel's surroundings: the flags of the process, the machine, and the program that calls the kernel."""
