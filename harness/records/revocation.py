"""A title taken from a champion that fails under the present judge: attempts judged again, and the new holder."""

from dataclasses import dataclass

from harness.records.candidate import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgedAttempt:
    """One accepted attempt, judged again: `failure` is None if it passes.

    `fingerprint` is the present fingerprint of its trace, "" if it was not traced. `same_as` is a failed attempt of
    this list with the same program. The same operations would fail again, so this attempt was not evaluated and has the
    same `failure`.
    """

    attempt: int
    kernel_sha256: str
    fingerprint: str = ""
    failure: Failure | None = None
    same_as: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """The champion that lost its title, and every accepted attempt judged again for it, the newest first.

    `tried` begins with the champion. If the last of `tried` passes, that attempt holds the title now, and `holder` is
    its number. If no accepted attempt passes, `holder` is None and the contest has no champion. All other attempts in
    `tried` fail, so none can become the champion again without a new attempt. `reason` is a person's text, often empty.
    """

    champion: int
    reason: str
    tried: tuple[RejudgedAttempt, ...]
    holder: int | None

    @property
    def revoked(self) -> tuple[int, ...]:
        """The attempts in `tried` that fail, and so lost their title."""
        return tuple(rejudged.attempt for rejudged in self.tried if rejudged.failure is not None)
