"""Explanations of HLO: copies, collectives, sharding, work, and the time that a chip would need for the work."""
