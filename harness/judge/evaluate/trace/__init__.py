"""Facts about a kernel that follow from its source and its trace alone: contract, imports, semantics, traffic."""
