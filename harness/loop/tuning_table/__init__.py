"""Tables of tuned block sizes: for each shape and chip a kernel's best constants, and the fallback's time."""
