"""The verbs that show where the time goes: of kernel.py, of an attempt, of a capture, of any program."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from harness import chips
from harness.cli.arguments import Parser, add_json, add_member, add_quiet, at_least, attempt_number
from harness.cli.verb import Verb
from harness.errors import UsageError
from harness.hardware import DEFAULT_CHIP
from harness.workbench.profiles import pruning, remote
from harness.workbench.profiles.places import PROFILE_DATA

_SERVER_PORT = 9999
# The resources of records.whatif.Scale.
RESOURCES = ("clock", "bandwidth", "dma-latency", "transfer-cost", "mxu")
PREDICTABLE = ("matmul", "collective", "memory", "shapes")


class Lines(Verb):
    name = "lines"
    group = "profile"
    line = "kernel.py with the simulated cycles of each line"
    example = "lines 3"
    description = "Prints kernel.py with the simulated cycles of each line."
    examples = "ratchet.sh lines; ratchet.sh lines 3"
    is_watched = True
    does = "harness.cli.lines:lines"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "number", type=attempt_number, metavar="N", nargs="?", help="the attempt (default: kernel.py as it stands)"
        )
        parser.add_argument("--chip", default=None, help="judge kernel.py as it stands for this chip")
        add_member(parser)
        add_json(parser, "the figures as JSON")
        add_quiet(parser)


class Timeline(Verb):
    name = "timeline"
    group = "profile"
    line = "what happens when, for ui.perfetto.dev and XProf"
    example = "timeline 3"
    description = "Writes what the simulated run does when, for ui.perfetto.dev and for XProf."
    examples = "ratchet.sh timeline; ratchet.sh timeline 3; ratchet.sh timeline dumps --chip v6e"
    is_watched = True
    does = "harness.cli.lines:timeline"

    def configure(self, parser: Parser) -> None:
        _add_subject(parser)
        parser.add_argument(
            "--steps", type=at_least(0), default=3, metavar="N", help="grid steps to show bundle by bundle (3)"
        )
        add_quiet(parser)


class Whatif(Verb):
    name = "whatif"
    group = "profile"
    line = "which of the chip's resources would make it faster"
    example = "whatif --mxu x2"
    description = (
        "Runs the same schedule on a chip with other resources, in the simulator; without factors each one in turn."
    )
    examples = "ratchet.sh whatif; ratchet.sh whatif 3 --mxu x2 --bandwidth x2; ratchet.sh whatif dumps --chip v6e"
    is_watched = True
    does = "harness.cli.whatif:whatif"

    def configure(self, parser: Parser) -> None:
        _add_subject(parser)
        for name in RESOURCES:
            parser.add_argument(f"--{name}", default=None, metavar="x2", help=f"factor on the chip's {name}")
        add_json(parser, "the figures as JSON")
        add_quiet(parser)


class Profile(Verb):
    name = "profile"
    group = "profile"
    line = "capture kernel.py on its own, for XProf"
    example = "profile --calls 3"
    description = (
        "Captures kernel.py on its own with JAX's profiler: warmed up, then a few calls, each with an annotation. The "
        f"capture goes to {PROFILE_DATA}/plugins/profile, where XProf and `ratchet.sh xprof` find it; of the captures "
        f"there {pruning.RULE}."
    )
    examples = "ratchet.sh profile --mode TRACE_COMPUTE_AND_SYNC; ratchet.sh profile --serve 9999"
    does = "harness.cli.profile:profile"

    def configure(self, parser: Parser) -> None:
        from harness.sandbox.profiles import TRACE_MODES

        parser.add_argument("--chip", default=None, help="the chip that kernel.py is for (default: the contest's)")
        add_member(parser)
        parser.add_argument(
            "--on", choices=["cpu", "tpu", "gpu"], default=None,
            help="where to run it (default: the chip if it is here, else the CPU, whose times say nothing about a TPU)",
        )  # fmt: skip
        parser.add_argument(
            "--mode", choices=TRACE_MODES, default=None,
            help="what a TPU records (TRACE_COMPUTE); without effect elsewhere",
        )  # fmt: skip
        parser.add_argument("--calls", type=at_least(1), default=3, metavar="N", help="calls in the capture (3)")
        parser.add_argument("--warmup", type=at_least(1), default=5, metavar="N", help="calls before it (5)")
        parser.add_argument(
            "--serve", type=int, nargs="?", const=_SERVER_PORT, default=None, metavar="PORT",
            help=f"run kernel.py until Ctrl-C, with JAX's profiler server listening for XProf's page ({_SERVER_PORT})",
        )  # fmt: skip
        parser.add_argument(
            "--snapshots", type=at_least(1), default=None, metavar="N", help="N snapshots of the running kernel"
        )
        parser.add_argument("--every", type=float, default=2.0, metavar="S", help="seconds between snapshots (2)")
        add_json(parser, "JSON instead of text")
        add_quiet(parser)


class Serve(Verb):
    name = "serve"
    group = "profile"
    line = "XProf's own pages over the captures"
    example = "serve --port 8791"
    description = "Serves XProf's pages over the captures of a log directory, on this machine only, until Ctrl-C."
    examples = "ratchet.sh serve; ratchet.sh serve ./profile_data --port 8792"
    does = "harness.cli.serve:serve"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "log_directory", nargs="?", help=f"a log directory, also gs:// (default: {PROFILE_DATA} of the contest)"
        )
        parser.add_argument("--port", type=int, default=remote.PORT, help=f"{remote.PORT}; 0: any free")
        parser.add_argument(
            "--distributed",
            action="store_true",
            help="start xprof as it starts itself, on all interfaces, with every further argument handed on "
            "(--grpc_port=50051 on workers, --worker_service_address=host1:50051,... on the viewer)",
        )

    def parse(self, words: Sequence[str]) -> Namespace:
        given, rest = self.parser().parse_known_args(words)
        return Namespace(**vars(given), rest=rest)


class Hlo(Verb):
    name = "hlo"
    group = "profile"
    line = "HLO explained: a module, an operation, a shape"
    example = "hlo --op fusion.3"
    description = "Explains HLO: shapes, layouts, padding, cost, copies, collectives, sharding."
    examples = (
        "ratchet.sh hlo module.txt; ratchet.sh hlo module.txt --op fusion.3; ratchet.sh hlo 'f32[3,5]{1,0:T(2,2)}'"
    )
    is_watched = True
    does = "harness.cli.hlo:hlo"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "what",
            nargs="?",
            help="a file of HLO text or of a serialized HloProto (also .gz), - for stdin, HLO itself in quotes, a "
            "capture (file, folder or run), or an attempt's number (default: kernel.py's module as last judged)",
        )
        parser.add_argument(
            "--module", default=None, metavar="NAME", help="of a capture (default: where most time was spent)"
        )
        parser.add_argument("--op", default=None, metavar="NAME", help="explain this operation alone")
        parser.add_argument(
            "--mesh", default=None, metavar="A=N,B=M", help="name the axes of the mesh that the module is split over"
        )
        parser.add_argument(
            "--chip", default=None, help=f"predict for this chip: {', '.join(chips.names())} ({DEFAULT_CHIP})"
        )
        parser.add_argument(
            "--top", type=at_least(1), default=12, metavar="N", help="rows of each table of a module (12)"
        )
        add_member(parser)
        add_json(parser, "the tables as JSON")
        add_quiet(parser)


class Predict(Verb):
    name = "predict"
    group = "profile"
    line = "the time of a matmul or a collective from shapes and chip"
    example = "predict matmul X[8192,8192] W[8192,8192]"
    description = (
        "Predicts from shapes, mesh and chip: `matmul X[..] W[..]`, `collective KIND`, `memory`, `shapes ARRAY...`."
    )
    examples = (
        "ratchet.sh predict matmul X[32,1024,8192] W[8192,32768] --chip v2 --devices 8; "
        "ratchet.sh predict memory --batch 8 --seq 4096 --layers 32 --d-model 4096 --remat"
    )
    is_watched = True
    does = "harness.cli.predict:predict"

    def configure(self, parser: Parser) -> None:
        def option(name: str, metavar: str | None, text: str) -> None:
            parser.add_argument(name, default=None, metavar=metavar, help=text)

        parser.add_argument("what", choices=PREDICTABLE, help="what to predict")
        parser.add_argument(
            "arrays", nargs="*", metavar="ARRAY", help="arrays, X[32@data,1024,8192], or a collective's kind"
        )
        option("--dtype", None, "type of arrays that name none (bf16)")
        option("--chip", None, f"{', '.join(chips.names())} ({DEFAULT_CHIP})")
        parser.add_argument(
            "--devices", "--chips", type=at_least(1), default=None, metavar="N", help="how many (1, or the mesh)"
        )
        option("--mesh", "A=N,B=M", "the sizes of the axes that arrays name")
        option("--einsum", "ab,bc->ac", "which dimensions belong together")
        option("--bytes", "128MiB", "the whole array of a collective")
        option("--shape", "ARRAY", "the same as a shape")
        option("--axis", "N[,M]", "devices along the axis or axes taking part")
        option("--groups", "REPLICA_GROUPS", "the axis from a collective's HLO")
        option("--parameters", "7e9", "how many the model has")
        for name, text in (
            ("batch", "sequences in a batch, for activations"), ("seq", "tokens in a sequence"),
            ("layers", "layers of a transformer"), ("d-model", "width of the model"),
            ("d-ff", "the MLP's width (4 x d-model)"),
            ("heads", "heads of an attention that keeps its scores (without: a kernel that keeps none)"),
            ("vocab", "size of the vocabulary, for the logits"),
        ):  # fmt: skip
            parser.add_argument(f"--{name}", type=at_least(1), default=None, metavar="N", help=text)
        parser.add_argument(
            "--remat", action="store_const", const=True, default=None, help="layers are recomputed (jax.checkpoint)"
        )
        option("--peak", "FLOP/s", "instead of the chip's, a device")
        option("--bandwidth", "B/s", "instead of the chip's: HBM's, or a ring's in both directions")
        add_json(parser, "the tables as JSON")


class Simulate(Verb):
    name = "simulate"
    group = "profile"
    line = "execute the schedules in a directory of compiler dumps"
    example = "simulate dumps --chip v6e"
    description = "Executes the schedules in any directory of compiler dumps and prints the time."
    takes_contest = False
    is_watched = True
    does = "harness.cli.simulate:simulate"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("directory", type=Path, help="where the compiler dumped its final schedules")
        parser.add_argument("--chip", required=True, help="the chip they were compiled for, such as v6e")
        _add_operand(parser)
        add_json(parser, "the result as JSON")

    def parse(self, words: Sequence[str]) -> Namespace:
        if "-C" in words:
            raise UsageError("usage", "simulate takes a directory of compiler dumps and no contest: leave -C out")
        return super().parse(words)


def _add_subject(parser: Parser) -> None:
    parser.add_argument(
        "what", nargs="?", help="an attempt, or a directory of compiler dumps (default: kernel.py as it stands)"
    )
    parser.add_argument("--chip", default=None, help="the chip that the dumps are for, or that kernel.py is judged for")
    add_member(parser)
    _add_operand(parser)


def _add_operand(parser: Parser) -> None:
    parser.add_argument(
        "--operand", action="append", default=[], metavar="NAME=FILE.npy",
        help="contents of an argument that the dumped program's control flow reads",
    )  # fmt: skip
