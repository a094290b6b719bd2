"""What `xprof` answers: a subcommand's captures resolved and analysed, as tables or as text."""

from argparse import Namespace

from harness.cli.arguments import directory
from harness.cli.documents import XprofDocument, figures
from harness.cli.verb import Outcome
from harness.cli.xprof_commands import Command
from harness.cli.xprof_pages import PAGES
from harness.cli.xprof_time import TIME
from harness.render import tables
from harness.render.layout import terminal_width
from harness.workbench.profiles import places


def xprof(command: Command, given: Namespace) -> Outcome:
    folder = directory(given.directory).resolve()
    found = tuple(places.resolve(getattr(given, name), folder) for name in command.places)
    answer = {**TIME, **PAGES}[command.name](given, found)
    asked = f"xprof {command.name}"
    if isinstance(answer, Outcome):
        return answer
    if isinstance(answer, str):
        return Outcome(document=XprofDocument(command=asked, text=answer), text=lambda: answer)
    return Outcome(
        document=XprofDocument(command=asked, tables=figures(answer)),
        text=lambda: tables.text(answer, terminal_width()) if answer else "",
    )
