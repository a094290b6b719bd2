"""Refusals and verdicts as tests expect them: errors of the ratchet, failures of a kernel, and outcomes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.errors import RatchetError
from harness.records import Failure, Verdict
from harness.sandbox.messages import Rejected


@contextmanager
def refused(kind: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[RatchetError]]:
    """Expects a RatchetError of this kind, whose message `match` finds."""
    with pytest.raises(RatchetError, match=match) as caught:
        yield caught
    assert caught.value.kind == kind


@contextmanager
def rejected(kind: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[Rejected]]:
    """Expects a failure of this kind, whose message `match` finds."""
    with pytest.raises(Rejected, match=match) as caught:
        yield caught
    assert caught.value.failure.kind == kind


def assert_failed(failure: Failure | None, stage: str, kind: str, *words: str) -> None:
    """The failure is of this stage and kind, and its message has all of these words."""
    assert failure is not None
    assert (failure.stage, failure.kind) == (stage, kind), failure
    assert all(word in failure.message for word in words), failure.message


def assert_ruled(verdict: Verdict, outcome: str, *words: str) -> None:
    """The verdict has this outcome, and its first reason has all of these words."""
    assert verdict.outcome == outcome
    assert all(word in verdict.reasons[0] for word in words), verdict.reasons
