"""A limit on what a reader takes, and the error past it."""

import os
from dataclasses import dataclass
from typing import NoReturn

from harness.errors import RatchetError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit: what it counts, how many there may be, and the environment variable that says another number."""

    counts: str
    most: int
    variable: str

    @property
    def value(self) -> int:
        """The limit that holds now. Raises UsageError `bad-limit` where the variable holds no whole number."""
        text = os.environ.get(self.variable, "")
        if not text:
            return self.most
        if not text.isdecimal() or not 0 < len(text) < 19 or not int(text):
            raise UsageError("bad-limit", f"expected a whole number above 0 in {self.variable}, got {text[:40]!r}")
        return int(text)

    def check(self, got: int, what: str) -> None:
        """Raises RatchetError `too-large` where `what` has more than the limit."""
        if got > self.value:
            self.refuse(what, f"{got:,}" if got < 1 << 63 else "more than 2^63")

    def refuse(self, what: str, got: str) -> NoReturn:
        """Raises RatchetError `too-large`."""
        raise RatchetError(
            "too-large",
            f"{what}: expected at most {self.value:,} {self.counts}, got {got}; {self.variable} is the limit, set it "
            "higher if you trust where this comes from",
        )
