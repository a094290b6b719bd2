"""The verb `mcp`: the ratchet's tools for a program that speaks the Model Context Protocol, over stdin and stdout."""

from harness.cli.arguments import directory, verb_parser
from harness.cli.mcp_server import server


def mcp(words: list[str]) -> int:
    parser = verb_parser(
        "mcp",
        "Offers the ratchet's commands as MCP tools over stdin and stdout; a client starts it.",
        'ratchet.sh mcp -C /path/to/contest; for a client: {"command": "/path/to/ratchet.sh", "args": ["mcp"]}',
    )
    given = parser.parse_args(words)
    # Standard output is the protocol's: the SDK keeps it to itself and sends what anyone else prints to stderr.
    server(directory(given.directory).resolve()).run("stdio")
    return 0
