"""Captures of a contest's kernel, of some calls or in an endless loop; runs and compilations of a user's program."""
