"""The ledger in git: every attempt of a contest, recorded so that nothing is lost whatever happens."""

from harness.ledger.ledger import Ledger

__all__ = ["Ledger"]
