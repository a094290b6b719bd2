"""The records of a compiled module: reads them from HLO text, and lets XLA evaluate the module's integers."""
