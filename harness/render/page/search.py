"""A search on a page: the best so far, times against each constant, every trial with a remark."""

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
    """A search and its result.

    - `best`: the judged setting, None if nothing was judged. `came`: its result in words.
    - `possible`: the number of settings that could be tried. `possible_words`: a remark on this number.
    - `deviations`: the number of the simulator's standard deviations by which the best must be faster; None if the
      times are not simulated.
    - `level`: the name of a time with which the trials are compared, and this time. `also`: a remark on one of the
      settings.
    """

    sweep: Sweep
    best: Settings | None
    came: str
    possible: int
    possible_words: str
    deviations: float | None
    level: tuple[str, float] | None = None
    also: tuple[Settings, str] | None = None


def search_plain(search: Searched) -> Plain:
    """The search as data; constants and trials in the order of the record, values in rising order."""
    sweep = search.sweep
    times = [trial.seconds for trial in sweep.screened if trial.seconds is not None]
    least = min(times, default=None)
    untimed = len(sweep.screened) - len(times)
    label = source_label(sweep.source, sweep.chip)
    names = [name for name, _ in sweep.parameters]
    tiles = [
        ("tried", count(len(sweep.screened)), f"of {count(search.possible)} {search.possible_words}"),
        ("without a latency", count(untimed), "each with its reason below" if untimed else ""),
        ("least time", "none" if least is None else seconds(least), label),
        ("programs looked at", *_looked_at(sweep)),
    ]
    if search.level is not None:
        name, time = search.level
        beside = f"{time / least:.2f} times the least" if least else ""
        tiles.insert(3, (clean(name), seconds(time), beside))
    return {
        "label": label,
        "names": [clean(name) for name in names],
        "values": [[clean(value) for value in rising(values)] for _, values in sweep.parameters],
        "trials": [_trial(number, trial, search, least) for number, trial in enumerate(sweep.screened, 1)],
        "level": None if search.level is None else (clean(search.level[0]), search.level[1], seconds(search.level[1])),
        "tiles": tiles,
        "notes": [
            "Trials are compiled and timed; correctness is checked only for settings that are judged.",
            *_why_counted(sweep, search.deviations),
        ],
    }


def _looked_at(sweep: Sweep) -> tuple[str, str]:
    """The number of programs that the best was chosen from, and a remark."""
    timed = _programs(sweep)
    if sweep.looked_at < timed:
        return "unknown", "recorded before programs were counted"
    before = ", including those of the search that this one continues" if sweep.looked_at > max(1, timed) else ""
    return count(sweep.looked_at), f"with a latency{before}"


def _why_counted(sweep: Sweep, deviations: float | None) -> list[str]:
    """At most one sentence: the consequence of choosing the fastest of many programs."""
    if sweep.looked_at < _programs(sweep):
        return []
    if deviations is None:
        return ["Screened times only select a setting: it is timed again when it is judged (docs/DECIDING.md)."]
    return [
        "The fastest of many is likely to be one whose time the simulator underestimates: its gain counts only beyond "
        f"{deviations:.1f} times the simulator's uncertainty (docs/DECIDING.md)."
    ]


def _programs(sweep: Sweep) -> int:
    """The number of programs with a latency among the trials. It is counted, because older records state 1 instead."""
    return len({trial.fingerprint or trial.settings for trial in sweep.screened if trial.seconds is not None})


def _trial(number: int, trial: ScreenedSetting, search: Searched, least: float | None) -> Plain:
    values = dict(trial.settings)
    words = remark(search.sweep, trial, search.best, "judged", search.came)
    if search.also is not None and trial.settings == search.also[0]:
        words = "; ".join(filter(None, (search.also[1], words)))
    return {
        "n": number,
        "at": [clean(values.get(name, "")) for name, _ in search.sweep.parameters],
        "s": trial.seconds,
        "time": None if trial.seconds is None else seconds(trial.seconds),
        "above": None if trial.seconds is None or not least else change(trial.seconds / least),
        "remark": words,
        "state": _state(trial, search),
    }


def _state(trial: ScreenedSetting, search: Searched) -> str:
    if trial.seconds is None:
        return "failed"
    if trial.settings in {refused.settings for refused in search.sweep.refused}:
        return "refused"
    return "best" if trial.settings == search.best else "timed"


def values_tried(trials: Sequence[ScreenedSetting]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each constant with the values that were tried."""
    values_of: dict[str, dict[str, None]] = {}
    for trial in trials:
        for name, value in trial.settings:
            values_of.setdefault(name, {})[value] = None
    return tuple((name, tuple(values)) for name, values in values_of.items())


def rising(values: Iterable[str]) -> list[str]:
    """Numbers in rising order, then words in their given order."""
    return sorted(values, key=_number)


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return float("inf")
