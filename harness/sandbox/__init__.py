"""Starts and confines child processes that run untrusted code, sends them requests, and cleans their replies."""
