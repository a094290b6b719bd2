"""The verb `plot`: the same figures as pictures (PNG)."""

from argparse import Namespace
from pathlib import Path

from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb


class Plot(Verb):
    place = "look", 70
    line = "the same figures as pictures (PNG)"
    example = "plot --out docs"
    description = (
        "Writes progress, roofline and where the time goes as pictures, on the champion's scale. With --all it "
        "is one picture, gallery.png, over every contest in DIR and below."
    )
    is_watched = True

    def configure(self, parser: Parser) -> None:
        parser.option("--out DIR", "default: profile_data/plots", type=Path)
        parser.flag("--dark", "for a dark background")
        parser.flag("--all", "one picture over every contest in DIR and below")
        parser.option("--key KEY", "use the times recorded under this timing key; results --json lists the keys")

    def run(self, arguments: Namespace) -> Outcome:
        from harness.verbs.parts.plots import plot

        return plot(arguments)
