"""Time limits of judgements on a slow machine: RATCHET_TIME_LIMITS multiplies them, and changes no threshold."""

from dataclasses import fields

import pytest

from harness.errors import UsageError
from harness.loop.bench import policy_here
from harness.records import Policy

STAGES = ("trace", "correctness", "compile", "simulate", "resimulate", "measure")


def test_time_limits_are_multiplied_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RATCHET_TIME_LIMITS", raising=False)
    assert policy_here() == Policy()
    monkeypatch.setenv("RATCHET_TIME_LIMITS", "3")
    changed = {field.name for field in fields(Policy) if getattr(policy_here(), field.name) != field.default}
    assert changed == {f"{stage}_seconds" for stage in STAGES}
    assert policy_here().compile_seconds == 3 * Policy().compile_seconds


@pytest.mark.parametrize("text", ["0", "-2", "1.5", "long"])
def test_a_factor_that_is_no_whole_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_TIME_LIMITS", text)
    with pytest.raises(UsageError, match="expected a whole number above 0 in RATCHET_TIME_LIMITS"):
        policy_here()
