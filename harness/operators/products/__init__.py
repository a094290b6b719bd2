"""Matrix products, plain, grouped, quantized and gated."""
