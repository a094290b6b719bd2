"""A git-backed ratchet for optimising accelerator kernels."""

__version__ = "0.2.0"
