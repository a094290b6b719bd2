"""`xprof counters`: the hardware's counters of a capture as XProf reads them, and captures that have none."""

from pathlib import Path

import pytest
import xprof
from analyses import rows, steps_table
from capture_examples import profiled

from harness.records import Capture
from harness.workbench.profiles import conversion
from harness.workbench.profiles.counters import counters
from harness.workbench.profiles.reading import read


@pytest.mark.long
def test_units_and_counters_are_added_up_over_samples(runs: dict[str, Path]) -> None:
    units, counts = counters(read([runs["counters"]]))
    busy = {row["name"]: (row["achieved_fraction"], row["busiest_fraction"]) for row in rows(units)}
    # XProf counts 8 cycles for a product whose left side comes from registers, 4 for another.
    assert busy["MXU0"] == (pytest.approx((50 + 25) * 8 / 1500), pytest.approx(50 * 8 / 1000))
    assert busy["MXU1"] == (pytest.approx(20 * 4 / 1500), pytest.approx(20 * 4 / 1000))
    assert "Scalar Unit" not in busy
    assert any("left out because their counters are 0" in note for note in units.notes)
    counted = {(row["kernel"], row["counter"]): row["count"] for row in rows(counts)}
    assert counted == {
        ("fusion.3", "cycles"): 1000,
        ("fusion.9", "cycles"): 500,
        ("fusion.3", "matmul_vreg_bf16_mxu_0"): 50,
        ("fusion.9", "matmul_vreg_bf16_mxu_0"): 25,
        ("fusion.3", "matmul_lmr_bf16_mxu_1"): 20,
    }
    assert rows(counts)[0]["chip"] == 3
    assert "once per clock cycle" in str(rows(counts)[0]["meaning"])
    assert counts.notes == ("Left out: 1 value that the chip could not read (all 64 bits are 1).",)


@pytest.mark.long
def test_the_numbers_are_those_of_xprofs_own_page(runs: dict[str, Path]) -> None:
    theirs = [float(str(row["Value"])) for row in conversion.ask([runs["counters"]], "perf_counters")[0].rows]
    assert len(theirs) == 7
    _, counts = counters(read([runs["counters"]]))
    assert sum(row["count"] for row in rows(counts)) == sum(value for value in theirs if value < 2**63)


def test_the_ids_are_those_of_the_installed_xprof() -> None:
    header = (Path(xprof.__file__).parent / "utils" / "tpu_counter_ids_v6e.h").read_text()
    assert "COUNT_MATMUL_LMR_BF16_MXU_1 =\n      3257467360" in header


@pytest.mark.long
def test_a_capture_without_counters_says_how_to_get_them(one_device: Capture) -> None:
    for table in counters(one_device):
        assert not table.rows
        assert "tpu_enable_periodic_counter_sampling" in table.why_empty


@pytest.mark.slow
def test_neither_has_a_cpu_any(runs: dict[str, Path]) -> None:
    assert all(not table.rows for table in counters(read([runs["cpu"]])))


_ANNOTATED = """
import time

@jax.profiler.annotate_function
def load_batch():
    time.sleep(0.05)

step = jax.jit(lambda x: x @ x)
x = jnp.ones((64, 64))
call = lambda: load_batch() or step(x)
"""


@pytest.mark.slow
def test_an_annotated_function_is_what_the_host_did(tmp_path: Path) -> None:
    host = rows(steps_table(read(profiled(tmp_path, _ANNOTATED, "annotated")))[2])
    assert host[0]["period"] == "load_batch"
    assert host[0]["share"] > 0.5


def test_the_host_is_to_name_its_own_functions(one_device: Capture) -> None:
    host = steps_table(one_device)[2]
    assert "jax.profiler.annotate_function" in " ".join((*host.notes, host.why_empty))
