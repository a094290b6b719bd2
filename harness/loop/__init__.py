"""The ratchet itself: attempts, sweeps, replays, revocations, and the preconditions of each."""
