"""The parts of a report, as data; every number has its unit and its source."""

from collections.abc import Iterator, Sequence

from harness.advice.counters import AT_A_GLANCE, OF_CYCLES
from harness.hardware import chip
from harness.records import Change, Check, Evidence, Failure, PallasCall, Report, Simulation, Verdict
from harness.records.report_words import simulated, source_label
from harness.records.table import Cell
from harness.render.layout import Style, clean, indented
from harness.render.sections import FIELD, Block, Column, Grid, Items, Line, Row, Words, named, named_items
from harness.units import change, count, decimal, kibibytes, milliseconds, percent, quantity, seconds

# Kinds of cycles spent waiting for transfers, and the share of the cycles that counts as nearly all.
_FOR_TRANSFERS = ("operand wait", "fill and drain")
_NEARLY_ALL = 0.90
# An error above this multiple of the tolerance is printed with three digits.
_MANY_TIMES = 1e4
# If the honest error times this factor is at most the tolerance, a kernel's error is stated as a share of the tolerance
# instead of a multiple of the honest error.
_NEARLY_EXACT = 10
# The number of units that are shown, the fullest first: the unit that limits, and units that are nearly as full.
_UNITS_SHOWN = 4
_OUTPUT_LINES_SHOWN = 12


def label(report: Report) -> str:
    """The source of every latency of this report, such as `simulated v5e`."""
    return source_label(report.source, report.chip)


def result(report: Report) -> list[Line]:
    """The RESULT and REGIME lines in the published form."""
    score = "unknown" if report.score is None else f"{report.score:.1f}"
    latency = "unknown" if report.seconds is None else milliseconds(report.seconds)
    util = _percent(report.util)
    tflops = "unknown" if report.flops_per_second is None else f"{report.flops_per_second / 1e12:.1f}"
    regime = report.regime.upper() if report.regime else "unknown"
    intensity = "unknown"
    if report.intensity is not None:
        # A kernel that only moves bytes has an intensity below one.
        intensity = f"{report.intensity:.{0 if report.intensity >= 10 else 2}f} FLOPs/byte"
    lines = (
        f"RESULT: score={score}  latency={latency}  util={util}  tflops={tflops}   [{label(report)}]",
        f"REGIME: {regime}  BW={_percent(report.bandwidth_util)}  intensity={intensity}{_side(report)}"
        f"{_contradiction(report)}",
    )
    return [Line(line, is_whole=True) for line in lines]


def from_the_ridge(report: Report) -> str:
    """The intensity's distance from the ridge point, as a factor; "" if it is not known."""
    if not report.intensity:
        return ""
    if report.intensity < report.ridge:
        return f"{report.ridge / report.intensity:.1f}x below ridge point"
    return f"{report.intensity / report.ridge:.1f}x above ridge point"


def _side(report: Report) -> str:
    """For a `latency-bound` kernel, its side of the ridge, which names the next limit; "" for any other kernel."""
    if report.regime != "latency-bound" or not report.intensity:
        return ""
    side = "memory" if report.intensity < report.ridge else "compute"
    return f"  ({side} side: {from_the_ridge(report)})"


def _contradiction(report: Report) -> str:
    """A remark on simulated cycles that contradict `memory-bound` or `latency-bound`; "" if no cycles do."""
    shares = report.cycle_shares
    if shares is None or report.regime not in ("memory-bound", "latency-bound"):
        return ""
    issuing = sum(part.fraction for part in shares.parts if part.name == "issuing")
    waits = sum(part.fraction for part in shares.parts if part.name.startswith(_FOR_TRANSFERS))
    if issuing >= _NEARLY_ALL:
        return f"  (by the roofline; simulated: issuing {percent(issuing)} of cycles)"
    if waits < 1 - _NEARLY_ALL and report.regime == "memory-bound":
        return f"  (by the roofline; simulated: waiting for transfers {percent(waits)} of cycles)"
    return ""


def mean_of_suite(report: Report) -> Iterator[Block]:
    """The latency of a suite with its uncertainty."""
    if report.seconds is not None:
        off = "" if report.plus_minus_seconds is None else f" ± {seconds(report.plus_minus_seconds, 2)}"
        words = f"latency is the weighted geometric mean of the members' times: {seconds(report.seconds)}{off}"
        yield Words(f"{words} [{label(report)}]")


def timing_inputs(evidence: Evidence) -> Iterator[Block]:
    """The simulated time of each timing input, and the input that the rest of the report is about."""
    runs = evidence.simulation.runs if evidence.simulation else ()
    if runs:
        times = [f"{run.name} {'unknown' if run.seconds is None else seconds(run.seconds)}" for run in runs]
        rest = f"; the cycles, units and steps below are those of {runs[0].name}" if runs[1:] else ""
        yield named("Timing inputs", f"{' · '.join(times)} [{simulated(evidence.chip)}{rest}]")


def members(report: Report, verdict: Verdict) -> Iterator[Block]:
    """The members of a suite: weight, time (if compared, both times and their ratio), share of the peak, regime."""
    pairs = {member.name: member for member in verdict.members}
    rows: list[tuple[Cell, ...]] = []
    for member in report.members:
        times: tuple[Cell, ...] = (member.report.seconds,)
        if pairs:
            ratio = pairs[member.name].time_ratio
            times = (pairs[member.name].champion_seconds, *times, None if ratio is None else f"{ratio:.4f}")
        rows.append(
            (member.name, member.weight, *times, _util(member.report), (member.report.regime or "unknown").upper())
        )
    if rows:
        times_of = ["champion", "candidate", "ratio"] if pairs else ["time"]
        columns = [Column("member"), Column("weight", "fraction")]
        columns += [Column(title, "s", unknown="unknown") for title in times_of]
        yield Grid([*columns, Column("util", "fraction", unknown="unknown"), Column("regime")], rows)
        yield Line(f"times [{label(report)}]", is_whole=True)


def unknowns(evidence: Evidence, report: Report) -> Iterator[Block]:
    """Assumptions behind the time, and the reason for unknown traffic; the verdict says why a latency is unknown."""
    if evidence.simulation is not None and evidence.simulation.seconds is not None:
        yield from (Words(why, lead="time ") for why in evidence.simulation.unknown if why.startswith("assumed"))
    if report.hbm_bytes is None and evidence.trace is not None:
        why = (
            "the bytes depend on transfers by hand or on tables, and the simulation, which counts them, did not finish"
        )
        if chip(report.chip).kind == "GPU":
            why = "on a GPU the kernel itself loads its blocks, and its loads are not counted"
        yield Words(why, lead="traffic unknown: ")


def counters_at_a_glance(report: Report, champion: Report | None) -> Iterator[Block]:
    """The counters for a short report, each with the champion's if it differs; remarks on unexpected counts."""
    # The cycles and the cost of spilling, if known, are printed above already.
    said_above = OF_CYCLES if report.cycle_shares else ()
    lines = [
        line
        for line in report.counters
        if (line.remark or (line.level, line.name) in AT_A_GLANCE) and line.name not in said_above
    ]
    if not lines:
        return
    old = {(line.level, line.name): line.count for line in champion.counters} if champion else {}
    texts = []
    for line in lines:
        before = old.get((line.level, line.name), line.count)
        was = f" (champion {count(before)})" if before != line.count else ""
        texts.append(f"{line.name} {count(line.count)}{was}")
    yield named_items("Counters", texts)
    # Spills and fills have the same remark, which is printed once.
    for remark in dict.fromkeys(line.remark for line in lines if line.remark):
        name = next(line.name for line in lines if line.remark == remark)
        yield Words(f"{name}: {remark}", lead=" " * FIELD)


def counters(report: Report, champion: Report | None) -> Iterator[Block]:
    """A table of the counters at three levels, next to the champion's; a remark on unexpected counts."""
    lines = report.counters
    old = {(line.level, line.name): line.count for line in champion.counters} if champion else {}
    columns = [
        Column("level"),
        Column("counter"),
        Column("count", "count"),
        *([Column("champion", "count")] if old else []),
    ]
    rows = []
    for line, last in zip(lines, ("", *(line.remark for line in lines)), strict=False):
        beside = [old.get((line.level, line.name))] if old else []
        # Spills and fills have the same remark, which is printed once.
        remark = "" if line.remark == last else line.remark
        rows.append(Row((line.level, line.name, line.count, *beside, line.expected), remark=remark))
    if rows:
        yield Grid([*columns, Column("expected")], rows)


def units(report: Report, *, full: bool) -> Iterator[Block]:
    """The share of its issue slots that each functional unit used and, if known, the share of time that it was busy.

    The fullest unit sets a lower bound on the cycles. Without `full`, only the fullest few units are shown.
    """
    by_use = sorted(report.units, key=lambda unit: unit.used_fraction, reverse=True)
    texts = []
    for unit in report.units if full else by_use[:_UNITS_SHOWN]:
        busy = "" if unit.busy_fraction is None else f" (busy {percent(unit.busy_fraction, 0)})"
        texts.append(f"{unit.name} {percent(unit.slot_fraction, 0)}{busy}")
    if texts:
        yield named_items("Simulated issue slots", [*texts, f"fullest: {by_use[0].name}"])


def measured(evidence: Evidence, report: Report) -> Iterator[Block]:
    """Device time from the profile, and host wall clock, if a device ran the kernel."""
    samples = evidence.samples
    if samples is None:
        return
    parts = []
    for name, median, number in (
        ("device", report.device_median_seconds, len(samples.device_seconds)),
        ("host wall clock", report.host_median_seconds, len(samples.host_seconds)),
    ):
        time = "unknown" if median is None else f"{milliseconds(median, ' ')} (median of {number})"
        parts.append(f"{name} {time}")
    yield named_items("Measured time", [*parts, f"on {clean(samples.device_kind)}"])


_BUFFERS = (
    # A name that is cut to fewer columns is useless.
    Column("buffer", least=12),
    Column("role"),
    Column("block"),
    Column("buffers", side="r"),
    Column("VMEM", "KiB"),
    Column("fetches", "count"),
    Column("bytes moved", "B"),
)


def vmem(report: Report, calls: Sequence[PallasCall], *, full: bool) -> Iterator[Block]:
    """VMEM against its limit; if `full`, also a table of the buffers with the bytes moved for each."""
    if report.vmem_bytes is None:
        return
    share = percent(report.vmem_bytes / report.vmem_limit_bytes)
    if report.vmem_bytes > report.vmem_limit_bytes:
        share += f", {count(report.vmem_bytes - report.vmem_limit_bytes)} bytes too many"
    total = f"{kibibytes(report.vmem_bytes)} of {kibibytes(report.vmem_limit_bytes)} ({share}), from the block shapes"
    if any(window.fetches is None for call in calls for window in call.windows):
        # The kernel copies these arrays itself, often into memory of `run_scoped` or `emit_pipeline`.
        total += "; memory that the kernel allocates itself (run_scoped, emit_pipeline) is not counted"
    yield named("VMEM", total)
    for call in calls if full else ():
        grid = " x ".join(map(str, call.grid)) or "no grid"
        yield Words(f"{call.name}: grid {grid}, {quantity(call.steps, 'step')}", lead="  ")
        rows: list[tuple[Cell, ...]] = []
        for window in call.windows:
            fetches = "by hand" if window.fetches is None else window.fetches
            moved = "unknown" if window.hbm_bytes is None else window.hbm_bytes
            block = f"{window.array.dtype}[{_shape(window.block_shape)}]"
            buffers = f"{max(1, window.buffers)} x"
            rows.append((window.name, window.role, block, buffers, window.vmem_bytes, fetches, moved))
        for number, scratch in enumerate(call.scratch):
            block = f"{scratch.dtype}[{_shape(scratch.shape)}]"
            rows.append((f"scratch {number}", "scratch", block, "1 x", scratch.vmem_bytes, None, None))
        yield Grid(_BUFFERS, rows, indent="  ")


_CHECKS = (
    Column("family", least=12),
    Column("mode"),
    Column("shape"),
    Column("error", "error"),
    Column("honest\nerror", "error"),
    Column("tolerance", "error"),
    Column(""),
)


def checks(evidence: Evidence, verdict: Verdict, *, full: bool) -> Iterator[Block]:
    """The number of checks, the reason for checks that were left out, and the largest error."""
    done = evidence.all_checks
    if not done:
        yield named("Correctness", "no check was made")
        return
    failed = sum(not check.passed for check in done)
    verb = f"all {len(done)} checks passed"
    if failed:
        verb = f"{quantity(failed, 'check')} failed, {len(done) - failed} passed"
    # Tampering is found after the last check, so no check was left out.
    if evidence.failure is not None and evidence.failure.kind != "tampered":
        verb = verb if failed else f"{quantity(len(done), 'check')} passed"
        verb += ", the checks after the failure were not run"
    if evidence.unchecked:
        verb += f" and {len(evidence.unchecked)} were not run, because {_too_slow(evidence, verdict)}"
    bits = sum(check.elements for check in done if check.criterion in ("dependence", "determinism", "state", "exact"))
    elements = f"{count(sum(check.elements for check in done) - bits)} elements against float64"
    elements += f" and {count(bits)} bit for bit" if bits else ""
    compared = [check for check in done if check.error is not None and check.tolerance]
    worst = f"; {_nearest(max(compared, key=_closeness))}" if compared else ""
    yield named("Correctness", f"{verb}{f', {elements}' if full else ''}{worst}")
    if full:
        rows = [
            (
                check.family,
                check.mode_words,
                _shape(check.shape),
                check.error,
                check.honest_error,
                check.tolerance,
                "passed" if check.passed else "FAILED",
            )
            for check in done
        ]
        yield Grid(_CHECKS, rows, indent="  ")


_OPS = Column("op", least=12), Column("bundles", "count"), Column("cycles", "count"), Column("time", "s")


def ops(run: Simulation | None) -> Iterator[Block]:
    """The time of every HLO op of the module, the longest first."""
    if run is not None and run.ops:
        longest = sorted(run.ops, key=lambda op: op.seconds, reverse=True)
        yield Line("HLO ops by simulated time:", is_whole=True)
        yield Grid(_OPS, [(op.name, op.bundles, op.cycles, op.seconds) for op in longest], indent="  ")


def warnings(evidence: Evidence) -> Iterator[Block]:
    """The warnings; a warning does not make a check fail."""
    return (Words(text, lead="warning: ") for text in evidence.warnings)


def stages(evidence: Evidence) -> Iterator[Block]:
    """The wall clock of the judgement on this machine, by stage."""
    if evidence.stages:
        end = max(stage.start_seconds + stage.seconds for stage in evidence.stages)
        texts = [f"{stage.stage} {stage.seconds:.1f} s" for stage in evidence.stages]
        yield named_items("Judged in", [*texts, f"{end:.1f} s in all"])


def moved(changes: Sequence[Change], *, full: bool) -> Iterator[Block]:
    """The counters that differ from the champion's: all if `full`, else the first three."""
    texts = [
        f"{change_.name} {_amount(change_, change_.before)} -> {_amount(change_, change_.after)}{_relative(change_)}"
        for change_ in (changes if full else changes[:3])
    ]
    if texts:
        yield Items(texts, lead="  what moved: ")


def failure(
    failure: Failure, *, full: bool, lead: str, about: str = "", style: Style | None = None, painted: str = ""
) -> Iterator[Block]:
    """Stage, kind and message of a failure, and its detail: a count, a traceback, the child's last output.

    `lead` begins the first line; `about` is the line on what failed, after the message.
    """
    reason = f"{failure.stage}, {failure.kind}: {failure.message}"
    yield Words(reason, lead=lead, rest="    ", style=style, painted=painted)
    yield from [Words(about, lead="  ", rest="    ")] if about else []
    output = failure.detail.splitlines()
    if len(output) < 2:
        yield from (Words(text, lead="    ") for text in output)
        return
    shown = output if full else output[-_OUTPUT_LINES_SHOWN:]
    if len(shown) < len(output):
        yield Line(f"    ({quantity(len(output) - len(shown), 'line')} before these: --full)", is_whole=True)
    # Indentation carries meaning in tracebacks, so these lines are cut, not wrapped.
    yield from (Line(f"    | {indented(line)}") for line in shown)


def is_shown(failure: Failure | None) -> bool:
    """True if the section `failure` shows this failure whole even without `full`."""
    return failure is not None and len(failure.detail.splitlines()) <= _OUTPUT_LINES_SHOWN


def _percent(fraction: float | None) -> str:
    return "unknown" if fraction is None else percent(fraction)


def _util(report: Report) -> Cell:
    """The utilisation for a table; without matrix products it says nothing."""
    return "-" if report.mxu_util == 0 else report.util


def _too_slow(evidence: Evidence, verdict: Verdict) -> str:
    """The reason why checks were left out: the kernel is slower, or suite members take more time than they may."""
    most = 1 + (evidence.problem.may_lose or 0.0)
    losers = [member.name for member in verdict.members if member.time_ratio is not None and member.time_ratio > most]
    if not losers or (verdict.time_ratio or 0.0) > 1:
        return "the kernel is slower"
    return f"{' and '.join(map(clean, losers))} {'loses' if len(losers) == 1 else 'lose'} more time than a member may"


def _shape(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def _closeness(check: Check) -> float:
    return (check.error or 0.0) / (check.tolerance or 1.0)


def _nearest(check: Check) -> str:
    """Words on the check's error: as a multiple of an honest computation's error, or, if too large, of the tolerance.

    The share of the tolerance is shown only if the honest computation of these inputs is nearly exact, as sums of few
    numbers are. For other inputs the share is useless, because every good kernel has about the honest error, and so
    about the same share.
    """
    name, share = f"{check.family} ({check.mode_words})", _closeness(check)
    if share > 1:
        times = f"{share:,.1f}" if share < _MANY_TIMES else f"{share:.3g}"
        return f"furthest beyond its tolerance: {name}, {times} times the tolerance"
    honest = check.honest_error or 0.0
    if honest * _NEARLY_EXACT <= (check.tolerance or 0.0):
        return f"nearest to its tolerance: {name}, {percent(share)} of it"
    ratio, allowed = ((value or 0.0) / honest for value in (check.error, check.tolerance))
    return f"largest error: {ratio:.2f} times an honest computation's (limit {allowed:.2f}): {name}"


def _amount(change_: Change, value: float) -> str:
    if change_.unit == "B":
        return decimal(value, "B", 2)
    if change_.unit == "cycles":
        return decimal(value, "cycles", 2)
    return seconds(value) if change_.unit == "s" else count(value)


def _relative(change_: Change) -> str:
    return f" ({change(change_.after / change_.before)})" if change_.before else ""
