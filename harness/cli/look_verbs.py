"""The verbs that look at what happened: the table, one attempt, the page, the pictures, what to try next."""

from pathlib import Path

from harness.cli.arguments import Parser, add_json, add_member, add_quiet, at_least, attempt_number
from harness.cli.verb import Verb


class Results(Verb):
    name = "results"
    group = "look"
    line = "the table of all attempts"
    example = "results --limit 20"
    description = "Prints the table of all attempts of the contest."
    does = "harness.cli.ledger:results"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--limit", type=at_least(1), default=None, metavar="N", help="only the newest N")
        add_json(parser, "the rows as JSON")


class Show(Verb):
    name = "show"
    group = "look"
    line = "the whole report and the diff of an attempt"
    example = "show 3"
    description = "Prints the whole report and the diff of one attempt."
    does = "harness.cli.kernels:show"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "number", type=attempt_number, nargs="?", metavar="N", help="the attempt's number (default: the newest)"
        )
        add_member(parser)
        add_json(parser, "the record")


class Report(Verb):
    name = "report"
    group = "look"
    line = "all attempts as one HTML page, charts and diffs"
    example = "report --open"
    description = (
        "Writes all attempts as one HTML page that needs no network: charts, table, diffs, cycles per line, searches. "
        "With --table it is the page of a table of tuned constants; that needs no contest."
    )
    examples = "ratchet.sh report --open; ratchet.sh report --table tables"
    does = "harness.cli.report:report"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--open", action="store_true", help="open it in the browser")
        parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="default: profile_data/report.html")
        parser.add_argument(
            "--table", type=Path, default=None, metavar="DIR",
            help="of the table in this folder, which `table` filled; default of --out: DIR/report.html",
        )  # fmt: skip


class Plot(Verb):
    name = "plot"
    group = "look"
    line = "the same figures as pictures (PNG)"
    example = "plot --out docs"
    description = "Writes progress, roofline and where the time goes as pictures, for the attempts under one key."
    does = "harness.cli.report:plot"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="default: profile_data/plots")
        parser.add_argument("--dark", action="store_true", help="for a dark background")
        parser.add_argument(
            "--key", default=None, metavar="KEY",
            help="the comparability key (default: the champion's); results lists them",
        )  # fmt: skip


class Diagnose(Verb):
    name = "diagnose"
    group = "look"
    line = "what to try next, ranked, each with its rule and gain"
    example = "diagnose 3"
    description = (
        "Says what to try next: every finding with its numbers, the rule behind it, the gain to expect, one change."
    )
    examples = "ratchet.sh diagnose; ratchet.sh diagnose 3"
    does = "harness.cli.diagnose:diagnose"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "number", type=int, nargs="?", metavar="N", help="the attempt (default: kernel.py as it stands)"
        )
        parser.add_argument("--chip", default=None, help="judge kernel.py as it stands for this chip")
        add_member(parser)
        add_json(parser, "the findings as JSON")
        add_quiet(parser)
