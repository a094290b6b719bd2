"""Operators on a cache of keys and values in pages: attention over the cache, and new rows written to it."""

# The module that defines each operator.
OPERATORS = {"PagedAttention": "attention", "CacheRows": "cache_rows", "LatentAttention": "latent_attention"}
