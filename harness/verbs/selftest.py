"""The verb `selftest`: plant bad kernels, see each of them refused."""

import time
from argparse import Namespace
from dataclasses import dataclass

from harness.errors import RatchetError
from harness.records.selftest import PlantedResult
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestDocument:
    """The planted candidates that were tried, each with its verdict; `classes` are the classes of these candidates."""

    tried: tuple[PlantedResult, ...]
    classes: tuple[str, ...] = ()


class Selftest(Verb):
    place = "machine", 150
    line = "plant bad kernels, see each of them refused"
    description = (
        "Tests the judge with planted candidates: bad kernels, good but unusual kernels, wrong answers, and callers "
        "that report false times or checks. Exit code 0 if every bad candidate was refused for the expected reason, "
        "and every good one was accepted."
    )
    examples = "ratchet.sh selftest --only causal_wrong_side"
    takes_contest = False
    document = Document(2, SelftestDocument)

    def configure(self, parser: Parser) -> None:
        parser.many("--only NAME", "run only this candidate; may be repeated")
        parser.flag("--quick", "run one candidate of each class: three minutes on two idle cores")
        parser.json("the records as JSON instead of the table")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.render.selftest import selftest_blocks
        from harness.sandbox.environment import environment
        from harness.selftest import planted, runner
        from harness.verbs.parts.context import progress_of

        every = runner.everything()
        wanted = planted.select(every, tuple(arguments.only)) if arguments.only else every
        wanted = planted.one_of_each(wanted) if arguments.quick else wanted
        if environment().libtpu is None:
            raise RatchetError("no-libtpu", "expected libtpu, the TPU compiler, found none: nothing can be judged here")
        began = time.monotonic()
        with progress_of(arguments) as progress:

            def tell(result: PlantedResult) -> None:
                progress(result.planted.name, "done" if result.is_right else "WRONG", result.seconds)

            results = tuple(runner.sweep(wanted, tell))
        seconds = time.monotonic() - began
        classes = tuple(dict.fromkeys(result.planted.kind for result in results))
        return Outcome(
            document=SelftestDocument(tried=results, classes=classes),
            text=lambda: selftest_blocks(results, seconds, classes if arguments.quick else ()),
            exit_code=0 if all(result.is_right for result in results) else 1,
        )
