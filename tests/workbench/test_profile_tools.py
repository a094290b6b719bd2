"""`xprof overview`, `graph`, `url`, `export` and `report` on captures of a CPU and of TPUs, and on broken files."""

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import capture_examples
import pytest
from analyses import by, named, overview, printed, report, rows
from capture_examples import (
    COPY,
    MATMUL,
    MODULE,
    PALLAS,
    V6E,
    WHILE,
    Ran,
    one_core,
    one_device_run,
    packed,
    plane,
    run_folder,
    serialized,
    space,
)
from jax.profiler import ProfileData

from harness.dumps import xplane
from harness.dumps.xplane import Described, Event
from harness.errors import RatchetError, UsageError
from harness.records import Capture, Table
from harness.shell.main import main
from harness.workbench.profiles import conversion, exporting, graph, links, places
from harness.workbench.profiles.reading import read

pytestmark = pytest.mark.long


def cells(table: Table, place: int = 0) -> dict[str, Any]:
    return rows(table)[place]


@pytest.fixture(scope="module")
def shown(one_device: Capture) -> dict[str, Table]:
    """The overview of one device."""
    return named(overview(one_device))


def test_overview_of_one_device(shown: dict[str, Table]) -> None:
    device = cells(shown["devices"])
    assert (device["device"], device["kind"], device["steps"]) == ("TPU:0", "TPU v6 lite", 3)
    assert device["step_seconds"] == pytest.approx(100e-6)
    # The loop itself does nothing: its operations take 6 and 5 us of its 14 us.
    assert device["busy_seconds"] == pytest.approx(3 * (40 + 20 + 6 + 5 + 20) * 1e-6)
    assert shown["longest"].column("operation")[0] == "splash_mha_fwd.1"
    assert shown["longest"].column("self_seconds")[0] == pytest.approx(120e-6)


def test_a_capture_ends_with_the_last_operation_that_ends(tmp_path: Path) -> None:
    nested = one_core([Ran(WHILE, 0.0, 50.0), Ran(COPY, 10.0, 5.0)])
    path = run_folder(tmp_path, "nested", serialized(nested))
    assert named(overview(read([path])))["devices"].title == "nested: 50.000 us captured"


def test_overview_takes_the_roofline_from_roofline_model(shown: dict[str, Table], runs: dict[str, Path]) -> None:
    program = cells(shown["program"])
    summary_page = conversion.ask([runs["one"]], "overview_page")[0]
    assert summary_page.fraction("flop_rate_utilization_relative_to_roofline") == 0.0, "xprof knows it now"
    # The devices show 300 us; XProf adds the 1 ms at which the lines begin.
    assert program["seconds"] == pytest.approx(300e-6)
    assert program["of_roofline"] == pytest.approx(0.1033 * 1300 / 300, abs=2e-3)
    # GFLOP/s, GiB/s and us of xprof, in SI: 2 x 3 matmuls and 3 tanh over 0.3 ms; the ridge of 918e12 / 1640e9.
    assert program["flops_per_second"] == pytest.approx((6 * 17_179_869_184 + 3 * 524_288) / 0.3e-3, rel=1e-6)
    moved = 3 * (6_291_456 + 2 * 29_360_128 + 2 * 4_194_304)
    assert program["hbm_bytes_per_second"] == pytest.approx(moved / 0.3e-3, rel=1e-6)
    assert program["ridge_flops_per_byte"] == pytest.approx(918e12 / 1640e9, rel=1e-4)


def test_when_the_lines_of_a_capture_begin_changes_no_figure(shown: dict[str, Table], tmp_path: Path) -> None:
    text = capture_examples.one_device().replace("timestamp_ns: 1000000", "timestamp_ns: 0")
    early = named(overview(read([run_folder(tmp_path, "one", serialized(text))])))
    assert early["program"].rows[0][:-1] == pytest.approx(shown["program"].rows[0][:-1], rel=1e-6)
    assert cells(early["program"])["bound_by"] == cells(shown["program"])["bound_by"]
    idle, late_idle = (table["summary"].column("fraction")[1] for table in (early, shown))
    assert idle == pytest.approx(late_idle, abs=3e-3)
    assert "corrected here" in str(shown["program"].notes)
    assert "corrected here" not in str(early["program"].notes)


def test_overview_of_four_devices(four: Capture) -> None:
    devices = named(overview(four))["devices"]
    assert devices.column("device") == ("TPU:0", "TPU:1", "TPU:2", "TPU:3")
    assert devices.column("longest_step_seconds") == pytest.approx([150e-6] * 4)
    assert not any("not read" in note for note in devices.notes)


def test_a_figure_without_counters_is_unknown_and_not_zero(shown: dict[str, Table]) -> None:
    figures = by(shown["summary"], "figure", "fraction")
    assert figures["matrix unit used"] is None
    assert figures["device duty cycle, while programs run"] == pytest.approx(0.953, abs=1e-3)


def test_a_cpu_has_steps_and_no_device_tables(runs: dict[str, Path]) -> None:
    of_cpu = named(overview(read([runs["cpu"]])))
    assert cells(of_cpu["devices"])["steps"] == 3
    for name in ("program", "summary"):
        assert "device plane" in of_cpu[name].why_empty
    assert of_cpu["longest"].rows
    # xprof itself gives no answer, which must not be read as zero.
    assert conversion.ask([runs["cpu"]], "hlo_stats")[0].rows == ()


def test_no_operation_is_said_to_be_none(tmp_path: Path) -> None:
    for table in overview(read([run_folder(tmp_path, "idle", serialized(one_core([])))])):
        assert not table.rows
        assert "nothing ran" in table.why_empty


def test_graph_from_the_text_of_a_tpus_operations(one_device: Capture) -> None:
    around = graph.neighbourhood(one_device, "%fusion.5")
    assert [(node.name, node.distance) for node in around.nodes] == [("param.4", -2), ("copy.2", -1), ("fusion.5", 0)]
    table = graph.table(one_device, around)[0]
    assert cells(table, 1)["mean_seconds"] == pytest.approx(6e-6)
    assert cells(table, 0)["opcode"] is None
    assert any("no HLO module" in note for note in table.notes)


def test_graph_from_the_modules_proto(runs: dict[str, Path]) -> None:
    capture = read([runs["memory"]])
    around = graph.neighbourhood(capture, "fusion.35", depth=1)
    producers = {node.name for node in around.nodes if node.distance < 0}
    assert producers == {"fusion.21", "state__params____embedding__.1"}
    assert around.is_whole
    assert len(graph.neighbourhood(capture, "fusion.35", depth=4).nodes) > len(around.nodes)


def test_graph_of_a_cpus_operation_has_its_times(runs: dict[str, Path]) -> None:
    capture = read([runs["cpu"]])
    hottest = capture.devices[0].operations[capture.devices[0].executions[0].operation].name
    around = graph.neighbourhood(capture, hottest, depth=1)
    assert around.took[hottest]["count"] == 3
    assert len(around.nodes) > 1


def test_dot_names_every_node_and_edge_once(four: Capture) -> None:
    lines = graph.dot(graph.neighbourhood(four, "all-reduce-done.1")).splitlines()
    assert lines[0] == f'digraph "{MODULE}" {{'
    assert lines[-1] == "}"
    nodes = [
        match[1] for line in lines if (match := re.fullmatch(r'  "([^"]+)" \[label=".*"(?:, style=bold)?\];', line))
    ]
    edges = [match.groups() for line in lines if (match := re.fullmatch(r'  "([^"]+)" -> "([^"]+)";', line))]
    assert nodes == ["fusion.12", "all-reduce-start.1", "all-reduce-done.1"]
    assert edges == [("fusion.12", "all-reduce-start.1"), ("all-reduce-start.1", "all-reduce-done.1")]
    assert len(nodes) + len(edges) + 3 == len(lines)


def test_an_operation_that_is_not_there_gets_a_hint(one_device: Capture) -> None:
    with pytest.raises(RatchetError, match=r"fusion\.3"):
        graph.neighbourhood(one_device, "fusion.33")
    with pytest.raises(UsageError):
        graph.neighbourhood(one_device, "fusion.3", module="jit_other")


def test_urls_name_run_page_and_host(runs: dict[str, Path]) -> None:
    place = places.resolve(str(runs["one"]), Path.cwd())
    (table,) = links.links(place, "tpu-vm:8791/data/plugin/profile/overview_page?run=x")
    of = {(str(tool), str(by)): str(url) for tool, by, url in table.rows}
    address = urlsplit(of["trace viewer", "run"])
    assert address[:3] == ("http", "tpu-vm:8791", "/data/plugin/profile/trace_viewer@")
    assert parse_qs(address.query) == {"run": ["one-device"], "tag": ["trace_viewer@"], "host": ["host-0"]}
    by_folder = parse_qs(urlsplit(of["trace viewer", "session_path"]).query)
    assert by_folder["session_path"] == [str(runs["one"].parent.resolve())]
    assert parse_qs(urlsplit(of["all runs", "run_path"]).query)["run_path"] == [str(runs["one"].parents[1].resolve())]


def test_the_server_comes_from_the_option_then_the_environment(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XPROF_URL", "https://xprof.example/")
    urls = [row["url"] for row in printed(capsys, "xprof", "url", str(runs["one"]))[0]["rows"]]
    assert all(url.startswith("https://xprof.example/") for url in urls)
    assert main(["xprof", "url", str(runs["one"]), "--url", "http://127.0.0.1:9"]) == 0
    text = capsys.readouterr().out
    assert "https://xprof.example" not in text
    # None is cut to the terminal's width.
    assert f"session_path={runs['one'].parent.resolve()}" in text
    assert main(["xprof", "url", str(runs["one"]), "--url", "ftp://x"]) == 2


def test_a_run_below_another_folder_is_named_with_it(tmp_path: Path) -> None:
    place = places.resolve(str(one_device_run(tmp_path / "train" / "first")), tmp_path)
    assert links.run_name(place, tmp_path) == "train/first/one-device"
    assert links.run_name(place) == "one-device"


def trace(path: Path) -> dict[str, list[dict[str, Any]]]:
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    by_thread = defaultdict(list)
    for event in document["traceEvents"]:
        by_thread[event["ph"]].append(event)
    return by_thread


@pytest.mark.parametrize("name", ["cpu", "one", "four"])
def test_every_event_is_exported_as_a_slice(name: str, runs: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.json.gz"
    (table,) = exporting.export(read([runs[name]]), path)
    shown = trace(path)
    # The events are counted by another reader, jax's own.
    lines = [line for plane in ProfileData.from_file(str(runs[name])).planes for line in plane.lines]
    assert len(shown["X"]) == sum(1 for line in lines for _ in line.events) == cells(table)["events"]
    assert all({"name", "pid", "tid", "ts", "dur", "args"} <= event.keys() for event in shown["X"])
    assert min(event["ts"] for event in shown["X"]) == 0.0
    assert not list(path.parent.glob(".*"))


def test_the_devices_operations_keep_time_and_place(one_device: Capture, tmp_path: Path) -> None:
    exporting.export(one_device, tmp_path / "trace.json.gz")
    shown = trace(tmp_path / "trace.json.gz")
    processes = {e["pid"]: e["args"]["name"] for e in shown["M"] if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in shown["M"] if e["name"] == "thread_name"}
    kernel = next(event for event in shown["X"] if event["name"] == "splash_mha_fwd.1")
    assert processes[kernel["pid"]] == "/device:TPU:0 (host-0)"
    assert threads[kernel["pid"], kernel["tid"]] == "XLA Ops"
    # The host's annotation began 5 us earlier and is the first event.
    assert (kernel["ts"], kernel["dur"]) == (5.0, 40.0)
    assert kernel["args"]["long_name"] == PALLAS[0]
    assert kernel["args"]["hlo_category"] == "custom-call"


def test_slices_of_one_thread_nest_or_follow_each_other(runs: dict[str, Path], tmp_path: Path) -> None:
    crossing = {"Async XLA Ops": [Ran(MATMUL, 0.0, 10.0), Ran(PALLAS, 5.0, 10.0), Ran(MATMUL, 10.0, 2.0)]}
    path = run_folder(tmp_path, "crossing", serialized(space(plane(1, "/device:TPU:0", crossing, V6E))))
    exporting.export(read([path]), tmp_path / "trace.json.gz")
    shown = trace(tmp_path / "trace.json.gz")
    names = [event["args"]["name"] for event in shown["M"] if event["name"] == "thread_name"]
    assert names == ["Async XLA Ops", "Async XLA Ops (2)"]
    by_thread = defaultdict(list)
    for event in shown["X"]:
        by_thread[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_thread.values():
        for start, end in spans:
            assert not any(start < other < end < last for other, last in spans)


def test_times_since_1970_keep_their_nanoseconds() -> None:
    at = 1_795_278_833_856_233_642_001
    of = Described(name="op", stats={})
    events = [Event(of=of, start_ps=at + 1000 * n, duration_ps=1000, stats={}) for n in range(100)]
    (lane,) = exporting.lanes(events)
    assert len(lane) == 100


@pytest.mark.slow
def test_more_than_a_million_events_are_not_cut(tmp_path: Path) -> None:
    # One varint-coded event, a million and five times, put into the line by hand: 11 MB.
    small = serialized(space(plane(1, "/device:TPU:0", {"XLA Modules": [Ran("m", 0.0, 1.0)]}, V6E)))
    read_back = xplane.read(small, "small")
    assert read_back.planes[0].lines[0].events
    line = b"\x12\x0bXLA Modules" + b"\x22\x06\x08\x01\x10\x00\x18\x01" * 1_000_005
    entry = b"\x08\x01\x12\x05\x08\x01\x12\x01m"
    body = b"\x12\x0d/device:TPU:0" + packed(3, line) + packed(4, entry)
    path = run_folder(tmp_path, "many", packed(1, body) + b"\x22\x06host-0")
    (table,) = exporting.export(read([path]), tmp_path / "trace.json.gz")
    assert cells(table)["events"] == 1_000_005
    assert any("1,000,000" in note for note in table.notes)


def test_report_is_baseline_experiment_and_delta(one_device: Capture, four: Capture) -> None:
    (table,) = report(one_device, four)
    before, after, delta = (cells(table, place) for place in range(3))
    assert (before["side"], after["side"], delta["side"]) == ("baseline", "experiment", "delta")
    assert before["step_seconds"] == pytest.approx(100e-6)
    assert after["time_ratio"] == pytest.approx(1.5)
    assert delta["step_seconds"] == pytest.approx(50e-6)
    # Two matmuls a step of 17.18 GFLOP each, against 918 TFLOP/s.
    assert before["mxu_fraction"] == pytest.approx(2 * 17_179_869_184 / (918e12 * 100e-6))
    assert after["mxu_fraction"] == pytest.approx(2 * 17_179_869_184 / (918e12 * 150e-6))
    assert (before["hottest_operation"], delta["hottest_operation"]) == ("splash_mha_fwd.1", "the same")
    assert before["hottest_seconds"] == after["hottest_seconds"] == pytest.approx(40e-6)
    assert before["peak_hbm_bytes"] is None
    assert before["peak_from"] == "unknown"
    assert "+50.0%" in table.notes[0]


def test_report_has_a_cpus_peak_as_planned_and_no_mxu(runs: dict[str, Path]) -> None:
    (table,) = report(read([runs["cpu"]]), read([runs["cpu"]]))
    first = cells(table)
    assert first["mxu_fraction"] is None
    assert first["peak_from"] == "planned, an upper bound"
    assert cells(table, 2)["peak_hbm_bytes"] == 0.0
    assert table.origin == "measured cpu"


@pytest.mark.parametrize("words", [["overview"], ["graph", "--op", "fusion.3"], ["url"]])
def test_json_holds_every_row_by_name(
    words: list[str], runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["xprof", words[0], str(runs["one"]), *words[1:], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == f"xprof {words[0]}"
    for table in document["tables"]:
        assert bool(table["rows"]) != bool(table["why_empty"])
