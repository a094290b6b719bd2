"""Words in, exit code out: parsers, errors, documents, completion and MCP; it knows no verb by name."""
