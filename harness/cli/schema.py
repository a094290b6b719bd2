"""What `schema` prints: the JSON schemas of the documents of the other verbs."""

import json
from argparse import Namespace

from harness.cli.arguments import did_you_mean
from harness.cli.documents import DOCUMENTS, schema
from harness.cli.verb import Outcome
from harness.errors import UsageError


def schemas(given: Namespace) -> Outcome:
    if given.verb is not None and given.verb not in DOCUMENTS:
        hint = did_you_mean(given.verb, DOCUMENTS, "`ratchet.sh schema` prints all of them")
        raise UsageError("unknown-verb", f"expected a verb with --json, got {given.verb!r}; {hint}")
    found = schema(given.verb) if given.verb else {verb: schema(verb) for verb in DOCUMENTS}
    return Outcome(text=lambda: json.dumps(found, indent=1))
