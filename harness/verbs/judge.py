"""The verb `judge`: judge kernel.py as it stands, record nothing."""

import shlex
from argparse import Namespace
from dataclasses import dataclass

from harness.records import Evidence, Report, Verdict
from harness.shell.arguments import command, say
from harness.shell.exit_codes import EXIT_OF_OUTCOME
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb
from harness.verbs.parts.arguments import add_evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeDocument:
    """kernel.py judged as it stands: evidence, report and verdict; nothing is recorded."""

    evidence: Evidence
    report: Report
    verdict: Verdict


class Judge(Verb):
    place = "loop", 50
    line = "judge kernel.py as it stands, record nothing"
    description = "Judges kernel.py as it stands and records nothing."
    examples = "ratchet.sh judge --full"
    document = Document(19, JudgeDocument)
    effect = "writes"
    tool = "evaluate"

    def configure(self, parser: Parser) -> None:
        add_evaluation(parser)
        parser.settings("NAME=VALUE", "judge kernel.py with this constant rewritten; the file itself does not change")

    def run(self, arguments: Namespace) -> Outcome:
        from harness.advice import report as reporting
        from harness.judge.verdict import decision
        from harness.loop import expected
        from harness.loop.bench import Bench, judge_here
        from harness.loop.ledger_advice import advice_here, set_constants
        from harness.loop.settings import parse
        from harness.render.report_text import View, judge_blocks
        from harness.verbs.parts.attempts import on_champion
        from harness.verbs.parts.context import contest_of, progress_of, with_package_files

        contest = contest_of(arguments, arguments.chip)
        settings = tuple(parse(text) for text in arguments.settings)
        candidate = set_constants(contest.candidate(), settings, contest.directory)
        with progress_of(arguments) as progress:
            guess = expected.of(contest, None)
            progress.expect(guess.stages, guess.total_seconds, guess.source)
            bench = Bench(contest=contest, progress=progress, on=arguments.on, deep=arguments.deep)
            evidence = judge_here(bench, settings)
        verdict = decision.decide(evidence, None, None, bench.policy, contest.chip)
        report = reporting.report(evidence, contest.chip)
        advice = advice_here(reporting.advise(evidence, report), evidence, candidate, contest.directory)
        for sentence in () if settings else on_champion(contest, evidence):
            say(sentence)
        again = [f"--set {shlex.quote(text)}" for text in arguments.settings]
        whole = command(" ".join(["judge", *again, "--full"]), arguments.directory)
        view = View(files=with_package_files(candidate, evidence), full=arguments.full, whole=whole)
        return Outcome(
            document=JudgeDocument(
                evidence=evidence, report=reporting.with_advice(evidence, report, advice), verdict=verdict
            ),
            text=lambda: judge_blocks(evidence, report, advice, verdict, view),
            exit_code=EXIT_OF_OUTCOME[verdict.outcome],
        )
