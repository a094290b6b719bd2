"""Readers of what compilers and profilers leave behind: text or bytes in, records out, no device."""
