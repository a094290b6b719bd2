"""The present names of the modules of `harness.problems`, the former name of this package."""

PACKAGE = "harness.problems"
# All other modules kept their names.
MOVED = {
    "attention": "attention.forward",
    "attention_backward": "attention.backward",
    "attention_backward_probes": "attention.backward_probes",
    "attention_inputs": "attention.inputs",
    "attention_probes": "attention.probes",
    "attention_rounding": "attention.rounding",
    "attention_space": "attention.space",
    "grouped_matmul": "products.grouped_matmul",
    "grouped_matmul_transposed": "products.grouped_matmul_transposed",
    "matmul": "products.matmul",
    "paged_attention": "paged.attention",
    "paged_cache": "paged.cache",
    "paged_probes": "paged.probes",
    "paged_tables": "paged.tables",
    "product_probes": "products.probes",
    "quantized_matmul": "products.quantized_matmul",
    "rmsnorm": "norm.rmsnorm",
    "rmsnorm_probes": "norm.probes",
    "swiglu": "products.swiglu",
}


def present_name(module: str) -> str:
    """The present name of a module that may have been in `harness.problems`; any other name unchanged."""
    if module == PACKAGE:
        return "harness.operators"
    package, _, name = module.rpartition(".")
    return f"harness.operators.{MOVED.get(name, name)}" if package == PACKAGE else module
