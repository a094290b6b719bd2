"""Tables of tuned block sizes: for each shape and chip the best constants of a kernel, and its default's cost."""
