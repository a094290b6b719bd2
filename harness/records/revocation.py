"""A title taken from a champion that fails under the present judge: who was judged again, and who holds it now."""

from dataclasses import dataclass

from harness.records.candidate import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """One accepted attempt, judged again: `failure` is None where it passes.

    `fingerprint` is that of its trace now, empty where it was not traced. `same_as` is the attempt of this list
    whose program it is, where that one failed: the same operations fail again, so it was not evaluated, and
    `failure` is that one's.
    """

    attempt: int
    kernel_sha256: str
    fingerprint: str = ""
    failure: Failure | None = None
    same_as: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """The champion that lost its title, and every accepted attempt that was judged again for it, the newest first.

    `tried` begins with the champion. The last of it holds the title now if it passes; `holder` is its number,
    None where no accepted attempt passes: then the contest has no champion. All others of `tried` fail, so
    none of them can become the champion again without another attempt. `reason` is a person's, often empty.
    """

    champion: int
    reason: str
    tried: tuple[Rejudged, ...]
    holder: int | None

    @property
    def revoked(self) -> tuple[int, ...]:
        """The attempts that hold no title any more."""
        return tuple(one.attempt for one in self.tried if one.failure is not None)
