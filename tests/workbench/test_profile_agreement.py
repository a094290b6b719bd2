"""`xprof ops` on a real capture against XProf: self time and total of every operation; captures that share a folder."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest
from analyses import printed
from capture_examples import MODULE, PROGRAM, V6E, Ran, one_core, plane, profiled, run_folder, serialized, space
from xprof.convert.events_db.python.pywrap_events_db_c_api import xspace_to_parquet

from harness.errors import RatchetError
from harness.records import Capture
from harness.shell.main import main
from harness.workbench.profiles import conversion
from harness.workbench.profiles.database import Database
from harness.workbench.profiles.reading import read

pytestmark = pytest.mark.long

US, NS = 1e-6, 1e-9
ADDED = one_core([Ran("%a = f32[1] add(%x)", 0.0, 1.0)])

# Loops and conditions hold other operations: only there do self time and total differ.
_PROGRAM = """
@jax.jit
def step(x, weights):
    def body(carry, weight):
        carry = jnp.tanh(carry @ weight)
        carry = jax.lax.cond(carry[0, 0] > 2.0, lambda a: a * 2.0, lambda a: jnp.sort(a, axis=0), carry)
        return carry, jnp.sum(carry)
    return jax.lax.scan(body, x, weights)

x, weights = jnp.ones((128, 128)), 0.01 * jnp.ones((5, 128, 128))
call = lambda: step(x, weights)
"""


@pytest.fixture(scope="module")
def looped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two real captures of a CPU, one after the other."""
    before, after = profiled(tmp_path_factory.mktemp("looped"), _PROGRAM, "before", "after")
    return {"before": before, "after": after}


def by_name(capture: Capture) -> dict[str, SimpleNamespace]:
    return {row["name"]: SimpleNamespace(**row) for row in Database(capture).rows_by_name("select * from times")}


@pytest.mark.slow
def test_every_total_of_a_real_capture_is_that_of_xprofs_events(looped: Mapping[str, Path], tmp_path: Path) -> None:
    path, events = looped["before"], tmp_path / "events.parquet"
    xspace_to_parquet(input_path=str(path), output_path=str(events))
    totals = duckdb.execute(
        "select kernel_name, count(*), sum(end_ns - start_ns), sum(self_time_ns) "
        f"from '{events}' where trace_args like '%hlo_op=%' group by 1"
    )
    theirs = {name: (count, total, self_total) for name, count, total, self_total in totals.fetchall()}
    ours = by_name(read([path]))
    assert theirs.keys() == ours.keys()
    assert len(ours) > 8
    for name, (count, total, self_total) in theirs.items():
        assert ours[name].count == count
        # XProf's events are whole nanoseconds.
        assert ours[name].seconds == pytest.approx(total * NS, abs=count * NS)
        if ours[name].self_seconds == ours[name].seconds:
            assert ours[name].self_seconds == pytest.approx(self_total * NS, abs=count * NS)


@pytest.mark.slow
def test_every_self_time_of_a_real_capture_is_that_of_xprofs_hlo_stats(
    looped: Mapping[str, Path], tmp_path: Path
) -> None:
    """XProf nests a device's operations and not a host's, so the same timeline is laid out as a device's."""
    capture = read([looped["before"]])
    (device,) = capture.devices
    texts = [f"%{operation.name} = f32[1]{{0}} custom-op(f32[1]{{0}} %x)" for operation in device.operations]
    ops = [
        Ran((texts[run.operation], {"hlo_category": "x"}), run.start / US, run.seconds / US)
        for run in device.executions
    ]
    whole = Ran(MODULE, 0.0, max(run.end for run in device.executions) / US, {"run_id": 1, "program_id": PROGRAM})
    laid = serialized(space(plane(1, "/device:TPU:0", {"XLA Modules": [whole], "XLA Ops": ops}, V6E)))
    answer = conversion.ask([run_folder(tmp_path, "laid", laid)], "hlo_stats")[0]
    theirs = {row["hlo_op_name"]: row for row in answer.rows}
    ours = by_name(capture)
    assert theirs.keys() == ours.keys()
    for name, row_of_ours in ours.items():
        assert row_of_ours.self_seconds == pytest.approx(float(str(theirs[name]["total_self_time"])) * US, abs=NS)
        assert row_of_ours.seconds == pytest.approx(float(str(theirs[name]["total_time"])) * US, abs=NS)
    differ = {name for name, row_of_ours in ours.items() if row_of_ours.self_seconds < 0.9 * row_of_ours.seconds}
    assert any(name.startswith("while") for name in differ)
    assert len(differ) >= 2


@pytest.mark.slow
def test_two_captures_in_one_folder_are_told_apart_by_name(
    looped: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = tmp_path / "both"
    both.mkdir()
    for name, path in looped.items():
        (both / f"{name}.xplane.pb").write_bytes(path.read_bytes())
    shown = printed(capsys, "xprof", "compare", str(both / "before.xplane.pb"), str(both / "after.xplane.pb"))
    assert shown[0]["title"] == "A = both/before, B = both/after"
    # The two files are not two hosts of one capture.
    assert main(["xprof", "ops", str(both)]) == 4
    errors = capsys.readouterr().err
    assert "expected one capture in a folder, got two of" in errors
    assert "before.xplane.pb and " in errors
    assert "[several-captures]" in errors


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("old", "new"):
        run_folder(tmp_path / folder, "run", serialized(ADDED))
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    assert [row["run"] for row in printed(capsys, "xprof", "report", old, new)[0]["rows"][:2]] == ["old/run", "new/run"]
    assert printed(capsys, "xprof", "compare", old, old)[0]["title"] == "A = run, B = run"


def test_two_hosts_of_one_capture_stay_one(tmp_path: Path) -> None:
    def placed(start: int, stop: int) -> bytes:
        times = {"profile_start_time": start, "profile_stop_time": stop}
        return serialized(plane(8, "Task Environment", {}, times) + ADDED)

    first = run_folder(tmp_path, "run", placed(1000, 2000), "host-0")
    second = run_folder(tmp_path, "run", placed(1500, 2500), "host-1")
    assert len(read([first, second]).devices) == 2
    second.write_bytes(placed(3000, 4000))
    with pytest.raises(RatchetError, match="got two of host-0"):
        read([first, second])
