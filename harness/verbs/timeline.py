"""The verb `timeline`: a trace of the simulated run, for ui.perfetto.dev and XProf."""

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
    line = "a trace of the simulated run, for ui.perfetto.dev and XProf"
    example = "timeline 3"
    description = "Writes a timeline of the simulated run, for ui.perfetto.dev and for XProf."
    examples = "ratchet.sh timeline; ratchet.sh timeline 3; ratchet.sh timeline dumps --chip v6e"
    is_watched = True

    def configure(self, parser: Parser) -> None:
        add_subject(parser)
        parser.option("--steps N", "grid steps to show bundle by bundle (3)", type=at_least(0), default=3)
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.advice import dump_directory
        from harness.advice.operands import in_problem_names
        from harness.files import write_atomically
        from harness.judge.simulate.timeline import timeline
        from harness.loop import kept_captures, simulated_capture
        from harness.render.traces.summary import summary
        from harness.verbs.parts.context import progress_of, tidy
        from harness.verbs.parts.schedules import dumped
        from harness.workbench.profiles.places import PROFILE_DATA
        from harness.workbench.traces.perfetto import trace_json

        folder = directory(arguments.directory).resolve()
        subject, dump, contents = dumped(arguments, runs=2)
        deadline = dump_directory.deadline_seconds(subject.dumps)
        try:
            with progress_of(arguments) as progress, progress.during("simulation"):
                run = timeline(
                    dump, subject.chip, steps_shown=arguments.steps, deadline_seconds=deadline, operands=contents
                )
        except RatchetError as error:
            raise RatchetError(error.kind, dump_directory.explain_no_end(str(error))) from error
        if subject.kernel is not None:
            run = in_problem_names(run, subject.kernel.evidence.problem)
        title = f"{subject.name} simulated {subject.chip.name}"
        perfetto = kept_captures.make_folder(folder / PROFILE_DATA) / f"{title.replace(' ', '-')}.trace.json.gz"
        write_atomically(perfetto, gzip.compress(trace_json(run, title), mtime=0))
        profile = simulated_capture.write(run, subject.chip, subject.name, folder)
        tidy(folder)
        return Outcome(text=lambda: summary(run, perfetto, profile, partial(command, named=arguments.directory)))
