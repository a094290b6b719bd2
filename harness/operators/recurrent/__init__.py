"""Recurrences over time: what a step computes depends on a state that the steps before it left."""

# The module that defines each operator.
OPERATORS = {"GatedDelta": "gated_delta"}
