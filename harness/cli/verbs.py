"""The verbs: one entry each, from which the overview, the dispatch and docs/COMMANDS.md are made."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness import __version__
from harness.cli.arguments import Parser, parser_of

GROUPS = {
    "loop": "the loop: change, judge, keep what is faster",
    "look": "look: what happened, and what to try next",
    "profile": "profile: where the time goes",
    "machine": "machine: programs, tests and the ratchet itself",
}
EXIT_CODES = (
    "exit codes: 0 accepted or fine, 1 rejected or failed, 2 usage, 3 inconclusive, 4 known error, 5 bug, "
    "130 interrupted"
)


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: the function that runs it (`module.function` under harness/cli), its group, line and example."""

    name: str
    function: str
    group: str
    line: str
    example: str
    # Where a tuple of things with a `name` says what subcommands there are.
    subcommands: str = ""

    def run(self, words: list[str]) -> int:
        """Runs the verb and returns its exit code."""
        return self._loaded()(words)

    def parser(self) -> Parser:
        """What it understands."""
        return parser_of(self._loaded())

    def parsers(self) -> Iterator[tuple[str, Parser]]:
        """`show` and what it understands; then each subcommand, `xprof ops`, and what that does."""
        yield self.name, self.parser()
        if self.subcommands:
            for command in _loaded(self.subcommands):
                yield f"{self.name} {command.name}", parser_of(self._loaded(), command.name)

    def _loaded(self) -> Callable[[list[str]], int]:
        loaded: Callable[[list[str]], int] = _loaded(self.function)
        return loaded


def _loaded(path: str) -> Any:
    """`module.name` under harness/cli, loaded now: a plotting or server library costs a second, which only its own
    verb shall pay."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"harness.cli.{module}"), name)


# One line a verb; the example is what follows `ratchet.sh`.
VERBS = {
    verb.name: verb
    for verb in (
        Verb("next", "next.next_", "loop", "where the search stands, and whether to go on", "next --json"),
        Verb(
            "sweep",
            "sweep.sweep",
            "loop",
            "screen a grid of settings, judge the best as one attempt",
            'sweep "experiment: ..." --set BQ=512,1024',
        ),
        Verb("judge", "attempts.judge", "loop", "judge kernel.py as it stands, record nothing", "judge"),
        Verb("status", "ledger.status", "loop", "where you stand", "status"),
        Verb("checkout", "ledger.checkout", "loop", "put an attempt's kernel.py into the working tree", "checkout 3"),
        Verb("undo", "ledger.undo", "loop", "take the last accept back, as a new commit", "undo"),
        Verb(
            "revoke",
            "revoke.revoke",
            "loop",
            "judge the champion again; one that fails loses its title",
            'revoke "fails on sinks"',
        ),
        Verb("new", "ledger.new", "loop", "make another contest, with its own ledger", "new mine --like attention"),
        Verb("results", "ledger.results", "look", "the table of all attempts", "results --limit 20"),
        Verb("show", "ledger.show", "look", "the whole report and the diff of an attempt", "show 3"),
        Verb("report", "report.report", "look", "all attempts as one HTML page, charts and diffs", "report --open"),
        Verb("plot", "report.plot", "look", "the same figures as pictures (PNG)", "plot --out docs"),
        Verb(
            "diagnose",
            "diagnose.diagnose",
            "look",
            "what to try next, ranked, each with its rule and gain",
            "diagnose 3",
        ),
        Verb("lines", "insight.lines", "profile", "kernel.py with the simulated cycles of each line", "lines 3"),
        Verb(
            "timeline", "insight.timeline", "profile", "what happens when, for ui.perfetto.dev and XProf", "timeline 3"
        ),
        Verb(
            "whatif",
            "whatif.whatif",
            "profile",
            "which of the chip's resources would make it faster",
            "whatif --mxu x2",
        ),
        Verb("profile", "profile.profile", "profile", "capture kernel.py on its own, for XProf", "profile --calls 3"),
        Verb(
            "xprof",
            "xprof.xprof",
            "profile",
            "look into a capture, without a browser",
            "xprof list-runs",
            "xprof_commands.COMMANDS",
        ),
        Verb("serve", "serve.serve", "profile", "XProf's own pages over the captures", "serve --port 8791"),
        Verb("hlo", "hlo.hlo", "profile", "HLO explained: a module, an operation, a shape", "hlo --op fusion.3"),
        Verb(
            "predict",
            "predict.predict",
            "profile",
            "the time of a matmul or a collective from shapes and chip",
            "predict matmul X[8192,8192] W[8192,8192]",
        ),
        Verb(
            "simulate",
            "tools.simulate",
            "profile",
            "execute the schedules in a directory of compiler dumps",
            "simulate dumps --chip v6e",
        ),
        Verb("schema", "schema.schema_", "machine", "the JSON schema of what a verb prints with --json", "schema next"),
        Verb("help", "help.help_", "machine", "what a verb understands; all of them as a page", "help --markdown"),
        Verb("mcp", "mcp.mcp", "machine", "the commands as tools of the Model Context Protocol", "mcp"),
        Verb("doctor", "doctor.doctor", "machine", "is this machine fit; a program's checklist", "doctor run.py:step"),
        Verb("audit", "flags.audit", "machine", "flags of a launch script: unknown, harmful", "audit run.sh"),
        Verb("fsck", "audit.fsck", "machine", "check log, branch and experiments/ against each other", "fsck"),
        Verb(
            "attack", "attack.attack", "machine", "search the space of inputs for the worst error", "attack --minutes 5"
        ),
        Verb("replay", "audit.replay", "machine", "judge an attempt again under the present judge", "replay 3"),
        Verb("test", "tools.test", "machine", "run the project's tests", "test"),
        Verb("selftest", "selftest.selftest", "machine", "plant bad kernels, see each of them refused", "selftest"),
    )
}
# The verb of a message; one writes the message instead.
EXPERIMENT = Verb(
    "experiment",
    "attempts.experiment",
    "loop",
    "test one change of kernel.py, keep it if it is faster",
    '"experiment: raise BQ" --set BQ=2048',
)
EVERY = {EXPERIMENT.name: EXPERIMENT, **VERBS}


def valued_options() -> frozenset[str]:
    """The options, of any verb, that a value follows."""
    return frozenset(name for verb in EVERY.values() for name in verb.parser().valued())


def overview() -> str:
    """What `ratchet.sh --help` prints: every verb with an example, by purpose."""
    return "\n".join(_overview_lines()) + "\n"


def _overview_lines() -> Iterator[str]:
    yield 'usage: ratchet.sh "experiment: HYPOTHESIS" [options]   test one change of kernel.py, keep it if it is faster'
    yield "       ratchet.sh VERB [options]"
    widest = max(len(verb.line) for verb in VERBS.values())
    for group, title in GROUPS.items():
        yield ""
        yield title
        for verb in VERBS.values():
            if verb.group == group:
                yield f"  {verb.name:10} {verb.line:{widest}}  {verb.example}"
    yield ""
    yield "  -C DIR     the contest's folder (default: this one)"
    yield "  --python X first of all: the Python to set the environment up with (3.12, or a path)"
    yield "ratchet.sh VERB --help says more; ratchet.sh experiment --help lists the options of an attempt."
    yield EXIT_CODES
    yield f"kernel-ratchet {__version__}"
