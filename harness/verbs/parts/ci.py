"""The work of `ci`: the effect of a change on a repository's contests, as text, JSON, Markdown and pages."""

import gzip
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from harness.advice import dump_directory
from harness.advice import report as reporting
from harness.advice.comparison import ComparedSide
from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError, UsageError
from harness.files import cache_directory, write_atomically
from harness.hardware import chip
from harness.judge.evaluate.evaluation import environment
from harness.judge.key import key_digest
from harness.judge.simulate.timeline import timeline
from harness.ledger import git
from harness.ledger.bulk_read import Held
from harness.ledger.codec import valid_json
from harness.ledger.diff import unified
from harness.ledger.git import index
from harness.loop import gate as gating
from harness.loop.bench import policy_here
from harness.records import Attempt, Champion, Evidence, ScaledRow, Verdict
from harness.records import Outcome as Ruling
from harness.records.gate import Gate, GatedContest, GateOutcome
from harness.render import gate as rendering
from harness.render.layout import clean, terminal_width
from harness.render.page import Story, page
from harness.render.series import Entry
from harness.shell.arguments import directory
from harness.shell.verb import Outcome
from harness.verbs.ci import POLICY
from harness.verbs.parts.context import progress_of
from harness.verbs.parts.entries import entry_of, kept_lanes
from harness.workbench.traces.perfetto import trace_json

# The Python version of the other locked compiler; the key is True if this Python is 3.12 or newer.
_OTHER = {False: "3.12", True: "3.11"}
# The outcome that a page of attempts shows for each outcome of a change.
_ON_THE_PAGE: dict[GateOutcome, Ruling] = {
    "wrong": "failed",
    "slower": "reject",
    "same": "reject",
    "inconclusive": "inconclusive",
    "fixed": "accept",
    "faster": "accept",
    "new": "accept",
}
# The number of grid steps that a timeline shows bundle by bundle.
_STEPS = 2


def run(arguments: Namespace) -> Outcome:
    fails = _fails(arguments.fail_on)
    try:
        return _judged(arguments, fails)
    except RatchetError as error:
        if not arguments.annotations:
            raise
        raise type(error)(error.kind, rendering.unobeyed(str(error))) from error


def _fails(text: str) -> frozenset[str]:
    """The outcomes that fail the gate. Raises UsageError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in (*POLICY, "nothing")]
    is_mixed = "nothing" in words and len(set(words)) > 1
    if unknown or not words or is_mixed:
        choice = f"{', '.join(POLICY)} joined by commas, or nothing alone"
        raise UsageError("usage", f"expected --fail-on {choice}, got {text!r}")
    return frozenset(POLICY[word] for word in words if word in POLICY)


def _judged(arguments: Namespace, fails: frozenset[str]) -> Outcome:
    """The outcome of the gate, which fails if a contest's outcome is in `fails`. Raises RatchetError."""
    if not 0 < arguments.threshold < 100:
        raise UsageError("usage", f"expected --threshold in percent, between 0 and 100, got {arguments.threshold:g}")
    if arguments.annotations and arguments.json:
        raise UsageError("usage", "expected --annotations or --json, got both: a workflow's log is not JSON")
    if arguments.out is not None and arguments.out.exists() and not arguments.out.is_dir():
        raise UsageError("usage", f"expected --out to name a folder, got {arguments.out}, which is a file")
    folder = directory(arguments.directory).resolve()
    change = gating.change(folder, arguments.base, arguments.head)
    below = git.relative_path(change.repository, folder)
    results: list[GatedContest] = []
    with TemporaryDirectory(prefix="ratchet-ci-") as scratch, progress_of(arguments) as progress:

        def tell(stage: str, state: str, seconds: float) -> None:
            # A workflow's runner also obeys commands in the progress on stderr.
            progress(rendering.unobeyed(stage) if arguments.annotations else stage, state, seconds)

        touched = dict(gating.touched_contests(change, "" if below == "." else below))
        origins = gating.origins_of_moved(change, tuple(touched), Path(scratch) / "moved")
        for place, (contest, changed) in enumerate(touched.items()):
            if contest in origins.values():
                continue
            # A name that git allows may not be allowed in options of compilers.
            name = Path(contest).name if contest.isprintable() else ""
            into = Path(scratch) / str(place) / (name or "contest")
            judged = gating.judge(
                change, contest, changed, into, arguments.threshold / 100, tell, origin=origins.get(contest)
            )
            results.append(judged.gated)
            if arguments.out is not None:
                _keep(judged, _inside(arguments.out, contest))
    here = environment()
    gate = Gate(
        base=change.base,
        head=change.head,
        compiler=f"jax {here.jax}, libtpu {here.libtpu or 'none'}",
        threshold=arguments.threshold / 100,
        contests=tuple(results),
    )
    if arguments.compilers == "both":
        gate = replace(gate, other=_under_the_other(arguments, folder))
    if arguments.out is not None:
        write_atomically(arguments.out / "benchmark.json", valid_json(_history(gate)).encode())
    if arguments.markdown is not None:
        # The text is appended, because a workflow's summary is one file for all of its steps.
        arguments.markdown.parent.mkdir(parents=True, exist_ok=True)
        with open(arguments.markdown, "a", encoding="utf-8") as stream:
            stream.write(rendering.markdown(gate))
    code, width = _exit_code(gate, fails), terminal_width()
    return Outcome(
        document=gate,
        text=lambda: rendering.workflow_text(gate, width) if arguments.annotations else rendering.gate_blocks(gate),
        exit_code=code,
        messages=tuple(_sentences(arguments, change, folder, code)),
    )


def _sentences(arguments: Namespace, change: gating.ProposedChange, folder: Path, code: int) -> Iterator[str]:
    """Sentences on changes that were not judged, on files that were written, and on whether the gate fails."""
    edited = [path for path in index.changed_paths(change.repository, [folder]) if path.endswith(".py")]
    if arguments.head == "HEAD" and edited:
        shown = ", ".join(rendering.unobeyed(clean(path)) for path in edited[:3]) + (", ..." if edited[3:] else "")
        yield f"not committed, so not judged: {shown}"
    if arguments.out is not None:
        yield f"wrote {arguments.out}: reports, timelines and benchmark.json"
    if arguments.markdown is not None:
        yield f"added a summary to {arguments.markdown}"
    yield f"the gate {'passes' if code == 0 else 'fails'}: exit code {code} (--fail-on {arguments.fail_on})"


def _under_the_other(arguments: Namespace, folder: Path) -> Gate:
    """The gate under the compiler that is locked for the other Python version. Raises RatchetError."""
    script, python = PACKAGE.parent / "ratchet.sh", _OTHER[sys.version_info[:2] >= (3, 12)]
    cache = cache_directory()
    if not script.is_file() or cache is None:
        raise RatchetError(
            "one-compiler", "--compilers both needs a clone of the ratchet, and a home directory for the cache"
        )
    words = ["--base", arguments.base, "--head", arguments.head, "--threshold", str(arguments.threshold)]
    words += ["--fail-on", "nothing", "--json", *(["--quiet"] if arguments.quiet else [])]
    done = subprocess.run(
        [script, "--python", python, "ci", "-C", folder, *words],
        env=os.environ | {"RATCHET_ENVIRONMENT": str(cache / f"environment-{python}")},
        stdout=subprocess.PIPE,
    )
    try:
        return msgspec.json.decode(done.stdout, type=Gate)
    except msgspec.DecodeError as error:
        raise RatchetError(
            "one-compiler", f"the ratchet under Python {python} printed no result; see its messages above"
        ) from error


def _exit_code(gate: Gate, fails: frozenset[str]) -> int:
    every = (gate, gate.other) if gate.other else (gate,)
    outcomes = {gated.outcome for under in every for gated in under.contests} & fails
    if outcomes & {"wrong", "slower", "removed"}:
        return 1
    return 3 if outcomes else 0


def _history(gate: Gate) -> list[dict[str, object]]:
    """A list of figures (smaller is better), in the form that charts of a benchmark's history read."""
    figures: list[dict[str, object]] = []
    for gated in gate.contests:
        if gated.outcome == "wrong":
            # The time of a wrong kernel is meaningless.
            continue
        programs = gated.comparison.programs if gated.comparison else ()
        times = [(program.name, program.after_seconds) for program in programs] or [("", gated.seconds)]
        for member, seconds in times:
            if seconds is not None:
                name = " ".join(part for part in (gated.contest or ".", member) if part)
                figures.append({"name": name, "unit": "us", "value": 1e6 * seconds, "extra": f"simulated {gated.chip}"})
    return figures


# --- files of --out ------------------------------------------------------------------------------


def _inside(out: Path, contest: str) -> Path:
    """The folder of a contest's files. Raises RatchetError `outside` if a symbolic link leads out of `out`."""
    into = out / contest
    if not into.resolve().is_relative_to(out.resolve()):
        raise RatchetError(
            "outside", f"expected a folder in {out}, got {into}, where a symbolic link leads elsewhere: remove the link"
        )
    return into


def _keep(judged: gating.JudgedContest, into: Path) -> None:
    """Writes a page on both sides and a timeline of each program into the folder `into`."""
    if judged.contest is None or judged.after is None:
        return
    sides = [(name, side) for name, side in (("before", judged.before), ("after", judged.after)) if side is not None]
    for name, side in sides:
        for member, evidence in side.evidence.programs:
            trace = _timeline(judged.contest, evidence, f"{name} {member}".strip())
            if trace is not None:
                write_atomically(into / f"{'-'.join(filter(None, (name, member)))}.trace.json.gz", trace)
    write_atomically(into / "report.html", _page(judged.contest, judged.gated, [side for _, side in sides], into))


def _timeline(contest: Contest, evidence: Evidence, title: str) -> bytes | None:
    """A trace for Perfetto; None if there is no schedule, or the schedule cannot be executed."""
    dumps = dump_directory.of(evidence, contest.directory)
    if dumps is None or evidence.simulation is None or evidence.simulation.seconds is None:
        return None
    target = chip(evidence.chip)
    try:
        run = timeline(
            dump_directory.read(dumps, target, 2),
            target,
            steps_shown=_STEPS,
            deadline_seconds=dump_directory.deadline_seconds(dumps),
        )
    except RatchetError:
        return None
    return gzip.compress(trace_json(run, f"{title} simulated {target.name}"), mtime=0)


def _page(contest: Contest, gated: GatedContest, sides: list[ComparedSide], into: Path) -> bytes:
    """A page that shows both sides as attempts, and the change as judged against the base."""
    base = sides[0] if len(sides) > 1 else None
    entries: list[Entry] = []
    for place, side in enumerate(sides, 1):
        stored = _stored_attempt(contest, gated, place, side, base)
        entry = entry_of(str(place), ScaledRow(row=stored.row, then=stored.row), stored, entries, into, into)
        trace = f"{'before' if side is base else 'after'}.trace.json.gz"
        entries.append(
            replace(entry, timeline=trace if (into / trace).is_file() else "", lanes=kept_lanes(into / trace))
        )
    story = Story(
        contest=gated.contest or ".",
        branch=f"{sides[0].name} → {sides[-1].name}",
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        entries=tuple(entries),
        champion="1",
    )
    return page(story)


def _stored_attempt(
    contest: Contest, gated: GatedContest, number: int, side: ComparedSide, base: ComparedSide | None
) -> Held:
    is_base = side is base
    champion = None if is_base or base is None else Champion(attempt=1, commit=base.name, score=None, seconds=None)
    key, now = contest.key("simulated"), datetime.now(UTC).isoformat(timespec="seconds")
    attempt = Attempt(
        number=number,
        contest=gated.contest,
        hypothesis="the base" if is_base else f"the change: {gated.reason}",
        started=now,
        finished=now,
        judged_against=base.name if base else "",
        kernel_sha256=side.candidate.sha256,
        key=key,
        policy=policy_here(),
        evidence=side.evidence,
        champion=champion,
        verdict=_verdict(gated, side.evidence, is_base=is_base),
        diff="" if champion is None or base is None else unified(base.candidate.text, side.candidate.text),
    )
    report = reporting.report(side.evidence, contest.chip)
    return Held(row=reporting.row(attempt, report, key_digest(key)), attempt=attempt, candidate=side.candidate)


def _verdict(gated: GatedContest, evidence: Evidence, *, is_base: bool) -> Verdict:
    """The gate's result as a verdict, which a page of attempts shows."""
    if is_base:
        outcome: Ruling = "failed" if evidence.failure else "accept"
        return Verdict(outcome=outcome, reasons=("the base of the change",), failure=evidence.failure)
    ratio = gated.comparison.programs[0].time_ratio if gated.comparison else None
    return Verdict(
        outcome=_ON_THE_PAGE[gated.outcome],
        reasons=(f"{gated.outcome}: {gated.reason}",),
        time_ratio=ratio,
        failure=evidence.failure,
    )
