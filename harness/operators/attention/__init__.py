"""Attention forward and backward."""
