"""The verb `pack`: put the files of attempts into one small file."""

from argparse import Namespace

from harness.records.stored import Packing
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


class Pack(Verb):
    place = "machine", 100
    line = "put the files of attempts into one small file"
    description = (
        "Moves the attempts and notes of experiments/ into attempts.jsonl, one line for each, and prints "
        "their size before and after. Every verb reads attempts in both places. Nothing is committed."
    )
    document = Document(1, Packing)

    def configure(self, parser: Parser) -> None:
        parser.json("what was moved, as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.ledger import packing
        from harness.verbs.parts.context import recovered_ledger

        ledger = recovered_ledger(arguments)
        with ledger.lock("pack"):
            packed = packing.pack(ledger.place)
        return Outcome(document=packed, text=lambda: packing.summary(packed), messages=packed.left)
