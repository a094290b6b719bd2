"""A ledger, its page and a browser for the tests of pages; quick tests do not import what these need."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from harness.ledger import Ledger


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """One browser for all tests of a file."""
    from browsing import launched

    with launched() as launched_browser:
        yield launched_browser


@pytest.fixture(scope="session")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> "Ledger":
    """Eight attempts of all kinds, for tests that only read them; a test that adds files copies the folder."""
    from report_examples import storied

    return storied(tmp_path_factory.mktemp("storied") / "contest")


@pytest.fixture(scope="session")
def path(ledger: "Ledger") -> Path:
    """The page of these attempts."""
    from harness.shell.main import main

    assert main(["report", "-C", str(ledger.place.root)]) == 0
    return ledger.place.root / "profile_data" / "report.html"
