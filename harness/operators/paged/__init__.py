"""Attention over a cache that lies in pages."""
