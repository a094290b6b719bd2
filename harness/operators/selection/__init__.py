"""Selection: outputs that are chosen from the inputs, not computed, and so exact."""

# The module that defines each operator.
OPERATORS = {"TopK": "top_k"}
