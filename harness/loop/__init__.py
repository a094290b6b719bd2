"""The ratchet itself: attempts, sweeps, replays, revocations, and what has to hold before each."""
