"""The verb `checkout`: put an attempt's kernel.py into the working tree."""

from argparse import Namespace
from dataclasses import dataclass

from harness.shell.arguments import directory
from harness.shell.parser import Parser
from harness.shell.program_name import renamed
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneDocument:
    """Sentences on what `checkout` or `undo` did."""

    done: tuple[str, ...]


DONE = Document(1, DoneDocument)


class Checkout(Verb):
    place = "loop", 80
    line = "put an attempt's kernel.py into the working tree"
    example = "checkout 3"
    description = "Puts the kernel.py of an attempt into the working tree."
    document = DONE
    effect = "overwrites"

    def configure(self, parser: Parser) -> None:
        parser.attempt("the attempt's number", nargs=None)
        parser.flag("--force", "overwrite kernel.py or a helper even if neither HEAD nor an attempt has its text")
        parser.json("what was done, as JSON")

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop.undo import checkout
        from harness.verbs.parts.context import open_ledger

        ledger = open_ledger(directory(arguments.directory))
        return done(checkout(ledger, arguments.number, force=arguments.force))


def done(sentences: tuple[str, ...]) -> Outcome:
    """The outcome that prints the sentences."""
    sentences = tuple(map(renamed, sentences))
    return Outcome(document=DoneDocument(done=sentences), text=lambda: "\n".join(sentences))
