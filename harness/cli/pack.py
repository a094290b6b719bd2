"""What `pack` does: the attempts' files become one."""

from argparse import Namespace

from harness.cli.ledger import settled
from harness.cli.verb import Outcome
from harness.ledger import packing


def pack(given: Namespace) -> Outcome:
    ledger = settled(given)
    with ledger.lock("pack"):
        packed = packing.pack(ledger.place)
    return Outcome(document=packed, text=lambda: packing.summary(packed), messages=packed.left)
