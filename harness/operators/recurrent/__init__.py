"""Recurrences over time: each step depends on a state that the steps before it have left."""

# The module that defines each operator.
OPERATORS = {"GatedDelta": "gated_delta"}
