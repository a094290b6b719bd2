"""One model of a compiled module: its text read into records, and the integers in it evaluated by XLA."""
