"""Everything that needs JAX: the candidate traced once in a child, compiled, checked, timed, and gathered as evidence."""
