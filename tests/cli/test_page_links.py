"""Links between the repository's pages: their files and headings exist."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What lies in data/ is a part of a page elsewhere.
PAGES = subprocess.run(
    ["git", "ls-files", "*.md", ":!*/data/*"], cwd=ROOT, check=True, capture_output=True, text=True
).stdout.splitlines()
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def _headings(page: Path) -> set[str]:
    """The anchors that a page's headings get: lower case, letters, digits, blanks as hyphens."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    links = []
    for path, heading in _LINK.findall(text):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (heading and target.suffix == ".md" and heading not in _headings(target)):
            links.append(f"{path}#{heading}" if heading else path)
    return links


def test_links_lead_somewhere() -> None:
    assert {page: links for page in PAGES if (links := broken(ROOT / page))} == {}


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, and more\n", encoding="utf-8")
    page = tmp_path / "page.md"
    links = "[a](there.md) [b](there.md#a-heading-and-more) [c](there.md#none) [d](gone.md) `[e](code.md)`"
    page.write_text(f"# Own\n{links} [f](#own) [g](#other)\n", encoding="utf-8")
    assert broken(page) == ["there.md#none", "gone.md", "#other"]
