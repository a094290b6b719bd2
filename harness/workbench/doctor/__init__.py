"""Faults around a kernel: in the flags it is started with, the machine it runs on and the program that calls it."""
