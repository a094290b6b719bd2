"""Matrix products, plain, grouped, quantized, gated, and with a loss."""

# The module that defines each operator.
OPERATORS = {
    "CrossEntropy": "cross_entropy",
    "GroupedMatmul": "grouped_matmul",
    "GroupedMatmulTransposed": "grouped_matmul_transposed",
    "Matmul": "matmul",
    "QuantizedMatmul": "quantized_matmul",
    "SwiGLU": "swiglu",
}
