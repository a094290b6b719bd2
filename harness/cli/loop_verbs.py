"""The verbs of the loop: an experiment, and what moves or asks about the champion."""

from pathlib import Path

from harness.cli.arguments import Parser, add_json, add_quiet, at_least, attempt_number, evaluation_options, minutes
from harness.cli.verb import Verb
from harness.hardware import CHIPS, DEFAULT_CHIP
from harness.loop.scaffold import templates

# Reading a kernel.py and taking it apart costs milliseconds; what lies further back decides nothing.
_LIMIT = 50


def _settings(parser: Parser, words: str) -> None:
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help=words)


class Experiment(Verb):
    """The verb of a message; one writes the message instead."""

    name = "experiment"
    group = "loop"
    line = "test one change of kernel.py, keep it if it is faster"
    example = '"experiment: raise BQ" --set BQ=2048'
    description = "Judges kernel.py against the champion and keeps it only if it is really faster."
    examples = 'ratchet.sh "experiment: raise BQ to 2048" --set BQ=2048 --expect 30%'
    does = "harness.cli.experiment:experiment"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("message", help="the hypothesis; begins with `experiment:`")
        evaluation_options(parser)
        _settings(parser, "rewrite this constant of kernel.py")
        parser.add_argument(
            "--expect",
            default=None,
            metavar="5%",
            help="how much less time you expect, as 5%% or x0.95 (more: -5%% or x1.05); recorded",
        )
        parser.add_argument("--again", action="store_true", help="judge an already judged program again")
        parser.add_argument(
            "--record", action="store_true", help="keep what is found about an unchanged kernel as a note"
        )
        parser.add_argument(
            "--rebaseline", action="store_true", help="make kernel.py the champion as it stands, if it is right"
        )
        parser.add_argument(
            "--all-checks", action="store_true", help="run every check on a kernel that is slower than the champion too"
        )


class Next(Verb):
    name = "next"
    group = "loop"
    line = "where the search stands, and whether to go on"
    example = "next --json"
    description = (
        "Says where the search stands: champion, distance to the chip's floor, what was tried, hints, and whether to "
        "go on. Reads only; judges nothing."
    )
    is_watched = True
    does = "harness.cli.next:next_"

    def configure(self, parser: Parser) -> None:
        from harness.loop.search_state import PLATEAU_ATTEMPTS

        parser.add_argument(
            "--plateau", type=at_least(1), default=PLATEAU_ATTEMPTS, metavar="N",
            help=f"advise to stop after so many attempts without a win ({PLATEAU_ATTEMPTS})",
        )  # fmt: skip
        parser.add_argument(
            "--limit",
            type=at_least(1),
            default=_LIMIT,
            metavar="N",
            help=f"look into the newest N attempts only ({_LIMIT})",
        )
        add_json(parser, "the state as JSON")


class Sweep(Verb):
    name = "sweep"
    group = "loop"
    line = "screen a grid of settings, judge the best as one attempt"
    example = 'sweep "experiment: ..." --set BQ=512,1024'
    description = (
        "Compiles and times every setting of a grid, then judges the best one as one recorded attempt that names the "
        "grid. A setting that fails is a value of the table."
    )
    examples = 'ratchet.sh sweep "experiment: larger blocks" --set BQ=512,1024,2048 --set BKV=512,1024'
    does = "harness.cli.sweep:sweep"

    def configure(self, parser: Parser) -> None:
        _screening(parser)


class Tune(Verb):
    name = "tune"
    group = "loop"
    line = "search settings with Optuna, judge the best as one attempt"
    example = 'tune "experiment: ..." --set BQ=128..2048'
    description = (
        "Searches the settings of constants of kernel.py: Optuna asks for one after the other, each is compiled and "
        "timed, and the best is judged as one recorded attempt that names what was screened. A search that was "
        "interrupted goes on where it was when the same command is given again."
    )
    examples = 'ratchet.sh tune "experiment: blocks" --set BQ=128..4096:pow2 --set BKV=128..4096:pow2 --trials 40'
    does = "harness.cli.sweep:tune"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "--trials", type=at_least(1), default=40, metavar="N", help="settings screened at most (40)"
        )
        parser.add_argument("--minutes", type=minutes, default=None, metavar="M", help="begin no setting after so long")
        parser.add_argument(
            "--method", choices=["tpe", "random"], default="tpe",
            help="how settings are chosen: by Optuna's model of what is known (tpe), or at random",
        )  # fmt: skip
        _seed(parser)
        _screening(parser)


class TableVerb(Verb):
    name = "table"
    group = "loop"
    line = "fill a table of block sizes for shapes and chips"
    example = "table --kernel jax:splash --shapes shapes.json"
    description = (
        "Fills a table of tuned constants: for each shape on each chip settings are searched with Optuna, compiled and "
        "timed in the simulator, and the best one is judged in full. Written for whoever reads it (json, python, or "
        "tokamax's own cache), with what the kernel's fallback would cost. Finished rows are kept: the same command "
        "goes on where it was."
    )
    examples = (
        "ratchet.sh table --kernel jax:splash --shapes shapes.json --chip v5e,v6e --format python --trials 24, where "
        'shapes.json holds [{"heads": 8, "kv_heads": 2, "sequence": 2048, "head_dim": 128, "causal": true}]'
    )
    takes_contest = False
    does = "harness.cli.table:table"

    def configure(self, parser: Parser) -> None:
        from harness.loop.tuning_table.kernels import KERNELS

        parser.add_argument("--kernel", required=True, help=f"{', '.join(KERNELS)}, or the folder of a contest")
        parser.add_argument(
            "--shapes", type=Path, required=True, metavar="FILE",
            help="JSON: a list of shapes, the problem's constants in small letters, or of models (docs/TABLES.md)",
        )  # fmt: skip
        parser.add_argument(
            "--chip",
            default=DEFAULT_CHIP,
            metavar="CHIPS",
            help=f"v5e,v6e: one row for each shape on each ({DEFAULT_CHIP})",
        )
        parser.add_argument(
            "--format", choices=["json", "python", "tokamax"], default="json", help="of the table (json)"
        )
        parser.add_argument("--out", type=Path, default=Path("tables"), metavar="DIR", help="where it goes (tables)")
        parser.add_argument("--trials", type=at_least(1), default=24, metavar="N", help="settings tried for a row (24)")
        _seed(parser)
        parser.add_argument(
            "--missing", type=Path, default=None, metavar="TABLE",
            help="only shapes that this table has no entry for: what its fallback costs them",
        )  # fmt: skip
        parser.add_argument(
            "--list", action="store_true", help="with --missing: fill nothing, only say which shapes; exit 1 if any"
        )
        parser.add_argument(
            "--set", dest="settings", action="append", default=[], metavar="NAME=VALUES",
            help="the values of this constant, in place of the kernel's own",
        )  # fmt: skip
        _where(parser)
        _jobs(parser)
        add_json(parser, "the rows as JSON")
        add_quiet(parser)


def _seed(parser: Parser) -> None:
    # As many as numpy takes.
    parser.add_argument(
        "--seed", type=at_least(0, (1 << 32) - 1), default=0, metavar="N",
        help="of the search's random numbers (0); with --jobs 1 the same seed asks for the same settings",
    )  # fmt: skip


def _where(parser: Parser) -> None:
    parser.add_argument(
        "--where", action="append", default=[], metavar="CONDITION",
        help="try only settings for which this holds, such as 'BKV %% BKV_COMPUTE == 0'; may be given more than once",
    )  # fmt: skip


def _jobs(parser: Parser) -> None:
    parser.add_argument(
        "--jobs",
        type=at_least(1),
        default=None,
        metavar="N",
        help="settings screened at a time (one for each core, at most 16)",
    )
    parser.add_argument(
        "--workers", type=at_least(1), default=None, metavar="N",
        help="the same number with Ray: workers on this machine, or on the cluster of --ray",
    )  # fmt: skip
    parser.add_argument(
        "--ray", default=None, metavar="ADDRESS",
        help="screen on this Ray cluster: HOST:PORT on one of its machines, ray://HOST:10001 elsewhere",
    )  # fmt: skip


def _screening(parser: Parser) -> None:
    """What sweep and tune take."""
    parser.add_argument("message", help="the hypothesis; begins with `experiment:`")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="NAME=VALUES",
        help="the values of this constant of kernel.py: 512,1024, 128..4096:pow2 or 8..64:8; one --set for each",
    )  # fmt: skip
    _where(parser)
    _jobs(parser)
    parser.add_argument("--chip", default=None, help="judge for this chip")
    parser.add_argument(
        "--on", choices=["cpu", "tpu", "gpu", "simulated"], default=None,
        help="where the latency of the attempt comes from; a TPU's settings are screened in the simulator anyway",
    )  # fmt: skip
    parser.add_argument("--expect", default=None, metavar="5%", help="how much less time you expect of the best")
    parser.add_argument("--again", action="store_true", help="judge the best even if it was judged before")
    parser.add_argument("--full", action="store_true", help="print the whole report of the attempt")
    add_json(parser, "the settings' results as JSON")
    add_quiet(parser)


class Judge(Verb):
    name = "judge"
    group = "loop"
    line = "judge kernel.py as it stands, record nothing"
    example = "judge"
    description = "Judges kernel.py as it stands and records nothing."
    examples = "ratchet.sh judge --full"
    does = "harness.cli.experiment:judge"

    def configure(self, parser: Parser) -> None:
        evaluation_options(parser)
        _settings(parser, "judge it with this constant rewritten; the file stays as it is")


class Status(Verb):
    name = "status"
    group = "loop"
    line = "where you stand"
    example = "status"
    description = "Says where you stand."
    examples = "ratchet.sh status --json"
    is_watched = True
    does = "harness.cli.status:status"

    def configure(self, parser: Parser) -> None:
        add_json(parser, "where you stand as JSON")


class Rescale(Verb):
    name = "rescale"
    group = "loop"
    line = "time recorded kernels again, on one scale"
    example = "rescale"
    description = (
        "Compiles and simulates the accepted attempts again where compiler, simulator, chip or problem are no longer "
        "those of then, and keeps the times as notes beside what was recorded. Nothing is checked, and nothing "
        "recorded is rewritten. An attempt does the same after its report."
    )
    examples = "ratchet.sh rescale --all"
    does = "harness.cli.rescale:rescale"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--all", action="store_true", help="rejected and undecided attempts too")
        add_json(parser, "the times as JSON")
        add_quiet(parser)


class Checkout(Verb):
    name = "checkout"
    group = "loop"
    line = "put an attempt's kernel.py into the working tree"
    example = "checkout 3"
    description = "Puts the kernel.py of an attempt into the working tree."
    does = "harness.cli.kernels:checkout"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("number", type=attempt_number, metavar="N", help="the attempt's number")
        parser.add_argument(
            "--force", action="store_true", help="overwrite a kernel.py that no attempt and no commit holds"
        )
        add_json(parser, "what was done as JSON")


class Undo(Verb):
    name = "undo"
    group = "loop"
    line = "take the last accept back, as a new commit"
    example = "undo"
    description = "Takes the last accept back, as a new commit."
    does = "harness.cli.kernels:undo"

    def configure(self, parser: Parser) -> None:
        add_json(parser, "what was done as JSON")


class Revoke(Verb):
    name = "revoke"
    group = "loop"
    line = "judge the champion again; one that fails loses its title"
    example = 'revoke "fails on sinks"'
    description = (
        "Judges the champion again under the present judge. One that fails loses its title: it goes to the latest "
        "accepted attempt that passes, recorded as an attempt and committed. A champion that passes keeps it, and "
        "nothing is recorded."
    )
    examples = "ratchet.sh revoke"
    does = "harness.cli.revoke:revoke"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("reason", nargs="?", default="", metavar="REASON", help="why, in your words; recorded")
        parser.add_argument(
            "--draw", dest="draws", action="append", default=[], metavar="MODE:SHAPE:FAMILY:SEED",
            help="inputs to check on too, as the message on a champion that fails names them; may be given more than "
            "once",
        )  # fmt: skip
        parser.add_argument(
            "--force", action="store_true",
            help="believe a failure that may be this machine's (timeout, crash, no memory)",
        )  # fmt: skip
        add_json(parser, "what was found as JSON")
        add_quiet(parser)


class New(Verb):
    name = "new"
    group = "loop"
    line = "make another contest, with its own ledger"
    example = "new mine --like attention"
    description = "Makes another contest, with its own ledger, and commits it."
    does = "harness.cli.kernels:new"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("folder", type=Path, help="a new folder; it becomes a git repository if it lies in none")
        parser.add_argument(
            "--like", default="attention", help=f"what to start from (attention): {', '.join(templates())}"
        )
        parser.add_argument(
            "--set", dest="settings", action="append", default=[], metavar="NAME=VALUE",
            help="rewrite this constant of prepare.py, of kernel.py, or of both",
        )  # fmt: skip
        parser.add_argument(
            "--from", dest="around", default=None, metavar="PACKAGE.MODULE:FUNCTION",
            help="a kernel.py that calls this function of an installed package; its options become constants",
        )  # fmt: skip
        parser.add_argument("--chip", choices=[chip.name for chip in CHIPS], help="the chip it is judged for")
        add_quiet(parser)
