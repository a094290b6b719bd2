"""A cache of keys and values that lies in pages: attention over it, and new rows in it."""

# The module that defines each operator.
OPERATORS = {"PagedAttention": "attention", "CacheRows": "cache_rows", "LatentAttention": "latent_attention"}
