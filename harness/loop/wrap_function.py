"""Makes a kernel.py that calls an existing function in the first way that passes; missing packages get stand-ins."""

import ast
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness import contest as contests
from harness.advice import jax_names, offloaded
from harness.advice.failure_remedies import next_step
from harness.candidate import KERNEL, Candidate, Settings, names, rewrite
from harness.contest import Contest
from harness.errors import RatchetError
from harness.judge.evaluate.request import Progress
from harness.loop import existing, find_function, trace_text
from harness.loop.find_function import ExistingFunction
from harness.records import KERNEL as FUNCTION
from harness.records import Evidence, Failure, Statement
from harness.records.report_words import simulated
from harness.units import seconds

# Each stand-in costs another trace, which takes a second. A serving stack without its dependencies lacks 15 packages.
_MOST_LACKING = 32
_PROBLEM = "prepare.py"
_BEHIND_CHIP = re.compile(rb"^CHIP = .*\n", re.M)
_STAND_IN = "packages that cannot be imported; stand-ins take their places while kernel.py is traced"
# Words in a failure that a stand-in has caused (judge/evaluate/trace/stand_ins.py).
_OF_A_STAND_IN = re.compile(r"\b_Absent\b|\bstand-in\b")
# Beginnings of the judge's warnings on shapes that are not checked (`trace/smaller_shapes.py`).
_UNCHECKED = ("a second shape", "no smaller shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """A kernel.py with its helpers.

    `words` are sentences about them for the user. `first` is what to do before the first attempt, such as `mend the
    kernel, then `, or "".
    """

    candidate: Candidate
    words: tuple[str, ...]
    first: str = ""


def wrap(contest: Contest, target: ExistingFunction, settings: Settings, progress: Progress) -> Wrapped:
    """The first kernel.py around `target` that passes at small shapes, else the first that traces.

    A way of calling that the compiler refuses is not checked any further. A program that failed is not judged again.
    STUBS of the contest's prepare.py names the packages that `target` imports although they cannot be imported. Raises
    RatchetError
    - `does-not-trace` if no way traces;
    - `helper-name` if a copied file has the name of a module;
    - `missing-option` if the function needs an option that neither problem nor `settings` states;
    - `unknown-constant` for a setting that no file has;
    - `is-suite` if the contest needs several functions.
    """
    try:
        return _wrap(contest, target, settings, progress)
    except RatchetError as error:
        if error.kind not in ("does-not-trace", "missing-option"):
            raise
        problem = names(contest.directory.joinpath(_PROBLEM).read_bytes())
        misspelt = ", ".join(name for name, _ in settings if name not in problem)
        hint = f"\n{_PROBLEM} has no constant {misspelt}; it has {', '.join(sorted(problem))}" if misspelt else ""
        raise RatchetError(error.kind, f"{error}\n{_both_signatures(contest, target)}{hint}") from None


def _wrap(contest: Contest, target: ExistingFunction, settings: Settings, progress: Progress) -> Wrapped:
    problem = names(contest.directory.joinpath(_PROBLEM).read_bytes())
    lacking: dict[str, Failure] = {}
    refused: list[Failure] = []
    traced: list[tuple[existing.Variant, Evidence]] = []
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        trial = trace_text.Trial(contest, Path(folder), progress)
        for variant in existing.variants(target, _for_one_function(contest), settings):
            way = replace(variant, candidate=_set(variant.candidate, settings, problem))
            evidence = trial.evidence(way.candidate)
            while evidence and evidence.failure and (package := _lacking(contest, target, evidence.failure, lacking)):
                lacking[package] = evidence.failure
                contest = _with_stub(contest, package)
                trial = trace_text.Trial(contest, Path(folder), progress)
                evidence = trial.evidence(way.candidate)
            while evidence and evidence.failure and (other := existing.with_stated_output(way, evidence.failure)):
                way, evidence = other, trial.evidence(other.candidate)
            if evidence is None:
                continue
            if evidence.failure is None:
                took, first = _took(evidence, Path(folder), contest.chip.name)
                right = f"kernel.py calls {target.name} {way.words}; it is right at small shapes and takes {took}"
                words = (right, *_remarks(target, way, evidence, lacking))
                return Wrapped(candidate=way.candidate, words=words, first=first)
            if all(program.trace for _, program in evidence.programs):
                traced.append((way, evidence))
                continue
            refused.append(evidence.failure)
            if existing.is_of_every_way(evidence.failure):
                break
    if not traced:
        raise _does_not_trace(target, refused, lacking)
    way, evidence = traced[0]
    failure = evidence.failure
    assert failure is not None
    sentence = f"kernel.py calls {target.function} {way.words}, which fails: {failure.kind}: {failure.message}"
    step = f"what to do: {next_step(failure, contest.problem.statement().operation)}"
    words = (f"{sentence}{existing.other_jax_pinned(target)}", step, *_remarks(target, way, evidence, lacking))
    return Wrapped(candidate=way.candidate, words=words, first="mend the kernel, then ")


def _took(evidence: Evidence, folder: Path, chip: str) -> tuple[str, str]:
    """The time in words, with the reason for an unknown one, and the words for what to do before the first attempt.

    Without a latency, a baseline cannot be accepted. `folder` has the dumps of `evidence`.
    """
    latency = evidence.latency
    if latency is not None and latency.seconds is not None:
        return f"{seconds(latency.seconds)} [{simulated(chip)}]", ""
    if latency is None or not latency.reasons:
        return "an unknown time", ""
    others = offloaded.other_reasons(latency)
    why = "; ".join(filter(None, (offloaded.explain(evidence, folder), *others)))
    return f"an unknown time: {why}", "the first attempt needs a time, so change this first, then "


def _lacking(contest: Contest, target: ExistingFunction, failure: Failure, lacking: dict[str, Failure]) -> str:
    """The package that could not be imported; "" for any other failure, or if it may have no stand-in."""
    package = existing.missing_package(failure)
    may_not = {*contest.stubs, *contests.NEVER_STUBS, *find_function.packages(target)}
    return package if package not in may_not and len(lacking) < _MOST_LACKING else ""


def _with_stub(contest: Contest, package: str) -> Contest:
    path = contest.directory / _PROBLEM
    text = path.read_bytes()
    if contests.STUBS in names(text):
        text = rewrite(text, contests.STUBS, repr((*contest.stubs, package)), path.name)
    else:
        text = _BEHIND_CHIP.sub(rf'\g<0>{contests.STUBS} = ("{package}",)  # {_STAND_IN}\n'.encode(), text, count=1)
    path.write_bytes(text)
    return contests.load(contest.directory)


def _does_not_trace(target: ExistingFunction, refused: list[Failure], lacking: dict[str, Failure]) -> RatchetError:
    first = next(filter(existing.is_of_every_way, refused), refused[0])
    if first.kind == "helper-name":
        return RatchetError("helper-name", f"{first.message}; nothing was written. What to do: {next_step(first)}")
    is_of_jax = jax_names.lacks(first.message)
    needed = f"; the kernel may need packages that have only stand-ins: {_reasons(lacking)}"
    stand_ins = needed if lacking and not is_of_jax else ""
    step = "make a contest without --from, and in its kernel.py call the function with the arguments that it takes"
    if first.kind == "import-error" or is_of_jax:
        step = next_step(first)
    if is_of_jax:
        step += (
            "; to change a package's file, make a copy of your own (--from kernels/copy.py:function) next to copies of "
            "the files that it imports, without relative imports"
        )
    return RatchetError(
        "does-not-trace",
        f"{target.name} does not trace with the problem's arrays: {first.message}{stand_ins}"
        f"{existing.other_jax_pinned(target)}; nothing was written. What to do: {step}",
    )


def _both_signatures(contest: Contest, target: ExistingFunction) -> str:
    """The problem's arrays, and the function's parameters below them."""
    statement = contest.problem.statement()
    statement = statement.members[0].statement if statement.members else statement
    inputs, outputs = (
        ", ".join(f"{array.name} {list(array.shape)} {array.dtype}" for array in arrays)
        for arrays in (statement.inputs, statement.results)
    )
    problem = f"  the problem: {FUNCTION}({inputs}) -> {outputs}"
    if target.node is None:
        return problem
    returns = f" -> {ast.unparse(target.node.returns)}" if target.node.returns else ""
    return f"{problem}\n  the function: {target.function}({ast.unparse(target.node.args)}){returns}"


def _remarks(
    target: ExistingFunction, way: existing.Variant, evidence: Evidence, lacking: dict[str, Failure]
) -> Iterator[str]:
    """Sentences on options, on shapes that are not checked, on copied files, and on packages that got stand-ins."""
    if way.departures:
        yield f"options that are not at the function's defaults: {', '.join(way.departures)}"
    warnings = dict.fromkeys(warning for _, program in evidence.programs for warning in program.warnings)
    yield from (f"warning: {warning}" for warning in warnings if warning.startswith(_UNCHECKED))
    if target.helpers:
        helpers = ", ".join(sorted(target.helpers))
        yield f"copied {helpers} to the folder of kernel.py, which imports from there: change the kernel there"
    if lacking:
        yield (
            f"{target.module} imports packages that now have stand-ins (STUBS in prepare.py; remove those that the "
            f"kernel needs): {_reasons(lacking)}"
        )


def _reasons(lacking: dict[str, Failure]) -> str:
    """The packages that cannot be imported, why, and how to install those that are missing."""
    missing = [package for package, failure in lacking.items() if existing.is_not_installed(failure)]
    reasons = []
    for package, failure in lacking.items():
        where = "in the sandbox with no other processes, no network and no files to write"
        if jax_names.lacks(failure.message):
            where = "with this JAX"
        elif _OF_A_STAND_IN.search(failure.message):
            where = "with stand-ins in place of other packages"
        if package not in missing:
            reasons.append(f"{package}, which cannot be imported {where} ({failure.message})")
    if missing:
        reasons.append(f"{', '.join(missing)}, not installed ({find_function.install(' '.join(missing))})")
    return "; ".join(reasons)


def _for_one_function(contest: Contest) -> Statement:
    """The problem of the function; for a suite that of its first member. Raises RatchetError `is-suite`."""
    statement = contest.problem.statement()
    if statement.members is None:
        return statement
    functions = [member.function for member in statement.members if member.function != FUNCTION]
    if functions:
        raise RatchetError(
            "is-suite", f"--from wraps one function for all members, but this suite also needs {', '.join(functions)}"
        )
    return statement.members[0].statement


def _set(candidate: Candidate, settings: Settings, problem: frozenset[str]) -> Candidate:
    """`candidate` with its constants set; `problem` are the constants of prepare.py.

    Raises RatchetError `unknown-constant` for a constant that neither has.
    """
    files = candidate.files
    for name, value in settings:
        homes = [file for file, data in files.items() if name in names(data)]
        if not homes and name not in problem:
            lists = ((_PROBLEM, problem), *((file, names(data)) for file, data in files.items()))
            raise RatchetError(
                "unknown-constant",
                f"--set {name}: no file assigns {name} at its top level; "
                + "; ".join(f"constants of {file}: {', '.join(sorted(every)) or 'none'}" for file, every in lists),
            )
        # A helper's constant of the same name as one of the problem's may mean something else.
        home = KERNEL if KERNEL in homes or name in problem else homes[0]
        if home in homes:
            files[home] = rewrite(files[home], name, value, home)
    return Candidate.of_files(files)
