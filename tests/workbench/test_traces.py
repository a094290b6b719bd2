"""A timeline's files read back by other programs: XProf's converters, JAX's profile reader, Perfetto's own engine."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from analyses import named
from analyses import rows as rows_of
from breakdown_examples import CYCLES, breakdown, timeline
from capture_examples import run_folder
from jax.profiler import ProfileData
from schedule_examples import NEWEST, unpack
from xprof.convert import raw_to_tool_data

from harness.dumps import xplane
from harness.hardware import chip
from harness.hlo import parse
from harness.judge.simulate import run
from harness.records import Simulation, Span, Timeline
from harness.render.traces.summary import summary
from harness.shell.main import main
from harness.workbench.profiles import reading
from harness.workbench.profiles.communication import overlap
from harness.workbench.profiles.database import Database
from harness.workbench.traces.perfetto import trace_json
from harness.workbench.traces.rows import rows
from harness.workbench.traces.xspace import xspace

pytestmark = pytest.mark.long

TITLE = "0003 simulated v5e"
HLO = """HloModule jit_f, is_scheduled=true

ENTRY %main.1 (q.1: bf16[128,128]) -> bf16[128,128] {
  %q.1 = bf16[128,128]{1,0:T(8,128)(2,1)} parameter(0)
  %copy.9 = bf16[128,128]{1,0:T(8,128)(2,1)} copy(%q.1), metadata={op_name="a \\"b\\""}
  ROOT %naive.1 = (bf16[128,128]{1,0:T(8,128)(2,1)}, f32[8]{0}) custom-call(%copy.9, /*index=1*/%q.1)
}
"""
INSTRUCTIONS = {name: str(instruction) for name, instruction in parse.read(HLO).instructions.items()}
# The rows below the operations.
BELOW = ("steps", "waits", "stalls", "DMA in", "DMA in 2", "DMA out", "MXU", "VALU")
MICROSECONDS = 1e6 / 1.5e9
# XProf's tables keep whole nanoseconds for each op.
NANOSECOND = 1e-3


def test_no_words_break_a_trace() -> None:
    spans = tuple(replace(span, name=f'{span.name}"</script>\ud83d\0\x1b[2J') for span in timeline().spans)
    document = json.loads(trace_json(replace(timeline(), spans=spans), 'a "folder" </script> \udcff'))
    assert document["otherData"]["title"] == 'a "folder" </script> ?'
    assert any(event["name"].endswith('"</script>?\0\x1b[2J') for event in document["traceEvents"])


def written_profile(folder: Path, run_: Timeline) -> Path:
    """The run's profile, written as the command does."""
    return run_folder(folder, "run", xspace(run_, chip("v5e"), TITLE, "simulated-v5e"), "simulated-v5e")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_profile(tmp_path_factory.mktemp("logdir"), replace(timeline(), instructions=INSTRUCTIONS))


def several_chips() -> Timeline:
    """The example's run on two chips that each send the other something."""
    spans = tuple(
        replace(span, row=span.row.replace("core 0", f"chip {number}"))
        for number in (0, 1)
        for span in (
            *timeline().spans,
            Span(kind="link", row=f"chip {number} link to {1 - number}", name="x", start=200, end=900, link_bytes=4096),
        )
    )
    return replace(timeline(), spans=spans, parts=(breakdown(), breakdown()))


def tool(profile: Path, name: str) -> Any:
    """The content of one of XProf's pages."""
    data, _ = raw_to_tool_data.xspace_to_tool_data([str(profile)], name, {"use_saved_result": False})
    assert data, f"{name} gave nothing"
    return json.loads(data)


def table(page: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one of XProf's tables, by column."""
    columns = [column["id"] for column in page["cols"]]
    return [dict(zip(columns, (cell["v"] for cell in row["c"]), strict=True)) for row in page["rows"]]


def two_cores(**more: Any) -> Timeline:
    """The example's run on two cores."""
    second = [replace(span, row=span.row.replace("core 0", "core 1")) for span in timeline().spans]
    return replace(timeline(), spans=(*timeline().spans, *second), **more)


# --- rows --------------------------------------------------------------------------------------


def test_rows_are_in_order_and_no_span_overlaps_the_next() -> None:
    drawn = rows(timeline())
    assert [row.name for row in drawn] == ["ops", *BELOW]
    assert sum(len(row.spans) for row in drawn) == len(timeline().spans)
    for row in drawn:
        assert all(span.end <= next_.start for span, next_ in zip(row.spans, row.spans[1:], strict=False)), row.name


def test_cores_are_kept_apart() -> None:
    assert [row.place for row in rows(two_cores())] == ["core 0"] * 9 + ["core 1"] * 9


def test_chips_are_processes_and_planes_with_lanes_of_their_links() -> None:
    both = several_chips()
    names = {
        (event["name"], event["pid"], event["args"]["name"])
        for event in json.loads(trace_json(both, TITLE))["traceEvents"]
        if event["ph"] == "M" and "name" in event["args"]
    }
    assert {("process_name", 1, f"{TITLE}, chip 0"), ("process_name", 2, f"{TITLE}, chip 1")} <= names
    assert {("thread_name", 1, "link to 1"), ("thread_name", 2, "link to 0")} <= names
    order = [row.name for row in rows(both) if row.number == 0]
    assert order.index("DMA out") < order.index("link to 1") < order.index("MXU")
    space = xplane.read(xspace(both, chip("v5e"), TITLE, "host"), "host")
    assert [plane.name for plane in space.planes] == ["/device:TPU:0", "/device:TPU:1"]
    assert all(any(line.name.startswith("link to ") for line in plane.lines) for plane in space.planes)


def test_links_of_a_simulated_capture_are_a_table(tmp_path: Path) -> None:
    links = named(overlap(reading.read([written_profile(tmp_path, several_chips())])))["links"]
    for row, ends in zip(rows_of(links), (("TPU:0", "TPU:1"), ("TPU:1", "TPU:0")), strict=True):
        assert (row["source"], row["destination"], row["bytes"]) == (*ends, 4096)
        assert row["busy_fraction"] == pytest.approx(700 / CYCLES, rel=1e-6)


def test_the_summary_says_of_each_chip_when_it_ends_and_what_it_waits_for() -> None:
    path = Path("a/b/c/plugins/profile/run/h.xplane.pb")
    text = summary(several_chips(), Path("p"), path, str)
    assert "chips 0, 1 end at " in text
    assert "after waiting " in text
    assert "chip" not in summary(timeline(), Path("p"), path, str).split("\n")[1]


# --- XProf -------------------------------------------------------------------------------------


def test_hlo_stats_has_our_time_category_and_flops_of_each_op(profile: Path) -> None:
    shown = {row["hlo_op_name"]: row for row in table(tool(profile, "hlo_stats"))}
    assert shown.keys() == {"copy.9", "naive.1"}
    for name, cycles, category in (("copy.9", 3_000, "copy"), ("naive.1", 26_901, "custom-call")):
        assert shown[name]["total_self_time"] == pytest.approx(cycles * MICROSECONDS, abs=NANOSECOND)
        assert shown[name]["category"] == category
        assert shown[name]["occurrences"] == 1
    assert shown["naive.1"]["hlo_op_expression"].startswith("%naive.1 = (bf16[128,128]")
    seconds = shown["naive.1"]["total_self_time"] * 1e-6
    assert shown["naive.1"]["model_flop_rate"] * 1e9 * seconds == pytest.approx(1_000_000_000)
    assert shown["copy.9"]["model_flop_rate"] == 0
    # The bytes of an op are those of the transfers that begin while it runs.
    for name, hbm_bytes in (("copy.9", 4_000_000), ("naive.1", 1_000_000)):
        moved = shown[name]["measured_memory_bw"] * 2**30 * shown[name]["total_self_time"] * 1e-6
        assert moved == pytest.approx(hbm_bytes), name


def test_op_profile_has_our_total(profile: Path) -> None:
    page = tool(profile, "op_profile")
    assert page["deviceType"] == "TPU"
    assert page["byProgram"]["metrics"]["rawTime"] == pytest.approx(30_101 / 1.5e9 * 1e12, abs=1)
    busy = page["byProgramExcludeIdle"]["metrics"]
    assert busy["rawTime"] == pytest.approx(29_901 / 1.5e9 * 1e12, abs=2_000)
    assert busy["rawFlops"] == 1_000_000_000


def test_roofline_knows_the_chip_and_the_whole_run(profile: Path) -> None:
    page = tool(profile, "roofline_model")[0]
    kernel = next(row for row in table(page) if row["operation"] == "naive.1" and row["step"] == "Total")
    program = next(row for row in table(page) if row["operation"] == "Program" and row["step"] == "Total")
    assert program["total_time"] == pytest.approx(30_101 * MICROSECONDS, abs=NANOSECOND)
    # 1 GFLOP for 5 MB: 819 GB/s allow less than the peak of 197 TFLOP/s.
    assert program["optimal_flop_rate"] == pytest.approx(819 * 1_000_000_000 / 5_000_000)
    assert kernel["optimal_flop_rate"] == pytest.approx(197_000)
    assert kernel["model_flop_rate"] == pytest.approx(1e9 / kernel["total_self_time"] / 1e3)


def test_trace_viewer_shows_every_span_where_it_is(profile: Path) -> None:
    events = [event for event in tool(profile, "trace_viewer")["traceEvents"] if event]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    below = [f"{name} (simulated)" for name in BELOW]
    assert [names[tid] for tid in sorted(names)] == ["Steps", "XLA Modules", "XLA Ops", *below]
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in slices if names[event["tid"]] == "XLA Modules"] == [f"{TITLE}(1)"]
    ours = [event for event in slices if "start_cycle" in event["args"]]
    expected = [span for span in timeline().spans if span.kind != "op"]
    assert len(ours) == len(expected)
    for event in ours:
        figures = {name: int(value) for name, value in event["args"].items()}
        assert event["ts"] == pytest.approx(figures["start_cycle"] * MICROSECONDS, abs=2e-6)
        assert event["dur"] == pytest.approx(figures["cycles"] * MICROSECONDS, abs=2e-6)
        assert any((figures["start_cycle"], figures.get("line", 0)) == (span.start, span.line) for span in expected)


def test_a_two_core_chip_has_a_device_for_each_with_half_of_its_peaks() -> None:
    # Planes do not keep their space alive.
    data = ProfileData.from_serialized_xspace(xspace(two_cores(chip="v5p"), chip("v5p"), "simulated v5p", "host"))
    planes = list(data.planes)
    assert [plane.name for plane in planes] == ["/device:TPU:0", "/device:TPU:1"]
    for plane in planes:
        stats = dict(plane.stats)
        assert stats["device_type_string"] == "TPU v5p (simulated)"
        assert stats["peak_teraflops_per_second"] == 229.5
        ops = next(line for line in plane.lines if line.name == "XLA Ops")
        total = sum(event.duration_ns for event in ops.events)
        assert total == pytest.approx(29_901 / 1.5, abs=1)


def test_names_that_a_compiler_might_give_survive() -> None:
    spans = tuple(
        Span(kind="op", row="core 0 ops", name=name, start=place, end=place + 1)
        for place, name in enumerate(("a\\b", 'c"d', "é\n\ud800", ""))
    )
    odd = Timeline(chip="v5e", clock_hz=1e9, cycles=4, spans=spans)
    data = ProfileData.from_serialized_xspace(xspace(odd, chip("v5e"), TITLE, "host"))
    (plane,) = data.planes
    ops = next(line for line in plane.lines if line.name == "XLA Ops")
    assert [event.name for event in ops.events] == ["a\\b", 'c"d', "é\n?", ""]


def test_instructions_are_found_by_their_names() -> None:
    assert INSTRUCTIONS.keys() == {"q.1", "copy.9", "naive.1"}
    assert INSTRUCTIONS["naive.1"].startswith("%naive.1 = (bf16")


# --- Perfetto ----------------------------------------------------------------------------------


def slices(document: dict[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """Row, name, start and end in nanoseconds, as the format's description says to read them."""
    threads = {e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            start, length = (round(event[key] * 1000, 6) for key in ("ts", "dur"))
            assert start == int(start), "whole nanoseconds"
            yield threads[event["tid"]], event["name"], int(start), int(start + length)


def test_the_trace_has_every_span_in_its_row() -> None:
    document = json.loads(trace_json(timeline(), TITLE))
    assert document["otherData"]["source"] == "simulated, no device ran this"
    shown = list(slices(document))
    assert len(shown) == len(timeline().spans)
    assert ("ops", "naive.1", 2067, 20001) in shown
    assert ("waits", "wait for k", 2200, 2667) in shown
    assert ("stalls", "stall on MXU", 2667, 2673) in shown
    ends: dict[str, int] = {}
    for row, name, start, end in shown:
        assert start >= ends.get(row, 0), f"{name} overlaps what is before it in {row}"
        ends[row] = end
    exact = [event["args"] for event in document["traceEvents"] if event["ph"] == "X"]
    assert {"start_cycle": 4_012, "cycles": 1, "line": 67} in exact
    processes = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert processes == [f"{TITLE}, core 0"]


def test_the_summary_names_source_window_files_and_what_was_left_out() -> None:
    profile = Path("/d/plugins/profile/run/host.xplane.pb")
    lines = summary(timeline(), Path("a.json.gz"), profile, "./ratchet.sh -C d {}".format).splitlines()
    assert lines[0] == "20.067 us [simulated v5e]: 30,101 cycles at 1.50 GHz"
    assert lines[1] == "  15 spans; bundle by bundle from 2.667 us to 2.675 us (cycles 4,000 to 4,013)"
    assert lines[2] == "  spans left out to keep the files small: 7 of core 0 VALU"
    assert lines[3] == "Perfetto:  a.json.gz"
    assert lines[6] == "  without a browser: ./ratchet.sh -C d xprof overview run"
    assert lines[7] == "  ./ratchet.sh -C d serve /d"


# --- the command, on a schedule of the real compiler -------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Simulation]:
    """The files that `timeline DIR` writes for a saved schedule of 2 x 4 steps, and its simulation."""
    folder = tmp_path_factory.mktemp("timeline")
    dumps = unpack(NEWEST, "v5e-1024x512-2048", folder / "saved" / "dumps")
    assert main(["timeline", str(dumps), "--chip", "v5e", "--steps", "2", "-C", str(folder)]) == 0
    kept = folder / "profile_data"
    (profile,) = (kept / "plugins" / "profile" / "saved-simulated-v5e").iterdir()
    return kept / "saved-simulated-v5e.trace.json.gz", profile, run(dumps, chip("v5e"))


def test_xprof_finds_the_times_of_the_simulation(written: tuple[Path, Path, Simulation]) -> None:
    _, profile, simulation = written
    assert profile.name == "simulated-v5e.xplane.pb"
    shown = {row["hlo_op_name"]: row for row in table(tool(profile, "hlo_stats"))}
    assert shown.keys() == {op.name for op in simulation.ops}
    for op in simulation.ops:
        assert shown[op.name]["total_self_time"] * 1e-6 == pytest.approx(op.seconds, abs=1e-9 * op.calls)
    assert simulation.mxu_flops is not None
    busy = tool(profile, "op_profile")["byProgramExcludeIdle"]["metrics"]
    assert busy["rawFlops"] == simulation.mxu_flops
    assert busy["rawTime"] * 1e-12 == pytest.approx(sum(op.seconds for op in simulation.ops), abs=1e-8)
    (kernel,) = simulation.ops
    moved = shown[kernel.name]["measured_memory_bw"] * 2**30 * kernel.seconds
    assert moved == pytest.approx(simulation.hbm_read_bytes + simulation.hbm_written_bytes, rel=1e-3)


def test_the_share_beside_compute_is_that_of_the_lanes(written: tuple[Path, Path, Simulation]) -> None:
    _, profile, simulation = written
    database = Database(reading.read([profile]))
    lanes = {lane for (lane,) in database.rows("select distinct lane from lanes")}
    assert {"DMA in", "DMA out", "waits", "steps", "MXU", "VALU", "VLOAD"} <= lanes
    ((moved,),) = database.rows("select sum(bytes) from lanes where lane like 'DMA%'")
    assert moved == simulation.hbm_read_bytes + simulation.hbm_written_bytes
    # Nothing is left out of such a short run: every cycle is compared.
    cycles: dict[bool, set[int]] = {False: set(), True: set()}
    which = "regexp_matches(lane, '^(DMA (in|out)|waits$)')"
    query = f"select lane = 'waits', start_seconds, seconds from lanes where {which}"
    for is_wait, start, seconds in database.rows(query):
        first = round(start * simulation.clock_hz)
        cycles[is_wait] |= set(range(first, round((start + seconds) * simulation.clock_hz)))
    ((flight, waited),) = database.rows("select flight_cycles, waited_cycles from kernel_transfers")
    assert (flight, waited) == (len(cycles[False]), len(cycles[False] & cycles[True]))


def test_the_perfetto_trace_shows_its_steps_transfers_and_units(written: tuple[Path, Path, Simulation]) -> None:
    trace, _, simulation = written
    document = json.loads(gzip.decompress(trace.read_bytes()))
    shown = list(slices(document))
    names = [name for row, name, _, _ in shown if row == "steps"]
    assert [name for name in names if name.startswith("step")] == [f"step {number}" for number in range(8)]
    assert {"ops", "DMA in", "DMA out", "MXU", "VALU"} <= {row for row, *_ in shown}
    assert simulation.seconds is not None
    assert max(end for *_, end in shown) == pytest.approx(simulation.seconds * 1e9, rel=0.01)
    transfers = [event["args"] for event in document["traceEvents"] if event.get("cat") == "transfer"]
    assert (
        sum(figures.get("hbm_bytes", 0) for figures in transfers)
        == simulation.hbm_read_bytes + simulation.hbm_written_bytes
    )
