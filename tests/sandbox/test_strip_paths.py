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
    stripped = strip_paths(failure, Path("/srv/me/ratchet"), Path("/srv/me"), Path("/srv/me/mine"), Path("relative"))
    assert stripped is not None
    assert stripped.message == "kernel.py, line 9"
    assert '"harness/judge/evaluate/candidate.py"' in stripped.detail
    assert '"jax/_src/pjit.py"' in stripped.detail
    assert "/srv" not in stripped.detail
    assert "/elsewhere/x" in stripped.detail


def test_folders_with_blanks_are_left_out_as_well() -> None:
    failure = Failure(stage="contract", kind="crash", message="", detail=DETAIL.replace("/srv/me", "/srv/a user"))
    stripped = strip_paths(failure, Path("/srv/a user/ratchet"), Path("/srv/a user/mine"))
    assert stripped is not None
    assert '"harness/judge/evaluate/candidate.py"' in stripped.detail
    assert 'File "jax/_src/pjit.py", line 7' in stripped.detail
    assert "/srv" not in stripped.detail


def test_no_failure_stays_none() -> None:
    assert strip_paths(None, Path("/srv")) is None
