"""Facts about a kernel from its source and its trace alone: contract, imports, semantics, traffic."""
