"""The changes that made a champion's text, by attempt or by hunk, and that text without some of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from harness.candidate import KERNEL, Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger, history, merge
from harness.ledger import champion as champions
from harness.ledger.bare_source import bare
from harness.records import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One change: its name, attempt and title, the candidate before it and after it.

    `is_experiment`: the change was accepted for its gain. A rebaseline adopts kernel.py whatever its time, and may be
    a rewording.
    """

    name: str
    attempt: int
    title: str
    before: Candidate
    after: Candidate
    is_experiment: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Changes to take out of the champion's text, oldest first.

    - `asked` are the requested changes.
    - `later` are later changes, which are taken out only together with requested ones.
    - `attempt` is the attempt from which hunks are requested; None if whole attempts are requested.
    - `champion` and `baseline` are attempts' numbers.
    """

    ledger: Ledger
    attempt: int | None
    champion: int
    baseline: int
    candidate: Candidate
    asked: tuple[Piece, ...]
    later: tuple[Piece, ...] = ()
    _texts: dict[tuple[Piece, ...], Candidate | None] = field(default_factory=dict)

    @property
    def last_for_itself(self) -> Piece | None:
        """The last change if it may be a rewording; None for an experiment, a requested hunk, or the only change."""
        is_asked = self.attempt is not None or len(self.asked) < 2
        last = None if is_asked and not self.later else self.every[-1]
        return None if last is None or last.is_experiment else last

    def before_last(self) -> "Pieces":
        """The changes without the last one, with the text before the last one."""
        asked, later = (self.asked, self.later[:-1]) if self.later else (self.asked[:-1], ())
        return replace(self, candidate=self.every[-1].before, asked=asked, later=later, _texts={})

    @property
    def every(self) -> tuple[Piece, ...]:
        """All changes, oldest first."""
        return (*self.asked, *self.later)

    def without(self, pieces: Sequence[Piece]) -> Candidate | None:
        """The champion's text without `pieces`, taken out newest first; None if other changes touch the same lines."""
        if not pieces:
            return self.candidate
        first, *rest = sorted(pieces, key=self.every.index)
        key = (first, *rest)
        if key not in self._texts:
            merged = self.without(rest)
            self._texts[key] = (
                None
                if merged is None
                else merge.without(self.ledger.place.repository, merged, first.before, first.after)
            )
        return self._texts[key]

    def is_champion(self, candidate: Candidate) -> bool:
        """True if `candidate` is the champion's text, with or without the comments that a merge removed."""
        mine, theirs = candidate.files, self.candidate.files
        return mine.keys() == theirs.keys() and all(mine[name] in (theirs[name], bare(theirs[name])) for name in mine)

    def after(self, piece: Piece) -> tuple[Piece, ...]:
        """The changes after `piece`, the nearest first."""
        return self.every[self.every.index(piece) + 1 :]

    def relying(self, piece: Piece) -> tuple[Piece, ...]:
        """The changes that may rely on `piece`, the nearest first: all later ones, or an attempt's other hunks."""
        if self.attempt is None:
            return self.after(piece)
        at = self.asked.index(piece)
        near = sorted(range(len(self.asked)), key=lambda place: abs(place - at))
        return tuple(self.asked[place] for place in near if place != at)


def companions(
    piece: Piece, others: Sequence[Piece], works: Callable[[tuple[Piece, ...]], bool]
) -> tuple[Piece, ...] | None:
    """The `others` to take out with `piece` so that `works` is True; None if taking out all does not suffice.

    Returns the nearest change that suffices alone, otherwise a set in which every change is needed.
    """
    for other in others:
        if works((piece, other)):
            return (other,)
    chosen = list(others)
    if len(chosen) < 2 or not works((piece, *chosen)):
        return None
    size = len(chosen) + 1
    while len(chosen) < size:
        size = len(chosen)
        for other in reversed(others):
            fewer = [companion for companion in chosen if companion != other]
            if len(fewer) < len(chosen) and works((piece, *fewer)):
                chosen = fewer
    return tuple(chosen)


def accepts(ledger: Ledger) -> Pieces:
    """The changes that accepted attempts have made to the text since the baseline.

    Raises RatchetError `no-champion`, `nothing-to-ablate`, and the errors of reading a kernel.
    """
    chain = _title_chain(ledger)
    candidates = [history.candidate(ledger.place, attempt.number) for attempt in chain[:-1]] + [
        ledger.champion_candidate()
    ]
    asked = tuple(
        Piece(
            name=f"attempt {attempt.number}",
            attempt=attempt.number,
            title=attempt.hypothesis,
            before=before,
            after=after,
            is_experiment=attempt.kind == "experiment",
        )
        for attempt, before, after in zip(chain[1:], candidates[:-1], candidates[1:], strict=True)
        if before != after
    )
    if not asked:
        raise RatchetError(
            "nothing-to-ablate",
            f"expected an accepted change since the baseline of contest {ledger.place.name} "
            f"(attempt {chain[0].number}), got none that changed kernel.py: ./ratchet.sh next says what to try",
        )
    first, last = chain[0].number, chain[-1].number
    return Pieces(ledger=ledger, attempt=None, champion=last, baseline=first, candidate=candidates[-1], asked=asked)


def hunks(ledger: Ledger, number: int) -> Pieces:
    """The hunks of the change that attempt `number` made.

    Raises RatchetError `not-accepted`, `unknown-attempt`, and the errors of `accepts`.
    """
    history.attempt(ledger.place, number)
    made = accepts(ledger)
    piece = next((piece for piece in made.asked if piece.attempt == number), None)
    if piece is None:
        numbers = ", ".join(str(piece.attempt) for piece in made.asked)
        raise RatchetError(
            "not-accepted",
            f"expected an attempt that changed kernel.py and was accepted ({numbers}), got {number}: nothing of it is "
            f"in the champion of contest {ledger.place.name}; ./ratchet.sh results has every verdict",
        )
    return replace(made, attempt=number, asked=tuple(_hunks(piece)), later=made.after(piece), _texts={})


def _title_chain(ledger: Ledger) -> list[Attempt]:
    """The accepted attempts up to the champion, oldest first; each was the champion that the next one replaced."""
    champion = ledger.champion()
    if champion is None:
        raise RatchetError(
            "no-champion",
            f"expected a champion of contest {ledger.place.name} on this branch, got none: "
            './ratchet.sh "experiment: baseline" makes one',
        )
    chain = [champion]
    for attempt in champions.all_before(ledger.place, champion.number):
        replaced = chain[-1].champion
        # The number of a merged attempt may be in between although the champion does not contain it. It is skipped.
        if replaced is None or attempt.number <= replaced.attempt:
            chain.append(attempt)
    return chain[::-1]


def _hunks(piece: Piece) -> list[Piece]:
    """The change in parts, without context; `before` of each is the changed text with that part undone."""
    before, after = piece.before.files, piece.after.files
    parts = []
    for name in sorted({*before, *after}):
        old, new = (files.get(name, b"").splitlines(keepends=True) for files in (before, after))
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag == "equal":
                continue
            files = {**after, name: b"".join((*new[:j1], *old[i1:i2], *new[j2:]))}
            if name not in before and not files[name]:
                del files[name]
            first = next((line for line in (*new[j1:j2], *old[i1:i2]) if line.strip()), b"(blank lines)")
            title = first.decode("utf-8", "replace").strip()
            parts.append(replace(piece, name=_lines(name, j1, j2), title=title, before=Candidate.of_files(files)))
    return parts


def _lines(file: str, start: int, end: int) -> str:
    """A hunk's name: its lines in the attempt's own text."""
    where = "" if file == KERNEL else f"{file} "
    if start == end:
        return f"{where}after line {start}"
    return f"{where}line {end}" if end - start == 1 else f"{where}lines {start + 1}-{end}"
