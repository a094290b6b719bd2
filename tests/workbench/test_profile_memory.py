"""`xprof memory`: the allocator's view, the compiler's plan, its composition, and faults."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from analyses import by, named, rows
from memory_examples import GIGABYTE, MODULE, STEP, events, levels, loaded_run, memories_run, memory_run

from harness.errors import RatchetError, UsageError
from harness.records import Capture, Table
from harness.shell.main import main
from harness.workbench.profiles import conversion, memory_rules
from harness.workbench.profiles.analysis import sparkline
from harness.workbench.profiles.database import database_of
from harness.workbench.profiles.memory import diagnose, memory, peak_of
from harness.workbench.profiles.reading import read

pytestmark = pytest.mark.long

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def captured(runs: dict[str, Path]) -> Path:
    return runs["memory"]


@pytest.fixture(scope="module")
def capture(captured: Path) -> Capture:
    return read([captured])


@pytest.fixture(scope="module")
def tables(capture: Capture) -> dict[str, Table]:
    return named(memory(capture))


@pytest.fixture(scope="module")
def findings(capture: Capture) -> dict[str, Table]:
    return named(diagnose(capture))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """A program with a workspace, loaded and run six times."""
    return read([loaded_run(tmp_path_factory.mktemp("loaded"), "loaded")])


def row(table: Table) -> dict[str, Any]:
    return rows(table)[0]


def test_measured_peak_capacity_and_both_ways_to_count(tables: dict[str, Table]) -> None:
    gigabytes = {"capacity_bytes": 16, "used_bytes": 12, "allocated_bytes": 3}
    expected = {name: number * GIGABYTE for name, number in gigabytes.items()} | {"fragmentation": 0.25}
    assert row(tables["memory"]).items() >= expected.items()
    assert tables["memory"].origin == "measured"


def test_what_reserved_counts_is_unknown_if_the_capture_does_not_show_it(tables: dict[str, Table]) -> None:
    assert row(tables["memory"])["actual_bytes"] is None
    assert "actual is unknown" in tables["memory"].notes[1]


def test_less_reserved_than_free_cannot_hold_it(tmp_path: Path) -> None:
    capture = read([memory_run(tmp_path, happened=events(GIGABYTE))])
    assert row(memory(capture)[0])["actual_bytes"] == 4 * GIGABYTE


def test_a_workspace_is_in_use_and_is_no_leak(loaded: Capture) -> None:
    shown = named((*memory(loaded), *diagnose(loaded)))
    assert (row(shown["memory"])["actual_bytes"], row(shown["memory"])["used_bytes"]) == (21 * GIGABYTE, 21 * GIGABYTE)
    assert row(shown["reserved"])["used_fraction"] == pytest.approx(21 / 32)
    assert (row(shown["reserved"])["grown_bytes"], row(shown["reserved"])["reading"]) == (0, "in order")
    assert peak_of(loaded) == (21 * GIGABYTE, "reserved + allocated")


def test_what_each_step_keeps_is_a_leak_whatever_was_allocated_before(tmp_path: Path) -> None:
    finding = row(diagnose(read([loaded_run(tmp_path, "kept", kept=1)]))[0])
    assert finding["grown_bytes"] == 5 * GIGABYTE
    assert "grows: 15.6% of the capacity was allocated from the first step to the last" in finding["reading"]


def test_a_pool_of_all_memory_is_in_use_but_for_what_is_available(tmp_path: Path) -> None:
    capture = read([loaded_run(tmp_path, "pool", workspace=0)])
    assert peak_of(capture) == (16 * GIGABYTE, "reserved - available")
    assert "count bytes twice" in memory(capture)[0].notes[1]
    finding = row(diagnose(capture)[0])
    assert (finding["used_fraction"], finding["reading"]) == (0.5, "in order")


def test_moments_of_the_allocator_are_on_the_captures_clock(loaded: Capture) -> None:
    moments = database_of(loaded).rows("select at_seconds from memory_levels order by place")
    assert [at for (at,) in moments] == pytest.approx([1e-6, *(196e-6 + 100e-6 * step for step in range(6))])
    ((began,),) = database_of(loaded).rows("select min(start_seconds) from steps")
    assert began == pytest.approx(197e-6)


def test_what_was_alive_is_what_the_allocator_says(tables: dict[str, Table]) -> None:
    alive = {line[1]: line for line in tables["allocations"].rows}
    _, _, category, *_, size = alive["jit(step)/moe/expert/dot_general"]
    assert (category, size) == (memory_rules.MOE, 2 * GIGABYTE)
    assert "stack" in alive


def test_the_heap_over_time_rises_and_falls(tables: dict[str, Table]) -> None:
    assert tables["memory_over_time"].column("used_bytes") == (10 * GIGABYTE, 12 * GIGABYTE, 10 * GIGABYTE)
    assert tables["memory_over_time"].column("at_seconds") == pytest.approx((0.0, 5e-6, 9e-6))
    assert "2 allocations and 1 deallocations" in tables["memory_over_time"].notes[0]


def viewer(captured: Path) -> dict[str, Any]:
    """The answer of XProf's own memory_viewer."""
    (answer,) = conversion.answers([captured], "memory_viewer", [{"module_name": MODULE}])
    viewed: dict[str, Any] = json.loads(answer)
    return viewed


def test_planned_heap_agrees_with_xprofs_memory_viewer(captured: Path, capture: Capture) -> None:
    database = database_of(capture)
    ((heap, peak, place),) = database.rows("select heap, peak_bytes, peak_place from heaps where space = 'HBM'")
    viewed = viewer(captured)
    assert peak == pytest.approx(viewed["peakHeapMib"] * MEBIBYTE)
    ((alive,),) = database.rows("select sum(bytes) from buffers where heap = $heap", heap=heap)
    assert alive == pytest.approx(peak, rel=1e-9)
    levels = database.rows("select bytes, instruction from heap_levels where heap = $heap order by place", heap=heap)
    assert levels[place][0] == max(size for size, _ in levels) == pytest.approx(peak)
    # The logits' fusion makes the peak.
    assert levels[place][1] == "fusion.35"


def test_vmem_is_shown_beside_hbm(capture: Capture, tables: dict[str, Table]) -> None:
    assert tables["modules"].column("space") == ("HBM", "VMEM")
    query = """select bytes, max(bytes) over () from heap_levels join heaps using (heap)
        where space = 'VMEM' qualify place = peak_place"""
    ((at_peak, most),) = database_of(capture).rows(query)
    assert at_peak == most


def test_composition_by_the_rules(tables: dict[str, Table]) -> None:
    of = by(tables["composition"], "category", "bytes")
    vocabulary = 200 * 100_352
    assert of[memory_rules.LOGITS] == 1024 * 100_352 * 2
    assert of[memory_rules.PARAMETERS] == pytest.approx(vocabulary * 2, rel=0.01)
    assert of[memory_rules.OPTIMIZER] == pytest.approx(vocabulary * 4, rel=0.01)
    assert sum(by(tables["composition"], "category", "share").values()) == pytest.approx(1.0)


def test_what_is_alive_at_the_peak_is_rolled_up_by_opcode_and_place(tables: dict[str, Table]) -> None:
    peak = sum(by(tables["composition"], "category", "bytes").values())
    sizes, named_sizes = by(tables["by_opcode"], "opcode", "bytes"), by(tables["by_op_name"], "operation", "bytes")
    assert sum(sizes.values()) == pytest.approx(peak)
    # The logits come from fusion.35; parameters are the program's arguments.
    assert sizes["fusion"] >= 1024 * 100_352 * 2
    assert "parameter" in sizes
    assert not any(str(opcode).endswith(".35") for opcode in sizes)
    assert sum(named_sizes.values()) <= peak * (1 + 1e-9)
    assert any("jit(" in str(name) for name in named_sizes)


@pytest.mark.parametrize(
    ("name", "group", "expected"),
    [
        ("state.params['decoder']['moe']['wi']", "Parameter", memory_rules.PARAMETERS),
        ("state.opt_state[0].mu['decoder']", "Parameter", memory_rules.OPTIMIZER),
        ("batch['inputs']", "Parameter", memory_rules.INPUTS),
        ("jit(step)/jvp(decoder)/logits_dense/dot_general", "Temporary", memory_rules.LOGITS),
        ("jit(step)/transpose(jvp(cross_entropy))/mul", "Temporary", memory_rules.LOGITS),
        ("jit(step)/moe/gmm", "Temporary", memory_rules.MOE),
        ("jit(step)/attention/softmax/exp", "Temporary", memory_rules.ATTENTION),
        ("jit(step)/softmax/exp", "Temporary", memory_rules.LOGITS),
        ("jit(step)/splash_mha_fwd", "Output", memory_rules.ATTENTION),
        ("jit(step)/mlp/tanh", "Temporary", memory_rules.OTHER),
        ("jit(step)/smoothed/add", "Temporary", memory_rules.OTHER),
    ],
)
def test_a_name_and_group_have_one_category(name: str, group: str, expected: str) -> None:
    assert memory_rules.category("b", "f32[8]", group, name) == expected


def test_padding_counts_arguments_too_and_says_how_much(captured: Path, findings: dict[str, Table]) -> None:
    first = row(findings["padding"])
    # f32[200,200] under tiles of 8 x 128 is stored as [200,256].
    assert first["bytes"] == 200 * 256 * 4
    assert first["needed_bytes"] == 200 * 200 * 4
    assert first["stored_to_needed"] == pytest.approx(1.28)
    viewed = viewer(captured)
    assert viewed["peakHeapMib"] == viewed["peakUnpaddedHeapMib"], "xprof counts it now: the note is out of date"
    assert "little" in findings["padding"].notes[0]


def test_vocabulary_sized_buffers_and_their_remedy(findings: dict[str, Table]) -> None:
    categories = (memory_rules.LOGITS, memory_rules.OPTIMIZER, memory_rules.PARAMETERS)
    assert findings["vocabulary"].column("category") == categories
    assert "chunked cross entropy" in findings["vocabulary"].notes[0]


def test_what_is_kept_long_and_what_jumps(findings: dict[str, Table]) -> None:
    kept = row(findings["retained"])
    assert (kept["buffer"], kept["level"]) == ("copy-start.2{0}", "warning")
    jump = row(findings["spikes"])
    assert (jump["instruction"], jump["is_peak"]) == ("fusion.35", True)
    assert jump["grows_bytes"] == 1024 * 100_352 * 2


def test_the_estimate_is_sixteen_bytes_a_parameter(findings: dict[str, Table]) -> None:
    estimate = row(findings["estimate"])
    assert estimate["parameters"] == 200 * 200 + 200 * 136 + 136 * 200 + 200 * 100_352
    assert estimate["estimate_bytes"] == 16 * estimate["parameters"]


def test_unknown_use_is_read_as_the_larger_of_both(findings: dict[str, Table]) -> None:
    finding = row(findings["reserved"])
    assert finding["actual_bytes"] is None
    # 12 of 16 GB are in use as XProf adds it up: no room is promised.
    assert finding["reading"] == "in order"
    assert finding["grown_bytes"] == 0


# The events of a memory, and the beginning of its reading.
READINGS = (
    (events(13 * GIGABYTE), "nearly full"),
    (events(9 * GIGABYTE), "in order"),
    (events(4 * GIGABYTE), "room"),
    (levels(10, 14, 20, 31), "nearly full: reduce what is alive at the peak; grows: 63.6% of the capacity"),
    (levels(5, 12, 18, 26), "grows: 63.6% of the capacity"),
    (levels(16, 16, 28, 16, 16), "a spike: the peak is 1.8 times the median level"),
    (levels(16, 16, 24, 16, 16), "a spike: the peak is 1.5 times the median level"),
    (levels(16, 16, 23, 16, 16), "in order"),
    (levels(17, 18, 17, fragmentation=0.4), "fragmented: 40.0%"),
    (levels(17, 18, 17, fragmentation=0.3), "fragmented: 30.0%"),
    (levels(16, 18, 20), "grows: 12.1% of the capacity"),
    (levels(17, 20, 20, fragmentation=0.29), "in order"),
)


def test_readings_of_the_memory_in_use(tmp_path: Path) -> None:
    capture = read([memories_run(tmp_path, [happened for happened, _ in READINGS])])
    for finding, (_, reading) in zip(rows(diagnose(capture)[0]), READINGS, strict=True):
        assert str(finding["reading"]).startswith(reading), finding["memory"]


@pytest.mark.slow
def test_a_cpu_has_a_planned_heap_and_no_allocator(runs: dict[str, Path]) -> None:
    by_name = named(memory(read([runs["cpu"]])))
    assert "a CPU writes none" in by_name["memory"].why_empty
    assert "MemoryAllocation" in by_name["memory_over_time"].why_empty
    largest = row(by_name["modules"])
    assert str(largest["module"]).startswith("jit_loss(")
    # Two arguments of f32[256,256].
    assert largest["argument_bytes"] == 2 * 256 * 256 * 4


def test_without_modules_and_events_every_table_says_why_it_is_empty(one_device: Capture, four: Capture) -> None:
    for table in (*memory(one_device), *diagnose(one_device), *memory(four), *diagnose(four)):
        assert not table.rows
        assert len(table.why_empty) > 30


def test_the_command_prints_both(captured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xprof", "memory", str(captured), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [table["name"] for table in plain["tables"]][:2] == ["memory", "allocations"]
    assert main(["xprof", "memory", "diagnose", str(captured)]) == 0
    assert "Vocabulary-sized buffers" in capsys.readouterr().out


def test_an_unknown_module_is_named(capture: Capture) -> None:
    with pytest.raises(UsageError, match=r"jit_step\(7\)"):
        memory(capture, module="jit_other")
    assert memory(capture, module="jit_step")[3].rows


def test_a_module_that_is_no_hlo_is_an_error_of_the_capture(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match="memory_viewer"):
        conversion.answers([memory_run(tmp_path)], "memory_viewer", [{"module_name": "jit_absent(1)"}])


def test_a_sparkline_reaches_from_empty_to_full() -> None:
    assert sparkline([0.0, 5.0, 10.0], 10.0) == "▁▅█"
    assert sparkline([1.0], 0.0) == ""


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_modules_own_file_has_the_memory_of_its_capture(
    is_packed: bool, tables: dict[str, Table], tmp_path: Path
) -> None:
    module_file = STEP if is_packed else tmp_path / "jit_step.hlo_proto.pb"
    if not is_packed:
        module_file.write_bytes(gzip.decompress(STEP.read_bytes()))
    by_name = named(memory(read([module_file])))
    for name in ("composition", "buffers", "heap_over_schedule"):
        assert by_name[name].rows == tables[name].rows != ()
    assert row(by_name["modules"])["module"] == "jit_step(1)"
    assert by_name["memory"].rows == ()


def test_a_module_without_its_buffers_says_where_it_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.hlo_proto.pb"
    path.write_bytes(b"no proto")
    assert main(["xprof", "memory", str(path)]) == 4
    assert "`ratchet.sh hlo` explains such a module [bad-hlo]" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["host.trace.json.gz", "memory_viewer.json", "op_profile.json"])
@pytest.mark.parametrize("command", [["xprof", "memory"], ["xprof", "ops"], ["hlo"]], ids=" ".join)
def test_what_lies_beside_a_capture_is_named_with_the_file_that_serves(
    name: str, command: list[str], captured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / name
    other.write_bytes(b"{}")
    assert main([*command, str(other)]) == 2
    assert "Give the *.xplane.pb of the same run instead, which has all data [not-a-capture]" in capsys.readouterr().err
    (tmp_path / captured.name).write_bytes(captured.read_bytes())
    assert main([*command, str(other)]) == 2
    assert f"Give {tmp_path / captured.name} instead, which has all data" in capsys.readouterr().err
