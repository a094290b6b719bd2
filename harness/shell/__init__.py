"""The command line: parsers, errors, documents, completion and MCP; the verbs are in harness/verbs."""
