"""The page of a table of tuned constants as text: its rows and searches, nothing hostile, no contest needed."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pages import check_markup, check_policy, details, overview
from report_examples import HOSTILE, tuned_rows

from harness.errors import RatchetError, UsageError
from harness.shell.catalogue import EVERY
from harness.shell.main import main


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_in(tmp_path_factory.mktemp("table"))


def page_in(folder: Path) -> str:
    (folder / "rows.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, tuned_rows())))
    assert main(["report", "--table", str(folder)]) == 0
    return (folder / "report.html").read_text(encoding="utf-8")


def report(*words: str) -> None:
    EVERY["report"].run(EVERY["report"].parse(words))


def test_nothing_hostile_is_in_it(page: str) -> None:
    check_markup(page)
    check_policy(page)


def test_rows_say_what_the_printed_table_says(page: str) -> None:
    shown = overview(page)
    first, near, _, unchecked, without_entry = shown["rows"]
    assert first["texts"] == {
        "shape": f"prefill {HOSTILE}",
        "chip": "v5e",
        "settings": "BLOCK_Q=512 BLOCK_KV=128",
        "seconds": "1.000 ms",
        "plus_minus_seconds": "30.000 us",
        "fallback_seconds": "4.000 ms",
        "fallback_ratio": "4.00x",
        "tried": "4 of 20",
        "checks": "30 passed",
    }
    assert (first["ratio"], first["certain"], near["certain"]) == (4.0, True, False)
    assert unchecked["checks"] == "unchecked"
    assert without_entry["ratio"] is None
    assert without_entry["texts"]["seconds"] is None
    assert shown["about"].startswith("SIMULATED, not measured: compiled by jax 1, libtpu 2")
    assert "for 4 of 5 rows. Open marks are within the simulator's uncertainty." in shown["words"]
    assert {name: figure for name, figure, _ in shown["tiles"]}["passed every check"] == "3 of 5"
    notes = " ".join(shown["notes"])
    assert f"unchecked on v5p is unchecked: wrong-result: {HOSTILE}" in notes
    assert f"lost on v4 has no entry: all fail {HOSTILE}" in notes


def test_each_row_has_its_search(page: str) -> None:
    by_row = details(page)
    trials = by_row["1"]["search"]["trials"]
    assert [(trial["state"], trial["remark"]) for trial in trials] == [
        ("timed", "the fallback"),
        ("refused", f"judged, fails: wrong-result: {HOSTILE}"),
        ("best", "judged: 30 passed"),
        ("failed", f"vmem-exceeded: {HOSTILE}"),
    ]
    assert by_row["1"]["search"]["values"] == [["128", "512", "1024", "2048"], ["128", HOSTILE]]
    assert by_row["1"]["search"]["level"] == ["the fallback", 4e-3, "4.000 ms"]
    assert dict(by_row["4"]["facts"])["unchecked"] == f"wrong-result: {HOSTILE}"
    assert by_row["3"]["search"] is None
    assert by_row["5"]["search"]["trials"][0]["state"] == "failed"


def test_the_newest_row_of_a_shape_is_shown(tmp_path: Path) -> None:
    page_in(tmp_path)
    with (tmp_path / "rows.jsonl").open("ab") as stream:
        stream.write(b"\n" + msgspec.json.encode(replace(tuned_rows()[0], search="f", seconds=2e-3)))
    assert main(["report", "--table", str(tmp_path), "--out", str(tmp_path / "again.html")]) == 0
    rows = overview((tmp_path / "again.html").read_text(encoding="utf-8"))["rows"]
    assert [row["texts"]["seconds"] for row in rows] == ["2.000 ms", "1.000 ms", "1.000 ms", "1.000 ms", None]


def test_rows_of_two_kernels_say_which(tmp_path: Path) -> None:
    first = tuned_rows()[0]
    both = (replace(first, shape="a"), replace(first, shape="a", kernel="jax:flash"))
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, both)))
    assert main(["report", "--table", str(tmp_path)]) == 0
    shown = overview((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert shown["shapes"] == ["tokamax:flash_attention, a", "jax:flash, a"]
    assert shown["title"] == "Tuned constants of tokamax:flash_attention, jax:flash"


def test_a_folder_without_rows_is_named(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match="expected a folder that `table` filled") as error:
        report("--table", str(tmp_path))
    assert error.value.kind == "no-rows"
    assert not (tmp_path / "report.html").exists()


def test_a_table_and_a_contest_have_two_pages(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected --table DIR without -C and --all"):
        report("-C", str(tmp_path), "--table", str(tmp_path))
