"""Findings of the checking process on a program besides its outputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.judge.evaluate import correctness
from harness.judge.evaluate.messages import CheckRequest
from harness.sandbox.messages import Rejected

# Inputs with a NaN, with no elements, and without an axis.
INPUTS = (np.array([np.nan, 1], np.float32), np.zeros((0, 2)), np.array(3.0))


def asked(artifact: str) -> CheckRequest:
    return CheckRequest(problem="", reduced=None, family="normal", seed=1, artifact=artifact)


def test_a_program_that_writes_to_its_inputs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(artifact: str, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        inputs[0][1] = 0
        return (inputs[2].copy(),)

    monkeypatch.setattr(correctness, "run", writes)
    with pytest.raises(Rejected, match="wrote to its inputs"):
        correctness._run_untouched(asked("program"), [array.copy() for array in INPUTS])


def test_a_run_is_kept_for_the_same_inputs_of_the_same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def counted(artifact: str, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        runs.append(artifact)
        return (inputs[0].copy(),)

    monkeypatch.setattr(correctness, "run", counted)
    monkeypatch.setattr(correctness, "_last", correctness._ReferenceRun())
    for artifact, inputs in (("one", INPUTS), ("one", INPUTS), ("other", INPUTS), ("other", (*INPUTS[:2], np.ones(1)))):
        correctness._run_once(asked(artifact), inputs)
    assert runs == ["one", "other", "other"]
