"""The verbs that look at what happened: the table, one attempt, the page, the pictures, what to try next."""

from pathlib import Path

from harness.cli.arguments import Parser, add_json, add_member, add_quiet, at_least, attempt_number, since
from harness.cli.verb import Verb


class Results(Verb):
    name = "results"
    group = "look"
    line = "the table of all attempts, their times on one scale"
    example = "results --accepted"
    description = (
        "Prints the attempts of the contest, a line each, with the time of each kernel under the champion's newest "
        "key, so that all times can be compared. Consecutive checks of the champion's unchanged program are one line. "
        "Below the table: which attempts have no time and why, and the way from the first accepted kernel to the "
        "champion. The filters choose lines; the sentences below are about all attempts."
    )
    examples = "ratchet.sh results --accepted; ratchet.sh results --since 12 --grep 'VMEM'; ratchet.sh results --csv"
    is_watched = True
    does = "harness.cli.ledger:results"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--all", action="store_true", help="fold nothing, and show counters and commits too")
        parser.add_argument(
            "--then", action="store_true",
            help="add the times as they were recorded (shown anyway where an accepted kernel has no time on the scale)",
        )  # fmt: skip
        parser.add_argument("--accepted", action="store_true", help="only accepted attempts")
        parser.add_argument("--best", action="store_true", help="only accepted attempts that set a new best time")
        parser.add_argument(
            "--since", type=since, default=None, metavar="N", help="only attempt N and later ones, or from a day on"
        )
        parser.add_argument("--grep", default="", metavar="TEXT", help="only hypotheses with this text, in any case")
        parser.add_argument(
            "--limit", type=at_least(1), default=None, metavar="N",
            help="only the newest N lines; with --json and --csv the newest N attempts",
        )  # fmt: skip
        add_json(parser, "the attempts, their times on the scale and as recorded, and the notes as JSON")
        parser.add_argument("--csv", action="store_true", help="print the same as lines of comma-separated values")


class Show(Verb):
    name = "show"
    group = "look"
    line = "the whole report and the diff of an attempt"
    example = "show 3"
    description = "Prints the whole report and the diff of one attempt."
    is_watched = True
    shows_texts = True
    does = "harness.cli.kernels:show"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "number", type=attempt_number, nargs="?", metavar="N", help="the attempt's number (default: the newest)"
        )
        add_member(parser)
        add_json(parser, "the record")


class Diff(Verb):
    name = "diff"
    group = "look"
    line = "two kernels: time, cycles by kind and by line, VMEM, text"
    example = "diff 3 7"
    description = (
        "Holds two kernels against each other: their times, what the cycles of each are spent on, the cycles of each "
        "source line, bundles, spills, VMEM and traffic, and the diff of the texts. Each is an attempt's number, or a "
        "file with a kernel, which is judged first and not recorded."
    )
    examples = "ratchet.sh diff (the champion and kernel.py as it stands); ratchet.sh diff 3 7; ratchet.sh diff 3 my.py"
    is_watched = True
    shows_texts = True
    does = "harness.cli.comparison:diff"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "before", nargs="?", metavar="A", help="an attempt's number or a kernel's file (default: the champion)"
        )
        parser.add_argument("after", nargs="?", metavar="B", help="the same (default: kernel.py as it stands)")
        parser.add_argument("--full", action="store_true", help="print every figure and line, not only what moved")
        add_json(parser, "the comparison")
        add_quiet(parser)


class Bisect(Verb):
    name = "bisect"
    group = "look"
    line = "which change made it slower, spill more or fail"
    example = "bisect --from 3 --to 12"
    description = (
        "Finds the change that made the kernel worse, by halving: between two attempts among those that became "
        "champion, or between two commits among those that changed kernel.py or its helpers. Every kernel is judged "
        "under the present prepare.py, unless an attempt recorded the answer under the same key; nothing is recorded."
    )
    examples = "ratchet.sh bisect --from 3 --to 12 --metric spills; ratchet.sh bisect --from v1.0 --to HEAD"
    shows_texts = True
    does = "harness.cli.bisect:bisect"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "--from", dest="first", required=True, metavar="A", help="an attempt's number, or a commit, that is good"
        )
        parser.add_argument("--to", dest="last", required=True, metavar="B", help="a later one that is bad")
        parser.add_argument(
            "--metric", choices=["time", "spills", "correctness"], default="time",
            help="what is worse: simulated time, executed spills, or whether it is right (time)",
        )  # fmt: skip
        parser.add_argument(
            "--threshold", type=float, default=1.0, metavar="PERCENT", help="how much more than A's counts as worse (1)"
        )
        parser.add_argument("--full", action="store_true", help="print every figure and line of the guilty change")
        add_json(parser, "what was found")
        add_quiet(parser)


class Ablate(Verb):
    name = "ablate"
    group = "look"
    line = "what each accepted change is worth in the champion now"
    example = "ablate"
    description = (
        "Takes the accepted changes out of the champion one at a time, judges what is left under the present "
        "prepare.py, and says what each is worth now: simulated time without it less the time with it. A change that "
        "cannot go alone goes with the fewest others that it takes, and they are named: later changes of the same "
        "lines, or changes without which the rest is right again. With a number: the hunks of that attempt's change. "
        "Nothing is recorded."
    )
    examples = "ratchet.sh ablate; ratchet.sh ablate 9"
    does = "harness.cli.ablate:ablate"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "attempt", nargs="?", type=attempt_number, metavar="N", help="take out the hunks of this accepted attempt"
        )
        add_json(parser, "what was found")
        add_quiet(parser)


class Report(Verb):
    name = "report"
    group = "look"
    line = "all attempts as one HTML page, charts and diffs"
    example = "report --open"
    description = (
        "Writes all attempts as one HTML page that needs no network: charts, table, diffs, cycles per line, searches. "
        "With --all it is one page over every contest in DIR and below, which links a page of each. With --table it is "
        "the page of a table of tuned constants; that needs no contest."
    )
    examples = "ratchet.sh report --open; ratchet.sh report --all; ratchet.sh report --table tables"
    is_watched = True
    does = "harness.cli.report:report"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--open", action="store_true", help="open it in the browser")
        parser.add_argument(
            "--out", type=Path, default=None, metavar="FILE",
            help="default: profile_data/report.html; with --all profile_data/contests/index.html, the others beside it",
        )  # fmt: skip
        parser.add_argument("--all", action="store_true", help="a page over every contest in DIR and below")
        parser.add_argument(
            "--peers", type=Path, default=None, metavar="FILE",
            help="with --all: the best kernels of others, lines of contest, peer, seconds, ratio and note, by tabs",
        )  # fmt: skip
        parser.add_argument(
            "--table", type=Path, default=None, metavar="DIR",
            help="of the table in this folder, which `table` filled; default of --out: DIR/report.html",
        )  # fmt: skip


class Plot(Verb):
    name = "plot"
    group = "look"
    line = "the same figures as pictures (PNG)"
    example = "plot --out docs"
    description = (
        "Writes progress, roofline and where the time goes as pictures, on the champion's scale. With --all it "
        "is one picture, gallery.png, over every contest in DIR and below."
    )
    is_watched = True
    does = "harness.cli.report:plot"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="default: profile_data/plots")
        parser.add_argument("--dark", action="store_true", help="for a dark background")
        parser.add_argument("--all", action="store_true", help="one picture over every contest in DIR and below")
        parser.add_argument(
            "--key", default=None, metavar="KEY",
            help="times as they were recorded under this timing key; results --json names them",
        )  # fmt: skip


class Diagnose(Verb):
    name = "diagnose"
    group = "look"
    line = "what to try next, ranked, each with its rule and gain"
    example = "diagnose 3"
    description = (
        "Says what to try next: every finding with its numbers, the rule behind it, the gain to expect, one change. "
        "An advised edit of one constant is compiled and simulated first, and ranked by what it brings."
    )
    examples = "ratchet.sh diagnose; ratchet.sh diagnose 3"
    does = "harness.cli.diagnose:diagnose"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "number", type=int, nargs="?", metavar="N", help="the attempt (default: kernel.py as it stands)"
        )
        parser.add_argument("--chip", default=None, help="judge kernel.py as it stands for this chip")
        add_member(parser)
        parser.add_argument(
            "--no-edits", action="store_true", help="do not simulate the advised edits of one constant (seconds each)"
        )
        add_json(parser, "the findings as JSON")
        add_quiet(parser)
