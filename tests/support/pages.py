"""A page as text: its data, and checks that all markup and scripts in it are its own."""

import base64
import gzip
import hashlib
import json
import re
from typing import Any

from narrowing import present
from report_examples import HOSTILE


def island(page: str, name: str) -> str:
    return present(re.search(rf'<script type="application/[\w-]+" id="{name}">([^<]*)</script>', page))[1]


def overview(page: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(island(page, "overview"))
    return parsed


def details(page: str) -> dict[str, Any]:
    chunk = json.loads(gzip.decompress(base64.b64decode(island(page, "chunk-0"))))
    return {attempt["id"]: {**attempt, "lines": chunk["lines"]} for attempt in chunk["details"]}


def check_markup(page: str) -> None:
    """Raises AssertionError if text that people wrote is markup in the page."""
    assert HOSTILE not in page
    assert "alert(" not in re.sub(r'(?s)<script type="application/json".*?</script>', "", page)
    # Template, styles, three islands (overview, one chunk, charts) and the page's own script: nothing else.
    assert re.findall(r"<script[^>]*>", page) == [
        '<script type="application/json" id="overview">',
        '<script type="application/octet-stream" id="chunk-0">',
        '<script type="application/octet-stream" id="charts">',
        "<script>",
    ]
    assert page.count("</script>") == 4


def check_policy(page: str) -> None:
    """Only the page's own scripts may run, nothing may be fetched, and scripts may show data only as text."""
    policy = present(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page))
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    inline = present(re.search(r"(?s)<script>(.*)</script>", page))
    scripts = [inline[1].encode()]
    # A page without charts has no library for them.
    if 'id="charts"' in page:
        scripts.append(gzip.decompress(base64.b64decode(island(page, "charts"))))
    expected = {hashlib.sha256(script).digest() for script in scripts}
    assert {base64.b64decode(word.strip("'")[7:]) for word in rules["script-src"].split()} == expected
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    # The script shows everything as text.
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", inline[1])
