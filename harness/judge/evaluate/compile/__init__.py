"""Compiles the program for the chip, and proves that it is the program that was checked on the CPU."""
