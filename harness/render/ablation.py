"""What `ablate` found, as text."""

from collections.abc import Callable, Iterator, Sequence

from harness.records.ablation import AblatedChange, Ablation, Effect
from harness.records.report_words import simulated
from harness.render.layout import Style, clean, terminal_width
from harness.render.sections import GAP, Block, Column, Grid, Row, Words, screen
from harness.units import count, kibibytes, percent, seconds

# What is left out where no row has anything there, or there is no room for it, has a rank: the lowest goes first.
_COLUMNS = (
    Column("change"),
    Column("time\nwithout it", "times"),
    Column("worth", "+times"),
    Column("±\none sigma", "times"),
    Column("of time\nwithout it", "fraction"),
    Column("its own\npart", "+times", unknown="", rank=3),
    Column("spills\nwithout it", side="r", unknown="", rank=2),
    Column("VMEM\nwithout it", side="r", unknown="", rank=1),
    Column("now"),
    # A title shorter than 24 says nothing.
    Column("what was changed", least=len("what was changed"), room=24),
)
_WORDS: dict[Effect, str] = {
    "gain": "pays",
    "loss": "costs",
    "unclear": "unclear",
    "none": "nothing",
    "superseded": "superseded",
    "needed": "needed",
    "unknown": "unknown",
}
_STYLES: dict[Effect, Style] = {"gain": "good", "loss": "bad", "unclear": "doubt"}


def ablation_text(found: Ablation, width: int | None = None, *, colour: bool = False) -> str:
    """What each change is worth, what those are tied to that cannot go alone, and what they add up to.

    `width` is in columns, by default the terminal's; in a file or a pipe there is no limit.
    """
    return screen(_blocks(found), terminal_width() if width is None else width, colour=colour)


def _blocks(found: Ablation) -> Iterator[Block]:
    what = "each accepted change"
    if found.attempt is not None:
        what = f"each hunk of attempt {found.attempt} (lines of its kernel.py)"
    yield Words(
        f"{what} taken out of the champion (attempt {found.champion}, {seconds(found.champion_seconds)}) "
        f"[{simulated(found.chip)}]"
    )
    if found.reworded:
        names = _listed([f"attempt {number}" for number in found.reworded])
        yield Words(f"in the text before {names}, which changed words and not the program")
    yield from (GAP, _table(found), GAP)
    for one in found.changes:
        yield from (Words(f"{one.name}: {note}", rest="  ") for note in _notes(one))
    yield Words(_sum(found))


def _table(found: Ablation) -> Grid:
    rows = [
        Row(
            (
                _short(one) + ("*" if one.together else ""),
                one.without_seconds,
                one.worth_seconds,
                one.uncertainty_seconds,
                one.worth_fraction,
                one.own_seconds,
                _more(one.spills, found.champion_spills, count),
                _more(one.vmem_bytes, found.champion_vmem_bytes, kibibytes),
                _WORDS[one.effect],
                one.title,
            ),
            style=_STYLES.get(one.effect),
        )
        for one in found.changes
    ]
    return Grid(_COLUMNS, rows, title_room=0)


def _short(one: AblatedChange) -> str:
    """What the table calls it: `attempt 4` is 4 there."""
    return clean(one.name).removeprefix("attempt ")


def _sign(value: float | None, plus: str) -> str:
    return "" if not value else "-" if value < 0 else plus


def _more(value: int | None, champion: int | None, text: Callable[[float], str]) -> str:
    """How much more there is than in the champion; "" where that is nothing or not known."""
    difference = 0 if value is None or champion is None else value - champion
    return f"{'-' if difference < 0 else '+'}{text(abs(difference))}" if difference else ""


def _notes(one: AblatedChange) -> Iterator[str]:
    others = _listed(one.together)
    rest = "the table has what they are worth together"
    if one.effect == "superseded":
        yield "superseded, the champion has no line of it any more"
    elif one.tie == "lines" and others:
        rely = "relies" if len(one.together) == 1 else "rely"
        relying = f" or {rely} on what did" if one.failure and one.effect != "needed" else ""
        yield f"entangled with {others}, which touched the same lines since{relying}; {rest}"
    elif one.tie == "dependence":
        yield f"without it alone the kernel fails: {clean(one.failure)}"
        yield (
            f"entangled with {others}: what is left is right once that goes too; {rest}"
            if others
            else "entangled with others that rely on it; no set of them leaves a kernel that is right"
        )
    if one.effect == "needed" and one.tie != "dependence":
        yield f"without {'them' if others else 'it'} the kernel fails: {clean(one.failure)}"
    if one.effect == "unknown":
        yield f"not judged: {clean(one.failure) or 'no latency is known'}"


def _listed(names: Sequence[str]) -> str:
    """`attempts 3, 4 and 7`; names of another kind as they are."""
    words = [clean(name) for name in names]
    if len(words) > 1 and all(word.startswith("attempt ") for word in words):
        words = [word.removeprefix("attempt ") for word in words]
        words[0] = f"attempts {words[0]}"
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _sum(found: Ablation) -> str:
    alone = [one for one in found.changes if one.worth_seconds is not None and not one.together]
    kind = "changes" if found.attempt is None else "hunks"
    added = (
        f"{len(alone)} of {len(found.changes)} {kind} can go alone; what each is worth adds up to "
        f"{_signed(found.alone_seconds)}"
    )
    whole = f"since the baseline (attempt {found.baseline})" if found.attempt is None else "as a whole"
    gain = found.gain_seconds
    if gain is None:
        return f"{added}; what all are worth {whole} is unknown: {clean(found.whole_failure) or 'no latency'}"
    share = f", {percent(found.alone_seconds / gain)}" if gain > 0 else ""
    rest = gain - found.alone_seconds
    if round(rest * 1e12) == 0:
        return f"{added}, which is what all are worth {whole}"
    what = "belong to several of them together" if rest > 0 else "are counted more than once"
    return f"{added}{share} of the {_signed(gain)} that all are worth {whole}; {seconds(abs(rest))} {what}"


def _signed(value: float) -> str:
    return f"{_sign(value, '+')}{seconds(abs(value))}"
