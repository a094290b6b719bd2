"""Explains a verdict and suggests what to try next; decides nothing."""
