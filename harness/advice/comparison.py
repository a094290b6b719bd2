"""The comparison of two judged kernels: figures, cycles by kind and by line, each line next to its counterpart."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import TypeAlias

from harness.advice import report as reporting
from harness.advice.operands import problem_names
from harness.advice.source_names import name_lines
from harness.candidate import Candidate
from harness.hardware import chip
from harness.judge.verdict import roofline
from harness.judge.verdict.changes import Figures, movable
from harness.records import Evidence, Simulation, Statement
from harness.records.comparison import Comparison, LinePair, Pair, ProgramPair
from harness.records.report_words import part_words

_NO_LINE = "no line: launch, other HLO ops, what the compiler adds"
# The least similarity of two versions of one line. For example, `h = h_ref[...].astype(jnp.float32)` and
# `h_ref[...] = h.astype(h_ref.dtype)`, which are different lines, have the similarity 0.62.
_ALIKE = 0.75
# The most pairs of lines that are compared in one changed place: half a second's work. In a larger place all lines
# count as removed or added.
_PAIRS = 2000
# The lines of the files of both texts, by the files' names.
_Texts: TypeAlias = tuple[Mapping[str, list[str]], Mapping[str, list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """One of the two kernels: its name, its files and its evidence."""

    name: str
    candidate: Candidate
    evidence: Evidence


def compare(before: ComparedSide, after: ComparedSide, diff: str, differing: str = "") -> Comparison:
    """The comparison of both kernels as a whole and for each member of a suite that both have.

    `diff` is the difference of their texts. `differing` is the reason why times cannot be compared, "" if they can.
    """
    texts = before.candidate.lines, after.candidate.lines
    theirs = dict(_programs(before.evidence))
    programs = [
        _program(name, theirs[name], ours, texts, is_comparable=not differing)
        for name, ours in _programs(after.evidence)
        if name in theirs
    ]
    return Comparison(before=before.name, after=after.name, differing=differing, programs=tuple(programs), diff=diff)


def _programs(evidence: Evidence) -> Iterator[tuple[str, Evidence]]:
    """The evidence as a whole under the name "", then that of each member of a suite."""
    yield "", evidence
    for member, of_member in evidence.named_members:
        yield member.name, of_member


def _program(name: str, before: Evidence, after: Evidence, texts: _Texts, *, is_comparable: bool) -> ProgramPair:
    old, new = before.latency, after.latency
    is_one_source = is_comparable and old is not None and new is not None and old.source == new.source
    pairs = _pairs(figures(before), figures(after)) if not after.members else ()
    runs = [name_lines(evidence, roofline.finished_run(evidence)) for evidence in (before, after)]
    return ProgramPair(
        name=name,
        chip=after.chip,
        source=new.source if new is not None and is_one_source else None,
        before_seconds=roofline.latency_seconds(before),
        after_seconds=roofline.latency_seconds(after),
        before_failure=_failure(before),
        after_failure=_failure(after),
        is_same_program=bool(before.trace and after.trace and before.trace.fingerprint == after.trace.fingerprint),
        figures=pairs,
        parts=_pairs(_parts(runs[0], before.problem), _parts(runs[1], after.problem)),
        lines=tuple(_lines(runs[0], runs[1], texts)),
    )


def _failure(evidence: Evidence) -> str:
    return f"{evidence.failure.kind}: {evidence.failure.message}" if evidence.failure else ""


def _pairs(before: Figures, after: Figures) -> tuple[Pair, ...]:
    """The figures that are known for at least one side."""
    pairs = [
        Pair(name=name, unit=unit, before=before.get(name, (unit, None))[1], after=after.get(name, (unit, None))[1])
        for name, (unit, _) in (before | after).items()
    ]
    return tuple(pair for pair in pairs if pair.before is not None or pair.after is not None)


def figures(evidence: Evidence) -> Figures:
    """The figures in which two kernels are compared: the unit and the value (None if unknown) by name."""
    run = roofline.finished_run(evidence)
    return {
        "static bundles": ("", run.static_bundles if run else None),
        "cycles": ("cycles", run.cycles if run else None),
        **movable(evidence),
        "VMEM": ("B", reporting.report(evidence, chip(evidence.chip)).vmem_bytes),
    }


def _parts(run: Simulation | None, problem: Statement) -> Figures:
    cycles: defaultdict[str, float] = defaultdict(float)
    if run is None or run.breakdown is None:
        return {}
    ops = [op.name for op in run.ops]
    for part in run.breakdown.parts:
        cycles[problem_names(part_words(part), problem, ops)] += part.cycles
    return {name: ("cycles", count) for name, count in cycles.items()}


def _lines(before: Simulation | None, after: Simulation | None, texts: _Texts) -> Iterator[LinePair]:
    """Every line that takes cycles in either kernel, the largest change first."""
    old, new = _cycles(before), _cycles(after)
    pairs: list[LinePair] = []
    for file in sorted({file for file, _ in (*old, *new)}):
        before_lines, after_lines = ({line for name, line in each if name == file} for each in (old, new))
        for ours, theirs in _align(texts, file, before_lines, after_lines):
            pairs.append(
                LinePair(
                    file=file,
                    before_line=ours or None,
                    after_line=theirs or None,
                    text=_text(texts, file, ours, theirs),
                    before_cycles=old.get((file, ours), 0.0) if ours is not None else 0.0,
                    after_cycles=new.get((file, theirs), 0.0) if theirs is not None else 0.0,
                )
            )
    return iter(sorted(pairs, key=lambda pair: -abs(pair.difference)))


def _cycles(run: Simulation | None) -> dict[tuple[str, int], float]:
    cycles: defaultdict[tuple[str, int], float] = defaultdict(float)
    for line in run.breakdown.lines if run is not None and run.breakdown is not None else ():
        # Cycles that belong to no line are one entry, even if the dump names files for them.
        cycles[(line.file if line.line else "", line.line)] += line.cycles
    return cycles


def _align(texts: _Texts, file: str, before: set[int], after: set[int]) -> Iterator[tuple[int | None, int | None]]:
    """Each line of `before` and `after` once, with its counterpart in the other text.

    A line without a counterpart is paired with None; a line of a package is its own counterpart.
    """
    if any(file not in text for text in texts):
        yield from ((line, line) for line in sorted(before | after))
        return
    old, new = (text[file] for text in texts)
    for tag, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        ours, theirs = range(start + 1, end + 1), range(new_start + 1, new_end + 1)
        pairs = zip(ours, theirs, strict=True) if tag == "equal" else _rewritten(old, new, ours, theirs)
        yield from ((line, counterpart) for line, counterpart in pairs if line in before or counterpart in after)


def _text(texts: _Texts, file: str, before: int | None, after: int | None) -> str:
    """The text of the line `after`, or of `before` if `after` is None; "" for a package's file.

    If `file` is "", the text says that the cycles belong to no line.
    """
    if not file:
        return _NO_LINE
    lines, number = (texts[1], after) if after is not None else (texts[0], before)
    of_file = lines.get(file, [])
    return of_file[number - 1].strip() if number is not None and 0 < number <= len(of_file) else ""


def _rewritten(old: list[str], new: list[str], ours: range, theirs: range) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of line numbers, from 1: all lines in order if the ranges have equal lengths, else only similar lines.

    Any other line is paired with None.
    """
    if len(ours) == len(theirs):
        # The same number of lines: each was rewritten in place.
        yield from zip(ours, theirs, strict=True)
        return
    best, ours_at, theirs_at = max(
        (
            (_likeness(old[ours_at - 1], new[theirs_at - 1]), ours_at, theirs_at)
            for ours_at in ours
            for theirs_at in theirs
            if len(ours) * len(theirs) <= _PAIRS
        ),
        default=(0.0, 0, 0),
        key=lambda scored: scored[0],
    )
    if best < _ALIKE:
        yield from ((ours_at, None) for ours_at in ours)
        yield from ((None, theirs_at) for theirs_at in theirs)
        return
    yield from _rewritten(old, new, range(ours.start, ours_at), range(theirs.start, theirs_at))
    yield ours_at, theirs_at
    yield from _rewritten(old, new, range(ours_at + 1, ours.stop), range(theirs_at + 1, theirs.stop))


@cache
def _likeness(first: str, second: str) -> float:
    """The similarity of two lines without their indentation, from 0 to 1; 0 if either is empty."""
    first, second = first.strip(), second.strip()
    return SequenceMatcher(None, first, second, autojunk=False).ratio() if first and second else 0.0
