"""Tests the judge: planted kernels (in real attempts), callers and wrong answers must each get their known verdict."""
