"""Ids of tests are the same in every process, at any time and place, in any language and order of hashes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[1]

# Collects the files on the command line two days and some seconds later.
_COLLECTING = """
import json, sys, time
import pytest

def later(clock, shift):
    return lambda: clock() + shift

time.time = later(time.time, 180_007.25)
time.time_ns = later(time.time_ns, 180_007_250_000_000)

class Written:
    @staticmethod
    def pytest_collection_finish(session):
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump([item.nodeid for item in session.items], file)

options = ("--collect-only", "-qq", "-n0", "-m", "", "-p", "no:cacheprovider", "-p", "no:syrupy")
sys.exit(pytest.main(["-c", sys.argv[2], *options, *sys.argv[3:]], plugins=[Written()]))
"""


@pytest.mark.slow
def test_another_process_collects_the_same_ids(collected_ids: tuple[str, ...], tmp_path: Path) -> None:
    elsewhere = tmp_path / "a folder, änother"
    elsewhere.mkdir()
    caller = os.environ
    files = dict.fromkeys(str(PROJECT / test_id.partition("::")[0]) for test_id in collected_ids)
    done = subprocess.run(
        [sys.executable, "-c", _COLLECTING, str(tmp_path / "ids"), str(PROJECT / "pyproject.toml"), *files],
        capture_output=True,
        text=True,
        cwd=elsewhere,
        timeout=600,
        env={
            **{name: caller[name] for name in sorted(caller, reverse=True) if not name.startswith("PYTEST_")},
            # A time zone 13 h 45 min off, and ASCII as the encoding of files.
            "TZ": "TST-13:45",
            "LC_ALL": "C",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONUTF8": "0",
            "PYTHONHASHSEED": "1" if caller.get("PYTHONHASHSEED") != "1" else "2",
            "HOME": str(elsewhere),
            "TMPDIR": str(elsewhere),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    collected = json.loads((tmp_path / "ids").read_text(encoding="utf-8"))
    there = set(collected)
    assert [test_id for test_id in collected_ids if test_id not in there] == []
    # A run of single tests by their ids collects fewer than their files have.
    ids = set(collected_ids)
    assert [test_id for test_id in collected if test_id in ids] == list(collected_ids)


def test_no_id_names_a_folder_of_this_machine_or_an_address(collected_ids: tuple[str, ...]) -> None:
    private = re.compile(rf"{re.escape(str(PROJECT))}| at 0x[0-9a-f]+")
    assert [test_id for test_id in collected_ids if private.search(test_id)] == []
