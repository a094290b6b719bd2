"""Attention over a cache that lies in pages."""

# The module that defines each operator.
OPERATORS = {"PagedAttention": "attention"}
