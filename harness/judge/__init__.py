"""Pure functions from evidence to a report and a verdict; no I/O, no clock, no device."""
