"""The report page as text: its contents, hostile text that must not become markup, and its words for missing data."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_examples import KEY, V5E, attempt, evidence
from ledger_fixtures import four_attempts, git, new_repository, plain_clone, run_attempt
from ledger_fixtures import row as row_of
from pages import check_markup, check_policy, details, overview
from report_examples import HOSTILE, HOSTILE_KERNEL, SEARCH
from rule_examples import rowwise

from harness.advice import report as reporting
from harness.candidate import Candidate
from harness.errors import RatchetError, UsageError
from harness.ledger import Ledger, history
from harness.ledger.bulk_read import read_all
from harness.records import Latency, Verdict
from harness.render.page import source
from harness.render.page.overview import moved_by
from harness.render.page.search import Searched, search_plain
from harness.render.series import Entry, groups, pieces
from harness.shell.catalogue import EVERY
from harness.shell.main import main

pytestmark = pytest.mark.long


def with_four(folder: Path, **options: Any) -> tuple[Path, Ledger]:
    """A contest with four attempts, and its ledger."""
    contest = new_repository(folder, **options)
    ledger = Ledger.open(contest)
    four_attempts(ledger)
    return contest, ledger


def page_of(contest: Path) -> str:
    """The page that `report` writes for the contest."""
    assert main(["report", "-C", str(contest)]) == 0
    return (contest / "profile_data" / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def text_of(detail: dict[str, Any], part: str) -> str:
    """The lines of a kernel or diff as text."""
    places = detail[part] if part == "kernel" else [line[3] for line in detail[part]]
    return "\n".join("".join(text for _, text in detail["lines"][place]) for place in places)


# --- nothing hostile -----------------------------------------------------------------------------


def test_what_people_wrote_is_no_markup(page: str) -> None:
    check_markup(page)
    rows = {row["id"]: row for row in overview(page)["rows"]}
    assert rows["2"]["hypothesis"] == HOSTILE


def test_a_text_of_megabytes_is_cut(tmp_path: Path) -> None:
    folder, _ = with_four(tmp_path / "made")
    git(folder, "update-ref", "-d", "refs/ratchet/root/log")
    sizes = []
    for size in (0, 3_000_000):
        (record,) = (folder / "experiments").glob("0002-*.json")
        record.write_text(record.read_text().replace("idea 2", "idea 2" + "x" * size))
        page = page_of(folder)
        sizes.append(len(page))
    shown = {row["id"]: row for row in overview(page)["rows"]}["2"]["hypothesis"]
    assert shown.endswith("xxx ... (2,800,006 more characters)")
    assert sizes[1] < sizes[0] + 3 * 200_000


def test_only_the_scripts_of_the_page_may_run(page: str) -> None:
    check_policy(page)


def test_what_cannot_be_seen_is_spelled_out(page: str) -> None:
    kernel = text_of(details(page)["2"], "kernel")
    assert "<U+202E> turned" in kernel
    assert "\u202e" not in kernel
    assert "# </script><script>alert(3)</script>" in kernel
    assert details(page)["4"]["failure"]["detail"].endswith("<U+001B>[31m")


def test_source_is_coloured_and_whole() -> None:
    text = HOSTILE_KERNEL.decode()
    lines = source.python_lines(text)
    joined = ["".join(part for _, part in line) for line in lines]
    assert joined == text.replace("\u202e", "<U+202E>").splitlines()
    assert ("k", "def") in [(kind, part.strip()) for line in lines for kind, part in line]


def test_a_diff_keeps_its_signs_numbers_and_text() -> None:
    diff = '--- a/kernel.py\n+++ b/kernel.py\n@@ -3,3 +3,3 @@\n """a\n-old\n+new\n b"""\n\\ No newline at end of file\n'
    rows = source.diff_lines(diff)
    assert [(line.sign, line.old, line.new) for line in rows] == [
        ("@", None, None),
        (" ", 3, 3),
        ("-", 4, None),
        ("+", None, 4),
        (" ", 5, 5),
        ("@", None, None),
    ]
    assert ["".join(text for _, text in line.text) for line in rows[1:5]] == ['"""a', "old", "new", 'b"""']
    # The lines inside a string are coloured as one, on either side.
    assert {kind for line in rows[1:5] for kind, _ in line.text} == {"c"}


# --- what is shown -------------------------------------------------------------------------------


def test_groups_never_mix_keys(page: str) -> None:
    shown = overview(page)
    simulated, timed = shown["groups"]
    assert (simulated["label"], timed["label"]) == ("simulated v5e", "measured v5e")
    assert [row["n"] for row in shown["rows"] if row["group"] == simulated["id"]] == [1, 2, 3, 4, 5, 6]
    assert "source simulated to measured" in timed["difference"]
    # Neither an undone attempt nor the undo moves the champion; the earlier champion begins the line under the new key.
    assert [(step["n"], step["s"]) for step in simulated["steps"]] == [(1, 4e-3)]
    assert [(step["n"], step["id"], step["s"]) for step in timed["steps"]] == [(7, "6", 3e-3), (7, "7", 1.5e-3)]
    assert shown["champion"] == "7"
    assert shown["group"] == timed["id"]


def test_an_undone_accept_is_no_accepted_step(page: str) -> None:
    shown = overview(page)
    rows = {row["id"]: row for row in shown["rows"]}
    assert [rows[name]["verdict"] for name in "126"] == ["baseline", "accepted, undone", "undo"]
    assert [rows[name]["undone"] for name in "1267"] == [False, True, True, False]
    tiles = {name: (figure, words) for name, figure, words in shown["groups"][0]["tiles"]}
    assert tiles["score"][1] == "attempt 1"
    assert tiles["latency of the champion"][1] == ""
    assert tiles["attempts"] == ("5", "1 accepted, 1 rejected, 1 inconclusive, 1 failed, 1 undone, 1 undo")
    assert shown["groups"][0]["standing"]["id"] == "1"


@pytest.mark.parametrize(("ratio", "text"), [(0.5, "-50.0%"), (10.99, "+999.0%"), (1077.667, "1,078 times")])
def test_a_large_change_is_said_in_times(ratio: float, text: str) -> None:
    assert moved_by(ratio) == text


def test_the_floor_is_the_larger_bound(page: str) -> None:
    floor = overview(page)["groups"][0]["floor"]
    flops = 4 * 16384**2 * 128 + 5 * 16384**2
    assert floor["s"] == pytest.approx(flops / 197e12)
    assert floor["score"] == pytest.approx(1e4 / (1e3 * floor["s"]))
    assert floor["name"] == "compute-only"


def test_a_floor_of_traffic_says_what_it_counts(tmp_path: Path) -> None:
    ledger = Ledger.open(new_repository(tmp_path / "contest"))
    run_attempt(ledger, hypothesis="row by row", evidence=rowwise(0.9e-3))
    (group,) = overview(page_of(ledger.place.root))["groups"]
    tiles = {name: words for name, _, words in group["tiles"]}
    assert tiles["floor of the chip"].startswith("memory-only (every array once); the champion takes ")


def test_what_a_cpu_takes_stands_beside_no_floor(tmp_path: Path) -> None:
    ledger = Ledger.open(new_repository(tmp_path / "contest"))
    on_cpu = evidence(latency=Latency(source="measured cpu", seconds=4e-3, plus_minus_seconds=None))
    run_attempt(ledger, hypothesis="on a CPU", evidence=on_cpu, key=replace(KEY, source="measured cpu"))
    (group,) = overview(page_of(ledger.place.root))["groups"]
    assert group["floor"] is None
    assert group["label"] == "measured cpu, says nothing about a TPU"
    assert "floor of the chip" not in [name for name, _, _ in group["tiles"]]


def test_the_time_adds_up_to_the_latency(page: str) -> None:
    bar, champion = details(page)["3"]["time"]
    assert sum(piece[2] for piece in bar["pieces"]) == pytest.approx(2.4e-3)
    assert sum(piece[2] for piece in champion["pieces"]) == pytest.approx(2e-3)
    kinds = {piece[1]: piece[0] for piece in bar["pieces"]}
    assert kinds["issuing"] == "work"
    assert kinds["operand wait `k`"] == "dma"
    assert kinds["unit stall MXU"] == "stall"
    # As in the report, all cycles in which bundles issue; 2,250 of the 30,000 cycles do nothing but spill.
    shares = {piece[1]: piece[2] / 2.4e-3 for piece in bar["pieces"]}
    assert shares["issuing"] == pytest.approx(24000 / 30000)
    assert details(page)["3"]["time_note"].endswith("count as issuing: 7.5% of the time.")


def test_expected_stands_beside_got(page: str) -> None:
    expectation = details(page)["3"]["expected"]
    assert expectation == {
        "stated": "-10.0%",
        "got": "+20.0%",
        "interval": "+15.0% to +25.0%",
        "met": "in the direction opposite to the expected one",
    }
    assert details(page)["2"]["expected"]["met"] == "0.98 times the expected gain"


def test_counters_have_deltas_against_the_champion(page: str) -> None:
    counters = {(line[0], line[1]): line for line in details(page)["7"]["counters"]}
    assert details(page)["7"]["against"] == 6
    assert counters["mosaic", "matmul"][2:4] == ["2", "2"]
    figures = {line[0]: line for line in details(page)["7"]["figures"]}
    assert figures["latency"][3] == "-50.0%"


def test_lines_have_their_cycles(page: str) -> None:
    attempt_details = details(page)["2"]
    assert {int(line): cells[2] for line, cells in attempt_details["heat"].items()} == {3: "50.0%", 5: "25.0%"}
    # A line of another file, a line beyond this kernel's end, and cycles that belong to no line.
    assert [name for name, _, _ in attempt_details["others"]] == [
        "kernel.py:14",
        "jax.py:7",
        "no line: waits, launch, other ops, what the compiler adds",
    ]


def test_what_is_missing_is_said(page: str) -> None:
    by_attempt = details(page)
    assert any("four sums" in text for text in by_attempt["1"]["missing"])
    assert any("measured, not simulated" in text for text in by_attempt["8"]["missing"])
    assert any("no simulated latency" in text for text in by_attempt["4"]["missing"])
    # A measured attempt has the simulated run of its program, which is not its latency.
    assert "is measured and is not this sum" in by_attempt["7"]["time_note"]
    failed = overview(page)["rows"][3]
    assert failed["values"]["seconds"] is None
    assert failed["texts"]["seconds"] is None


def test_a_timeline_is_linked_where_it_lies(ledger: Ledger, tmp_path: Path) -> None:
    contest = shutil.copytree(ledger.place.root, tmp_path / "contest")
    trace = contest / "profile_data" / "0003-simulated-v5e.trace.json.gz"
    trace.parent.mkdir(exist_ok=True)
    trace.write_bytes(b"")
    target = contest / "out" / "a b.html"
    assert main(["report", "-C", str(contest), "--out", str(target)]) == 0
    by_attempt = details(target.read_text(encoding="utf-8"))
    assert by_attempt["3"]["timeline"] == "../profile_data/0003-simulated-v5e.trace.json.gz"
    assert by_attempt["2"]["timeline"] == ""
    assert (target.parent / by_attempt["3"]["timeline"]).is_file()


def test_a_plain_clone_shows_every_attempt_and_every_kernel(tmp_path: Path) -> None:
    contest, original = with_four(tmp_path / "contest")
    clone = plain_clone(contest, tmp_path / "clone")
    here, there = (read_all(copy.place, history.rows(copy.place)[0]) for copy in (original, clone))
    assert [entry.row.number for entry in there] == [1, 2, 3, 4]
    # The rejected kernel is in no commit there: it is made from its diff.
    assert [entry.candidate for entry in there] == [entry.candidate for entry in here]
    assert all(entry.attempt == history.attempt(original.place, entry.row.number) for entry in there)


def test_a_record_that_cannot_be_read_still_has_its_row(tmp_path: Path) -> None:
    contest, _ = with_four(tmp_path / "contest")
    clone = plain_clone(contest, tmp_path / "clone")
    path = next(clone.place.experiments_directory.glob("0003-*"))
    whole_file = path.read_bytes()
    # Its row can be read, and the rest is of another version.
    path.write_bytes(whole_file.replace(b'"contest":"root"', b'"contest":5'))
    git(clone.place.root, "commit", "-qam", "damaged by hand")
    page = page_of(clone.place.root)
    attempt_details = details(page)["3"]
    assert "Only the row of this attempt is known" in attempt_details["missing"][0]
    assert "does not fit schema" in attempt_details["missing"][0]
    assert len(overview(page)["rows"]) == 4


def test_a_number_used_twice_has_two_addresses(tmp_path: Path) -> None:
    contest, ledger = with_four(tmp_path / "contest")
    path = next(ledger.place.experiments_directory.glob("0003-*"))
    text = path.read_text()
    sha = history.attempt(ledger.place, 3).kernel_sha256
    path.with_name("0003-elsewhere.json").write_text(text.replace(sha, "f" * 64))
    page = page_of(contest)
    names = [row["id"] for row in overview(page)["rows"]]
    assert len(names) == len(set(names)) == 5
    assert {name for name in names if name.startswith("3-")} == set(details(page)) - {"1", "2", "4"}


def test_figures_that_are_not_finite_do_not_break_the_page(tmp_path: Path) -> None:
    contest, ledger = with_four(tmp_path / "contest")
    made = history.attempt(ledger.place, 4)
    odd = replace(made, verdict=replace(made.verdict, time_ratio=float("nan")))
    entry = Entry(id="4", row=replace(row_of(odd), score=float("inf")), attempt=odd)
    assert groups((entry,))[0].entries == (entry,)
    with ledger.lock():
        ledger.begin(Candidate(text=ledger.place.kernel_path.read_bytes()), "a test")
        number = replace(odd, number=5)
        ledger.record(number, replace(row_of(number), score=float("inf")), Candidate.in_folder(contest), False)
    page = page_of(contest)
    assert overview(page)["rows"][-1]["values"]["score"] is None


def test_pieces_of_a_run_that_did_not_end_are_none() -> None:
    stopped = attempt(evidence(None), Verdict(outcome="inconclusive", reasons=("unknown",)))
    report = reporting.report(stopped.evidence, V5E)
    assert pieces(report, stopped.evidence.simulation, stopped) == ()


# --- a search ----------------------------------------------------------------------------------


def test_a_search_names_every_trial_and_why_it_failed(page: str) -> None:
    search = details(page)["3"]["search"]
    assert details(page)["2"]["search"] is None
    assert search["names"] == ["BQ", "BKV"]
    assert search["values"][0] == ["64", "512", "8192", f'"{HOSTILE}"']
    assert [(trial["n"], trial["state"], trial["time"]) for trial in search["trials"]] == [
        (1, "failed", None),
        (2, "refused", "1.900 ms"),
        (3, "best", "2.400 ms"),
        (4, "timed", "3.000 ms"),
    ]
    assert [trial["remark"] for trial in search["trials"]] == [
        f"vmem-exceeded: {HOSTILE}",
        f"judged, fails: wrong-result: 2.0 times the tolerance {HOSTILE}",
        "judged as this attempt: rejected",
        "judged before: attempt 1",
    ]
    assert search["trials"][2]["above"] == "+26.3%"
    assert search["level"] == ["champion then, attempt 2", 2e-3, "2.000 ms"]
    tiles = {name: (figure, words) for name, figure, words in search["tiles"]}
    assert tiles["tried"] == ("4", "of 4 in the grid")
    assert tiles["without a latency"][0] == "1"
    assert tiles["programs looked at"] == ("4", "with a latency, including those of the search that this one continues")
    assert "its gain counts only beyond 1.7 times the simulator's uncertainty (docs/DECIDING.md)" in search["notes"][1]


def searched(**changes: Any) -> Any:
    sweep = replace(SEARCH, **changes)
    return search_plain(
        Searched(sweep=sweep, best=None, came="", possible=4, possible_words="in the grid", deviations=None)
    )


def test_a_record_from_before_programs_were_counted_says_so() -> None:
    plain = searched(looked_at=1)
    assert {name: figure for name, figure, _ in plain["tiles"]}["programs looked at"] == "unknown"
    assert len(plain["notes"]) == 1


def test_a_search_on_a_device_says_what_its_times_are_for() -> None:
    plain = searched(source="measured")
    assert "timed again" in plain["notes"][1]
    assert plain["label"] == "measured v5e"


# --- the verb ------------------------------------------------------------------------------------


def test_without_attempts_there_is_no_page(tmp_path: Path) -> None:
    contest = new_repository(tmp_path / "contest")
    with pytest.raises(RatchetError, match="no attempts yet") as error:
        EVERY["report"].run(EVERY["report"].parse(["-C", str(contest)]))
    assert error.value.kind == "no-attempts"
    assert not (contest / "profile_data").exists()


def test_a_folder_is_no_file(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected --out to name a file"):
        EVERY["report"].run(EVERY["report"].parse(["-C", str(ledger.place.root), "--out", str(tmp_path)]))


def test_the_contest_of_another_folder_has_its_own_page(tmp_path: Path) -> None:
    contest, _ = with_four(tmp_path / "repository", contest="inner")
    page = page_of(contest)
    assert overview(page)["contest"] == "inner"
