"""Words in, exit code out: parsers, errors, documents, completion and MCP for verbs that it does not know by name."""
