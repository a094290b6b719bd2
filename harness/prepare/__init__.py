"""The contents of a prepare.py, read as data in this process, or else by running it in a confined child."""
