"""The record of `ablate` as text."""

from collections.abc import Callable, Iterator, Sequence

from harness.records.ablation import AblatedChange, Ablation, Effect
from harness.records.report_words import simulated
from harness.render.layout import Style, clean
from harness.render.sections import GAP, Block, Column, Grid, Row, Words
from harness.units import count, kibibytes, percent, seconds

# Ranked columns are left out if they are empty or do not fit, the lowest rank first.
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
    # A title that is cut to fewer than 24 columns is useless.
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


def ablation_blocks(ablation: Ablation) -> Iterator[Block]:
    """The worth of each change, the changes that it is tied to, and the sum."""
    what = "each accepted change"
    if ablation.attempt is not None:
        what = f"each hunk of attempt {ablation.attempt} (lines of its kernel.py)"
    yield Words(
        f"{what} taken out of the champion (attempt {ablation.champion}, {seconds(ablation.champion_seconds)}) "
        f"[{simulated(ablation.chip)}]"
    )
    if ablation.reworded:
        names = _listed([f"attempt {number}" for number in ablation.reworded])
        yield Words(f"taken out of the text before {names}, which changed only text, not the program")
    yield from (GAP, _table(ablation), GAP)
    for ablated in ablation.changes:
        yield from (Words(f"{ablated.name}: {note}", rest="  ") for note in _notes(ablated))
    yield Words(_sum(ablation))


def _table(ablation: Ablation) -> Grid:
    rows = [
        Row(
            (
                # 4 for `attempt 4`.
                clean(ablated.name).removeprefix("attempt ") + ("*" if ablated.together else ""),
                ablated.without_seconds,
                ablated.worth_seconds,
                ablated.uncertainty_seconds,
                ablated.worth_fraction,
                ablated.own_seconds,
                _more(ablated.spills, ablation.champion_spills, count),
                _more(ablated.vmem_bytes, ablation.champion_vmem_bytes, kibibytes),
                _WORDS[ablated.effect],
                ablated.title,
            ),
            style=_STYLES.get(ablated.effect),
        )
        for ablated in ablation.changes
    ]
    return Grid(_COLUMNS, rows, title_room=0)


def _more(value: int | None, champion: int | None, text: Callable[[float], str]) -> str:
    """The difference between `value` and the champion's; "" if they are equal or not both known."""
    difference = 0 if value is None or champion is None else value - champion
    return f"{'-' if difference < 0 else '+'}{text(abs(difference))}" if difference else ""


def _notes(ablated: AblatedChange) -> Iterator[str]:
    others = _listed(ablated.together)
    rest = "the table shows what they are worth together"
    if ablated.effect == "superseded":
        yield "superseded: none of its lines is left in the champion"
    elif ablated.tie == "lines" and others:
        rely = "relies" if len(ablated.together) == 1 else "rely"
        relying = f" or {rely} on such changes" if ablated.failure and ablated.effect != "needed" else ""
        yield f"entangled with {others}, which later changed the same lines{relying}; {rest}"
    elif ablated.tie == "dependence":
        yield f"with this change alone taken out, the kernel fails: {clean(ablated.failure)}"
        yield (
            f"entangled with {others}: with all of them taken out, the kernel is right; {rest}"
            if others
            else "entangled with changes that rely on it; with them taken out too, the kernel still fails"
        )
    if ablated.effect == "needed" and ablated.tie != "dependence":
        yield f"with {'them' if others else 'it'} taken out, the kernel fails: {clean(ablated.failure)}"
    if ablated.effect == "unknown":
        yield f"no result: {clean(ablated.failure) or 'no latency is known'}"


def _listed(names: Sequence[str]) -> str:
    """The names as one list: `attempts 3, 4 and 7`; other names stay as they are."""
    words = [clean(name) for name in names]
    if len(words) > 1 and all(word.startswith("attempt ") for word in words):
        words = [word.removeprefix("attempt ") for word in words]
        words[0] = f"attempts {words[0]}"
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _sum(ablation: Ablation) -> str:
    alone = [change for change in ablation.changes if change.worth_seconds is not None and not change.together]
    kind = "changes" if ablation.attempt is None else "hunks"
    added = (
        f"{len(alone)} of {len(ablation.changes)} {kind} can be taken out alone; their worths add up to "
        f"{_signed(ablation.alone_seconds)}"
    )
    whole = f"since the baseline (attempt {ablation.baseline})" if ablation.attempt is None else "as a whole"
    gain = ablation.gain_seconds
    if gain is None:
        return f"{added}; the worth of all {kind} {whole} is unknown: {clean(ablation.whole_failure) or 'no latency'}"
    share = f", {percent(ablation.alone_seconds / gain)}" if gain > 0 else ""
    rest = gain - ablation.alone_seconds
    if round(rest * 1e12) == 0:
        return f"{added}, which is the worth of all {kind} {whole}"
    what = f"come from several {kind} together" if rest > 0 else "are counted more than once"
    return f"{added}{share} of the {_signed(gain)} that all {kind} are worth {whole}; {seconds(abs(rest))} {what}"


def _signed(value: float) -> str:
    return f"{'' if not value else '-' if value < 0 else '+'}{seconds(abs(value))}"
