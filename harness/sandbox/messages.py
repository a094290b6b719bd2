"""The form of requests to children and of their answers, and of the failures that a child reports."""

import traceback
from dataclasses import dataclass

import msgspec

from harness.records import Failure, Stage


class Rejected(Exception):
    """Raised in a child if the candidate failed. Its `failure` is sent to the parent in place of the exception."""

    def __init__(self, stage: Stage, kind: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.failure = Failure(stage=stage, kind=kind, message=message, detail=detail)


def description(error: BaseException) -> str:
    """The type and the text of an exception, even if kernel.py's type has no name or raises when its text is made."""
    name = type(error).__name__ or "an exception without a name"
    try:
        text = str(error).strip()
    except Exception as another:  # noqa: BLE001  # its __str__ is the candidate's code
        text = f"its text could not be made ({type(another).__name__})"
    return f"{name}: {text}" if text else name


def traceback_text(error: BaseException) -> str:
    """The traceback of an exception, even if its type comes from kernel.py and cannot be printed."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as another:  # noqa: BLE001  # it asks the candidate's type for its text
        return f"its traceback could not be made ({type(another).__name__})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One task; `arguments` is the JSON of the task's own request. The answer begins with `nonce`."""

    nonce: str
    task: str
    stage: Stage
    arguments: msgspec.Raw


# The first byte of an answer; the JSON of the task's own reply, or of a Failure, follows.
VALUE = b"="
FAILURE = b"!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The reply of a task whose result is the file that it wrote."""

    path: str
