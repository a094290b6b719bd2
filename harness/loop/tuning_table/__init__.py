"""Tables of tuned block sizes: for each shape and chip the best constants of a kernel, and what its default costs."""
