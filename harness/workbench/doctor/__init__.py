"""Faults around a kernel: the flags it is started with, the machine it runs on, the program that calls it."""
