"""The verb `timeline`: what happens when, for ui.perfetto.dev and XProf."""

import gzip
from argparse import Namespace
from functools import partial

from harness.errors import RatchetError
from harness.shell.arguments import at_least, command, directory
from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb
from harness.verbs.parts.arguments import add_subject


class Timeline(Verb):
    place = "profile", 20
    line = "what happens when, for ui.perfetto.dev and XProf"
    example = "timeline 3"
    description = "Writes what the simulated run does when, for ui.perfetto.dev and for XProf."
    examples = "ratchet.sh timeline; ratchet.sh timeline 3; ratchet.sh timeline dumps --chip v6e"
    is_watched = True

    def configure(self, parser: Parser) -> None:
        add_subject(parser)
        parser.option("--steps N", "grid steps to show bundle by bundle (3)", type=at_least(0), default=3)
        parser.quiet()

    def run(self, given: Namespace) -> Outcome:
        from harness.advice import dump_directory
        from harness.advice.timeline import timeline_with_parts
        from harness.files import write_atomically
        from harness.render.operands import in_problem_names
        from harness.render.traces.perfetto import trace_json
        from harness.render.traces.summary import summary
        from harness.render.traces.xspace import xspace_text
        from harness.verbs.parts.given import tidy
        from harness.verbs.parts.schedules import dumped
        from harness.workbench.capture import xspace
        from harness.workbench.profiles import pruning
        from harness.workbench.profiles.places import PROFILE_DATA, RUNS

        folder = directory(given.directory).resolve()
        meant, dump, contents = dumped(given, runs=2)
        deadline = dump_directory.deadline_seconds(meant.dumps)
        try:
            found, parts = timeline_with_parts(dump, meant.chip, given.steps, deadline, contents)
        except RatchetError as error:
            raise RatchetError(error.kind, dump_directory.explained(str(error))) from error
        if meant.problem is not None:
            found = in_problem_names(found, meant.problem)
        title = f"{meant.name} simulated {meant.chip.name}"
        run = title.replace(" ", "-")
        kept = pruning.made(folder / PROFILE_DATA)
        perfetto = kept / f"{run}.trace.json.gz"
        write_atomically(perfetto, gzip.compress(trace_json(found, title), mtime=0))
        profile = kept / RUNS / run / f"simulated-{meant.chip.name}.xplane.pb"
        instructions = {name: str(instruction) for name, instruction in dump.module.instructions.items()}
        xspace.write(xspace_text(found, meant.chip, title, instructions, parts), profile)
        tidy(folder)
        return Outcome(text=lambda: summary(found, perfetto, profile, partial(command, given=given.directory)))
