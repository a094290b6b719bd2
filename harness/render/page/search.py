"""What a page shows of a search: the best so far, times against each constant, every trial with its reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.records import ScreenedSetting, Sweep
from harness.records.report_words import source_label
from harness.render.layout import clean
from harness.render.page.parts import Plain
from harness.render.sweep import remark
from harness.units import change, count, seconds

Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A search and what came of it.

    `best` is what was judged, None where nothing was, and `came` says what came of that. Of the `possible` settings
    some were tried; `possible_words` says what was counted. `deviations` is how many standard deviations of the
    simulator the best of the programs looked at has to win by, None where no simulator chose. `level` is a time to
    hold the trials against, with its name, and `also` a remark on one of the settings.
    """

    sweep: Sweep
    best: Settings | None
    came: str
    possible: int
    possible_words: str
    deviations: float | None
    level: tuple[str, float] | None = None
    also: tuple[Settings, str] | None = None


def search_plain(found: Searched) -> Plain:
    """The search as data; constants and trials in the order of the record, values rising."""
    sweep = found.sweep
    known = [one.seconds for one in sweep.screened if one.seconds is not None]
    least = min(known, default=None)
    untimed = len(sweep.screened) - len(known)
    label = source_label(sweep.source, sweep.chip)
    names = [name for name, _ in sweep.parameters]
    tiles = [
        ("tried", count(len(sweep.screened)), f"of {count(found.possible)} {found.possible_words}"),
        ("without a latency", count(untimed), "each with its reason below" if untimed else ""),
        ("least time", "none" if least is None else seconds(least), label),
        ("programs looked at", *_looked_at(sweep)),
    ]
    if found.level is not None:
        name, time = found.level
        beside = f"{time / least:.2f} times the least" if least else ""
        tiles.insert(3, (clean(name), seconds(time), beside))
    return {
        "label": label,
        "names": [clean(name) for name in names],
        "values": [[clean(value) for value in rising(values)] for _, values in sweep.parameters],
        "trials": [_trial(number, one, found, least) for number, one in enumerate(sweep.screened, 1)],
        "level": None if found.level is None else (clean(found.level[0]), found.level[1], seconds(found.level[1])),
        "tiles": tiles,
        "notes": [
            "Trials are compiled and timed, not checked: only what was judged is known to be right.",
            *_why_counted(sweep, found.deviations),
        ],
    }


def _looked_at(sweep: Sweep) -> tuple[str, str]:
    """How many programs the best was chosen from."""
    own = _own(sweep)
    if sweep.looked_at < own:
        return "unknown", "the record is older than their count"
    before = ", with those of the search that this one went on with" if sweep.looked_at > max(1, own) else ""
    return count(sweep.looked_at), f"with a latency{before}"


def _why_counted(sweep: Sweep, deviations: float | None) -> list[str]:
    """Why it matters how many programs were looked at."""
    if sweep.looked_at < _own(sweep):
        return []
    if deviations is None:
        return ["Screened times only choose: the best is timed afresh when it is judged (docs/DECIDING.md)."]
    return [
        "The fastest of many is likely to be one that the simulator takes for faster than it is: its gain counts only "
        f"beyond {deviations:.1f} times the simulator's uncertainty (docs/DECIDING.md)."
    ]


def _own(sweep: Sweep) -> int:
    """How many programs with a latency are among the trials; records of before they were counted say one."""
    return len({one.fingerprint or one.settings for one in sweep.screened if one.seconds is not None})


def _trial(number: int, one: ScreenedSetting, found: Searched, least: float | None) -> Plain:
    given = dict(one.settings)
    words = remark(found.sweep, one, found.best, "judged", found.came)
    if found.also is not None and one.settings == found.also[0]:
        words = "; ".join(filter(None, (found.also[1], words)))
    return {
        "n": number,
        "at": [clean(given.get(name, "")) for name, _ in found.sweep.parameters],
        "s": one.seconds,
        "time": None if one.seconds is None else seconds(one.seconds),
        "above": None if one.seconds is None or not least else change(one.seconds / least),
        "remark": words,
        "state": _state(one, found),
    }


def _state(one: ScreenedSetting, found: Searched) -> str:
    if one.seconds is None:
        return "failed"
    if one.settings in {refused.settings for refused in found.sweep.refused}:
        return "refused"
    return "best" if one.settings == found.best else "timed"


def values_tried(trials: Sequence[ScreenedSetting]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each constant with the values that were tried."""
    found: dict[str, dict[str, None]] = {}
    for one in trials:
        for name, value in one.settings:
            found.setdefault(name, {})[value] = None
    return tuple((name, tuple(values)) for name, values in found.items())


def rising(values: Iterable[str]) -> list[str]:
    """Numbers from the least on, then words as they came."""
    return sorted(values, key=_number)


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return float("inf")
