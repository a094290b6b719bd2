"""The work of `next`: the state of the search, and the advice to go on or to stop."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace

from harness.advice import report as reporting
from harness.advice.simulated_rates import least_seconds
from harness.candidate import Candidate
from harness.contest import Contest
from harness.hardware import chip, with_mesh
from harness.ledger import Ledger, history, table
from harness.loop import edits, installed, refusals, search_state
from harness.loop.followed_advice import with_followers
from harness.loop.ledger_advice import candidate_of, least_gain, screened_settings, timed_settings
from harness.loop.package_kernel import for_kernel
from harness.loop.untried_advice import TimedSettings, who_tried
from harness.records import Hint, Recheck
from harness.render.search_state import search_state_blocks
from harness.render.sections import Block
from harness.shell.arguments import BASELINE, command
from harness.shell.verb import Outcome
from harness.verbs.parts.context import contest_of, open_ledger, repaired


def run(arguments: Namespace) -> Outcome:
    contest = contest_of(arguments)
    ledger = open_ledger(contest.directory)
    repairs = repaired(ledger, arguments)
    attempts = table.scaled(ledger)
    inputs = _search_inputs(contest, ledger, attempts, arguments)
    inputs = replace(inputs, messages=(*repairs, *inputs.messages))
    state = search_state.search_state(inputs, plateau=arguments.plateau, limit=arguments.limit)
    checks = tuple(line for line in table.lines(attempts) if isinstance(line, Recheck))
    is_simulated = state.champion is not None and state.champion.source == "simulated"

    def text() -> Iterator[Block]:
        least = least_seconds(inputs.problem, inputs.chip, inputs.report) if is_simulated else None
        has_products = inputs.problem.work.matmul_flops > 0
        return search_state_blocks(state, checks, least_seconds=least, has_products=has_products)

    return Outcome(document=state, text=text)


def _search_inputs(
    contest: Contest, ledger: Ledger, scaled: table.ScaledTable, arguments: Namespace
) -> search_state.SearchInputs:
    limit = arguments.limit
    champion, skipped = scaled.champion, scaled.skipped
    # All times are on one scale, so that attempts can be compared.
    rows = tuple(scaled_row.row for scaled_row in scaled.rows)
    key = contest.key("simulated" if contest.chip.platform == "tpu" else "measured")
    # The attempts to look into, and the champion that the oldest of them was judged against.
    begins = next(iter([at for at, row in enumerate(rows) if search_state.is_attempt(row)][-limit:]), 0)
    before = [row for row in rows[:begins] if row.outcome == "accept"][-1:]
    candidates = {
        row.number: candidate
        for row in (*before, *rows[begins:])
        if (candidate := candidate_of(ledger.place, row.number)) is not None
    }
    standing = search_state.title_row(rows, champion.number if champion else None)
    last = champion or (history.attempt(ledger.place, rows[-1].number) if rows else None)
    revoke = next((row for row in reversed(rows) if champion and row.holder == champion.number), None)
    if revoke is not None and revoke.is_on_branch is not False:
        # The revoke that gave the champion its title judged the champion last.
        last = history.attempt(ledger.place, revoke.number)
    report, advice, timed = None, tuple[Hint, ...](), tuple[TimedSettings, ...]()
    screened = screened_settings(ledger.place, rows[begins:])
    if last is not None:
        report = reporting.report(last.evidence, chip(last.evidence.chip))
        champion_text = candidates.get(last.number, Candidate(text=b""))
        # The edits that `diagnose` simulated for the same kernel.
        is_same = installed.is_unchanged(last.evidence)
        simulated = (edits.kept_edits(contest, champion_text) if is_same else None) or ()
        advice = reporting.advise(last.evidence, report, rows, simulated)
        advice = for_kernel(
            advice,
            last.evidence,
            champion_text,
            contest.directory,
            lambda: who_tried(champion_text, candidates, screened),
        )
        advice = with_followers(advice, last.evidence, champion_text, ledger.place, rows[begins:], candidates)
        timed = timed_settings(ledger.place, rows[begins:], candidates, last.evidence)
        timed += edits.timed_edits(contest, champion_text)
    is_present = standing is not None and standing.key is not None and standing.key.timed == key.timed
    messages = list(skipped)
    if champion is None:
        messages.append(f"begin with: {command(BASELINE, arguments.directory)}")
    if champion is not None and not is_present:
        messages.append("the champion was judged under another key: the next attempt evaluates it again first")
    return search_state.SearchInputs(
        contest=ledger.place.name,
        problem=last.evidence.problem if last else contest.problem.statement(),
        chip=with_mesh(chip(last.evidence.chip), last.evidence.problem.mesh) if last else contest.chip,
        rows=rows,
        candidates=candidates,
        candidate=contest.candidate(),
        champion=standing,
        is_present_key=is_present,
        report=report,
        advice=advice,
        messages=tuple(messages),
        refused=refusals.refusals(ledger.place, champion.number) if champion else (),
        screened=screened,
        timed=timed,
        least_gain=least_gain(last.evidence) if last else 0.0,
    )
