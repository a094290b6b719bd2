"""All verbs: what the overview, the dispatch, docs/COMMANDS.md and the MCP server go through."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from harness import __version__
from harness.cli import look_verbs, loop_verbs, machine_verbs, profile_verbs, xprof_commands
from harness.cli.arguments import Parser, directory
from harness.cli.verb import EXIT_CODES, GROUPS, Outcome, Verb


class Help(Verb):
    name = "help"
    group = "machine"
    line = "what a verb understands; all of them as a page"
    example = "help --markdown"
    description = "Says what a verb understands; without a verb, what verbs there are."
    examples = "ratchet.sh help sweep"
    takes_contest = False

    def configure(self, parser: Parser) -> None:
        parser.add_argument("verb", nargs="?", metavar="VERB", help="a verb, or `experiment`")
        parser.add_argument("--markdown", action="store_true", help="print the page docs/COMMANDS.md")

    def run(self, given: Namespace) -> Outcome:
        from harness.cli.help import page, parser_named

        parser = parser_named(EVERY, given.verb) if given.verb is not None else None
        if given.markdown:
            return Outcome(text=lambda: page(EVERY.values()))
        return Outcome(text=lambda: (parser.format_help() if parser else overview()).rstrip("\n"))


class Mcp(Verb):
    name = "mcp"
    group = "machine"
    line = "the commands as tools of the Model Context Protocol"
    example = "mcp"
    description = (
        "Offers the ratchet's commands as MCP tools over stdin and stdout; a client starts it. Tools open contests, "
        "captures and other files below the roots only, symbolic links resolved; those marked read-only write nothing."
    )
    examples = 'ratchet.sh mcp -C /path/to/contest; for a client: {"command": "/path/to/ratchet.sh", "args": ["mcp"]}'

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "--root", type=Path, action="append", default=[], metavar="DIR",
            help="open what lies below this folder; may be given again (default: the contest's folder)",
        )  # fmt: skip

    def run(self, given: Namespace) -> Outcome:
        from harness.cli.mcp_server import serve

        contest = directory(given.directory)
        serve(contest, given.root or [contest], EVERY)
        return Outcome(text=lambda: "")


# In the order of the overview, within each group.
VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        loop_verbs.Next(),
        loop_verbs.Sweep(),
        loop_verbs.Tune(),
        loop_verbs.TableVerb(),
        loop_verbs.Judge(),
        loop_verbs.Status(),
        loop_verbs.Rescale(),
        loop_verbs.Checkout(),
        loop_verbs.Undo(),
        loop_verbs.Revoke(),
        loop_verbs.New(),
        look_verbs.Results(),
        look_verbs.Show(),
        look_verbs.Diff(),
        look_verbs.Bisect(),
        look_verbs.Ablate(),
        look_verbs.Report(),
        look_verbs.Plot(),
        look_verbs.Diagnose(),
        profile_verbs.Lines(),
        profile_verbs.Timeline(),
        profile_verbs.Whatif(),
        profile_verbs.Profile(),
        xprof_commands.Xprof(),
        profile_verbs.Serve(),
        profile_verbs.Hlo(),
        profile_verbs.Predict(),
        profile_verbs.Simulate(),
        machine_verbs.Schema(),
        machine_verbs.Completion(),
        Help(),
        Mcp(),
        machine_verbs.Doctor(),
        machine_verbs.Audit(),
        machine_verbs.Ci(),
        machine_verbs.Fsck(),
        machine_verbs.Champions(),
        machine_verbs.Pack(),
        machine_verbs.Attack(),
        machine_verbs.Replay(),
        machine_verbs.Validate(),
        machine_verbs.Test(),
        machine_verbs.Selftest(),
    )
}
EXPERIMENT = loop_verbs.Experiment()
EVERY: dict[str, Verb] = {EXPERIMENT.name: EXPERIMENT, **VERBS}


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
