"""The judge judged: planted candidates, bad and good, go through the real attempt, and each verdict is known before."""
