"""Words in, exit code out: parsers, errors, documents, completion and MCP of verbs, none of which it knows by name."""
