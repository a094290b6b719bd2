"""One self-contained HTML page of a ledger: everything is inline, nothing is fetched, and only its own scripts run."""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.records import Gain
from harness.render.layout import clean
from harness.render.page.detail import compared_names, detail_plain
from harness.render.page.overview import group_plain, row_plain
from harness.render.page.parts import CHUNK, Kind, Plain, assembled
from harness.render.page.source import Line
from harness.render.results import gain_words
from harness.render.series import Entry, groups, opening
from harness.units import quantity

_KIND = Kind(
    body="contest.html",
    scripts=("ledger_charts.js", "table.js", "attempt.js", "compare.js", "main.js"),
    listed="attempts",
    commands="./ratchet.sh results, ./ratchet.sh show N",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The content of a contest's page: the contest, its branch, the date, and every attempt, oldest first.

    `champion` is the id of the champion's entry, `gain` the champion's gain over the first champion. `notes` are
    sentences on skipped attempts, and on attempts without a time on the scale.
    """

    contest: str
    branch: str
    made: str
    entries: tuple[Entry, ...]
    champion: str | None
    gain: Gain | None = None
    notes: tuple[str, ...] = ()


def page(story: Story) -> bytes:
    """The page as UTF-8. Texts by people and kernels are data in it, never markup or script."""
    starts = range(0, len(story.entries), CHUNK)
    details = (_chunk(story.entries[start : start + CHUNK]) for start in starts)
    return assembled(
        _KIND, f"{clean(story.contest)}: {quantity(len(story.entries), 'attempt')}", _overview(story), details
    )


def _overview(story: Story) -> Plain:
    all_groups = groups(story.entries)
    standing = opening(all_groups, story.champion)
    problems = [entry.attempt.evidence.problem.title for entry in story.entries if entry.attempt]
    return {
        "contest": clean(story.contest),
        "problem": clean(problems[-1]) if problems else "",
        "branch": clean(story.branch),
        "made": story.made,
        "champion": story.champion,
        "group": standing.digest if standing else None,
        "figures": next((compared_names(entry) for entry in story.entries if entry.compared), ()),
        "gain": gain_words(story.gain) if story.gain else "",
        "groups": [group_plain(group) for group in all_groups],
        "rows": [row_plain(entry, story.champion) for entry in story.entries],
        "notes": [clean(note) for note in story.notes],
    }


def _chunk(entries: Iterable[Entry]) -> Plain:
    """Some attempts with the lines that they share."""
    numbers: dict[Line, int] = {}

    def pool(line: Line) -> int:
        return numbers.setdefault(line, len(numbers))

    details: list[Plain] = [detail_plain(entry, pool) for entry in entries]
    return {"details": details, "lines": list(numbers)}
