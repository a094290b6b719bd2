"""One self-contained HTML page of a ledger: everything inline, no script but its own, no address but its own."""

import base64
import gzip
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from plotly.offline import get_plotlyjs

from harness.render.layout import clean
from harness.render.page.detail import detail_plain
from harness.render.page.overview import Plain, group_plain, row_plain
from harness.render.page.source import Line
from harness.render.series import Entry, group_of, groups

_SCRIPTS = ("island.js", "theme.js", "charts.js", "table.js", "attempt.js", "main.js")
# Attempts in one compressed piece: neighbours share most of their lines, and opening one unpacks little.
_CHUNK = 20
_SLOT = re.compile(r"<!--\[(\w+)\]-->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a page tells: the contest, the branch it is told from, when, and every attempt, oldest first.

    `champion` is the id of the entry that is the champion here. `notes` are sentences on what was skipped.
    """

    contest: str
    branch: str
    made: str
    entries: tuple[Entry, ...]
    champion: str | None
    notes: tuple[str, ...] = ()


def page(story: Story) -> bytes:
    """The page as UTF-8. Whatever a person or a kernel wrote is data in it, and never markup or script."""
    chunks = [_chunk(story.entries[start : start + _CHUNK]) for start in range(0, len(story.entries), _CHUNK)]
    charts, own = _charts(), "\n".join(_asset(name) for name in _SCRIPTS)
    slots = {
        "policy": _policy(charts.digest, _digest(own)),
        "title": html.escape(f"{_name(story)}: {len(story.entries)} attempts"),
        "style": _asset("page.css"),
        "overview": _island(_overview(story)),
        "chunks": "\n".join(
            f'<script type="application/octet-stream" id="chunk-{number}">{data}</script>'
            for number, data in enumerate(chunks)
        ),
        "charts": charts.packed,
        "own": own,
    }
    # One pass over the template alone: what is put in is not looked at again.
    return _SLOT.sub(lambda match: slots[match[1]], _asset("page.html")).encode("utf-8", "replace")


def _overview(story: Story) -> Plain:
    found = groups(story.entries)
    standing = group_of(found, story.champion)
    problems = [entry.attempt.evidence.problem.title for entry in story.entries if entry.attempt]
    return {
        "contest": _name(story),
        "problem": clean(problems[-1]) if problems else "",
        "branch": clean(story.branch),
        "made": story.made,
        "champion": story.champion,
        "group": standing.digest if standing else None,
        "groups": [group_plain(group) for group in found],
        "rows": [row_plain(entry, story.champion) for entry in story.entries],
        "notes": [clean(note) for note in story.notes],
        "chunk": _CHUNK,
    }


def _name(story: Story) -> str:
    return clean(story.contest)


def _chunk(entries: Iterable[Entry]) -> str:
    """Some attempts with the lines that they share, compressed, as text that no markup can hide in."""
    numbers: dict[Line, int] = {}

    def pool(line: Line) -> int:
        return numbers.setdefault(line, len(numbers))

    attempts: list[Plain] = [detail_plain(entry, pool) for entry in entries]
    return _packed(_json({"attempts": attempts, "lines": list(numbers)}))


def _json(document: Plain) -> str:
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(document), separators=(",", ":"), allow_nan=False)


def _finite(value: object) -> object:
    """`value` with null for a number that is not finite: JSON has no word for it, and a chart no place."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _island(document: Plain) -> str:
    """JSON that can stand inside a script element: without a character that markup begins or ends with."""
    text = _json(document)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    digest: str
    packed: str


@cache
def _charts() -> _Library:
    """The charting library: its hash and its compressed text."""
    text = get_plotlyjs().strip()
    head, arrow, body = text.partition(": this, () => {\n")
    if arrow and body.endswith("}));"):
        # A function in brackets is compiled at once; this one, which is all of the library, would first be
        # skipped over and then parsed again when it is called, an eighth of the time that the page takes.
        text = f"{head}: this, (() => {{\n{body.removesuffix('}));')}}})));"
    return _Library(digest=_digest(text), packed=_packed(text))


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _policy(*digests: str) -> str:
    """The content security policy: only scripts with these hashes run, nothing is fetched, sent or framed."""
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # The charts set style attributes, and pictures made of them are data: and blob: addresses.
    rules: Sequence[str] = (
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8").strip()
