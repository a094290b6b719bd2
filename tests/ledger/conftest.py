"""Fixtures of the ledger's tests: a repository with one commit of the user's, and a server of attempts with faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_fixtures import Server
from ledger_fixtures import repository_after

from harness.ledger import Ledger


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    return repository_after(0, tmp_path / "user")


@pytest.fixture
def ledger(contest: Path) -> Ledger:
    return Ledger.open(contest)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()
