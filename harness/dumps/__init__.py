"""Readers of the files that compilers and profilers write; they turn text or bytes into records, without a device."""
