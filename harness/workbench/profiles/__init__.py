"""Captured profiles: found, read, converted by XProf's own tools, analysed; every analysis returns tables."""
