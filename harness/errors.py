"""Errors that a person can act on, each with a stable kind, and limits that raise them. Any other error is a bug."""

import os
from dataclasses import dataclass
from typing import NoReturn


class RatchetError(Exception):
    """An error that a person can act on. `kind` is stable, so programs may test it.

    The text says what was expected, what was there instead, where, and what to do next.
    """

    exit_code = 4

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class UsageError(RatchetError):
    """An error in the call: an argument, an option or an environment variable is wrong."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit: its unit, its default value, and the environment variable that sets another value."""

    counts: str
    most: int
    variable: str

    @property
    def value(self) -> int:
        """The limit that applies now. Raises UsageError `bad-limit` if the variable holds no whole number."""
        text = os.environ.get(self.variable, "")
        if not text:
            return self.most
        if not text.isdecimal() or not 0 < len(text) < 19 or not int(text):
            raise UsageError("bad-limit", f"expected a whole number above 0 in {self.variable}, got {text[:40]!r}")
        return int(text)

    def check(self, got: int, what: str) -> None:
        """Raises RatchetError `too-large` if `got` exceeds the limit; `what` names the thing in the message."""
        if got > self.value:
            self.refuse(what, f"{got:,}" if got < 1 << 63 else "more than 2^63")

    def refuse(self, what: str, got: str) -> NoReturn:
        """Raises RatchetError `too-large`."""
        raise RatchetError(
            "too-large",
            f"{what}: expected at most {self.value:,} {self.counts}, got {got}; if you trust the source, set a higher "
            f"limit in the environment variable {self.variable}",
        )
