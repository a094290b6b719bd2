"""Analyses that need no contest: HLO, captures, XProf, and checklists of the machine and of a user's program."""
