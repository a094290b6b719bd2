"""A simulated run's timeline as files that trace viewers open."""
