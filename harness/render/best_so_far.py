"""The best time so far over all keys of a contest, as a share of the first champion's time.

Times under two keys are not compared. A key is joined to the one before through the champion that was judged again
under it: that is the same program, so its share is the same. Everything else moves by the ratio that its verdict used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.records import TITLE_MOVES, Attempt, Key, Row
from harness.render.layout import clean
from harness.render.series import Entry, changed_fields, source_label

# What each field of a key is called, short and in full. The judge's hash covers the code of prepare.py.
_FIELDS = {
    "judge": ("judge", "the judge or the code of prepare.py"),
    "problem": ("prepare.py", "the problem that prepare.py states"),
    "chip": ("chip", "chip"),
    "source": ("source", "source"),
    "jax": ("compiler", "jax"),
    "jaxlib": ("compiler", "jaxlib"),
    "libtpu": ("compiler", "libtpu"),
    "machine": ("machine", "machine"),
}
_HASHES = ("judge", "problem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What the attempt `entry` takes, as a share of the first champion's time.

    `low` and `high` are the ends of the interval that its verdict used, None where it used none.
    """

    entry: str
    share: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """From attempt `number` on the best so far has this share; `begins` is True where nothing joins it to before."""

    number: int
    entry: str
    share: float
    begins: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """Attempt `number` is the first under another key than the attempt before it.

    `short` and `words` say what changed. `champion` is the attempt whose kernel was judged again, with its seconds
    under both keys; None is what is not known.
    """

    number: int
    key: str
    short: str
    words: str
    champion: int | None = None
    before_seconds: float | None = None
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSoFar:
    """A contest over all of its keys. `first` and `last` are the champions that the line begins and ends with."""

    shares: tuple[Share, ...]
    levels: tuple[Level, ...]
    changes: tuple[KeyChange, ...]

    @property
    def first(self) -> Level | None:
        """Where the line that ends now begins."""
        return next((level for level in reversed(self.levels) if level.begins), None)

    @property
    def last(self) -> Level | None:
        """Where the champion stands."""
        return self.levels[-1] if self.levels else None


def best_so_far(entries: Sequence[Entry]) -> BestSoFar:
    """`entries`, oldest first, on one axis. What was undone or revoked is no level, but has its share."""
    known: dict[int, float] = {}
    titles: dict[int, Entry] = {}
    shares: list[Share] = []
    levels: list[Level] = []
    changes: list[KeyChange] = []
    before: Entry | None = None
    for entry in entries:
        row = entry.row
        if before is not None and before.row.key_digest != row.key_digest:
            changes.append(_change(before.row, entry, titles))
        before = entry
        if not entry.has_time:
            continue
        joined = _joined(entry, known, titles)
        begins = joined is None and row.is_title
        if joined is None and not begins:
            continue
        share = joined or Share(entry=entry.id, share=1.0)
        shares.append(share)
        moves_title = row.kind in TITLE_MOVES and row.outcome == "accept" and row.is_on_branch is not False
        if row.is_title or moves_title:
            known[row.number], titles[row.number] = share.share, entry
        if entry.is_accepted or moves_title:
            last = levels[-1].share if levels and not begins else None
            if share.share != last:
                levels.append(
                    Level(number=row.number, entry=entry.again or entry.id, share=share.share, begins=last is None)
                )
    return BestSoFar(shares=tuple(shares), levels=tuple(levels), changes=tuple(changes))


def _joined(entry: Entry, known: dict[int, float], titles: dict[int, Entry]) -> Share | None:
    """The share of an attempt through the champion that it was judged against; None where that is not known."""
    row, attempt = entry.row, entry.attempt
    number = attempt.champion.attempt if attempt and attempt.champion else max(titles, default=None)
    if row.kind == "baseline" or number is None:
        return None
    if row.kind in TITLE_MOVES:
        again = next((one for one in titles.values() if one.id == entry.again), None)
        return None if again is None else Share(entry=entry.id, share=known[again.row.number])
    theirs = known.get(number)
    if theirs is None:
        return None
    if row.kind == "rebaseline" and _is_same_program(entry, titles[number]):
        return Share(entry=entry.id, share=theirs)
    if row.kind == "rebaseline":
        ratio = _ratio_under_one_key(entry, titles[number])
        return None if ratio is None else Share(entry=entry.id, share=theirs * ratio)
    return _by_verdict(entry, attempt, theirs)


def _by_verdict(entry: Entry, attempt: Attempt | None, theirs: float) -> Share | None:
    """By the ratio to the champion, and its interval, that decided."""
    row = entry.row
    ratio, champion = row.time_ratio, attempt.champion if attempt else None
    if ratio is None and champion is not None and champion.seconds and row.seconds is not None:
        ratio = row.seconds / champion.seconds
    if ratio is None or ratio <= 0:
        return None
    ends = (attempt.verdict.time_ratio_low, attempt.verdict.time_ratio_high) if attempt else (None, None)
    low, high = (None if end is None else theirs * end for end in ends)
    return Share(entry=entry.id, share=theirs * ratio, low=low, high=high)


def _is_same_program(entry: Entry, champion: Entry) -> bool:
    """True if a rebaseline has the kernel of the champion, or one that is traced to the same program."""
    if entry.row.kernel_sha256 == champion.row.kernel_sha256:
        return True
    prints = [one.attempt.evidence.trace.fingerprint if one.attempt and one.attempt.evidence.trace else None
              for one in (entry, champion)]  # fmt: skip
    return prints[0] is not None and prints[0] == prints[1]


def _ratio_under_one_key(entry: Entry, champion: Entry) -> float | None:
    here, there = entry.row, champion.row
    if here.key_digest != there.key_digest or here.seconds is None or not there.seconds:
        return None
    return here.seconds / there.seconds


def _change(before: Row, entry: Entry, titles: dict[int, Entry]) -> KeyChange:
    row, attempt = entry.row, entry.attempt
    short, words = _words(before.key, row.key)
    champion = attempt.champion if attempt else None
    earlier = titles.get(champion.attempt) if champion else None
    if champion is None or earlier is None or row.kind == "revoke":
        return KeyChange(number=row.number, key=row.key_digest, short=short, words=words)
    is_again = row.kind == "rebaseline" and _is_same_program(entry, earlier)
    return KeyChange(
        number=row.number, key=row.key_digest, short=short, words=words, champion=champion.attempt,
        before_seconds=earlier.row.seconds, after_seconds=row.seconds if is_again else champion.seconds,
    )  # fmt: skip


def _words(before: Key | None, after: Key | None) -> tuple[str, str]:
    """What changed between two keys, short and in full."""
    if before is None or after is None:
        return "key", "what changed is not recorded"
    short, full = [], []
    for name, old, new in changed_fields(before, after):
        brief, long = _FIELDS[name]
        short.append(brief)
        if name == "source":
            full.append(f"{source_label(before.source, before.chip)} to {source_label(after.source, after.chip)}")
        else:
            full.append(long if name in _HASHES else f"{long} {old or 'none'} to {new or 'none'}")
    return clean(", ".join(dict.fromkeys(short))) or "key", clean(", ".join(full)) or "the key changed"
