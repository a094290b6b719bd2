"""The ratchet itself: attempts, sweeps, replays, revocations, and the preconditions of each.

The loop does not run itself: a person or a program drives it. AGENTS.md is the text for such programs, and verbs/mcp.py
has the instructions that a client of the MCP server gets. loop/stop_advice.py advises when to stop.
"""
