"""The verb `table`: fill a table of block sizes for shapes and chips."""

from pathlib import Path

from harness.hardware import DEFAULT_CHIP
from harness.shell.arguments import at_least
from harness.shell.parser import Parser
from harness.shell.tables import TABLES
from harness.shell.verb import Verb
from harness.verbs.parts.arguments import add_jobs, add_seed, add_where


class Table(Verb):
    place = "loop", 40
    line = "fill a table of block sizes for shapes and chips"
    example = "table --kernel jax:splash --shapes shapes.json"
    description = (
        "Fills a table of tuned constants: for each shape on each chip, Optuna searches settings, which are compiled "
        "and timed in the simulator. At most three settings are judged in full, the fastest first, until one passes. "
        "The table is written as JSON, as Python or as tokamax's own cache, with the ratio of the fallback setting's "
        "time to the best time. Finished rows are kept: the same command continues where it stopped."
    )
    examples = (
        "ratchet.sh table --kernel jax:splash --shapes shapes.json --chip v5e,v6e --format python --trials 24, where "
        'shapes.json holds [{"heads": 8, "kv_heads": 2, "sequence": 2048, "head_dim": 128, "causal": true}]'
    )
    takes_contest = False
    document = TABLES
    effect = "writes"

    def configure(self, parser: Parser) -> None:
        from harness.loop.tuning_table.kernels import KERNELS

        parser.add_argument("--kernel", required=True, help=f"{', '.join(KERNELS)}, or the folder of a contest")
        parser.option(
            "--shapes FILE",
            "a JSON list of shapes (the problem's constants, in lower case) or of models (docs/TABLES.md)",
            type=Path,
            required=True,
        )
        parser.chip(
            f"chips, such as v5e,v6e, with one row for each shape on each chip ({DEFAULT_CHIP})",
            default=DEFAULT_CHIP,
            metavar="CHIPS",
        )
        parser.choice("--format", ["json", "python", "tokamax"], "the form of the table (json)", default="json")
        parser.option("--out DIR", "the folder to write to (tables)", type=Path, default=Path("tables"))
        parser.option("--trials N", "settings tried at most for a row (24)", type=at_least(1), default=24)
        add_seed(parser)
        parser.option(
            "--missing TABLE",
            "fill only the shapes that this table lacks, and show what the fallback costs for them",
            type=Path,
        )
        parser.flag(
            "--list", "with --missing: fill nothing, only list the missing shapes; exit code 1 if there are any"
        )
        parser.settings("NAME=VALUES", "search these values of this constant instead of the default ones")
        add_where(parser)
        add_jobs(parser)
        parser.json("the rows as JSON")
        parser.quiet()
