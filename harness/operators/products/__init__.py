"""Matrix products, plain, grouped, quantized and gated."""

# The module that defines each operator.
OPERATORS = {
    "GroupedMatmul": "grouped_matmul",
    "GroupedMatmulTransposed": "grouped_matmul_transposed",
    "Matmul": "matmul",
    "QuantizedMatmul": "quantized_matmul",
    "SwiGLU": "swiglu",
}
