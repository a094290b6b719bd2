"""The link to the host in captures made by hand: one rate a direction, and the most to gain if it is the limit."""

from dataclasses import replace
from typing import Any

import pytest
from analyses import gaps_and_inside, named, rows, waste
from analysis_examples import US, Ran, capture, device, op

from harness.records import Capture, Operation
from harness.workbench.profiles.database import Database
from harness.workbench.profiles.diagnosis import diagnose

BYTES = 4 * 1024 * 1024
_CHIP, _HOST = "f32[1024,1024]{1,0:T(8,128)}", "f32[1024,1024]{1,0:T(8,128)S(5)}"


def copied(number: int, to: str, of: str) -> tuple[Operation, Operation]:
    """Start and done of an asynchronous copy."""
    pair = f"({to}, {of}, u32[]{{:S(2)}})"
    start, done = f"copy-start.{number}", f"copy-done.{number}"
    return (
        replace(op(start, "copy-start", f"%{start} = {pair} copy-start({of} %p)"), bytes_accessed=BYTES),
        replace(op(done, "copy-done", f"%{done} = {to} copy-done({pair} %{start})"), bytes_accessed=BYTES),
    )


FETCH, FETCHED = copied(1, _CHIP, _HOST)
NEXT_FETCH, NEXT_FETCHED = copied(2, _CHIP, _HOST)
STORE, STORED = copied(3, _HOST, _CHIP)
WORK = op("fusion.1", "loop fusion")


def of_one_step(*ran: Ran) -> Capture:
    """A capture of a v6e with one step that ends with the last operation."""
    return replace(capture(device(ran, steps=[(0, ran[-1][1] + ran[-1][2])], kind="TPU v6 lite")), paths=())


def links_of(captured: Capture) -> dict[str, dict[str, Any]]:
    return {link["direction"]: link for link in Database(captured).rows_by_name("select * from host_links")}


def findings_of(captured: Capture) -> list[dict[str, Any]]:
    return rows(named(diagnose(captured))["findings"])


# Two fetches that queue behind each other, then a store, with 10 us of work.
BOUND = of_one_step(
    (FETCH, 0, 1), (NEXT_FETCH, 1, 1), (FETCHED, 2, 98), (NEXT_FETCHED, 100, 100), (WORK, 200, 10), (STORE, 210, 1),
    (STORED, 211, 89),
)  # fmt: skip


def test_transfers_in_a_queue_share_one_rate() -> None:
    links = links_of(BOUND)
    there, back = links["from the host"], links["to the host"]
    assert (there["count"], there["busy_seconds"]) == (2, pytest.approx(200 * US))
    assert there["bytes_per_second"] == pytest.approx(2 * BYTES / 200e-6)
    assert there["step_fraction"] == pytest.approx(2 / 3)
    assert back["bytes_per_second"] == pytest.approx(BYTES / 90e-6)
    assert back["step_fraction"] == pytest.approx(0.3)


def test_a_rate_is_unknown_if_nothing_waits_for_the_link() -> None:
    hidden = of_one_step((FETCH, 0, 1), (WORK, 1, 200), (FETCHED, 201, 0), (WORK, 201, 10))
    (link,) = links_of(hidden).values()
    assert link["busy_seconds"] == pytest.approx(201 * US)
    assert link["bytes_per_second"] is None
    (row,) = rows(named(gaps_and_inside(hidden))["host_transfers"])
    assert row["bytes_per_second"] is None
    assert row["link_seconds"] == pytest.approx(BYTES / 27.1e9)


@pytest.mark.long
def test_a_program_that_waits_longer_than_it_works_is_bound_by_the_link() -> None:
    shown = named(diagnose(BOUND))
    first = rows(shown["findings"])[0]
    assert first["finding"] == "host transfers, link-bound"
    assert first["seconds"] == pytest.approx(287 * US)
    # The step takes 300 us, the fetches 200. What is no wait takes 13.
    assert first["evidence"] == "at most 33.3% of a step to gain, by prefetch alone 4.3%"
    assert any("66.7% of the steps from the host at 41.9 GB/s" in note for note in shown["findings"].notes)
    (remedy,) = [row["reading"] for row in rows(shown["remedies"])[:2] if row["fact"] == "remedy"]
    assert "both directions at once" in remedy
    for table in (*gaps_and_inside(BOUND), waste(BOUND)[0]):
        assert not any("earlier, so that more work" in note for note in table.notes)


@pytest.mark.long
def test_waits_that_work_could_hide_are_exposed() -> None:
    hideable = of_one_step((WORK, 0, 200), (FETCH, 200, 1), (FETCHED, 201, 99))
    first = findings_of(hideable)[0]
    assert first["finding"] == "host transfers, exposed"
    assert first["evidence"] == "longest copy-done.1, 99.000 us; 4.2 MB each from the host at 41.9 GB/s"
    notes = [note for table in gaps_and_inside(hideable) for note in table.notes]
    assert any("start the transfers earlier, so that more work runs meanwhile" in note for note in notes)
    assert not any("is the limit" in note for note in notes)


@pytest.mark.long
def test_one_direction_alone_leaves_little_to_gain() -> None:
    fetches = of_one_step((FETCH, 0, 1), (FETCHED, 1, 189), (WORK, 190, 10))
    assert findings_of(fetches)[0]["evidence"] == "at most 5.0% of a step to gain, by prefetch alone 5.0%"
    saturated = of_one_step((FETCH, 0, 1), (WORK, 1, 80), (FETCHED, 81, 119))
    assert findings_of(saturated)[0]["evidence"] == "at most 0.0% of a step to gain, by prefetch alone 0.0%"
