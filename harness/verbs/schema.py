"""The verb `schema`: the JSON schema of a verb's output with --json."""

import json
from argparse import Namespace

from harness.errors import UsageError
from harness.shell.parser import Parser, did_you_mean
from harness.shell.verb import Outcome, Verb


class Schema(Verb):
    place = "machine", 10
    line = "the JSON schema of a verb's output with --json"
    example = "schema next"
    description = "Prints the JSON schema of a verb's output with --json; without a verb, prints all schemas."
    takes_contest = False

    def configure(self, parser: Parser) -> None:
        parser.word("verb", "a verb with --json, or `error`", metavar="VERB")

    def run(self, arguments: Namespace) -> Outcome:
        from harness.shell.documents import documents, schema

        every = documents()
        if arguments.verb is not None and arguments.verb not in every:
            hint = did_you_mean(arguments.verb, every, "`ratchet.sh schema` prints all of them")
            raise UsageError("unknown-verb", f"expected a verb with --json, got {arguments.verb!r}; {hint}")
        schemas = (
            schema(every[arguments.verb])
            if arguments.verb
            else {verb: schema(document) for verb, document in every.items()}
        )
        return Outcome(text=lambda: json.dumps(schemas, indent=1))
