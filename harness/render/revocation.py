"""A champion judged again, as text: who keeps, loses and gets the title, and how each attempt failed."""

from collections.abc import Sequence

from harness.records import Attempt, Revocation
from harness.render.layout import clean, joined, wrap


def revoked_text(outcome: str, reasons: Sequence[str], attempt: Attempt | None, width: int) -> str:
    """What a revoke came to: a line for the whole, then one for every attempt that was judged."""
    lines = [line for reason in reasons[:1] for line in wrap(clean(reason), width)]
    lines += [line for reason in reasons[1:] for line in wrap(clean(reason), width, "  ", "    ")]
    if attempt is None:
        return joined([*lines, "the title stays; nothing was recorded"])
    return joined([*lines, f"recorded as attempt {attempt.number}: ./ratchet.sh show {attempt.number}"])


def revocation_lines(revocation: Revocation, width: int) -> list[str]:
    """Every attempt that was judged again for the title, the champion first."""
    lines = wrap(clean(revocation.reason), width, "Reason:                ") if revocation.reason else []
    for one in revocation.tried:
        if one.same_as is not None:
            said = f"attempt {one.attempt}: the program of attempt {one.same_as}, which fails"
        elif one.failure is not None:
            said = f"attempt {one.attempt}: {one.failure.kind}: {clean(one.failure.message)}"
        else:
            said = f"attempt {one.attempt}: passes, and holds the title"
        lines += wrap(said, width, "Judged again:          ")
    return lines
