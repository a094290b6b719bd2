"""A timeline for people: the contents of its files, and its lanes on a page."""
