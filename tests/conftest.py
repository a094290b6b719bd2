"""Settings of all tests: the tests that `./ratchet.sh test --quick` leaves out, bytecode, and the number of threads.

The quick run has every test that takes less than 0.25 CPU seconds, and one judged kernel (judge/test_evidence.py). A
test that takes more is marked `long`. A file that is mostly such tests has the line `pytestmark = pytest.mark.long`,
and the quick run does not import it. What the first of several tests makes for the others counts for all of them.
`benchmarks/time_of_tests.py quick` lists the tests over the limit.
"""

import compileall
import gc
import os
import re
import signal
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

# Tests run two at a time: threads of a numerical library that wait for each other would take most of the time. The
# library reads this once, when numpy is imported, which the next lines do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from jaxlib import xla_client

from harness.sandbox import environment

if TYPE_CHECKING:
    from command_line import Shell

# What is imported and collected stays to the end: until then the garbage collector would look for nothing.
gc.disable()

# Drawn examples are the same in every run, and no example fails because the machine is busy.
settings.register_profile("ratchet", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ratchet")

# In the processes of the judge, XLA rounds a product and the sum that it is added to one after the other. Tests call
# parts of the judge in their own process, whose XLA reads its flags once. Commands that tests start do not get them.
_FLAGS = os.environ.pop("XLA_FLAGS", None)
os.environ["XLA_FLAGS"] = environment.ROUND_TWICE
xla_client.CompileOptions()
del os.environ["XLA_FLAGS"]
if _FLAGS is not None:
    os.environ["XLA_FLAGS"] = _FLAGS

# Bytecode of the tests is kept, also where the environment asks for none: rewriting the assertions of all files takes
# longer than the rest of the collection. Modules that tests write have none, because bytecode knows its source by size
# and second, and two modules of one test may share both.
sys.dont_write_bytecode = False
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# A shell that starts the tests in the background has them ignore Ctrl-C, and so do all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A mark for all tests of a file, as it stands there: what the quick run leaves out it does not import.
_LEFT_OUT = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(long|slow|device)\b", re.M)
# The longest files of the quick run and of the default run. They are handed out in this order, before the other long
# ones: none is left for the end.
_FIRST = tuple(
    Path(__file__).parent / f"{name}.py"
    for name in (
        "judge/test_evidence",
        "selftest/test_selftest",
        "loop/test_loop",
        "loop/test_rescale",
        "judge/test_suite",
        "judge/test_gpu",
        "judge/test_key",
        "cli/test_mcp",
        "loop/test_replay",
        "loop/test_undo",
        "cli/test_bad_input",
        "ledger/test_fault_injection",
        "ledger/test_fault_moments",
        "loop/test_new_contest",
        "judge/evaluate/test_contract",
        "judge/evaluate/test_seen_programs",
        "workbench/test_capture_tables",
        "judge/simulate/test_several_chips",
        "judge/test_floors",
        "judge/simulate/test_simulate",
        "prepare/test_prepare",
    )
)

_HARNESS = Path(__file__).parents[1] / "harness"
# Planted candidates, some of them no programs, and templates.
_KERNELS = re.compile(r"/(candidates|templates|existing)/")

# The cache of seen programs for one run of the tests and the processes that it starts, outside of the user's home.
_CACHE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()

# Ids of all tests in the order of collection, before any is deselected.
_IDS = pytest.StashKey[tuple[str, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the long and the slow tests")
    device = parser.getgroup("device", "tests of what needs a device: -m device")
    device.addoption("--on", choices=("tpu", "cpu"), default="tpu", help="cpu: try the tests themselves (tpu)")
    device.addoption("--chip", help="with --on cpu, the chip that kernels are compiled for")
    device.addoption("--minutes", type=float, default=30.0, help="what begins later is skipped (30)")


@cache
def _is_left_out(path: Path) -> bool:
    """True if all tests of the file have a mark that the quick run leaves out."""
    return path.match("test_*.py") and _LEFT_OUT.search(path.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True for files that the quick run leaves out, so that they are not even imported."""
    return True if config.getoption("quick") and _is_left_out(collection_path) else None


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        # Processes that tests start keep no bytecode (see above): each would compile the harness again.
        compileall.compile_dir(_HARNESS, quiet=2, rx=_KERNELS)
        config.stash[_CACHE] = tempfile.TemporaryDirectory(prefix="ratchet-tests-")
        os.environ["XDG_CACHE_HOME"] = config.stash[_CACHE].name
    else:
        # Workers do not share judged programs: otherwise a result would depend on which worker is faster.
        os.environ["XDG_CACHE_HOME"] += f"/{config.workerinput['workerid']}"


def pytest_sessionstart(session: pytest.Session) -> None:
    # The process that only hands tests to workers collects none, so it does not get to pytest_collection_finish.
    if session.config.pluginmanager.has_plugin("dsession"):
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    gc.unfreeze()
    if _CACHE in config.stash:
        config.stash[_CACHE].cleanup()


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Names bytes by their argument: as an id, packed data would differ from one collecting process to the next."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = [path for path in _FIRST if not path.is_file()]
    assert not missing, f"tests/conftest.py names files that are not there: {missing}"
    places = {path: place for place, path in enumerate(_FIRST)}
    # Files are handed out in this order.
    items.sort(key=lambda item: (places.get(item.path, len(_FIRST)), not _is_left_out(item.path)))
    config.stash[_IDS] = tuple(item.nodeid for item in items)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = True
    # Modules and tests stay to the end: the collector need not look at them each time.
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> "Shell":
    """Runs commands in the test's process."""
    # The command line is imported by the tests that use it.
    from command_line import Shell

    return Shell(capsys)


@pytest.fixture(scope="session")
def judged_contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest of a norm with a baseline, judged once for all files of a process; tests change copies."""
    # The quick run does not import what it does not need.
    from loop_fixtures import norm_contest, ratchet

    folder = norm_contest(tmp_path_factory.mktemp("judged") / "a contest")
    ratchet(folder, "experiment: baseline", expect=0)
    return folder


@pytest.fixture(scope="session")
def collected_ids(pytestconfig: pytest.Config) -> tuple[str, ...]:
    """Ids of all tests of the collected files, in the order of collection."""
    return pytestconfig.stash[_IDS]
