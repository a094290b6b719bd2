"""The page's first view: the groups with their steps, floors and roofs, and a row for every attempt."""

from collections import Counter
from collections.abc import Callable, Sequence

from harness.records import TITLE_MOVES, Outcome
from harness.render.layout import clean
from harness.render.page.parts import Plain
from harness.render.series import Entry, Group, on_scale
from harness.units import change, count, decimal, percent, seconds

VERDICTS: dict[Outcome, str] = {
    "accept": "accepted",
    "reject": "rejected",
    "inconclusive": "inconclusive",
    "failed": "failed",
}
_MOVED = ("undone", "revoked", "not on this branch", "rebaseline", "undo", "revoke")
_MANY = {"rebaseline": "rebaselines", "undo": "undos", "revoke": "revokes"}
_MANY_TIMES = 11
_BOUND_BY = {"compute-bound": "compute", "memory-bound": "memory", "link-bound": "links", "latency-bound": "latency"}


def group_plain(group: Group) -> Plain:
    """One group as data: titles, the champion's steps, floor, roof and tiles."""
    last = group.standing
    report = last.report if last else None
    return {
        "id": group.digest,
        "label": group.label,
        "title": group.title,
        "difference": group.difference,
        "standing": None
        if last is None
        else {
            "id": last.entry,
            "before": last.was_before,
            "intensity": report.intensity if report else None,
            "flops": on_scale(report.flops_per_second, report, last.seconds) if report else None,
        },
        "steps": [
            {"n": step.number, "id": step.entry, "s": step.seconds, "score": step.score, "before": step.was_before}
            for step in group.steps
        ],
        "floor": None
        if group.bound is None
        else {
            "name": group.bound.name,
            "s": group.bound.seconds,
            "score": group.bound.score,
            "text": f"{group.bound.name} {seconds(group.bound.seconds, 1)}",
        },
        "roof": {
            "flops": group.roof.flops_per_second,
            "bytes": group.roof.bytes_per_second,
            "ridge": group.roof.ridge,
            "flops_text": decimal(group.roof.flops_per_second, "FLOP/s", 0),
            "bytes_text": decimal(group.roof.bytes_per_second, "B/s", 0),
            "ridge_text": f"{group.roof.ridge:.0f} FLOP/B",
        },
        "minimum_intensity": group.minimum_intensity,
        "tiles": _tiles(group),
    }


def row_plain(entry: Entry, champion_id: str | None) -> Plain:
    """One row of the table as data: texts to show, and values by which rows are sorted and drawn."""
    row, report = entry.row, entry.report
    shown = report if entry.has_time else None
    values = {
        "score": row.score,
        "seconds": row.seconds,
        "change": row.time_ratio,
        "expected": row.expected_time_ratio,
        "util": row.util,
        "gap": row.gap_fraction,
        "copies": row.copies,
        "spills": row.spills,
    }
    return {
        "id": entry.id,
        "n": row.number,
        "group": row.key_digest,
        "recorded": (entry.then or row).key_digest,
        "kind": row.kind,
        "outcome": row.outcome,
        "verdict": verdict(entry),
        "undone": entry.is_undone or row.kind in TITLE_MOVES,
        "revoked": entry.is_revoked,
        "champion": entry.id == champion_id,
        "failure": clean(row.failure_kind),
        "hypothesis": clean(row.hypothesis),
        "date": entry.attempt.started[:16].replace("T", " ") if entry.attempt else "",
        "commit": row.commit[:10],
        "values": values,
        "texts": {name: None if value is None else _TEXTS[name](value) for name, value in values.items()},
        "bound": _BOUND_BY.get(row.regime or ""),
        "pm": entry.plus_minus_seconds,
        "scores": entry.score_range,
        "intensity": shown.intensity if shown else None,
        "flops": entry.flops_per_second if shown else None,
        "recheck": clean(entry.recheck),
        "says": _says(entry),
    }


def verdict(entry: Entry) -> str:
    """The verdict in a word or two."""
    row = entry.row
    if row.is_on_branch is False:
        return "accepted, not on this branch"
    if entry.is_undone:
        return "accepted, undone"
    if entry.is_revoked:
        return "accepted, revoked"
    if row.kind == "revoke":
        return "revoke"
    if row.outcome == "accept" and row.kind != "experiment":
        return row.kind
    return VERDICTS[row.outcome]


def moved_by(ratio: float) -> str:
    """A ratio new/old for people: as a change in per cent, from +1000 % on as a multiple."""
    return change(ratio) if ratio < _MANY_TIMES else f"{count(ratio)} times"


# Formats of the values of a row.
_TEXTS: dict[str, Callable[[float], str]] = {
    "score": lambda value: f"{value:,.1f}",
    # Milliseconds without the unit, which is in the column's title. Times below 0.1 ms get one more digit.
    "seconds": lambda value: f"{1e3 * value:,.{3 if value >= 1e-4 else 4}f}",
    "change": moved_by,
    "expected": moved_by,
    "util": percent,
    "gap": percent,
    "copies": count,
    "spills": count,
}


def with_uncertainty(value: float | None, plus_minus: float | None) -> str:
    """The time in words: `885.103 us ± 70.510 us`, `885.103 us`, or `unknown`."""
    if value is None:
        return "unknown"
    return seconds(value) if plus_minus is None else f"{seconds(value)} ± {seconds(plus_minus, 1)}"


def _says(entry: Entry) -> str:
    """The text of an attempt's mark in a chart, after its number and hypothesis."""
    row = entry.row
    if not entry.has_time:
        return f"{verdict(entry)}: {clean(row.failure_kind or entry.why_unknown) or 'no latency'}"
    parts = [verdict(entry), with_uncertainty(row.seconds, entry.plus_minus_seconds)]
    parts += [f"score {row.score:,.1f}"] if row.score is not None else []
    parts += [f"change of time {moved_by(row.time_ratio)}"] if row.time_ratio is not None else []
    return " · ".join(parts)


def _counted_as(entry: Entry) -> str:
    """The word under which an attempt is counted. As in `gain_words`, rebaselines, undos and revokes are separate."""
    if entry.row.kind in (*TITLE_MOVES, "rebaseline"):
        return entry.row.kind
    if entry.is_revoked:
        return "revoked"
    if entry.is_undone:
        return "undone"
    return "not on this branch" if entry.row.is_on_branch is False else VERDICTS[entry.row.outcome]


def _tiles(group: Group) -> Sequence[tuple[str, str, str]]:
    """The figures at a glance: title, figure, remark."""
    last, bound = group.standing, group.bound
    counted = Counter(_counted_as(entry) for entry in group.entries)
    counts = [
        f"{number} {_MANY.get(word, word) if number > 1 else word}"
        for word in (*VERDICTS.values(), *_MOVED)
        if (number := counted[word])
    ]
    number_of_attempts = len(group.entries) - sum(counted[word] for word in ("rebaseline", *TITLE_MOVES))
    attempts = ("attempts", count(number_of_attempts), ", ".join(counts))
    if last is None:
        return (("champion", "none", "no accepted attempt has a latency under this key"), attempts)
    report = last.report
    again = ", evaluated again under this key" if last.was_before else ""
    first = group.steps[0]
    faster = f"{first.seconds / last.seconds:.2f} times as fast as attempt {first.entry}" if first != last else ""
    util = on_scale(report.util, report, last.seconds) if report else None
    tiles = [
        ("latency of the champion", with_uncertainty(last.seconds, last.plus_minus_seconds), faster),
        ("score", "unknown" if last.score is None else f"{last.score:,.1f}", f"attempt {last.entry}{again}"),
        ("utilisation", "unknown" if util is None else percent(util), (report.regime or "") if report else ""),
    ]
    if bound is not None:
        above = f"the champion takes {last.seconds / bound.seconds:.2f} times as long"
        tiles.append(("floor of the chip", seconds(bound.seconds, 1), f"{bound.name}; {above}"))
    return (*tiles, attempts)
