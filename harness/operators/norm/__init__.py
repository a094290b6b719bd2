"""Norms over rows."""

# The module that defines each operator.
OPERATORS = {"RMSNorm": "rmsnorm"}
