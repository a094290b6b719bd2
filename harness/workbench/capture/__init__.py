"""Captures of a contest's kernel (of some calls, or in an endless loop), and runs or compilations of user programs."""
