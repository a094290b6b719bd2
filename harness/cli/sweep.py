"""The verb that screens a grid of settings and judges the best of them as one attempt."""

import os

from harness import contest as contests
from harness.cli.arguments import EXIT_OF_OUTCOME, colour, directory, say, verb_parser
from harness.cli.attempts import attempt_text, expectation, hypothesis_of
from harness.cli.documents import json_text
from harness.errors import UsageError
from harness.loop import sweep as sweeping
from harness.loop.attempt import Options
from harness.records import Policy
from harness.render import terminal
from harness.render.layout import terminal_width
from harness.render.sweep import sweep_text


def sweep(words: list[str]) -> int:
    parser = verb_parser(
        "sweep",
        "Compiles and times every setting of a grid, then judges the best one as one recorded attempt that names the "
        "grid. A setting that fails is a value of the table.",
        'ratchet.sh sweep "experiment: larger blocks" --set BQ=512,1024,2048 --set BKV=512,1024',
    )
    parser.add_argument("message", help="the hypothesis; begins with `experiment:`")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE,VALUE",
        help="the values of this constant of kernel.py; one --set for each constant",
    )
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N", help="settings screened at a time (2)"
    )
    parser.add_argument("--chip", default=None, help="judge for this chip")
    parser.add_argument(
        "--on",
        choices=["cpu", "tpu", "gpu", "simulated"],
        default=None,
        help="where the latency of the attempt comes from; a TPU's settings are screened in the simulator anyway",
    )
    parser.add_argument("--expect", default=None, metavar="5%", help="how much less time you expect of the best")
    parser.add_argument("--again", action="store_true", help="judge the best even if it was judged before")
    parser.add_argument("--full", action="store_true", help="print the whole report of the attempt")
    parser.add_argument("--json", action="store_true", help="print the grid's results as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    given = parser.parse_args(words)
    if given.jobs < 1:
        raise UsageError("usage", f"expected --jobs 1 or more, got {given.jobs}")
    hypothesis = hypothesis_of(given.message)
    parameters = sweeping.grid(given.settings)
    contest = contests.load(directory(given.directory), given.chip)
    options = Options(expected_time_ratio=expectation(given.expect), on=given.on, again=given.again)
    with terminal.Progress(quiet=given.quiet or given.json) as progress:
        found = sweeping.sweep(contest, hypothesis, parameters, options, Policy(), progress, say, jobs=given.jobs)
    if given.json:
        print(json_text("sweep", found.swept))
    else:
        print(sweep_text(found.swept, terminal_width(), colour()))
        if found.judged is not None:
            print()
            print(attempt_text(contest, found.judged, given.directory, full=given.full))
    for message in found.judged.messages if found.judged else ():
        say(message)
    return 1 if found.judged is None else EXIT_OF_OUTCOME[found.judged.attempt.verdict.outcome]
