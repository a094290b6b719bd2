"""Readers of the files that compilers and profilers write: text or bytes in, records out, no device."""
