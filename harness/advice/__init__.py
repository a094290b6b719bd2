"""Explains a verdict and what to try next; decides nothing."""
