"""A timeline for people: what its files hold, and its lanes on a page."""
