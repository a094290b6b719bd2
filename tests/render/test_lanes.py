"""A kept timeline in the page: the lanes of the trace, few spans, and nothing from a file that is no trace."""

import gzip
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from breakdown_examples import timeline
from browsing import launched, opened
from pages import details
from PIL import Image
from report_examples import HOSTILE

from harness.ledger import Ledger
from harness.render.traces.lanes import lanes_of
from harness.shell.main import main
from harness.workbench.traces.perfetto import trace_json

pytestmark = pytest.mark.long


def packed(document: object) -> bytes:
    return gzip.compress(json.dumps(document).encode())


def spans_of(count: int, length: float, gap: float) -> bytes:
    place_of_row = {"pid": 1, "tid": 1}
    events = [
        {"ph": "X", **place_of_row, "name": f"s{number}", "cat": "issue", "ts": number * (length + gap), "dur": length}
        for number in range(count)
    ]
    name = {"ph": "M", **place_of_row, "name": "thread_name", "args": {"name": HOSTILE}}
    return packed({"traceEvents": [name, *events]})


def test_a_written_timeline_comes_back_row_by_row() -> None:
    lanes = {lane.name: lane for lane in lanes_of(gzip.compress(trace_json(timeline(), "attempt 3")))}
    copy, kernel = lanes["ops"].spans
    assert (copy[2], kernel[2]) == ("copy.9", "naive.1")
    # Cycles 3,100 to 30,001 at 1.5 GHz, in seconds.
    assert kernel[0] == pytest.approx(3_100 / 1.5e9, rel=1e-3)
    assert kernel[1] == pytest.approx(26_901 / 1.5e9, rel=1e-3)
    # The window is a few bundles of the run: three neighbouring spans are drawn as one.
    assert [span[2] for span in lanes["MXU"].spans] == ["3 spans"]
    assert lanes["steps"].kind == "step"


def test_many_short_spans_are_few() -> None:
    (lane,) = lanes_of(spans_of(50_000, length=0.001, gap=0.0))
    assert 1 <= len(lane.spans) <= 400
    assert sum(span[1] for span in lane.spans) == pytest.approx(50e-6)
    (apart,) = lanes_of(spans_of(300, length=1.0, gap=1.0))
    assert len(apart.spans) == 300


NO_TRACES: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no gzip": lambda: b"no gzip",
    "no JSON": lambda: gzip.compress(b"no JSON"),
    "no document": lambda: packed([]),
    "a time in words": lambda: packed({"traceEvents": [{"ph": "X", "ts": "now"}]}),
    "a thread without a number": lambda: packed({"traceEvents": [{"ph": "M", "name": "thread_name", "args": {}}]}),
    "cut off": lambda: spans_of(10, 1.0, 0.0)[:-9],
    "too large": lambda: gzip.compress(b" " * (129 << 20), compresslevel=1),
}


@pytest.mark.parametrize("name", NO_TRACES)
def test_what_is_no_trace_has_no_lanes(name: str) -> None:
    assert lanes_of(NO_TRACES[name]()) == ()


def test_the_page_shows_the_timeline_where_it_was_kept_and_else_how_to_make_it(ledger: Ledger, tmp_path: Path) -> None:
    contest = shutil.copytree(ledger.place.root, tmp_path / "contest")
    trace = contest / "profile_data" / "0003-simulated-v5e.trace.json.gz"
    trace.parent.mkdir(exist_ok=True)
    trace.write_bytes(spans_of(3, length=0.5, gap=0.5))
    assert main(["report", "-C", str(contest)]) == 0
    page = contest / "profile_data" / "report.html"
    by_attempt = details(page.read_text(encoding="utf-8"))
    assert [name for name, _, _ in by_attempt["3"]["lanes"]] == [HOSTILE]
    assert by_attempt["2"]["lanes"] == []
    narrow = {"width": 420, "height": 900}
    with launched() as browser, opened(browser, f"{page.as_uri()}#attempt-3", viewport=narrow) as shown:
        shown.wait_for_selector("#attempt .lanes")
        assert shown.locator("#attempt .lane rect").count() == 3
        assert shown.locator("#attempt .lane title").first.text_content() == "s0: 0 ns to 500 ns"
        # Spans of half a microsecond are painted: two colours, and each on a good part of the lane.
        picture = Image.open(io.BytesIO(shown.locator("#attempt .lane").screenshot())).convert("RGB")
        counts = sorted((number for number, _ in picture.getcolors(1 << 20) or ()), reverse=True)
        assert counts[1] / (picture.width * picture.height) > 0.2
        marks = shown.locator("#attempt .lanes .marks span").all_inner_texts()
        assert marks == ["0", "625 ns", "1.25 us", "1.88 us", "2.5 us"]
        assert shown.locator("#attempt").evaluate("dialog => dialog.scrollWidth - dialog.clientWidth") <= 0
        shown.evaluate("location.hash = '#attempt-2'")
        shown.wait_for_selector("#attempt[open][data-id='2'] h3")
        assert "./ratchet.sh timeline 2" in shown.inner_text("#attempt")
