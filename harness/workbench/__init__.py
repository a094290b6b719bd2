"""Profiles and programs without the ratchet: HLO, captures, XProf, a checklist of the machine and of a program."""
