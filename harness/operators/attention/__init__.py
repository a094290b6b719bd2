"""Attention forward and backward."""

# The module that defines each operator.
OPERATORS = {"Attention": "forward", "AttentionBackward": "backward"}
