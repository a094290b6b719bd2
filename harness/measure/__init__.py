"""All that needs JAX: the candidate traced once in a child, then compiled, checked, timed, and gathered as evidence."""
