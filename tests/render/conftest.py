"""The browser of the tests of pages; quick tests do not import what drives it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """One browser for all tests of a file."""
    from browsing import launched

    with launched() as launched_browser:
        yield launched_browser
