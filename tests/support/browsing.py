"""Pages in a real browser: their errors and requests, and the contrast of every text in them."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium")
REQUIRED = "RATCHET_REQUIRE_BROWSER"


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser; skips the test if there is none, and fails if one is required."""
    if CHROMIUM is None:
        missing = "there is no program called chromium: apt-get install chromium"
        if os.environ.get(REQUIRED):
            pytest.fail(f"{missing} ({REQUIRED} is set)")
        pytest.skip(missing)
    # The browser's own sandbox cannot be set up by root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=options)


class Watched:
    """A drawn page, with its errors and requests since then."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.address = address
        self.context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-charts=drawn]", state="attached")

    def check(self) -> None:
        """Fails if there was an error, or a request for anything except the page itself."""
        assert self.complaints == []
        assert {url.split(":")[0] for url in self.requests} <= {"file", "data", "blob"}
        asked = {url.split("#")[0] for url in self.requests if url.startswith("file:")}
        assert asked == {self.address.split("#")[0]}


@contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A new page in the browser, checked at the end."""
    watched = Watched(browser, address, **options)
    yield watched.page
    watched.check()
    watched.context.close()


# Every element that shows its own text: the element, its colour, and the colour behind it.
TEXTS = """() => {
  const root = getComputedStyle(document.documentElement).backgroundColor;
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const value = getComputedStyle(at).backgroundColor;
      if (!/rgba\\(.*, 0\\)/.test(value)) return value;
    }
    return root;
  };
  const shows = (element) => element.checkVisibility() && !element.closest("svg") &&
    !element.matches("script, option, [aria-disabled], .hidden") &&
    [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const texts = [...document.querySelectorAll("body *")].filter(shows)
    .map((element) => [element.className || element.tagName, getComputedStyle(element).color, behind(element)]);
  const labels = [...document.querySelectorAll("svg text")]
    .filter((text) => text.textContent.trim() && !text.closest(".barlayer"))
    .map((text) => ["chart", getComputedStyle(text).fill, root]);
  return [...texts, ...labels];
}"""


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(text: str, background: str) -> float:
    high, low = sorted((luminance(text), luminance(background)), reverse=True)
    return (high + 0.05) / (low + 0.05)
