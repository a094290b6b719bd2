"""What all tests share: which of them `./ratchet.sh test --quick` leaves out, and how many threads they take."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

# Tests run two at a time: threads of a numerical library that wait for each other would take most of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Bytecode of the tests is kept, also where the environment asks for none: rewriting the assertions of all files takes
# longer than the rest of the collection. Programs that tests write and start keep none, because bytecode knows its
# source by size and second, and two programs of one test may share both.
sys.dont_write_bytecode = False
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# A shell that starts the tests in the background has them ignore Ctrl-C, and so do all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files whose tests judge whole kernels, kill processes, write many commits or start a browser: six seconds and more.
_LONG = (
    "advice/test_whatif", "benchmarks/test_peers", "cli/test_bad_input", "cli/test_mcp", "judge/test_evidence",
    "judge/test_gpu", "judge/test_key", "judge/test_keys", "judge/test_suite", "judge/evaluate/test_contract",
    "judge/evaluate/test_interpretation", "judge/evaluate/test_order",
    "judge/evaluate/test_seen_programs", "judge/evaluate/test_vmem", "judge/sandbox/test_child",
    "judge/sandbox/test_isolation", "judge/sandbox/test_warm", "judge/simulate/test_machine_variants",
    "ledger/test_branch", "ledger/test_clones", "ledger/test_fault_injection", "ledger/test_fault_moments",
    "ledger/test_fsck", "ledger/test_ledger", "ledger/test_recovery", "loop/test_attack", "loop/test_driver",
    "loop/test_guard", "loop/test_helpers", "loop/test_loop", "loop/test_new_contest", "loop/test_replay",
    "loop/test_revoke", "loop/test_revoke_loop", "loop/test_sweep",
    "problems/test_attention_tolerance", "problems/test_operators", "problems/test_probes", "problems/test_problems",
    "render/test_lines", "render/test_report_browser", "render/test_report_page", "selftest/test_selftest",
    "workbench/test_doctor", "workbench/test_flags", "workbench/test_profile_capture",
    "workbench/test_profile_serve", "test_collection",
)  # fmt: skip
_LONG_FILES = frozenset(Path(__file__).parent / f"{name}.py" for name in _LONG)

# Of one run of the tests, and of the processes that it starts: programs that were seen, in nobody's home.
_CACHE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()

# Ids of all tests in the order of collection, before any is deselected.
_IDS = pytest.StashKey[tuple[str, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the long and the slow tests")


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
    missing = [path for path in _LONG_FILES if not path.is_file()]
    assert not missing, f"tests/conftest.py names files that are not there: {missing}"
    for item in items:
        if item.path in _LONG_FILES:
            item.add_marker("long")
    # Files are handed out in this order, so that none of the long ones is left for the end.
    items.sort(key=lambda item: item.path not in _LONG_FILES)
    config.stash[_IDS] = tuple(item.nodeid for item in items)


@pytest.fixture(scope="session")
def collected_ids(pytestconfig: pytest.Config) -> tuple[str, ...]:
    """Ids of all tests of the collected files, in the order of collection."""
    return pytestconfig.stash[_IDS]
