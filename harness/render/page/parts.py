"""The parts that all pages share: HTML shell, scripts, a policy that lets only these scripts run, data."""

import base64
import gzip
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from plotly.offline import get_plotlyjs

from harness.render.colours import variables

Plain = dict[str, object]

# Scripts of every page: elements, colours, charts, sortable tables, dialogs, search.
_SHARED = ("island.js", "theme.js", "charts.js", "listing.js", "dialog.js", "search.js")
# The number of rows in one compressed piece. Neighbouring rows share most of their lines, so they compress well
# together; in larger pieces, opening a row would unpack too much.
CHUNK = 20
# The longest text that a page shows. A kernel.py with its helpers has some ten thousand characters, and a browser would
# hang at a line of megabytes.
_LONGEST = 200_000
_SLOT = re.compile(r"<!--\[(\w+)\]-->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of page: its markup and scripts, its noun for rows, the commands that print the same content.

    A page without charts leaves out the charting library.
    """

    body: str
    scripts: tuple[str, ...]
    listed: str
    commands: str
    has_charts: bool = True


def assembled(kind: Kind, title: str, overview: Plain, details: Iterable[Plain]) -> bytes:
    """The page as UTF-8. Texts by people and kernels are data in it, never markup or script.

    `overview` is the first view, with a row for each detail; each element of `details` holds the details of CHUNK rows.
    """
    digest, charts = _charts() if kind.has_charts else ("", "")
    scripts = "\n".join(map(_asset, (*_SHARED, *kind.scripts)))
    slots = {
        "policy": _policy(*filter(None, (digest, _digest(scripts)))),
        "title": html.escape(title),
        "style": _asset("page.css").replace("/*[colours of render/colours.py]*/", variables()),
        "listed": kind.listed,
        "commands": html.escape(kind.commands),
        "body": _asset(kind.body),
        "overview": _island(overview | {"chunk": CHUNK}),
        "chunks": "\n".join(
            f'<script type="application/octet-stream" id="chunk-{number}">{_packed(_json(chunk))}</script>'
            for number, chunk in enumerate(details)
        ),
        "charts": f'<script type="application/octet-stream" id="charts">{charts}</script>' if charts else "",
        "own": scripts,
    }
    # All slots are filled in one pass, so that inserted text is not searched for slots.
    return _SLOT.sub(lambda match: slots[match[1]], _asset("page.html")).encode("utf-8", "replace")


def _json(document: Plain) -> str:
    try:
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = ""
    if text and len(text) <= _LONGEST:
        return text
    return json.dumps(_fit(document), separators=(",", ":"), allow_nan=False)


def _fit(value: object) -> object:
    """`value` in a form that a page can show: null for a number that is not finite, long texts cut."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]} ... ({len(value) - _LONGEST:,} more characters)"
    if isinstance(value, dict):
        return {name: _fit(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fit(item) for item in value]
    return value


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _island(document: Plain) -> str:
    """JSON that can be inside a script element, because it contains no character that begins or ends markup."""
    text = _json(document)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _charts() -> tuple[str, str]:
    """The charting library: its hash and its compressed text."""
    text = get_plotlyjs().strip()
    head, arrow, body = text.partition(": this, () => {\n")
    if arrow and body.endswith("}));"):
        # Browsers compile a function in brackets at once. Without brackets this function, the whole library, would be
        # skipped first and parsed again at its call, which takes an eighth of the page's time.
        text = f"{head}: this, (() => {{\n{body.removesuffix('}));')}}})));"
    return _digest(text), _packed(text)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _policy(*digests: str) -> str:
    """The content security policy: only scripts with these hashes run, nothing is fetched, sent or framed."""
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # The charts set style attributes, and pictures made of them are data: and blob: addresses.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8").strip()
