"""Captured profiles: located, read, converted by XProf's own tools and analysed; every analysis returns tables."""
