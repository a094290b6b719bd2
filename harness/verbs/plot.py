"""The verb `plot`: progress, roofline and time as pictures (PNG)."""

from pathlib import Path

from harness.shell.parser import Parser
from harness.shell.verb import Verb


class Plot(Verb):
    place = "look", 70
    line = "progress, roofline and time as pictures (PNG)"
    example = "plot --out docs"
    description = (
        "Writes pictures of the progress, the roofline and the parts of the time, with times under the champion's "
        "newest timing key. With --all, writes one picture of all contests in the folder of -C and below, gallery.png."
    )
    is_watched = True

    def configure(self, parser: Parser) -> None:
        parser.option("--out DIR", "the folder to write to (default: profile_data/plots)", type=Path)
        parser.flag("--dark", "draw for a dark background")
        parser.flag("--all", "write one picture of all contests in the folder of -C and below")
        parser.option("--key KEY", "use the times recorded under this timing key; results --json lists the keys")
