"""Fills a table: for each shape and chip, searches settings, judges the best, and keeps a row."""

import hashlib
import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean

from harness import contest as contests
from harness import files
from harness.advice import offloaded
from harness.candidate import KERNEL, Candidate, constants, names, rewrite
from harness.contest import Contest
from harness.errors import RatchetError, UsageError
from harness.judge.evaluate.request import Progress
from harness.judge.key import judge_digest
from harness.judge.verdict import roofline
from harness.ledger import lock as locking
from harness.loop import existing, find_function, scaffold, screening, search_space
from harness.loop.bench import Bench, now
from harness.loop.screening import Places
from harness.loop.search import SearchProgress, Settings, Study, study_name
from harness.loop.search_space import Grid, words
from harness.loop.tuning_table.kernels import KERNELS, Parameters
from harness.loop.tuning_table.row import Ends, Row, add_row, rows_in
from harness.loop.tuning_table.shapes import Shape
from harness.records import MAY_PASS_NEXT_TIME, Evidence, RefusedSetting, ScreenedSetting, Statement
from harness.units import quantity
from harness.units import seconds as in_seconds

# The number of settings to judge; if all of them fail their checks, the row has the fastest, marked as unchecked.
_JUDGED = 3
# The number of settings that the search takes from other rows of the table.
_WINNERS = 3
_TRUTHS = ("True", "False")
# Failures that no constant of a kernel.py can prevent: if one setting fails in such a way, all settings do.
_OF_CALLS = ("missing-kernel-fn", "wrong-signature", "host-callback", "interpret-mode", "sharded", "sparsecore")
_OF_PROCESSES = ("judge-patched", "left-behind", "settings-changed")
_OF_ALL_SETTINGS = frozenset((*existing.BEFORE_THE_CALL, *_OF_CALLS, *_OF_PROCESSES, "dtype-not-on-chip"))
# Any other reason for a missing latency is assumed to hold for all settings if at least this many settings have the
# same reason and no setting has a latency.
_ALIKE = 5
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedKernel:
    """A kernel to tune: a prepare.py to set shapes in, the kernel for the stated problem, and its constants.

    `package` is the text of the package's file that the kernel calls, if any. `digest` is a digest of the kernel's text
    and the judge.
    """

    name: str
    prepare: bytes
    candidate: Callable[[Statement], Candidate]
    space: Callable[[Parameters], Grid]
    conditions: tuple[str, ...]
    fallback: Callable[[Parameters], Settings]
    digest: str
    package: bytes = b""

    @property
    def names(self) -> frozenset[str]:
        """The constants of prepare.py that a shape may set."""
        return names(self.prepare) - {"OPERATION", "CHIP", "SCALE"}

    @property
    def operation(self) -> str:
        """The operation's name in the problem's statement."""
        return dict(constants(self.prepare)).get("OPERATION", "").strip("'\"")


def tuned(name: str, grid: Grid | None, conditions: tuple[str, ...]) -> TunedKernel:
    """The kernel that `--kernel` names: one of KERNELS, or the folder of a contest, with the constants of `grid`.

    Raises UsageError `unknown-kernel` or `bad-grid`, RatchetError `not-installed` if its package is not here.
    """
    if name in KERNELS:
        kernel = KERNELS[name]
        try:
            target = find_function.target(kernel.function)
        except RatchetError as error:
            if error.kind == "not-installed" and name.startswith("tokamax"):
                newer = "use Python 3.12 or newer (./ratchet.sh --python 3.12 status), then "
                needs = newer * (sys.version_info < (3, 12)) + f"{shlex.quote(sys.executable)} -m pip install tokamax"
                raise RatchetError("not-installed", f"expected the package tokamax, found none: {needs}") from error
            raise

        def space(parameters: Parameters) -> Grid:
            # Values from `--set` replace the kernel's own, or add constants.
            return tuple((dict(kernel.space(parameters)) | dict(grid or ())).items())

        prepare, package = scaffold.text(kernel.like, "prepare.py"), target.path.read_bytes()
        return TunedKernel(
            name=name,
            prepare=prepare,
            candidate=lambda statement: next(existing.variants(target, statement, ())).candidate,
            space=space,
            conditions=(*kernel.conditions, *conditions),
            fallback=kernel.fallback,
            digest=_digest(judge_digest(prepare), package),
            package=package,
        )
    folder = Path(name)
    if not (folder / "prepare.py").is_file():
        names_of_kernels = ", ".join(KERNELS)
        raise UsageError(
            "unknown-kernel", f"expected --kernel {names_of_kernels}, or the folder of a contest; got {name!r}"
        )
    if grid is None:
        raise UsageError("bad-grid", "expected --set NAME=VALUES for constants of the contest's kernel.py, got none")
    candidate = Candidate.in_folder(folder)
    candidate.set(tuple((constant, values[0]) for constant, values in grid))
    present = dict(candidate.constants)
    return TunedKernel(
        name=folder.resolve().name,
        prepare=(folder / "prepare.py").read_bytes(),
        candidate=lambda statement: candidate,
        space=lambda parameters: grid,
        conditions=conditions,
        fallback=lambda parameters: tuple((constant, present[constant]) for constant, _ in grid),
        digest=_digest(judge_digest((folder / "prepare.py").read_bytes()), candidate.text),
    )


def _digest(*parts: str | bytes) -> str:
    return hashlib.sha256(b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """The options of a table: each row tries at most `trials` settings, in the processes `places`.

    Files go to `folder`.
    """

    folder: Path
    trials: int
    places: Places
    seed: int


def rows(
    kernel: TunedKernel, shapes: tuple[Shape, ...], chips: tuple[str, ...], how: Filling, progress: Progress
) -> Iterator[Row]:
    """One row for each shape on each chip; a row in `folder` with the same search and fallback is not made again.

    A row is also recomputed if a setting timed out, was killed or ran out of memory. Every finished row is written to
    rows.jsonl in `folder`, and an interrupted search is continued.
    """
    with locking.hold(how.folder / "table.lock", f"table of {kernel.name}"):
        row_of_search = {row.search: row for row in rows_in(how.folder) if not _may_pass(row)}
        # Bad shapes are refused before anything is searched, not after hours.
        wanted = [(shape, _contest(kernel, shape, chip, how.folder)) for shape in shapes for chip in chips]
        searches = [_search(kernel, shape, contest, how) for shape, contest in wanted]
        for (shape, contest), search in zip(wanted, searches, strict=True):
            earlier = row_of_search.get(search)
            # A contest's fallback is its present kernel.py, on which the search does not depend.
            if earlier is None or earlier.fallback != kernel.fallback(dict(earlier.parameters)):
                bench = Bench(contest=contest, progress=progress, on="simulated")
                row = _row(kernel, shape, bench, how, search, [*row_of_search.values()])
            else:
                row = replace(earlier, shape=shape.name, kernel_digest=kernel.digest)
            if row != earlier:
                add_row(how.folder, row)
            # Two names of one problem share a search.
            row_of_search[search] = row
            yield row


def _search(kernel: TunedKernel, shape: Shape, contest: Contest, how: Filling) -> str:
    """A digest of everything that a search depends on. Raises UsageError `bad-condition` if no setting is left."""
    grid = kernel.space(dict(contest.problem.statement().parameters))
    try:
        search_space.allowed(grid, kernel.conditions)
    except UsageError as error:
        raise UsageError(error.kind, f"{shape.name}: {error}") from error
    return _digest(study_name(contest, grid), repr(kernel.conditions), str(how.trials), str(how.seed), kernel.package)


def _may_pass(row: Row) -> bool:
    """True if the machine may have caused a failure in the row."""
    kinds = {row.unchecked.partition(":")[0], *(trial.failure_kind for trial in row.trials)}
    return not kinds.isdisjoint(MAY_PASS_NEXT_TIME)


def parameters(kernel: TunedKernel, shape: Shape, chip: str, folder: Path) -> Parameters:
    """The parameters of the shape's problem. Raises UsageError `bad-shapes` if the constants make no problem."""
    return dict(_contest(kernel, shape, chip, folder).problem.statement().parameters)


def _contest(kernel: TunedKernel, shape: Shape, chip: str, folder: Path) -> Contest:
    prepare, present = kernel.prepare, dict(constants(kernel.prepare))
    for name, value in (*shape.constants, ("CHIP", repr(chip))):
        # In Python any word would count as true.
        if present.get(name) in _TRUTHS and value not in _TRUTHS:
            raise UsageError("bad-shapes", f"{shape.name}: expected true or false as {name.lower()}, got {value}")
        prepare = rewrite(prepare, name, value, "prepare.py")
    place = folder / "work" / _digest(kernel.name, prepare)[:16]
    with files.refusals_in_words(f"writing {place}"):
        place.mkdir(parents=True, exist_ok=True)
        (place / ".gitignore").write_bytes(scaffold.IGNORED)
        (place / "prepare.py").write_bytes(prepare)
        (place / KERNEL).touch()
    try:
        contest = contests.load(place)
    except RatchetError as error:
        raise UsageError("bad-shapes", f"{shape.name}: {error}") from error
    for name, text in kernel.candidate(contest.problem.statement()).files.items():
        (place / name).write_bytes(text)
    return contest


def _row(kernel: TunedKernel, shape: Shape, bench: Bench, how: Filling, search: str, others: Sequence[Row]) -> Row:
    contest, progress = bench.contest, bench.progress
    statement = contest.problem.statement()
    parameters: dict[str, object] = dict(statement.parameters)
    grid, fallback = kernel.space(parameters), kernel.fallback(parameters)
    allowed = search_space.allowed(grid, kernel.conditions)
    where = f"{shape.name} on {contest.chip.name}"
    progress(where, "start", 0.0)
    began = time.monotonic()
    first = (fallback, *_winners(others, kernel.name, parameters, contest.chip.name))
    evidence_of, earlier = _screened(bench, grid, allowed, first, how, where)
    timed = {settings: ends for settings, evidence in evidence_of.items() if (ends := _ends(evidence)) is not None}
    ranked = sorted(timed, key=lambda settings: fmean(timed[settings]))
    judged = _judged(bench, ranked, where)
    passed = next(((settings, evidence) for settings, evidence in judged if _ends(evidence) is not None), None)
    # If all judged settings fail, the entry is the fastest, with its failure.
    best, chosen = passed or (judged[0] if judged else (None, None))
    unchecked = _why(chosen) if chosen and not passed else ""
    # If the entry passed, its figures come from the judgement on this machine, even if another machine screened it.
    timing = chosen if passed else evidence_of.get(best or ())
    failures = [
        words(settings) + ": " + _why(evidence) for settings, evidence in evidence_of.items() if _ends(evidence) is None
    ]
    progress(where, "done", time.monotonic() - began)
    programs = {trace.fingerprint for settings in timed if (trace := evidence_of[settings].trace)}
    environment = contest.key("simulated")
    of_fallback = evidence_of.get(fallback)
    ends = None if timing is None else _ends(timing)
    has_range = any(_range(evidence) is not None for evidence in evidence_of.values())
    failing = quantity(len(failures), "setting fails", "settings fail")
    return Row(
        kernel=kernel.name,
        chip=contest.chip.name,
        shape=shape.name,
        operation=statement.operation,
        parameters=statement.parameters,
        settings=best,
        seconds=_latency(timing) if timing else None,
        plus_minus_seconds=timing.latency.plus_minus_seconds if timing and timing.latency else None,
        fallback=fallback,
        fallback_seconds=_latency(of_fallback) if of_fallback else None,
        fallback_failure="" if fallback in timed else _why(of_fallback) if of_fallback else "it was not tried",
        checks=len(chosen.all_checks) if chosen and passed else 0,
        unchecked=unchecked,
        failure=""
        if best is not None
        else f"{failing}, the first: {failures[0]}{_offloaded(evidence_of, contest.directory)}",
        tried=sum(
            settings == fallback or _is_in(settings, grid, allowed) for settings in evidence_of.keys() | earlier.keys()
        ),
        # The fallback is tried even outside the grid.
        possible=(search_space.size(grid) if allowed is None else len(allowed)) + (not _is_in(fallback, grid, allowed)),
        looked_at=max(1, len(programs) + len(earlier.keys() - evidence_of.keys())),
        compiler=f"jax {environment.jax}, libtpu {environment.libtpu}",
        search=search,
        finished=now(),
        trials=tuple(
            _trial(settings, evidence_of.get(settings), earlier, is_range=has_range)
            for settings in dict.fromkeys((*earlier, *evidence_of))
        ),
        refused=tuple(
            RefusedSetting(settings=settings, failure=evidence.failure)
            for settings, evidence in judged
            if evidence.failure
        ),
        kernel_digest=kernel.digest,
        range_seconds=_range(timing) if timing else None,
        fallback_range_seconds=_range(of_fallback) if of_fallback else None,
        is_best_at_both_ends=ends is None or all(_is_least(ends, place, timed.values()) for place in (0, 1)),
    )


def _screened(
    bench: Bench, grid: Grid, allowed: frozenset[Settings] | None, first: tuple[Settings, ...], how: Filling, where: str
) -> tuple[dict[Settings, Evidence], Mapping[Settings, float]]:
    """The evidence about each setting that was tried, and the times of settings from the search that is continued.

    The settings are in the order in which the search asked for them. The search begins with those of `first` that are
    in the grid; the fallback, the first of them, is always tried.
    """
    original, fallback = bench.contest.candidate(), first[0]
    is_in_grid = _is_in(fallback, grid, allowed)
    study = Study(
        grid,
        method="tpe",
        trials=how.trials,
        deadline=float("inf"),
        seed=how.seed,
        path=bench.profile_data / "tune.journal",
        name=study_name(bench.contest, grid),
        in_all=True,
        first=[settings for settings in first if _is_in(settings, grid, allowed)],
        allowed=allowed,
    )
    # If the search does not ask for the fallback (outside the grid, or known), the fallback is tried at the end.
    beside = [fallback]
    asked: dict[Candidate, Settings] = {}
    evidence_of: dict[Settings, Evidence] = {}
    # A fallback outside the grid is counted in addition.
    search_progress = SearchProgress(study.total + (not is_in_grid))

    def ask() -> Candidate | None:
        settings = None if _is_of_all(evidence_of.values()) else study.ask()
        if settings == fallback:
            beside.clear()
        if settings is None:
            settings = beside.pop() if beside else None
        if settings is None:
            return None
        candidate = original.set(settings)
        asked[candidate] = settings
        return candidate

    def tell(candidate: Candidate, evidence: Evidence) -> None:
        settings = asked[candidate]
        evidence_of[settings] = evidence
        if study.is_asked(settings):
            if evidence.failure is not None and evidence.failure.kind in MAY_PASS_NEXT_TIME:
                study.forget(settings)
            else:
                # A range counts as its middle.
                ends = _ends(evidence)
                study.tell(settings, None if ends is None else fmean(ends))
        state = search_progress.after(_latency(evidence), _why(evidence))
        bench.progress(f"{where}: {words(settings)}", state, sum(stage.seconds for stage in evidence.stages))

    screening.screen(bench, ask, tell, how.places)
    return {settings: evidence_of[settings] for settings in asked.values() if settings in evidence_of}, study.earlier


def _winners(rows: Sequence[Row], kernel: str, parameters: Parameters, chip: str) -> Iterator[Settings]:
    """The best settings of the kernel's other rows: first those of the same shape, then those of the same chip."""
    near = sorted(rows, key=lambda row: (dict(row.parameters) != parameters, row.chip != chip))
    winners = (row.settings for row in near if row.kernel == kernel and row.is_entry and row.settings is not None)
    yield from islice(dict.fromkeys(winners), _WINNERS)


def _is_of_all(evidences: Collection[Evidence]) -> bool:
    """True if no setting has a latency or range so far, for a reason that holds for all settings."""
    if any(_ends(evidence) is not None for evidence in evidences):
        return False
    failures = [evidence.failure for evidence in evidences]
    if any(failure is not None and failure.kind in _OF_ALL_SETTINGS for failure in failures):
        return True
    # One setting may be too large for the compiler while another is not.
    if any(failure is not None and failure.stage == "compile" for failure in failures):
        return False
    reasons = {_NUMBER.sub("#", _why(evidence)) for evidence in evidences}
    return len(evidences) >= _ALIKE and len(reasons) == 1


def _is_in(settings: Settings, grid: Grid, allowed: frozenset[Settings] | None) -> bool:
    values = dict(grid)
    is_in_grid = values.keys() == dict(settings).keys() and all(value in values[name] for name, value in settings)
    return is_in_grid and (allowed is None or settings in allowed)


def _judged(bench: Bench, ranked: list[Settings], where: str) -> list[tuple[Settings, Evidence]]:
    """The judged settings with their evidence: the fastest first, until one passes or three fail.

    A failure that the machine may have caused ends the judging, too.
    """
    judged: list[tuple[Settings, Evidence]] = []
    for settings in ranked[:_JUDGED]:
        evidence = bench.judge(bench.contest.candidate().set(settings), "best", f"{where}:")
        judged.append((settings, evidence))
        if evidence.failure is None or evidence.failure.kind in MAY_PASS_NEXT_TIME:
            break
        bench.progress(f"{where}: {words(settings)}", f"judged, fails: {_why(evidence)}", 0.0)
    return judged


def _trial(
    settings: Settings, evidence: Evidence | None, earlier: Mapping[Settings, float], *, is_range: bool
) -> ScreenedSetting:
    """The result of the settings; without evidence, their time from the earlier search, or the middle of a range."""
    if evidence is None and is_range:
        message = f"an earlier search ranked them by {in_seconds(earlier[settings])}, perhaps the middle of a range"
        return ScreenedSetting(settings=settings, seconds=None, failure_kind="no-latency", message=message)
    if evidence is None:
        return ScreenedSetting(settings=settings, seconds=earlier[settings])
    time_ = _latency(evidence)
    kind, message = screening.why_no_latency(evidence) if time_ is None else ("", "")
    fingerprint = evidence.trace.fingerprint if evidence.trace else ""
    return ScreenedSetting(
        settings=settings, seconds=time_, failure_kind=kind, message=message, fingerprint=fingerprint
    )


def _offloaded(evidence_of: Mapping[Settings, Evidence], contest: Path) -> str:
    """`; ` and the operations on the SparseCore with the remedy, if they are why a setting has no latency; else ""."""
    words = (offloaded.explain(evidence, contest) for evidence in evidence_of.values())
    first = next(filter(None, words), "")
    return f"; {first}" if first else ""


def _latency(evidence: Evidence) -> float | None:
    return None if evidence.failure else roofline.latency_seconds(evidence)


def _range(evidence: Evidence) -> Ends | None:
    """The range of times of a program that has no latency because the SparseCore does a part of it; else None."""
    if evidence.failure or evidence.simulation is None or _latency(evidence) is not None:
        return None
    return evidence.simulation.mean_range_seconds


def _ends(evidence: Evidence) -> Ends | None:
    """The two ends by which settings are ranked: those of the range, or the latency for both.

    The time of the SparseCore's part hardly depends on the settings, so the true times of all settings lie at about the
    same fraction of their ranges. A setting that is the fastest at both ends is therefore the fastest at any such
    fraction.
    """
    time_ = _latency(evidence)
    return _range(evidence) if time_ is None else (time_, time_)


def _is_least(ends: Ends, place: int, others: Iterable[Ends]) -> bool:
    return all(ends[place] <= other[place] for other in others)


def _why(evidence: Evidence) -> str:
    return ": ".join(screening.why_no_latency(evidence))
