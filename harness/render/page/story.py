"""What the page opens on: the best time so far over all keys, in words, levels, shares, and where the key changed."""

from collections.abc import Sequence

from harness.render.best_so_far import BestSoFar, KeyChange, best_so_far
from harness.render.page.overview import moved_by
from harness.render.page.parts import Plain
from harness.render.series import Entry, source_label
from harness.units import count, percent, seconds

# More digits than a chart can show would only make the page larger.
_DIGITS = 5


def story_plain(entries: Sequence[Entry]) -> Plain:
    """The chart of all keys as data; `shares` has share, low and high by attempt."""
    found = best_so_far(entries)
    return {
        "words": _words(found, entries),
        "against": found.levels[0].entry if found.levels else None,
        "levels": [(one.number, one.entry, _short(one.share), one.begins) for one in found.levels],
        "shares": {one.entry: tuple(_short(end) for end in (one.share, one.low, one.high)) for one in found.shares},
        "changes": [(one.number, one.short) for one in found.changes],
        "table": [_row(one) for one in found.changes],
    }


def gain_words(found: BestSoFar) -> str:
    """`attempt 23 takes 13.7% of attempt 1's time, 7.31 times as fast`; "" where there is no champion."""
    first, last = found.first, found.last
    if first is None or last is None:
        return ""
    if first == last:
        return f"attempt {first.entry} is the first and holds the title"
    share = last.share / first.share
    return f"attempt {last.entry} takes {percent(share)} of attempt {first.entry}'s time, {1 / share:.2f} times as fast"


def _words(found: BestSoFar, entries: Sequence[Entry]) -> list[str]:
    said = gain_words(found)
    if not said:
        return ["No accepted attempt has a latency yet."]
    row = entries[-1].row
    words = [f"{source_label(row.source, row.chip)}: {said}."]
    keys = len({entry.row.key_digest for entry in entries})
    if keys > 1:
        words.append(
            f"The {keys} keys are joined where the new judge timed the same champion again: a step of the line is a "
            "change of kernel.py, never one of the judge."
        )
    if any(level.begins for level in found.levels[1:]):
        words.append("The line begins again at 100% where nothing that stood before could be compared.")
    if any(entry.is_undone or entry.is_revoked for entry in entries):
        words.append("What was undone (open squares) or fails under a later judge (open crosses) is not in the line.")
    if any(one.low is not None for one in found.shares):
        words.append("Bars are the intervals that the verdicts used.")
    return words


def _row(change: KeyChange) -> list[str]:
    """From which attempt on, key, what changed, whose champion, its time before, its time judged again, the change."""
    before, after = change.before_seconds, change.after_seconds
    return [
        count(change.number),
        change.key,
        change.words,
        "" if change.champion is None else f"attempt {change.champion}",
        "" if before is None else seconds(before),
        "" if after is None else seconds(after),
        moved_by(after / before) if before and after else "",
    ]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
