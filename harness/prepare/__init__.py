"""What a prepare.py states, without running it in this process: read as data, or run in a confined child."""
