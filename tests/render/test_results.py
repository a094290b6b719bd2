"""The table of attempts: one scale, folded checks, filters, widths, the story, and the same as CSV."""

import csv
import io
from dataclasses import replace

import pytest
from evidence_examples import KEY
from narrowing import present
from rich.cells import cell_len
from screen_examples import is_tidy, line, scaled_table, shown, story, table, timed

from harness.judge.key import key_digest
from harness.ledger.table import Filter, bests, chosen, lines, shortened
from harness.loop.gain import gain
from harness.records import Losses, Recheck, Row, ScaledRow
from harness.render.results import gain_words, losses_words, recheck_words, results_table
from harness.render.results_csv import results_csv

ROWS, NOTES = story()
NEWEST = replace(KEY, judge="newest")


def again(number: int, key: int, **changes: object) -> Row:
    """A rebaseline of the kernel of attempt 2 under a key of its own."""
    newer = replace(KEY, judge=f"judge {key}")
    row = line(number, "again", kind="rebaseline", kernel_sha256="kernel 2", key=newer, key_digest=key_digest(newer))
    return replace(row, time_ratio=1.0, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_results_fit_and_align(width: int) -> None:
    text = results_table(shown(tuple(table()), 2, has_all=True), width=width)
    assert is_tidy(text, width)
    # The time then starts in the same display column in every row, whatever the script of the hypothesis.
    rows = [row for row in text.splitlines() if " 2.160 " in row and not row.startswith("2.160")]
    assert len({cell_len(row[: row.index("2.160")]) for row in rows}) == 1
    assert ("hidden columns" in text) == (width < 140)


def test_the_table_has_no_more_columns_than_rows_need() -> None:
    rows = (line(1, "a", expected_time_ratio=None),)
    assert "expected" not in results_table(shown(rows, None), width=100)
    assert "copies" not in results_table(shown(rows, None), width=100)
    assert "copies" in results_table(shown(rows, None, has_all=True), width=120)
    assert results_table(shown((), None)) == "no attempts yet"


def test_a_problem_without_products_has_no_column_of_utilisations() -> None:
    for has_products in (True, False):
        text = results_table(shown(tuple(table()), 2, has_products=has_products), width=200)
        assert ("util" in text) == has_products


def test_a_pipe_loses_the_end_of_long_hypotheses_alone(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Output that goes into the test's files, as with capfd, is on no terminal.
    rows = (line(1, "long " * 40, members=tuple((f"a shape of the suite {number}", 1e-3) for number in range(12))),)
    monkeypatch.delenv("COLUMNS", raising=False)
    text = results_table(shown(rows, None))
    assert "they do not fit" not in text
    assert "long " * 11 in text
    assert "long " * 13 not in text
    assert "… cut: --csv and --json have all of it" in text
    monkeypatch.setenv("COLUMNS", "100")
    text = results_table(shown(rows, None))
    assert max(map(cell_len, text.splitlines())) <= 100
    assert "they do not fit in 100 columns" in " ".join(text.split())


def test_rows_of_another_source_or_chip_are_never_mixed_in() -> None:
    first = line(1, "a", key=None)
    text = results_table(shown((first, line(2, "b", key=None, key_digest="other", chip="v6e")), 1), width=100)
    assert "-- simulated v5e -> simulated v6e, key other: not comparable with the rows above --" in text
    measured = line(2, "b", key=replace(KEY, source="measured"), key_digest="other", source="measured")
    text = results_table(shown((line(1, "a"), measured, line(3, "c")), 1), width=100)
    assert "-- source simulated -> measured, key other: not comparable with the rows above --" in text
    assert "-- source measured -> simulated" in " ".join(text.split())


def test_rows_without_a_champion_keep_their_own_keys() -> None:
    failed = [
        line(1, "a", outcome="failed", seconds=None),
        line(2, "b", outcome="reject", key_digest="other", key=None),
    ]
    text = results_table(shown(failed, None), width=100)
    assert "-- key other: not comparable with the rows above --" in text


def test_checks_of_an_unchanged_champion_are_one_line() -> None:
    table_lines = lines(scaled_table(ROWS, 8, NOTES))
    assert len(table_lines) == 5
    run = table_lines[-1]
    assert isinstance(run, Recheck)
    assert (run.first, run.last, len(run.notes), run.champion, run.changed) == (5, 8, 1, 2, ("judge",))
    words = recheck_words(run, 8)
    assert words == "5-8* judge changed: attempt 2 checked again 4 times (1 timed out), 2.700 -> 2.800 ms as recorded"
    assert len(lines(scaled_table(ROWS, 8, NOTES), unfolded=True)) == 9, "eight attempts and a check"
    assert "after 8: champion (attempt 2) checked again: passes, 22 of 22 checks" in results_table(
        shown(ROWS, 8, NOTES, has_all=True), width=100
    )


def test_losses_are_folded_where_the_table_is_long() -> None:
    def loss(number: int, **changes: object) -> Row:
        return line(number, "in vain", **{"outcome": "reject", "time_ratio": 1.25, **changes})

    rows = [*ROWS[:4], line(5, "won"), loss(6), loss(7, outcome="inconclusive", seconds=2.1384e-3), loss(8)]
    # The champion is checked between two losses, and once more after them.
    rows += [replace(again(9, 7), kernel_sha256="kernel 5"), loss(10), replace(again(11, 8), kernel_sha256="kernel 5")]
    rows += [line(12, "won"), loss(13)]
    every = lines(scaled_table(rows, 12))
    assert shortened(every, len(every)) == every
    older = shortened(every, len(every) - 1)
    assert [type(entry) for entry in older[:4]] == [ScaledRow, ScaledRow, Losses, ScaledRow], "the oldest first"
    assert older[3:] == every[4:]
    folded = shortened(every, 1)
    kinds = [ScaledRow, ScaledRow, Losses, ScaledRow, Losses, Recheck, ScaledRow, ScaledRow]
    assert [type(entry) for entry in folded] == kinds, "a loss alone stays"
    words = [losses_words(entry) for entry in folded if isinstance(entry, Losses)]
    assert words == [
        "3-4 1 rejected, 1 failed, best change +11.1% (--all lists them)",
        "6-10 3 rejected, 1 unclear, best change -1.0%; champion checked again 1 time (--all lists them)",
    ]
    assert isinstance(folded[4], Losses)
    assert [entry.row.number for entry in folded[4].rows] == [6, 7, 8, 9, 10], "none is lost"


def test_revoked_accepts_are_not_counted_as_accepted() -> None:
    revoke = line(4, "r", kind="revoke", revokes=(3,), holder=1, kernel_sha256="kernel 1")
    total = present(gain(scaled_table([ROWS[0], ROWS[1], line(3, "c"), revoke], 1)))
    assert (total.attempts, total.accepted, total.revoked) == (3, 2, 1)
    assert "in 3 attempts, 2 accepted" in gain_words(replace(total, first_seconds=9e-3, first=2))


def test_undone_accepts_are_told_apart_everywhere() -> None:
    undo = line(4, "undo attempt 3", kind="undo", kernel_sha256="kernel 2", seconds=2.7e-3)
    rows = [ROWS[0], ROWS[1], line(3, "c", seconds=1e-3), undo]
    table = scaled_table(rows, 2)
    assert [entry.taken_back for entry in table.rows] == [None, None, "undone", None]
    made = present(gain(table))
    assert (made.attempts, made.accepted, made.revoked) == (3, 2, 1)
    assert bests(table) == (1, 2)
    text = results_table(shown(rows, 2), width=100)
    assert [words.split()[1] for words in text.splitlines()[3:7]] == ["baseline", "accept", "undone", "undo"]
    assert "in 3 attempts, 2 accepted" in text
    accepted = chosen(table, lines(table), Filter(is_accepted=True))
    assert [entry.row.number for entry in accepted if isinstance(entry, ScaledRow)] == [1, 2]
    parsed = csv.DictReader(io.StringIO(results_csv(table.rows, (), 2)))
    assert [csv_row["taken_back"] for csv_row in parsed] == ["", "", "undone", ""]
    # A check of the champion after an undo checks the attempt that has the title again.
    check = replace(again(5, 1), seconds=2.7e-3)
    assert "5* judge changed: attempt 2 checked again once" in results_table(shown([*rows, check], 5), width=100)


def test_a_changed_kernel_or_an_attempt_between_ends_a_run() -> None:
    rows = [*ROWS[:2], again(3, 1), again(4, 2), line(5, "an idea", outcome="reject"), again(6, 3)]
    rows.append(line(7, "by hand", kind="rebaseline", time_ratio=0.9))
    table_lines = lines(scaled_table(rows, 7))
    assert [type(entry).__name__ for entry in table_lines] == ["ScaledRow"] * 2 + [
        "Recheck",
        "ScaledRow",
        "Recheck",
        "ScaledRow",
    ]
    assert recheck_words(table_lines[2], 7).startswith("3-4 judge changed: attempt 2 checked again 2 times")  # type: ignore[arg-type]
    # The rejected attempt was judged under the first key, so the key changed once more.
    assert isinstance(table_lines[4], Recheck)
    words = "6 judge changed: attempt 2 checked again once, time unchanged"
    assert recheck_words(table_lines[4], 7) == words, "not attempt 4's: that was a check too"


def test_the_same_program_in_other_words_is_folded_too() -> None:
    reworded = replace(again(3, 1), kernel_sha256="other words", fingerprint="program")
    rows = [ROWS[0], replace(ROWS[1], fingerprint="program"), reworded]
    assert isinstance(lines(scaled_table(rows, 3))[-1], Recheck)
    assert not isinstance(lines(scaled_table([*rows[:2], replace(reworded, fingerprint="else")], 3))[-1], Recheck)


def test_the_words_name_what_changed() -> None:
    newer = replace(KEY, judge="other", libtpu="0.1")
    run = lines(scaled_table([*ROWS[:2], replace(again(3, 1), key=newer, key_digest="x", seconds=None)], 3))[-1]
    assert isinstance(run, Recheck)
    assert recheck_words(run, None) == "3 judge and compiler changed: attempt 2 checked again once"
    same = replace(again(3, 1), key=KEY, key_digest=ROWS[1].key_digest, seconds=2.7e-3)
    run = lines(scaled_table([*ROWS[:2], same], 3))[-1]
    assert isinstance(run, Recheck)
    assert recheck_words(run, None) == "3 same key: attempt 2 checked again once, time unchanged"


def test_a_check_that_fails_says_so() -> None:
    bad = replace(NOTES[2], failure_kind="wrong-result", reason="wrong on sinks")
    text = results_table(shown(ROWS[:2], 2, [bad]), width=100)
    assert "after 8: judge changed: attempt 2 checked again once (1 wrong-result)" in text
    text = results_table(shown(ROWS[:2], 2, [bad], has_all=True), width=100)
    assert "after 8: champion (attempt 2) checked again: wrong-result: wrong on sinks" in text


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (Filter(), [1, 2, 3, 4, 5]),
        (Filter(is_accepted=True), [1, 2]),
        (Filter(is_best=True), [1, 2]),
        (Filter(since=4), [4, 5]),
        (Filter(since=7), [5]),
        (Filter(text="SMALL"), [3]),
        (Filter(text="judge the champion"), [5]),
        (Filter(text="nothing like it"), []),
        (Filter(is_accepted=True, text="bq"), [2]),
    ],
)
def test_filters_choose_lines_and_leave_the_story_alone(wanted: Filter, numbers: list[int]) -> None:
    table = scaled_table(ROWS, 8, NOTES)
    picked = chosen(table, lines(table), wanted)
    assert [entry.first if isinstance(entry, Recheck) else entry.row.number for entry in picked] == numbers  # type: ignore[union-attr]
    text = results_table(shown(ROWS, 8, NOTES, wanted), width=100)
    assert "5.600 -> 2.800 ms [simulated v5e], 2.00 times as fast, in 4 attempts, 2 accepted" in text


def test_a_best_is_one_of_the_scale() -> None:
    slower = timed(ROWS[1], NEWEST, 6e-3)
    notes = [timed(ROWS[0], NEWEST, 5e-3), slower, timed(line(3, "c"), NEWEST, 4e-3, after=3)]
    rows = [ROWS[0], ROWS[1], line(3, "c")]
    assert bests(scaled_table(rows, 3, notes)) == (1, 3)
    revoke = line(4, "r", kind="revoke", revokes=(3,), holder=1, kernel_sha256="kernel 1")
    assert bests(scaled_table([*rows, revoke], 1, notes)) == (1,)


def test_the_story_is_honest_where_the_first_has_no_time() -> None:
    rows = [ROWS[0], ROWS[1], line(3, "c", key=NEWEST, key_digest=key_digest(NEWEST), seconds=1e-3)]
    words = gain_words(present(gain(scaled_table(rows, 3))))
    assert words.startswith("1.000 ms [simulated v5e], 3 attempts, 3 accepted")
    assert words.endswith("earlier accepted kernels have no time on this scale")
    words = gain_words(present(gain(scaled_table(rows, 3, [timed(rows[1], NEWEST, 2e-3)]))))
    assert words.startswith("2.000 -> 1.000 ms [simulated v5e], 2.00 times as fast, in 3 attempts, 3 ")
    assert words.endswith("from attempt 2, the oldest accepted one with a time on this scale")
    assert gain(scaled_table([line(1, "a", outcome="reject")], None)) is None
    alone = gain_words(present(gain(scaled_table(rows[:1], 1))))
    assert alone.startswith("5.300 ms [simulated v5e], 1 attempt, 1 accepted")
    assert "not timed" not in alone


def test_why_attempts_have_no_time_is_said_once_for_each_reason() -> None:
    text = results_table(shown(ROWS, 8, NOTES), width=100)
    assert "attempt 3: compile-error: no such primitive" in text
    assert "not timed on this scale" not in text
    text = results_table(shown(ROWS, 8, NOTES[2:]), width=100)
    assert "2 attempts are not timed on this scale: ./ratchet.sh rescale --all times them" in text
    assert "ms, % then" in text, "the first accepted has no time on the scale"
    assert "5.300      -" in text
    text = results_table(shown(ROWS, 8, NOTES[:1]), width=100)
    assert "ms, % then" not in text
    assert "1 attempt is not timed on this scale (change: as recorded): ./ratchet.sh rescale --all times it" in text


def test_members_of_a_suite_have_columns() -> None:
    rows = [
        line(1, "a", members=(("short", 1e-3), ("long", 4e-3))),
        line(2, "b", members=(("short", 9e-4), ("long", None))),
    ]
    text = results_table(shown(rows, 2), width=100)
    assert "short" in text
    assert "4.000" in text
    slower_member = line(
        3, "c", outcome="reject", time_ratio=0.99, seconds=2e-3, members=(("short", 2e-3), ("long", 1e-3))
    )
    assert "2.000!" in results_table(shown([*rows, slower_member], 2), width=100)


def test_csv_has_every_figure_and_note() -> None:
    table = scaled_table(ROWS, 8, NOTES)
    parsed = list(csv.DictReader(io.StringIO(results_csv(table.rows, table.notes, 8))))
    assert [csv_row["record"] for csv_row in parsed] == ["attempt"] * 8 + ["note"] * 3
    first, third, check = parsed[0], parsed[2], parsed[-1]
    assert (first["seconds"], first["then_seconds"], first["is_champion"]) == ("0.0056", "0.0053", "false")
    assert (third["seconds"], third["why_unknown"]) == ("", "compile-error: no such primitive")
    assert parsed[7]["is_champion"] == "true"
    assert (check["kind"], check["number"], check["checks_passed"]) == ("checked", "2", "22")
    suite = scaled_table([line(1, 'a, "b"\nc', members=(("short", 1e-3),))], 1)
    (row,) = csv.DictReader(io.StringIO(results_csv(suite.rows, (), 1)))
    assert (row["hypothesis"], row["seconds short"], row["then_seconds short"]) == ('a, "b" c', "0.001", "0.001")
