"""The detail of one attempt on the page: reasons, figures next to the champion's, time, lines, diff."""

from collections.abc import Callable, Sequence
from math import prod

from harness.records import Attempt, Check, Evidence, LineTime, Report
from harness.records.report_words import with_chip
from harness.render.hints import gain_text
from harness.render.layout import clean
from harness.render.page.overview import VERDICTS, moved_by, verdict, with_uncertainty
from harness.render.page.parts import Plain
from harness.render.page.search import Searched, search_plain
from harness.render.page.source import Line, diff_lines, python_lines, visible
from harness.render.series import Entry, Piece, pieces
from harness.units import count, decimal, kibibytes, percent, seconds

KERNEL = "kernel.py"
# Gives the index of a line in a pool of lines, which several attempts share because their kernels differ in few lines.
Pool = Callable[[Line], int]
Figure = tuple[str, str, str, str]
_ONLY_WHERE_KNOWN = ("VMEM", "device time, median", "host time, median")


def detail_plain(entry: Entry, pool: Pool) -> Plain:
    """The details of one attempt. Each sentence of `missing` names something that this clone does not have."""
    attempt, report, row = entry.attempt, entry.report, entry.row
    missing: list[str] = []
    plain: Plain = {
        "id": entry.id,
        "n": row.number,
        "verdict": verdict(entry),
        "outcome": row.outcome,
        "hypothesis": clean(row.hypothesis),
        "label": with_chip(row.source, row.chip),
        "timeline": entry.timeline,
        "lanes": [
            (lane.name, lane.kind, [(_short(start), _short(length), name) for start, length, name in lane.spans])
            for lane in entry.lanes
        ],
        "missing": missing,
    }
    if attempt is None or report is None:
        missing.append(f"Only the row of this attempt is known: {clean(entry.complaint) or 'its record is not here'}.")
        return plain | _kernel(entry, None, pool, missing)
    evidence = attempt.evidence
    plain |= {
        "facts": _facts(attempt, entry),
        "reasons": [clean(reason) for reason in attempt.verdict.reasons],
        "failure": _failure(attempt),
        "expected": _expectation(attempt),
        "figures": _figures(entry, report),
        "compared": [value for _, _, value in entry.compared],
        "against": entry.against.number if entry.against and entry.against.report else None,
        "counters": _counters(entry, report),
        "time": _time(entry, report, missing),
        "time_note": _time_note(entry),
        "units": [
            (unit.name, percent(unit.slot_fraction), "" if unit.busy_fraction is None else percent(unit.busy_fraction))
            for unit in report.units
        ],
        "checks": _checks(evidence),
        "hints": [
            (clean(hint.observation), clean(hint.suggestion), "" if hint.gain is None else gain_text(hint))
            for hint in entry.advice
        ],
        "warnings": [clean(text) for text in evidence.warnings],
        "search": _search(entry, attempt),
        "diff": [(line.sign, line.old, line.new, pool(line.text)) for line in diff_lines(attempt.diff)],
    }
    if entry.against is not None and entry.against.report is None:
        missing.append(entry.against.why_unknown)
    if not attempt.diff:
        missing.append("kernel.py is the champion's: there is no change to show.")
    return plain | _kernel(entry, attempt, pool, missing)


def _short(value: float) -> float:
    """The number with as many digits as a screen can show."""
    return float(f"{value:.5g}")


def compared_names(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Name and unit of each compared figure; `compared` of a detail has the values."""
    return tuple((name, unit) for name, unit, _ in entry.compared)


def _search(entry: Entry, attempt: Attempt) -> Plain | None:
    """The sweep or search that chose the attempt's settings; None if neither did."""
    sweep = attempt.sweep
    if sweep is None:
        return None
    possible = prod(len(values) for _, values in sweep.parameters)
    level = None
    if sweep.champion_seconds is not None:
        level = (f"champion then, attempt {sweep.champion}", sweep.champion_seconds)
    return search_plain(
        Searched(
            sweep=sweep,
            best=attempt.settings,
            came=f" as this attempt: {VERDICTS[attempt.verdict.outcome]}",
            possible=possible,
            possible_words="in the grid" + ("; the rest was not tried" * (len(sweep.screened) < possible)),
            deviations=entry.deviations,
            level=level,
        )
    )


def _facts(attempt: Attempt, entry: Entry) -> list[tuple[str, str]]:
    where, key = attempt.evidence.environment, attempt.key
    facts = [
        ("what is computed", attempt.evidence.problem.title),
        ("begun", attempt.started),
        ("ended", attempt.finished),
        ("commit", entry.row.commit or "only its file in experiments/ is known here"),
        ("judged against", attempt.judged_against),
        ("versions", f"jax {key.jax}, jaxlib {key.jaxlib}, libtpu {key.libtpu or 'none'}, Python {where.python}"),
        ("machine", f"{where.machine}, {where.platform}"),
        ("key", f"{entry.row.key_digest}: judge {key.judge}, problem {key.problem}, chip {key.chip}"),
        ("kernel.py", f"SHA-256 {attempt.kernel_sha256}"),
    ]
    if attempt.settings:
        facts.append(("settings", ", ".join(f"--set {name}={value}" for name, value in attempt.settings)))
    if attempt.evidence.dump_directory:
        facts.append(("compiler's dumps", f"{attempt.evidence.dump_directory}, on the machine that judged it"))
    if attempt.evidence.stages:
        facts.append(
            ("judged in", ", ".join(f"{stage.stage} {stage.seconds:.1f} s" for stage in attempt.evidence.stages))
        )
    return [(name, clean(text)) for name, text in facts]


def _failure(attempt: Attempt) -> Plain | None:
    failure = attempt.verdict.failure
    if failure is None:
        return None
    return {
        "stage": failure.stage,
        "kind": clean(failure.kind),
        "message": clean(failure.message),
        "detail": visible(failure.detail),
    }


def _expectation(attempt: Attempt) -> Plain:
    """The stated gain and the actual one."""
    stated, got = attempt.expected_time_ratio, attempt.verdict.time_ratio
    low, high = attempt.verdict.time_ratio_low, attempt.verdict.time_ratio_high
    interval = f"{moved_by(low)} to {moved_by(high)}" if low is not None and high is not None else ""
    met = ""
    if stated is not None and got is not None and stated != 1:
        share = (1 - got) / (1 - stated)
        met = f"{share:.2f} times the expected gain" if share >= 0 else "in the direction opposite to the expected one"
    return {
        "stated": None if stated is None else moved_by(stated),
        "got": None if got is None else moved_by(got),
        "interval": interval,
        "met": met,
    }


def _figures(entry: Entry, report: Report) -> list[Figure]:
    """The headline figures of the report: name, value here, the champion's value, and the change."""
    other = entry.against.report if entry.against else None

    def line(name: str, value: Callable[[Report], float | None], text: Callable[[float], str]) -> Figure:
        here, there = value(report), value(other) if other else None
        return (
            name,
            "unknown" if here is None else text(here),
            "" if other is None else "unknown" if there is None else text(there),
            moved_by(here / there) if here and there and here > 0 and there > 0 else "",
        )

    _, here, there, moved = line("latency", lambda r: r.seconds, seconds)
    latency = with_uncertainty(report.seconds, report.plus_minus_seconds) if report.seconds else here
    beside = with_uncertainty(other.seconds, other.plus_minus_seconds) if other and other.seconds else there
    rows = [
        ("latency", latency, beside, moved),
        line("score", lambda r: r.score, lambda v: f"{v:,.1f}"),
        line("achieved", lambda r: r.flops_per_second, lambda v: decimal(v, "FLOP/s")),
        line("utilisation, all useful FLOPs", lambda r: r.util, percent),
        line("utilisation, matmul FLOPs", lambda r: r.mxu_util, percent),
        line("intensity", lambda r: r.intensity, lambda v: f"{v:,.0f} FLOP/B"),
        line("HBM traffic", lambda r: r.hbm_bytes, lambda v: decimal(v, "B", 2)),
        line("bandwidth used", lambda r: r.bandwidth_util, percent),
        line("compute-only", lambda r: r.compute_only_seconds, seconds),
        line("memory-only", lambda r: r.memory_only_seconds, seconds),
        line("gap to the largest bound", lambda r: r.gap_fraction, percent),
        line("VMEM", lambda r: r.vmem_bytes, kibibytes),
        *(line(f"latency at {member.name}", _at(member.name), seconds) for member in report.members),
        line("device time, median", lambda r: r.device_median_seconds, seconds),
        line("host time, median", lambda r: r.host_median_seconds, seconds),
    ]
    return [row for row in rows if row[0] not in _ONLY_WHERE_KNOWN or row[1] != "unknown"]


def _at(member: str) -> Callable[[Report], float | None]:
    """The latency at that member of a suite."""
    return lambda report: {each.name: each.report.seconds for each in report.members}.get(member)


def _counters(entry: Entry, report: Report) -> list[tuple[str, ...]]:
    """The counters: level, name, count here, the champion's count, change, expected range, and remark."""
    other = entry.against.report if entry.against else None
    there = {(line.level, line.name): line.count for line in other.counters} if other else {}
    counters: list[tuple[str, ...]] = []
    for line in report.counters:
        before = there.get((line.level, line.name))
        beside = "" if before is None else count(before)
        moved = "" if before is None or before == line.count else f"{line.count - before:+,d}"
        if moved and before and line.count:
            moved += f" ({moved_by(line.count / before)})"
        counters.append((line.level, line.name, count(line.count), beside, moved, line.expected, clean(line.remark)))
    return counters


def _time(entry: Entry, report: Report, missing: list[str]) -> list[Plain]:
    """The bars of this attempt's time and of the champion's time. If there are no bars, `missing` gets the reason."""
    attempt = entry.attempt
    run = attempt.evidence.simulation if attempt else None
    here = pieces(report, run, attempt)
    if not here and report.members:
        missing.append(
            "A suite has no single run to break down: use `show N --member NAME` or `lines N --member NAME`."
        )
        return []
    if not here:
        why = "it was measured, not simulated" if entry.row.source != "simulated" else "it has no simulated latency"
        missing.append(f"Where the time goes is not known: {why}.")
        return []
    if report.cycle_shares is None:
        missing.append(
            "It was judged by an earlier version, which recorded four sums of cycles, but not the cycles of each line."
        )
    bars: list[Plain] = [_bar(f"attempt {entry.row.number}", here)]
    against = entry.against
    if against is not None and against.report is not None:
        theirs = pieces(against.report, against.simulation, attempt)
        if theirs:
            bars.append(_bar(f"champion, attempt {against.number}", theirs))
    return bars


def _time_note(entry: Entry) -> str:
    """Words on the time that the bars show, which for a measured attempt is not the judged latency."""
    shares = entry.report.cycle_shares if entry.report else None
    spilling = (
        f" Bundles that only spill count as issuing: {percent(shares.spill_fraction)} of the time."
        if shares and shares.spill_fraction
        else ""
    )
    if entry.row.source == "simulated":
        return f"Simulated; the parts add up to the time of the run.{spilling}"
    contrast = f"the latency of this attempt is {entry.row.source} and is not this sum"
    return f"Simulated, for the same program; {contrast}.{spilling}"


def _bar(name: str, parts: Sequence[Piece]) -> Plain:
    return {
        "name": name,
        "total": seconds(sum(piece.seconds for piece in parts)),
        "pieces": [
            (piece.kind, piece.name, piece.seconds, seconds(piece.seconds, 1), percent(piece.fraction))
            for piece in parts
        ],
    }


def _checks(evidence: Evidence) -> list[tuple[str, ...]]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.3g}"

    def line(check: Check) -> tuple[str, ...]:
        shape = " x ".join(map(str, check.shape))
        passed = "passed" if check.passed else "failed"
        figures = (number(check.error), number(check.honest_error), number(check.tolerance))
        return (clean(check.family), check.mode_words, shape, check.criterion, *figures, passed)

    return [line(check) for check in evidence.all_checks]


def _kernel(entry: Entry, attempt: Attempt | None, pool: Pool, missing: list[str]) -> Plain:
    """kernel.py line by line with the cycles of each line, and the cycles of other files and of no line."""
    run = attempt.evidence.simulation if attempt else None
    breakdown = run.breakdown if run and run.seconds is not None else None
    says_why = any("Where the time goes" in text or "four sums" in text for text in missing)
    if entry.kernel is None:
        missing.append(
            "Its kernel.py is not in this clone; the log has it: git fetch REMOTE 'refs/ratchet/*:refs/ratchet/*'."
        )
    lines = python_lines(entry.kernel) if entry.kernel is not None else ()
    heat: dict[int, tuple[str | float, ...]] = {}
    others: list[tuple[str, str, str]] = []
    if breakdown is not None and breakdown.cycles:
        of_kernel = [line for line in breakdown.lines if line.line and line.file == KERNEL]
        heat = {
            line.line: _heat(line, breakdown.cycles, breakdown.steps) for line in of_kernel if line.line <= len(lines)
        }
        for line in breakdown.lines:
            if line.line not in heat or line.file != KERNEL:
                nowhere = "no line: waits, launch, other ops, what the compiler adds"
                name = f"{line.file}:{line.line}" if line.line else nowhere
                others.append((clean(name), count(line.cycles), percent(line.cycles / breakdown.cycles)))
    elif lines and attempt and not attempt.evidence.members and entry.row.source == "simulated" and not says_why:
        missing.append("No line of kernel.py has cycles: no simulated run finished.")
    return {"kernel": [pool(line) for line in lines], "heat": heat, "others": others}


def _heat(line: LineTime, total: float, steps: int | None) -> tuple[str | float, ...]:
    """A line's share of all cycles, then texts: cycles, share, its cycles by kind, spills per step, and units."""
    split = (("issuing", line.issue_cycles), ("stalled", line.stall_cycles), ("waiting", line.wait_cycles))
    kinds = ", ".join(f"{name} {percent(part / line.cycles, 0)}" for name, part in split if part and line.cycles)
    moved = (line.spilled_bytes + line.filled_bytes) / (steps or 1)
    units = sorted(line.units.items(), key=lambda used: used[1], reverse=True)[:3]
    return (
        round(line.cycles / total, 5),
        count(line.cycles),
        percent(line.cycles / total),
        kinds,
        kibibytes(moved) if moved else "",
        " ".join(name for name, _ in units),
    )
