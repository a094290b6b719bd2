"""Settings of all tests: the tests that `./ratchet.sh test --quick` leaves out, and the number of threads."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

# Tests run two at a time: threads of a numerical library that wait for each other would take most of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Bytecode of the tests is kept, also where the environment asks for none: rewriting the assertions of all files takes
# longer than the rest of the collection. Modules that tests write have none, because bytecode knows its source by size
# and second, and two modules of one test may share both.
sys.dont_write_bytecode = False
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# A shell that starts the tests in the background has them ignore Ctrl-C, and so do all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files of the default run only: their tests judge whole kernels, start many processes, kill them or start a browser. A
# single test that takes more than the rest of its file is marked `long`. These are handed out first, the longest before
# all others.
_LONG = (
    "loop/test_loop", "loop/test_rescale", "judge/test_suite", "judge/test_gpu", "judge/test_key", "cli/test_mcp",
    "loop/test_replay", "loop/test_undo", "cli/test_bad_input", "ledger/test_fault_injection",
    "ledger/test_fault_moments", "loop/test_new_contest", "judge/evaluate/test_contract",
    "judge/evaluate/test_seen_programs", "operators/test_attention_tolerance", "judge/test_keys",
    "operators/test_operators", "judge/evaluate/test_order", "loop/test_revoke_loop", "workbench/test_profile_capture",
    "benchmarks/test_peers", "loop/test_revoke", "loop/test_gate", "sandbox/test_warm",
    "judge/evaluate/test_quick_interpreter", "sandbox/test_isolation", "ledger/test_fsck", "ledger/test_notes",
    "ledger/test_packed", "ledger/test_recovery", "ledger/test_ledger", "operators/test_problems",
    "operators/test_probes", "render/test_report_browser", "render/test_report_page", "cli/test_limits",
    "judge/evaluate/test_interpretation", "cli/test_completion", "judge/evaluate/test_vmem", "loop/test_sweep",
    "sandbox/test_child", "workbench/test_hlo_modules", "loop/test_helpers", "render/test_compare_browser",
    "render/test_lines", "workbench/test_doctor", "workbench/test_flags", "workbench/test_profile_serve",
    "loop/test_guard", "loop/test_attack", "ledger/test_clones", "test_collection", "loop/test_bisect",
    "cli/test_schemas", "render/test_contests_page", "loop/test_tuning_table", "judge/simulate/test_timing_tables",
    "loop/test_ablate", "ledger/test_branch", "workbench/test_profile_memory", "judge/evaluate/test_chip_model",
    "loop/test_tune", "cli/test_simulate_cli", "judge/simulate/test_machine_variants", "cli/test_first_use",
    "cli/test_profile_analyses_cli", "workbench/test_profile_tools", "advice/test_whatif",
    "judge/simulate/test_cycle_breakdown", "cli/test_strangers_folder", "render/test_plots", "loop/test_screening",
    "sandbox/test_replies", "workbench/test_capture_bytes", "workbench/test_traces", "render/test_lanes",
    "cli/test_hlo_cli", "cli/test_validate", "cli/test_fuzz", "benchmarks/test_fidelity",
    "workbench/test_profile_remote", "workbench/test_profile_agreement", "judge/simulate/test_timeline",
    "loop/test_driver", "chips/test_new_chip",
)  # fmt: skip
# The longest files of the quick run; the first two are also among the longest of the default run.
_FIRST = (
    "judge/test_evidence",
    "selftest/test_selftest",
    "judge/test_floors",
    "judge/simulate/test_simulate",
    "prepare/test_prepare",
    "hlo/test_sharding",
    "judge/simulate/test_module",
    "cli/test_commands",
)
_PLACES = {Path(__file__).parent / f"{name}.py": place for place, name in enumerate((*_FIRST, *_LONG))}
_LONG_FILES = frozenset(Path(__file__).parent / f"{name}.py" for name in _LONG)

# Of one run of the tests, and of the processes that it starts: programs that were seen, in nobody's home.
_CACHE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()

# Ids of all tests in the order of collection, before any is deselected.
_IDS = pytest.StashKey[tuple[str, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the long and the slow tests")
    device = parser.getgroup("device", "tests of what needs a device: -m device")
    device.addoption("--on", choices=("tpu", "cpu"), default="tpu", help="cpu: try the tests themselves (tpu)")
    device.addoption("--chip", help="with --on cpu, the chip that kernels are compiled for")
    device.addoption("--minutes", type=float, default=30.0, help="what begins later is skipped (30)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Long files are not even imported for the quick run."""
    return True if config.getoption("quick") and collection_path in _LONG_FILES else None


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[_CACHE] = tempfile.TemporaryDirectory(prefix="ratchet-tests-")
        os.environ["XDG_CACHE_HOME"] = config.stash[_CACHE].name
    else:
        # What one worker has judged is unknown to the other: a result would depend on which is faster.
        os.environ["XDG_CACHE_HOME"] += f"/{config.workerinput['workerid']}"


def pytest_unconfigure(config: pytest.Config) -> None:
    if _CACHE in config.stash:
        config.stash[_CACHE].cleanup()


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Names bytes by their argument: as an id, packed data would differ from one collecting process to the next."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = [path for path in _PLACES if not path.is_file()]
    assert not missing, f"tests/conftest.py names files that are not there: {missing}"
    for item in items:
        if item.path in _LONG_FILES:
            item.add_marker("long")
    # Files are handed out in this order, so that none of the long ones is left for the end.
    items.sort(key=lambda item: _PLACES.get(item.path, len(_PLACES)))
    config.stash[_IDS] = tuple(item.nodeid for item in items)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = True


@pytest.fixture(scope="session")
def collected_ids(pytestconfig: pytest.Config) -> tuple[str, ...]:
    """Ids of all tests of the collected files, in the order of collection."""
    return pytestconfig.stash[_IDS]
