"""One self-contained HTML page over several contests: a row for each, with a link to its own page."""

from collections.abc import Sequence

from harness.render.contests import ContestRow
from harness.render.layout import clean
from harness.render.page.overview import with_uncertainty
from harness.render.page.parts import Kind, Plain, assembled
from harness.render.series import Step
from harness.units import count, percent, quantity, seconds

_KIND = Kind(
    body="contests.html",
    scripts=("contests.js",),
    listed="contests",
    commands="./ratchet.sh -C DIR results, for each contest",
    has_charts=False,
)


def contests_page(title: str, made: str, rows: Sequence[ContestRow], notes: Sequence[str]) -> bytes:
    """The page as UTF-8; `notes` are sentences on what the page leaves out."""
    faster = [gain for row in rows if (gain := row.gain) is not None and gain > 1]
    labels = list(dict.fromkeys(row.group.label for row in rows))
    attempts = sum(row.attempts for row in rows)
    overview: Plain = {
        "title": clean(title),
        "about": f"{quantity(len(rows), 'contest')}, {quantity(attempts, 'attempt')}, "
        f"written {made}. {'; '.join(labels)}.",
        "tiles": [
            ("contests", count(len(rows)), ""),
            ("attempts", count(attempts), "rejected ones as well"),
            ("champions faster than the first", f"{len(faster)} of {len(rows)}", ""),
            ("the largest gain", f"{max(faster, default=1):.2f}x", "each contest on its own scale"),
        ],
        "rows": [_row(number, row) for number, row in enumerate(rows, 1)],
        "has_peers": any(row.peer for row in rows),
        "least": min((share for row in rows for _, share in _shares(row)), default=1),
        "notes": [clean(note) for note in notes],
    }
    return assembled(_KIND, clean(title), overview, ())


def _row(number: int, row: ContestRow) -> Plain:
    steps, bound, peer = row.group.steps, row.group.bound, row.peer
    gain, limit = row.gain, row.limit_share(-1)
    values = {
        "attempts": row.attempts,
        "baseline": steps[0].seconds if steps else None,
        "champion": steps[-1].seconds if steps else None,
        "gain": gain,
        "limit": limit,
        "peer": peer.ratio if peer else None,
    }
    texts = {
        "attempts": count(row.attempts),
        "attempts_words": quantity(row.attempts, "attempt"),
        "baseline": _time(steps[:1]),
        "champion": _time(steps[-1:]),
        "gain": None if gain is None else f"{gain:.2f}x",
        "limit": None if limit is None else percent(limit),
    }
    return {
        "id": str(number),
        "n": number,
        "page": row.page,
        "contest": row.short_name,
        "problem": row.problem or row.name,
        "label": row.group.label,
        "values": values,
        "texts": texts,
        "limit_words": f"{bound.name} {seconds(bound.seconds, 1)}" if bound else "",
        "baseline_limit": row.limit_share(0),
        "peer": None
        if peer is None
        else {
            "name": clean(peer.name),
            "time": seconds(peer.seconds, 1),
            "ratio": "" if peer.ratio is None else f"ours / theirs {peer.ratio:.3f}",
            "note": clean(peer.note),
        },
        "spark": _shares(row),
        "last": row.last_number,
    }


def _shares(row: ContestRow) -> list[tuple[int, float]]:
    """The time of each champion divided by the first champion's, with the number of the attempt that set it."""
    steps = row.group.steps
    return [(step.number, step.seconds / steps[0].seconds) for step in steps]


def _time(step: Sequence[Step]) -> str | None:
    """The time of one step; None for no step."""
    return with_uncertainty(step[0].seconds, step[0].plus_minus_seconds) if step else None
