"""A champion that fails loses its title by a record: in log, branch, clones, tables, page and advice; and killed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evidence_examples import KEY, V5E, evidence
from fault_fixtures import Server
from ledger_fixtures import (
    NAIVE,
    WRONG,
    candidate,
    four_attempts,
    git,
    identify,
    mess,
    new_repository,
    numbers,
    plain_clone,
    run_attempt,
    run_revoke,
    users_state,
    without_ours,
)
from narrowing import present
from screen_examples import shown

from harness.advice.report import report
from harness.errors import RatchetError
from harness.judge.verdict.compare_measured import attempts_since_accept
from harness.ledger import Ledger, history
from harness.ledger import champion as champions
from harness.ledger.fsck import audit
from harness.ledger.table import scaled
from harness.loop import search_state, status
from harness.records import Report
from harness.records.stored import SCHEMA
from harness.records.titles import title_moves
from harness.render import plots
from harness.render.colours import LIGHT
from harness.render.page.overview import group_plain, row_plain
from harness.render.report_text import show_blocks
from harness.render.results import results_table
from harness.render.sections import screen
from harness.render.series import groups
from harness.verbs.parts import stories

pytestmark = pytest.mark.long


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "user")


@pytest.fixture
def ledger(contest: Path) -> Ledger:
    """Baseline 1, win 2, loss 3, win 4."""
    ledger = Ledger.open(contest)
    four_attempts(ledger)
    return ledger


def champion_number(ledger: Ledger) -> int | None:
    champion = ledger.champion()
    return champion.number if champion else None


def kernel_of(bq: int) -> bytes:
    return NAIVE.replace(b"128", b"%d" % bq)


def test_the_title_goes_back_to_the_one_that_passes(ledger: Ledger, contest: Path) -> None:
    run_revoke(ledger, 2)
    trailers = git(contest, "log", "-1", "--format=%(trailers:only,unfold)").split("\n")
    assert {"Ratchet-Attempt: 5", "Ratchet-Revokes: 4", "Ratchet-Holder: 2"} <= set(trailers)
    assert champion_number(ledger) == 2
    assert (contest / "kernel.py").read_bytes() == ledger.champion_candidate().text == kernel_of(512)
    assert git(contest, "show", "HEAD:kernel.py").encode() == kernel_of(512)
    assert git(contest, "status", "--porcelain") == ""
    record = history.attempt(ledger.place, 5)
    assert record.revocation is not None
    assert record.revocation.revoked == (4,)
    assert record.champion_evidence is not None
    assert record.champion_evidence.failure == WRONG
    assert history.candidate(ledger.place, 5).text == kernel_of(512)
    assert history.candidate(ledger.place, 4).text == kernel_of(1024), "what lost its title is one checkout away"
    assert audit(ledger).findings == ()
    candidate(contest, 2048)
    run_attempt(ledger)
    assert (champion_number(ledger), numbers(ledger)) == (6, [1, 2, 3, 4, 5, 6])
    assert audit(ledger).findings == ()


def test_what_failed_on_the_way_gets_no_title_again(ledger: Ledger, contest: Path) -> None:
    assert [champion.number for champion in champions.all_before(ledger.place, 4)] == [2, 1]
    run_revoke(ledger, 1, 2)
    assert champion_number(ledger) == 1
    assert (contest / "kernel.py").read_bytes() == NAIVE
    assert champions.before(ledger.place, 1) is None
    assert list(champions.all_before(ledger.place, 1)) == []
    candidate(contest, 2048)
    run_attempt(ledger)
    before = present(champions.before(ledger.place, 6))
    assert before.number == 1, "an undo goes back past the revoked ones"
    assert audit(ledger).findings == ()


def test_where_nobody_passes_there_is_no_champion_and_the_next_is_a_baseline(ledger: Ledger, contest: Path) -> None:
    run_revoke(ledger, None, 2, 1)
    assert champion_number(ledger) is None
    assert (contest / "kernel.py").read_bytes() == kernel_of(1024), "for the person to mend"
    assert git(contest, "show", "--format=", "--name-only", "HEAD").split() == [
        "experiments/0005-revoke-attempt-4-wrong-on-sinks.json"
    ]
    row = history.rows(ledger.place)[0][-1]
    assert (row.kind, row.outcome, row.score, row.is_on_branch) == ("revoke", "failed", None, True)
    assert (row.revokes, row.holder) == ((4, 2, 1), None)
    assert audit(ledger).findings == ()
    with pytest.raises(RatchetError, match="expected a champion of contest"):
        ledger.champion_candidate()
    candidate(contest, 3)
    run_attempt(ledger, "failed")
    assert (contest / "kernel.py").read_bytes() == kernel_of(3), "there is no champion to put back"
    candidate(contest, 4096)
    run_attempt(ledger)
    assert (champion_number(ledger), history.attempt(ledger.place, 7).kind) == (7, "baseline")
    assert audit(ledger).findings == ()


@pytest.mark.parametrize("options", [(), ("--depth=1",)])
@pytest.mark.parametrize("holder", [1, None])
def test_a_plain_clone_knows_who_lost_the_title(
    ledger: Ledger, contest: Path, holder: int | None, options: tuple[str, ...]
) -> None:
    run_revoke(ledger, holder, 2, *([] if holder else [1]))
    clone = plain_clone(contest, contest.parent / "clone", *options)
    assert champion_number(clone) == holder
    assert numbers(clone) == [1, 2, 3, 4, 5]
    if holder:
        assert clone.champion_candidate().text == NAIVE == history.candidate(clone.place, 5).text
    assert champions._filed(clone.place, set())[0].number == 1 if holder else champions._filed(clone.place, set()) == []
    assert audit(clone).findings == ()


def test_the_users_own_work_and_candidate_stay(ledger: Ledger, contest: Path) -> None:
    mess(contest)
    before = without_ours(users_state(contest))
    mine = candidate(contest, 77)
    result = run_revoke(ledger, 2)
    assert "stays as it is" in result[0]
    assert (contest / "kernel.py").read_bytes() == mine
    assert git(contest, "show", "HEAD:kernel.py").encode() == kernel_of(512)
    assert git(contest, "status", "--porcelain", "kernel.py") == " M kernel.py\n"
    assert without_ours(users_state(contest)) == before
    run_attempt(ledger, "reject")
    assert (contest / "kernel.py").read_bytes() == kernel_of(512)


def test_tables_status_and_show_say_revoked(ledger: Ledger, contest: Path) -> None:
    run_revoke(ledger, 1, 2)
    rows, _ = history.rows(ledger.place)
    table = results_table(shown(rows, champion_number(ledger)), width=140).splitlines()
    words = {line.split()[0]: line.split()[1] for line in table if line[:3].strip().rstrip("*").isdigit()}
    assert words == {"1*": "baseline", "2": "revoked", "3": "reject", "4": "revoked", "5": "revoke"}
    text = screen(show_blocks(history.attempt(ledger.place, 5), _report(ledger, 5), (), ""), 200)
    assert "REVOKED  attempt 5 (revoke): revoke attempt 4: wrong on sinks" in text
    assert "Judged again:          attempt 4: wrong-result: the worst error is 2.1 times the tolerance" in text
    assert "Judged again:          attempt 1: passes, and holds the title" in text
    sentence = search_state.revoked_by(rows, 2)
    assert sentence.startswith("attempt 2 lost its title in attempt 5 (revoke attempt 4: wrong on sinks)")
    assert "attempt 1 holds the title again" in sentence
    assert search_state.revoked_by(rows, 1) == ""
    attempt = history.attempt(ledger.place, 2)
    loser = screen(show_blocks(attempt, _report(ledger, 2), (), "", revoked=sentence), 200)
    assert loser.startswith("REVOKED  attempt 2 lost its title")
    assert status._lost_titles(rows)[0].startswith("attempt 4 lost its title in attempt 5")
    candidate(contest, 2048)
    run_attempt(ledger)
    assert status._lost_titles(history.rows(ledger.place)[0]) == [], "a new champion is newer news"


def _report(ledger: Ledger, number: int) -> Report:
    return report(history.attempt(ledger.place, number).evidence, V5E)


def test_page_and_plots_show_it_and_count_no_revoked_champion(ledger: Ledger) -> None:
    present = replace(KEY, judge="a later judge")
    run_revoke(ledger, 1, 2, key=present, evidence=evidence(3e-3))
    entries, standing = stories.entries_of(ledger, scaled(ledger), ledger.place.root, ledger.place.root)
    assert standing == "1"
    before, after = groups(entries)
    assert [(step.number, step.entry) for step in before.steps] == [(1, "1")]
    assert [(step.number, step.entry, step.seconds, step.was_before) for step in after.steps] == [(5, "1", 3e-3, True)]
    rows = {entry.id: row_plain(entry, standing) for entry in entries}
    revoked = "accepted, revoked"
    assert [rows[name]["verdict"] for name in "12345"] == ["baseline", revoked, "rejected", revoked, "revoke"]
    assert [rows[name]["revoked"] for name in "12345"] == [False, True, False, True, False]
    listed = group_plain(before)["tiles"]
    assert isinstance(listed, list | tuple)
    tiles = {name: words for name, _, words in listed}
    assert tiles["attempts"] == "1 accepted, 1 rejected, 2 revoked"
    assert tiles["score"] == "attempt 1"
    lines = plots._progress(before, LIGHT).axes[0].lines
    drawn = [(np.asarray(line.get_xdata()), str(line.get_marker())) for line in lines]
    marks = {(places[0], marker) for places, marker in drawn if len(places) == 1 and marker in "oDXs"}
    assert marks == {(1, "o"), (2, "X"), (3, "D"), (4, "X")}
    assert [label for label, _ in plots._bars(before)] in ([], ["attempt 1"])


def test_a_later_group_does_not_begin_with_a_revoked_champion(ledger: Ledger, contest: Path) -> None:
    candidate(contest, 99)
    run_attempt(ledger, "reject", key=replace(KEY, judge="a later judge"))
    run_revoke(ledger, 2)
    entries, _ = stories.entries_of(ledger, scaled(ledger), ledger.place.root, ledger.place.root)
    (group,) = groups(entries)
    holders = [(step.number, step.entry) for step in group.steps]
    assert holders[-1] == (6, "2"), "attempt 5 was judged against attempt 4, which fails"
    assert "4" not in [entry for _, entry in holders]


def test_a_revoke_is_no_attempt_no_win_and_gives_luck_no_new_chance(ledger: Ledger, contest: Path) -> None:
    candidate(contest, 99)
    run_attempt(ledger, "reject")
    before = attempts_since_accept(history.rows(ledger.place)[0], "simulated")
    run_revoke(ledger, 2)
    rows, _ = history.rows(ledger.place)
    assert search_state.since_win(rows) == (), "what was tried against a kernel that fails is counted no more"
    assert attempts_since_accept(rows, "simulated") == before
    moves = title_moves(rows)
    assert [(move.kind, move.took, move.again) for move in moves] == [("revoke", (3,), 1)]
    row = present(search_state.title_row(rows, 2))
    assert (row.number, row.hypothesis, row.seconds) == (2, "idea 2", rows[-1].seconds)
    assert search_state._taken_back(rows) == ("accepted, and revoked later for a failure: attempt 4",)


def test_the_record_is_json_that_an_older_reader_refuses_in_words(ledger: Ledger, contest: Path) -> None:
    run_revoke(ledger, 1, 2)
    (path,) = (contest / "experiments").glob("0005-*.json")
    document = json.loads(path.read_text())
    assert document["schema"] == SCHEMA
    assert document["row"]["revokes"] == [4, 2]
    assert [entry["failure"] is None for entry in document["attempt"]["revocation"]["tried"]] == [False, False, True]


def test_records_of_schema_1_are_read_as_they_are(ledger: Ledger, contest: Path) -> None:
    (path,) = (contest / "experiments").glob("0003-*.json")
    document = json.loads(path.read_text())
    for part in (document["row"], document["attempt"]):
        for name in ("revokes", "holder", "revocation"):
            part.pop(name, None)
    text = json.dumps({**document, "schema": 1})
    git(contest, "update-ref", "-d", ledger.place.log_ref)
    path.write_text(text)
    assert history.attempt(ledger.place, 3).verdict.outcome == "reject"
    assert numbers(ledger) == [1, 2, 3, 4]


# --- killed at every write -------------------------------------------------------------------------


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_revoke_that_is_killed_is_finished_or_never_was(tmp_path: Path, every: int) -> None:
    template = new_repository(tmp_path / "template")
    run_attempt(Ledger.open(template))
    server = Server()
    try:
        events = _events(server, template, tmp_path / "whole")
        ends = set()
        for at in range(1, len(events) + 1, every):
            contest = tmp_path / f"at{at}"
            git(tmp_path, "clone", "-q", str(template), contest.name)
            identify(contest)
            server.obey(contest, "revoke", "kill", at)
            ledger = Ledger.open(contest)
            with ledger.lock():
                ledger.recover()
                assert ledger.recover() == ()
            assert audit(ledger).findings == (), (at, events[at - 1])
            is_recorded = numbers(ledger) == [1, 2]
            assert (champion_number(ledger) is None) is is_recorded, (at, events[at - 1])
            assert (contest / "kernel.py").read_bytes() == NAIVE
            ends.add(is_recorded)
        assert ends == {True, False}
    finally:
        server.close()


def _events(server: Server, template: Path, folder: Path) -> list[list[str]]:
    git(template.parent, "clone", "-q", str(template), folder.name)
    identify(folder)
    answer = server.obey(folder, "revoke")
    assert answer["status"] == 0
    return list(answer["events"])
