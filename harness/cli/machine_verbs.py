"""The verbs about programs, tests and the ratchet itself."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from harness.cli import published
from harness.cli.arguments import Parser, add_json, add_member, add_quiet, attempt_number, minutes
from harness.cli.verb import Verb
from harness.hardware import DEFAULT_CHIP
from harness.workbench.profiles.places import SUFFIX


class Schema(Verb):
    name = "schema"
    group = "machine"
    line = "the JSON schema of what a verb prints with --json"
    example = "schema next"
    description = "Prints the JSON schema of what a verb prints with --json; without a verb all of them, by verb."
    takes_contest = False
    does = "harness.cli.schema:schemas"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("verb", nargs="?", metavar="VERB", help="a verb with --json, or `error`")


class Completion(Verb):
    name = "completion"
    group = "machine"
    line = "what a shell evaluates to complete verbs and options"
    example = "completion bash"
    description = (
        "Prints what a shell evaluates at its start, so that the Tab key completes verbs, options, the numbers of a "
        "contest's attempts and the constants of its kernel.py."
    )
    examples = 'eval "$(ratchet.sh completion bash)"; ratchet.sh completion fish | source'
    takes_contest = False
    does = "harness.cli.completion:completion"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="which shell")


class Doctor(Verb):
    name = "doctor"
    group = "machine"
    line = "is this machine fit; a program's checklist"
    example = "doctor run.py:step"
    description = (
        "Says whether this machine is fit: versions, devices, room, git, the ledger. With a program it runs that in a "
        "process of its own, unconfined, and goes through the checklist: compilations and the argument that caused "
        "each, first against second call, transfers, precision, cache, targets. Exit code 1 where there is a problem "
        "with the machine."
    )
    examples = "ratchet.sh doctor; ratchet.sh doctor train.py:step"
    does = "harness.cli.doctor:doctor"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "module", nargs="?", metavar="MODULE.py[:FUNCTION]",
            help="a program of yours: a function without arguments, called twice, or the file run once as a main "
            "program",
        )  # fmt: skip
        parser.add_argument(
            "--capture", default=None, metavar="WHERE", help="a capture of the program, for MXU and HBM"
        )
        parser.add_argument(
            "--limit", type=float, default=600.0, metavar="S", help="seconds that the program may take (600)"
        )
        add_json(parser, "the tables as JSON")
        add_quiet(parser)


class Audit(Verb):
    name = "audit"
    group = "machine"
    line = "flags of a launch script: unknown, harmful"
    example = "audit run.sh"
    description = (
        "Audits the flags of JAX, XLA and libtpu in a launch script (shell or Python), in the environment, or in a "
        "capture: unknown, contradictory, without effect, missing for a symptom, harmful for measuring. The installed "
        "jaxlib and libtpu are started with the flags and asked. Exit code 1 where the program would not start or two "
        "flags exclude each other."
    )
    examples = "ratchet.sh audit launch.sh --symptom all-reduce-stalls --chip v7x"
    is_watched = True
    does = "harness.cli.audit:audit"

    def configure(self, parser: Parser) -> None:
        from harness.workbench.doctor.flag_rules import SYMPTOMS

        parser.add_argument(
            "file", nargs="?", metavar="FILE", help=f"a script, *{SUFFIX}, or - for stdin (default: the environment)"
        )
        parser.add_argument(
            "--symptom", action="append", default=[], choices=sorted(SYMPTOMS), help="what was seen; may be given again"
        )
        parser.add_argument("--chip", default=None, help="the chip that the program runs on")
        add_json(parser, "the findings as JSON")

    def parse(self, words: Sequence[str]) -> Namespace:
        return super().parse(published.script(words))


class Champions(Verb):
    name = "champions"
    group = "machine"
    line = "check every contest's champion again, in one commit"
    example = "champions --page CHAMPIONS.md --commit"
    description = (
        "Checks the champion of each contest in a folder and below it wholly, as the judge is now, and times accepted "
        "kernels on today's scale. What comes of it are notes in the ledgers; no attempt's number is taken. A champion "
        "that passed under both keys of now is not checked again."
    )
    does = "harness.cli.champions:champions"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--page", type=Path, metavar="FILE", help="write a page in Markdown about all champions")
        parser.add_argument("--commit", action="store_true", help="commit notes and page, and nothing else")
        parser.add_argument("--all", action="store_true", help="time rejected and undecided attempts too")
        parser.add_argument("--again", action="store_true", help="check champions again that passed under these keys")
        add_json(parser, "what came of each as JSON")
        add_quiet(parser)


class Fsck(Verb):
    name = "fsck"
    group = "machine"
    line = "check log, branch and files against each other"
    example = "fsck"
    description = (
        "Checks log, branch and files (experiments/, attempts.jsonl) against each other, and every verdict against the "
        "evidence it was made from; changes nothing."
    )
    is_watched = True
    does = "harness.cli.fsck:fsck"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--replay", action="store_true", help="judge the champion again, and report what differs")
        parser.add_argument(
            "--signed-by",
            default=None,
            metavar="SIGNERS",
            help="report what these did not sign: a file of allowed signers (SSH), or an OpenPGP key's fingerprint",
        )
        add_json(parser, "the findings as JSON")
        add_quiet(parser)


class Pack(Verb):
    name = "pack"
    group = "machine"
    line = "put the files of attempts into one small file"
    example = "pack"
    description = (
        "Moves the attempts' files and notes of experiments/ into attempts.jsonl, one line for each, and prints how "
        "many bytes they took and take. Every verb reads attempts in both places. Nothing is committed."
    )
    does = "harness.cli.pack:pack"

    def configure(self, parser: Parser) -> None:
        add_json(parser, "what was moved as JSON")
        add_quiet(parser)


class Ci(Verb):
    name = "ci"
    group = "machine"
    line = "judge what a change does to a repository's contests"
    example = "ci --base main"
    description = (
        "Judges every contest whose prepare.py, kernel.py or helper modules differ between HEAD and where it left the "
        "base: both sides in this run, by one compiler, under the base's prepare.py. Nothing is recorded or checked "
        "out. Exit code 1 where the change makes a kernel wrong or slower, 3 where that could not be told."
    )
    examples = 'ratchet.sh ci --base origin/main --annotations --markdown "$GITHUB_STEP_SUMMARY" --out artefacts'
    does = "harness.cli.gate:ci"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--base", required=True, metavar="REF", help="the branch or commit to merge into")
        parser.add_argument("--head", default="HEAD", metavar="REF", help="what is proposed (HEAD)")
        parser.add_argument(
            "--fail-on", default="regress,wrong,inconclusive", metavar="WHAT",
            help="which of regress, wrong, inconclusive, removed fail the gate; or nothing (all but removed)",
        )  # fmt: skip
        parser.add_argument(
            "--threshold", type=float, default=1.0, metavar="PERCENT",
            help="how much more simulated time counts as slower, less as faster (1)",
        )  # fmt: skip
        parser.add_argument(
            "--compilers", choices=["own", "both"], default="own",
            help="judge with the other compiler that is locked too, in an environment of its own (own)",
        )  # fmt: skip
        parser.add_argument("--markdown", type=Path, default=None, metavar="FILE", help="append a summary to this file")
        parser.add_argument(
            "--annotations", action="store_true", help="print GitHub's workflow commands for the lines that cost more"
        )
        parser.add_argument(
            "--out", type=Path, default=None, metavar="DIR",
            help="write an HTML report and timelines for each contest, and benchmark.json, to this folder",
        )  # fmt: skip
        add_json(parser, "the findings")
        add_quiet(parser)


class Attack(Verb):
    name = "attack"
    group = "machine"
    line = "search the space of inputs for the worst error"
    example = "attack --minutes 5"
    description = "Searches the space of inputs for the worst error of kernel.py, or of an attempt; records nothing."
    examples = "ratchet.sh attack 3 --minutes 5"
    does = "harness.cli.attack:attack"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "number", nargs="?", type=attempt_number, metavar="N", help="an attempt instead of kernel.py"
        )
        parser.add_argument("--minutes", type=minutes, default=5.0, help="how long to search (default: 5)")
        parser.add_argument("--seed", type=int, default=None, help="search as the search with this seed did")
        parser.add_argument(
            "--repeat", type=Path, default=None, metavar="FILE", help="try the input in this file once more"
        )
        parser.add_argument("--first", action="store_true", help="stop at the first error above its tolerance")
        add_member(parser)
        add_json(parser, "what was found as JSON")
        add_quiet(parser)


class Replay(Verb):
    name = "replay"
    group = "machine"
    line = "judge an attempt again under the present judge"
    example = "replay 3"
    description = (
        "Judges an attempt again under the present judge; records nothing. The exit code is that of the verdict now: 1 "
        "for an attempt that is rejected again."
    )
    does = "harness.cli.fsck:replay"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("number", type=attempt_number, metavar="N", help="the attempt's number")
        add_json(parser, "what was found as JSON")
        add_quiet(parser)


class Validate(Verb):
    name = "validate"
    group = "machine"
    line = "everything that needs a TPU, tried in one go"
    example = "validate --minutes 30"
    description = (
        "Tries everything that a device is needed for: a measured attempt, an A/A control, captures and their lines, "
        "snapshots, a capture through the profiler's server, and every template and example champion of the chip, its "
        "measured time beside its simulated one. Each step is a command of its own with a limit. Writes a page and an "
        "archive with all that was printed and captured. Exit code 1 where something did not hold."
    )
    examples = "ratchet.sh validate; ratchet.sh validate --on cpu --minutes 10"
    takes_contest = False
    does = "harness.cli.validate:validate"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "--on", choices=["tpu", "cpu"], default=None,
            help="cpu: try the command itself, on small kernels; its times say nothing about a TPU (tpu)",
        )  # fmt: skip
        parser.add_argument(
            "--chip", default=None, help=f"with --on cpu, the chip that kernels are compiled for ({DEFAULT_CHIP})"
        )
        parser.add_argument(
            "--minutes", type=minutes, default=30.0, help="how long it may take; what is left then is not run (30)"
        )
        parser.add_argument(
            "--out", type=Path, default=None, metavar="NAME",
            help="write NAME.md and NAME.tar.gz (validate-CHIP in this folder)",
        )  # fmt: skip
        add_json(parser, "the findings")
        add_quiet(parser)


class Test(Verb):
    name = "test"
    group = "machine"
    line = "run the project's tests"
    example = "test"
    description = "Runs the project's tests; every other option is pytest's."
    examples = "ratchet.sh test -k settings"
    takes_contest = False
    # It is pytest's.
    takes_quiet = False
    does = "harness.cli.run_tests:test"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("--quick", action="store_true", help="only the shorter tests (a minute on two idle cores)")

    def parse(self, words: Sequence[str]) -> Namespace:
        given, options = self.parser().parse_known_args(words)
        return Namespace(quick=given.quick, options=options)


class Selftest(Verb):
    name = "selftest"
    group = "machine"
    line = "plant bad kernels, see each of them refused"
    example = "selftest"
    description = (
        "Plants bad kernels, good but unusual ones and cheating callers, each in a repository of its own, "
        "and lets the judge judge them. Exit code 0: all bad ones were refused by a guard that they were expected "
        "to be refused by, all good ones accepted."
    )
    examples = "ratchet.sh selftest --only causal_wrong_side"
    takes_contest = False
    does = "harness.cli.selftest:selftest"

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "--only", action="append", default=[], metavar="NAME", help="only this one; may be repeated"
        )
        add_json(parser, "records instead of the table")
        add_quiet(parser)
