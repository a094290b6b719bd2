"""A failure's texts name files, not the machine's folders."""

from pathlib import Path

from harness.records import Failure
from harness.sandbox.strip_paths import strip_paths

DETAIL = """\
Traceback (most recent call last):
  File "/srv/me/ratchet/harness/judge/evaluate/candidate.py", line 5, in trace
  File "/srv/me/ratchet/.venv/lib/python3.11/site-packages/jax/_src/pjit.py", line 7, in call
  File "/srv/me/mine/kernel.py", line 9, in kernel_fn
ValueError: expected /elsewhere/x to stay
"""


def test_paths_are_relative() -> None:
    failure = Failure(stage="contract", kind="crash", message="/srv/me/mine/kernel.py, line 9", detail=DETAIL)
    found = strip_paths(failure, Path("/srv/me/ratchet"), Path("/srv/me"), Path("/srv/me/mine"), Path("relative"))
    assert found is not None
    assert found.message == "kernel.py, line 9"
    assert '"harness/judge/evaluate/candidate.py"' in found.detail
    assert '"jax/_src/pjit.py"' in found.detail
    assert "/srv" not in found.detail
    assert "/elsewhere/x" in found.detail


def test_folders_with_blanks_are_left_out_as_well() -> None:
    failure = Failure(stage="contract", kind="crash", message="", detail=DETAIL.replace("/srv/me", "/srv/a user"))
    found = strip_paths(failure, Path("/srv/a user/ratchet"), Path("/srv/a user/mine"))
    assert found is not None
    assert '"harness/judge/evaluate/candidate.py"' in found.detail
    assert 'File "jax/_src/pjit.py", line 7' in found.detail
    assert "/srv" not in found.detail


def test_no_failure_stays_none() -> None:
    assert strip_paths(None, Path("/srv")) is None
