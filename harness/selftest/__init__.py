"""Tests the judge: planted candidates, bad and good, go through a real attempt, and each must get its known verdict."""
