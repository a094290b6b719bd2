"""The verb `rescale`: time recorded kernels again, on one scale."""

from argparse import Namespace
from dataclasses import dataclass

from harness.records import Note
from harness.shell.arguments import say
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleDocument:
    """The kernels that were timed again under the timing key `key_digest`; `skipped` has sentences on the others."""

    key_digest: str
    notes: tuple[Note, ...]
    skipped: tuple[str, ...]


class Rescale(Verb):
    place = "loop", 70
    line = "time recorded kernels again, on one scale"
    description = (
        "Compiles and simulates again the accepted attempts that were recorded under another timing key (compiler, "
        "simulator, figures of the chip, problem), and keeps the times as notes next to the records. Correctness is "
        "not checked, and no record is rewritten. `experiment` does the same after its report."
    )
    examples = "ratchet.sh rescale --all"
    document = Document(1, RescaleDocument)
    effect = "writes"

    def configure(self, parser: Parser) -> None:
        parser.flag("--all", "time rejected and undecided attempts too")
        parser.json("the times as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.ledger import Ledger, history
        from harness.loop import rescale as rescaling
        from harness.render.sections import Words
        from harness.units import quantity
        from harness.verbs.parts.context import contest_of, progress_of

        contest = contest_of(arguments)
        with progress_of(arguments) as progress:
            rescaled = rescaling.rescale(contest, progress, say, everything=arguments.all)
        ledger = Ledger.open(contest.directory)
        left = rescaling.pending(ledger, contest, contest.key("simulated"), everything=True)
        rows = [
            row
            for row in history.rows(ledger.place)[0]
            if row.is_title or (arguments.all and row.outcome in ("reject", "inconclusive"))
        ]
        attempts = quantity(len(rows), "attempt" if arguments.all else "accepted attempt") if rows else ""
        sentences = rescaling.sentences(rescaled, left, attempts)
        return Outcome(
            document=RescaleDocument(key_digest=rescaled.key_digest, notes=rescaled.notes, skipped=rescaled.skipped),
            text=lambda: map(Words, sentences),
        )
