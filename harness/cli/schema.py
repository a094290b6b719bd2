"""The verb that prints the JSON schemas of what the other verbs print."""

import json

from harness.cli.arguments import Parser
from harness.cli.documents import DOCUMENTS, schema
from harness.errors import UsageError


def schema_(words: list[str]) -> int:
    parser = Parser(
        prog="ratchet.sh schema",
        description="Prints the JSON schema of what a verb prints with --json; without a verb all of them, by verb.",
        epilog="example: ratchet.sh schema next",
        allow_abbrev=False,
    )
    parser.add_argument("verb", nargs="?", metavar="VERB", help=f"one of: {', '.join(DOCUMENTS)}")
    given = parser.parse_args(words)
    if given.verb is not None and given.verb not in DOCUMENTS:
        raise UsageError("unknown-verb", f"expected a verb with --json ({', '.join(DOCUMENTS)}), got {given.verb!r}")
    found = schema(given.verb) if given.verb else {verb: schema(verb) for verb in DOCUMENTS}
    print(json.dumps(found, indent=1))
    return 0
