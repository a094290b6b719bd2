"""The verb `report`: all attempts as one HTML page with charts and diffs."""

from argparse import Namespace
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.shell.arguments import directory
from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb


class Report(Verb):
    place = "look", 60
    line = "all attempts as one HTML page with charts and diffs"
    example = "report --open"
    description = (
        "Writes all attempts as one HTML page that needs no network: charts, table, diffs, cycles per line, searches. "
        "With --all, writes a page for each contest in the folder of -C and below, and one page that links them. With "
        "--table, writes the page of a table of tuned constants; this needs no contest."
    )
    examples = "ratchet.sh report --open; ratchet.sh report --all; ratchet.sh report --table tables"
    is_watched = True

    def configure(self, parser: Parser) -> None:
        parser.flag("--open", "open the page in the browser")
        parser.option(
            "--out FILE",
            "the file to write (default: profile_data/report.html; with --all profile_data/contests/index.html, next "
            "to the contests' pages)",
            type=Path,
        )
        parser.flag("--all", "write a page for each contest in the folder of -C and below, and one that links them")
        parser.option(
            "--peers FILE",
            "with --all: the best kernels of others, a tab-separated file with the header contest, peer, seconds, "
            "ratio, note",
            type=Path,
        )
        parser.option(
            "--table DIR",
            "write the page of the table in this folder, which `table` filled; default of --out: DIR/report.html",
            type=Path,
        )

    def run(self, arguments: Namespace) -> Outcome:
        import webbrowser

        from harness.files import write_atomically
        from harness.loop import kept_captures
        from harness.units import decimal
        from harness.verbs.parts import contests_page, stories, table_page
        from harness.workbench.profiles.places import PROFILE_DATA

        if arguments.table is not None and (arguments.directory is not None or arguments.all):
            raise UsageError("usage", "expected --table DIR without -C and --all: the page of a table needs no contest")
        if arguments.peers is not None and not arguments.all:
            raise UsageError("usage", "expected --all with --peers: peers are shown on the page over all contests")
        folder = directory(arguments.directory).resolve()
        usual = folder / PROFILE_DATA if arguments.table is None else arguments.table
        target: Path = (arguments.out or usual / ("contests/index.html" if arguments.all else "report.html")).resolve()
        if target.is_dir():
            raise UsageError("usage", f"expected --out to name a file, got the folder {target}")
        if arguments.all:
            written = (
                f"{contests_page.write_pages(folder, arguments.peers, target)}; they need no network and no server"
            )
        else:
            data, what = (
                stories.page_of(arguments, target) if arguments.table is None else table_page.page_of(arguments.table)
            )
            write_atomically(target, data)
            written = f"wrote {target}: {what}, {decimal(len(data), 'B')}; it needs no network and no server"
        if arguments.out is None and arguments.table is None:
            # This hides the folder from git, even if the contest's own .gitignore does not name it.
            kept_captures.make_folder(folder / PROFILE_DATA)
        if arguments.open and not webbrowser.open(target.as_uri()):
            raise RatchetError("no-browser", f"{written}; no browser could be started here: open the file in a browser")
        return Outcome(text=lambda: written)
