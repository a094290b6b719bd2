"""One model of a compiled module: reads its text into records, and lets XLA evaluate the integers in it."""
