"""Rules on several chips: waits for other chips that arithmetic could hide, and links that carry more than needed."""

from harness.advice.observed import Observed
from harness.advice.rules.rule import PIPELINING, SCALING_BOOK, RuleCase, rule
from harness.units import decimal, percent, seconds

_NOTABLE_SHARE = 0.10
# The ratio of the busiest link's bytes to its share of the bytes that have to come to a chip.
_UNEVEN = 1.3


@rule(
    "exposed communication",
    "body",
    PIPELINING,
    "a product that begins before all shards have arrived hides the transfer of the remaining shards",
)
def exposed_communication(seen: Observed) -> RuleCase | None:
    """A notable share of the time goes into waits for other chips."""
    links = seen.report.communication
    if links is None or links.exposed_seconds < _NOTABLE_SHARE * seen.seconds:
        return None
    rest, busy = seen.seconds - links.exposed_seconds, links.busiest.busy_seconds
    hidden = busy - links.exposed_seconds
    suggestion = (
        "start the next transfer, compute with the data that have arrived, and wait only then: in one kernel, a part "
        "of a shard at a time"
    )
    if hidden > _NOTABLE_SHARE * busy:
        suggestion = (
            f"{seconds(hidden)} of the transfers are hidden already. To hide more, make the parts smaller: the first "
            "part arrives sooner, and after the last part less is left to compute. While chips wait, do the work that "
            "needs no transfer"
        )
    return RuleCase(
        observation=f"the chip that ends last waits {seconds(links.exposed_seconds)} for other chips, "
        f"{percent(links.exposed_seconds / seen.seconds)} of the time; everything else takes {seconds(rest)}, and the "
        f"busiest link is busy for {seconds(busy)} {seen.label}",
        suggestion=suggestion,
        gain=1 - max(rest, busy) / seen.seconds,
    )


@rule(
    "uneven links",
    "body",
    SCALING_BOOK,
    "a gather that uses all links of a chip takes the time of its bytes at the links' added bandwidth",
)
def uneven_links(seen: Observed) -> RuleCase | None:
    """One direction of a link carries more than its share of the bytes that have to come to a chip."""
    links = seen.report.communication
    if links is None or not links.needed_bytes or links.busiest.bytes < _UNEVEN * links.needed_bytes:
        return None
    needed = links.needed_bytes / links.busiest.bytes
    # Part of the wait is for the latency of each hop and for chips that are late, not for the bytes.
    gain = min(links.exposed_seconds, max(links.exposed_seconds, links.busiest.busy_seconds) * (1 - needed))
    return RuleCase(
        observation=f"the link from chip {links.busiest.source} to {links.busiest.destination} carries "
        f"{decimal(links.busiest.bytes, 'B')}, {1 / needed:.1f}x as much as if the bytes were spread evenly over all "
        f"links of a chip {seen.label}",
        suggestion="send one half of each shard, or of each sum, one way round a ring of directly linked chips, and "
        "the other half the other way: on a slice of 2x2 that ring is 0, 1, 3, 2",
        gain=gain / seen.seconds,
    )
