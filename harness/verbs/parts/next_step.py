"""What `next` says: where the search stands and whether to go on; a program decides its next attempt by it."""

from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

from harness.advice import report as reporting
from harness.candidate import Candidate, Settings
from harness.contest import Contest
from harness.errors import RatchetError
from harness.hardware import chip
from harness.ledger import Ledger, history, table
from harness.loop import search_state
from harness.loop.package_kernel import for_kernel
from harness.records import Hint, Recheck, Row
from harness.render.layout import terminal_width
from harness.render.search_state import search_state_text
from harness.shell.arguments import BASELINE, command
from harness.shell.verb import Outcome
from harness.verbs.parts.given import contest_of, settled


def next_step(given: Namespace) -> Outcome:
    contest = contest_of(given)
    ledger = settled(given)
    attempts = table.scaled(ledger)
    found = search_state.search_state(
        _sighted(contest, ledger, attempts, given), plateau=given.plateau, limit=given.limit
    )
    checks = tuple(line for line in table.lines(attempts) if isinstance(line, Recheck))
    return Outcome(document=found, text=lambda: search_state_text(found, terminal_width(), checks))


def _sighted(contest: Contest, ledger: Ledger, found: table.ScaledTable, given: Namespace) -> search_state.Sighted:
    limit = given.limit
    champion, skipped = found.champion, found.skipped
    # Times are of one scale, so that what was tried can be compared.
    rows = tuple(one.row for one in found.rows)
    key = contest.key("simulated" if contest.chip.platform == "tpu" else "measured")
    # Those to look into, and the champion that the oldest of them was judged against.
    begins = next(iter([at for at, row in enumerate(rows) if search_state.is_attempt(row)][-limit:]), 0)
    before = [row for row in rows[:begins] if row.outcome == "accept"][-1:]
    candidates = {
        row.number: candidate
        for row in (*before, *rows[begins:])
        if (candidate := _candidate(ledger, row.number)) is not None
    }
    standing = search_state.title_row(rows, champion.number if champion else None)
    last = champion or (history.attempt(ledger.place, rows[-1].number) if rows else None)
    given_by = next((row for row in reversed(rows) if champion and row.holder == champion.number), None)
    if given_by is not None and given_by.is_on_branch is not False:
        # The revoke that gave it the title judged it last.
        last = history.attempt(ledger.place, given_by.number)
    report, advice = None, tuple[Hint, ...]()
    if last is not None:
        report = reporting.report(last.evidence, chip(last.evidence.chip))
        advice = reporting.advise(last.evidence, report, rows)
        advice = for_kernel(advice, last.evidence, candidates.get(last.number, Candidate(text=b"")))
    is_present = standing is not None and standing.key is not None and standing.key.timed == key.timed
    messages = list(skipped)
    if champion is None:
        messages.append(f"begin with: {command(BASELINE, given.directory)}")
    if champion is not None and not is_present:
        messages.append("the champion was judged under another key: the next attempt evaluates it again first")
    return search_state.Sighted(
        contest=ledger.place.name,
        problem=last.evidence.problem if last else contest.problem.statement(),
        chip=chip(last.evidence.chip) if last else contest.chip,
        rows=rows,
        candidates=candidates,
        candidate=contest.candidate(),
        champion=standing,
        is_present_key=is_present,
        report=report,
        advice=advice,
        messages=tuple(messages),
        screened=_screened(ledger, rows[begins:]) if advice else (),
    )


def _screened(ledger: Ledger, rows: Sequence[Row]) -> tuple[tuple[int, Settings], ...]:
    """The settings that the sweeps among these attempts screened under any judge, with the attempt of each."""
    found: list[tuple[int, Settings]] = []
    for row in rows:
        with suppress(RatchetError):
            sweep = history.attempt(ledger.place, row.number).sweep
            found += [(row.number, one.settings) for one in sweep.screened] if sweep else []
    return tuple(found)


def _candidate(ledger: Ledger, number: int) -> Candidate | None:
    """None where only the record is known here, as in a clone without the log."""
    try:
        return history.candidate(ledger.place, number)
    except RatchetError:
        return None
