"""From a kernel.py to its evidence: trace, static checks, correctness, compilation, counters, latency."""
