"""Captured profiles: finding, reading, conversion by XProf's tools, and analyses, all of which return tables."""
