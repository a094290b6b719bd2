"""What all tests share: which of them `./ratchet.sh test --quick` leaves out, and how many threads they take."""

import os
from pathlib import Path

import pytest

# Tests run two at a time: threads of a numerical library that wait for each other would take most of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Files whose tests judge whole kernels, kill processes or start a browser: six seconds and more each, on two cores.
_LONG = (
    "advice/test_whatif", "benchmarks/test_peers", "cli/test_bad_input", "cli/test_mcp", "judge/test_evidence",
    "judge/test_gpu", "judge/test_key", "judge/test_keys", "judge/evaluate/test_interpretation",
    "judge/sandbox/test_child", "judge/simulate/test_machine_variants", "ledger/test_clones",
    "ledger/test_fault_injection", "ledger/test_fault_moments", "loop/test_attack", "loop/test_driver",
    "loop/test_guard", "loop/test_loop", "loop/test_replay", "loop/test_revoke", "loop/test_revoke_loop",
    "loop/test_sweep", "problems/test_attention_tolerance", "problems/test_problems", "render/test_lines",
    "render/test_report_browser", "selftest/test_selftest", "workbench/test_flags",
    "workbench/test_profile_capture",
)  # fmt: skip
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in _LONG if not (_HERE / f"{name}.py").is_file()]
    assert not missing, f"tests/conftest.py names files that are not there: {missing}"
    long = {_HERE / f"{name}.py" for name in _LONG}
    for item in items:
        if item.path in long:
            item.add_marker("long")
