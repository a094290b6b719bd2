"""The parts of a report, each a list of lines; every number with its unit and where it comes from."""

from collections.abc import Sequence

from harness.hardware import chip
from harness.records import Change, Check, Evidence, Failure, OpTime, PallasCall, Report, Simulation, Verdict
from harness.records.report_words import simulated, source_label
from harness.render.cycle_breakdown import SCORE_BLOCK
from harness.render.grid import grid, shrunk, widths_of
from harness.render.layout import clean, cut, flow, wrap
from harness.units import change, count, decimal, kibibytes, milliseconds, percent, quantity, seconds

# What a glance needs: the published four, and what the schedule adds to them where its cycles are not taken apart.
_AT_A_GLANCE = (
    ("hlo", "copy"),
    ("mosaic", "matmul"),
    ("mosaic", "exp"),
    ("mosaic", "reduction"),
    ("schedule", "bundles executed"),
    ("schedule", "spills executed"),
    ("schedule", "fills executed"),
)
# Kinds of cycles that are spent waiting for transfers, and how much of the cycles is nearly all of them.
_FOR_TRANSFERS = ("operand wait", "fill and drain")
_NEARLY_ALL = 0.90
_OF_THE_CYCLES = ("bundles executed", "spills executed", "fills executed", SCORE_BLOCK)
# Of those that a schedule is full of, the next ones after the fullest say what else is near.
_UNITS_SHOWN = 4
_OUTPUT_LINES_SHOWN = 12
# Less of a name tells nothing.
_LEAST_NAME = 12
# The width of what stands before a value.
FIELD = 23


def label(report: Report) -> str:
    """`simulated v5e`: what stands behind every latency of this report."""
    return source_label(report.source, report.chip)


def result(report: Report) -> list[str]:
    """The RESULT and REGIME lines in the published form."""
    score = "unknown" if report.score is None else f"{report.score:.1f}"
    latency = "unknown" if report.seconds is None else milliseconds(report.seconds)
    util = _percent(report.util)
    tflops = "unknown" if report.flops_per_second is None else f"{report.flops_per_second / 1e12:.1f}"
    regime = (report.regime or "unknown").upper() if report.regime else "unknown"
    intensity = "unknown"
    if report.intensity is not None:
        # What only moves bytes has less than one.
        intensity = f"{report.intensity:.{0 if report.intensity >= 10 else 2}f} FLOPs/byte"
    return [
        f"RESULT: score={score}  latency={latency}  util={util}  tflops={tflops}   [{label(report)}]",
        f"REGIME: {regime}  BW={_percent(report.bandwidth_util)}  intensity={intensity}{_side(report)}"
        f"{_contradiction(report)}",
    ]


def from_the_ridge(report: Report) -> str:
    """How many times below or above the ridge point the intensity lies; "" where it is not known."""
    if not report.intensity:
        return ""
    if report.intensity < report.ridge:
        return f"{report.ridge / report.intensity:.1f}x below ridge point"
    return f"{report.intensity / report.ridge:.1f}x above ridge point"


def _side(report: Report) -> str:
    """On which side of the ridge it stands, where `latency-bound` does not say so: what would bind next."""
    if report.regime != "latency-bound" or not report.intensity:
        return ""
    side = "memory" if report.intensity < report.ridge else "compute"
    return f"  ({side} side: {from_the_ridge(report)})"


def _contradiction(report: Report) -> str:
    """What the simulated cycles say against `memory-bound`, which the roofline says; "" where they say nothing else."""
    shares = report.cycle_shares
    if shares is None or report.regime != "memory-bound":
        return ""
    issuing = sum(part.fraction for part in shares.parts if part.name == "issuing")
    waits = sum(part.fraction for part in shares.parts if part.name.startswith(_FOR_TRANSFERS))
    if issuing >= _NEARLY_ALL:
        return f"  (by the roofline; simulated: issuing {percent(issuing)} of cycles)"
    if waits < 1 - _NEARLY_ALL:
        return f"  (by the roofline; simulated: waiting for transfers {percent(waits)} of cycles)"
    return ""


def mean_of_suite(report: Report, width: int) -> list[str]:
    """What the latency of a suite is, with its uncertainty."""
    if report.seconds is None:
        return []
    off = "" if report.plus_minus_seconds is None else f" ± {seconds(report.plus_minus_seconds, 2)}"
    words = f"latency is the weighted geometric mean of the members' times: {seconds(report.seconds)}{off}"
    return wrap(f"{words} [{label(report)}]", width)


def timing_inputs(evidence: Evidence, width: int) -> list[str]:
    """The simulated time of each timing input of the problem, and which of them the rest of the report is of."""
    runs = evidence.simulation.runs if evidence.simulation else ()
    if not runs:
        return []
    times = [f"{run.name} {'unknown' if run.seconds is None else seconds(run.seconds)}" for run in runs]
    rest = f"; cycles, units and steps below are of {runs[0].name}" if runs[1:] else ""
    return wrap(f"{' · '.join(times)} [{simulated(evidence.chip)}{rest}]", width, "Timing inputs:         ")


def members(report: Report, verdict: Verdict, width: int) -> list[str]:
    """The members of a suite: weight, the champion's time if there is one, the candidate's, its share of the peak."""
    pairs = {one.name: one for one in verdict.members}
    body = []
    for one in report.members:
        row = [one.name, percent(one.weight), _time(one.report.seconds)]
        if pairs:
            pair = pairs[one.name]
            ratio = "unknown" if pair.time_ratio is None else f"{pair.time_ratio:.4f}"
            row = [*row[:2], _time(pair.champion_seconds), row[2], ratio]
        body.append([*row, _percent(one.report.util), (one.report.regime or "unknown").upper()])
    if not body:
        return []
    times = ["champion", "candidate", "ratio"] if pairs else ["time"]
    table = grid(["member", "weight", *times, "util", "regime"], body, f"lr{'r' * len(times)}rl")
    return [*(cut(line, width) for line in table), f"times [{label(report)}]"]


def _time(taken: float | None) -> str:
    return "unknown" if taken is None else seconds(taken)


def unknowns(evidence: Evidence, report: Report, width: int) -> list[str]:
    """Why the traffic is unknown, if it is; why the latency is, the verdict has said."""
    if report.hbm_bytes is not None or evidence.trace is None:
        return []
    why = "the kernel moves data by hand, and the simulator did not get through to count it"
    if chip(report.chip).kind == "GPU":
        why = "on a GPU the kernel itself loads its blocks, and how often is not counted"
    return wrap(why, width, "traffic unknown: ")


def counters_at_a_glance(report: Report, champion: Report | None, width: int) -> list[str]:
    """The counters that a glance needs, each with the champion's where it differs; remarks where a count is off."""
    # What the cycles are made of, and what spilling costs, has been said already where it is known.
    said_above = _OF_THE_CYCLES if report.cycle_shares else ()
    lines = [
        line
        for line in report.counters
        if (line.remark or (line.level, line.name) in _AT_A_GLANCE) and line.name not in said_above
    ]
    if not lines:
        return []
    old = {(line.level, line.name): line.count for line in champion.counters} if champion else {}
    texts = []
    for line in lines:
        before = old.get((line.level, line.name), line.count)
        was = f" (champion {count(before)})" if before != line.count else ""
        texts.append(f"{line.name} {count(line.count)}{was}")
    out = flow(texts, width, "Counters:              ")
    # Spills and fills share a remark; once is enough.
    for remark in dict.fromkeys(line.remark for line in lines if line.remark):
        name = next(line.name for line in lines if line.remark == remark)
        out += wrap(f"{name}: {clean(remark)}", width, " " * FIELD)
    return out


def counters(report: Report, champion: Report | None, width: int) -> list[str]:
    """One table of the counters at the three levels, beside the champion's; a remark where a count is off."""
    lines = report.counters
    if not lines:
        return []
    old = {(line.level, line.name): line.count for line in champion.counters} if champion else {}
    headers = ["level", "counter", "count", *(["champion"] if old else []), "expected"]
    body = []
    for line in lines:
        before = old.get((line.level, line.name))
        beside = ["-" if before is None else count(before)] if old else []
        body.append([line.level, line.name, count(line.count), *beside, line.expected])
    table = [cut(text, width) for text in grid(headers, body, "llrrl" if old else "llrl")]
    blanks = " " * max(map(len, table))
    out, said = table[:2], ""
    for line, text in zip(lines, table[2:], strict=True):
        room = width - len(blanks) - 2
        # Spills and fills share a remark; once is enough.
        if not line.remark or line.remark == said:
            out.append(text)
        elif room >= 30:
            out += wrap(clean(line.remark), width, f"{text.ljust(len(blanks))}  ", f"{blanks}  ")
        else:
            out += [text, *wrap(clean(line.remark), width, "    ")]
        said = line.remark
    return out


def units(report: Report, width: int, *, full: bool) -> list[str]:
    """The share of its issue slots that each functional unit used, and of the time that it was busy, if known.

    The fullest is the one that limits: what it does cannot be done in fewer cycles. Not `full`: only the fullest few.
    """
    texts = []
    shown = report.units
    if not full:
        shown = tuple(sorted(shown, key=lambda unit: unit.used_fraction, reverse=True)[:_UNITS_SHOWN])
    for unit in shown:
        busy = "" if unit.busy_fraction is None else f" (busy {percent(unit.busy_fraction, 0)})"
        texts.append(f"{unit.name} {percent(unit.slot_fraction, 0)}{busy}")
    if not texts:
        return []
    fullest = max(report.units, key=lambda unit: unit.used_fraction)
    return flow([*texts, f"fullest: {fullest.name}"], width, "Simulated issue slots: ")


def measured(evidence: Evidence, report: Report, width: int) -> list[str]:
    """Device time from the profile beside host wall clock, where a device ran the kernel."""
    samples = evidence.samples
    if samples is None:
        return []
    parts = []
    for name, median, number in (
        ("device", report.device_median_seconds, len(samples.device_seconds)),
        ("host wall clock", report.host_median_seconds, len(samples.host_seconds)),
    ):
        time = "unknown" if median is None else f"{milliseconds(median, ' ')} (median of {number})"
        parts.append(f"{name} {time}")
    return flow([*parts, f"on {clean(samples.device_kind)}"], width, "Measured time:         ")


def vmem(report: Report, calls: Sequence[PallasCall], width: int, *, full: bool) -> list[str]:
    """VMEM against its limit, in full per buffer with the HBM traffic of each."""
    if report.vmem_bytes is None:
        return []
    share = percent(report.vmem_bytes / report.vmem_limit_bytes)
    total = f"{kibibytes(report.vmem_bytes)} of {kibibytes(report.vmem_limit_bytes)} ({share}), from the block shapes"
    lines = wrap(total, width, "VMEM:                  ")
    if not full:
        return lines
    for call in calls:
        grid = " x ".join(map(str, call.grid)) or "no grid"
        lines += wrap(f"{clean(call.name)}: grid {grid}, {quantity(call.steps, 'step')}", width, "  ")
        body = []
        for window in call.windows:
            fetches = "by hand" if window.fetches is None else count(window.fetches)
            moved = "unknown" if window.hbm_bytes is None else decimal(window.hbm_bytes, "B")
            block = f"{window.array.dtype}[{_shape(window.block_shape)}]"
            held = f"{window.buffers} x" if window.buffers > 1 else "1 x"
            body.append([clean(window.name), window.role, block, held, kibibytes(window.vmem_bytes), fetches, moved])
        for number, scratch in enumerate(call.scratch):
            block = f"{scratch.dtype}[{_shape(scratch.shape)}]"
            body.append([f"scratch {number}", "scratch", block, "1 x", kibibytes(scratch.vmem_bytes), "-", "-"])
        headers = ["buffer", "role", "block", "held", "VMEM", "fetches", "HBM traffic"]
        lines += _table(body, headers, "lllrrrr", width)
    return lines


def checks(evidence: Evidence, verdict: Verdict, width: int, *, full: bool) -> list[str]:
    """How many checks were made, why others were not, and how near the worst came to its tolerance."""
    done = evidence.all_checks
    if not done:
        return ["Correctness:           no check was made"]
    failed = sum(not check.passed for check in done)
    verb = f"all {len(done)} checks passed"
    if failed:
        verb = f"{quantity(failed, 'check')} failed, {len(done) - failed} passed"
    # What the guard finds at the end leaves no check out.
    if evidence.failure is not None and evidence.failure.kind != "tampered":
        verb = verb if failed else f"{quantity(len(done), 'check')} passed"
        verb += ", those after the failure were not run"
    if evidence.unchecked:
        verb += f" and {len(evidence.unchecked)} were not run, because {_too_slow(evidence, verdict)}"
    bits = sum(check.elements for check in done if check.criterion in ("dependence", "determinism", "state"))
    elements = f"{count(sum(check.elements for check in done) - bits)} elements against float64"
    elements += f" and {count(bits)} bit for bit" if bits else ""
    compared = [check for check in done if check.error is not None and check.tolerance]
    worst = f"; {_nearest(max(compared, key=_closeness))}" if compared else ""
    lines = wrap(f"{verb}{f', {elements}' if full else ''}{worst}", width, "Correctness:           ")
    if full:
        body = [
            [
                clean(check.family),
                check.mode_words,
                _shape(check.shape),
                _number(check.error),
                _number(check.honest_error),
                _number(check.tolerance),
                "passed" if check.passed else "FAILED",
            ]
            for check in done
        ]
        headers = ["family", "mode", "shape", "error", "honest\nerror", "tolerance", ""]
        lines += _table(body, headers, "lllrrrl", width)
    return lines


def ops(run: Simulation | None, width: int) -> list[str]:
    """The time of every HLO op of the module, the longest first."""
    if run is None or not run.ops:
        return []
    longest: list[OpTime] = sorted(run.ops, key=lambda op: op.seconds, reverse=True)
    body = [[clean(op.name), count(op.bundles), count(op.cycles), seconds(op.seconds)] for op in longest]
    return ["HLO ops by simulated time:", *_table(body, ["op", "bundles", "cycles", "time"], "lrrr", width)]


def warnings(evidence: Evidence, width: int) -> list[str]:
    """What did not fail and should still be known."""
    return [line for text in evidence.warnings for line in wrap(clean(text), width, "warning: ")]


def stages(evidence: Evidence, width: int) -> list[str]:
    """How long the judgement itself took on this machine."""
    if not evidence.stages:
        return []
    end = max(stage.start_seconds + stage.seconds for stage in evidence.stages)
    texts = [f"{stage.stage} {stage.seconds:.1f} s" for stage in evidence.stages]
    return flow([*texts, f"{end:.1f} s in all"], width, "Judged in:             ")


def moved(changes: Sequence[Change], width: int, *, full: bool) -> list[str]:
    """What moved in the counters against the champion."""
    texts = [
        f"{change_.name} {_amount(change_, change_.before)} -> {_amount(change_, change_.after)}{_relative(change_)}"
        for change_ in (changes if full else changes[:3])
    ]
    return flow(texts, width, "  what moved: ") if texts else []


def failure(found: Failure, width: int, *, full: bool) -> list[str]:
    """The stage, the kind, the sentence, and what else is known: a count, a traceback, what the child printed last."""
    lines = wrap(clean(found.message), width, f"  {found.stage}, {found.kind}: ", "    ")
    output = found.detail.splitlines()
    if len(output) < 2:
        return [*lines, *(line for text in output for line in wrap(clean(text), width, "    "))]
    shown = output if full else output[-_OUTPUT_LINES_SHOWN:]
    if len(shown) < len(output):
        lines.append(f"    ({quantity(len(output) - len(shown), 'line')} before these: --full)")
    # Indentation carries meaning in tracebacks, so these lines are cut, not wrapped.
    lines += [f"    | {cut(_indented(line), width - 6)}" for line in shown]
    return lines


def _indented(line: str) -> str:
    bare = line.expandtabs(4)
    return " " * (len(bare) - len(bare.lstrip())) + clean(bare)


def _table(body: Sequence[Sequence[str]], headers: Sequence[str], sides: str, width: int) -> list[str]:
    """A table in at most `width` columns: what is too wide is taken from the names in the first, not from figures."""
    widths = shrunk(widths_of(headers, body), {0: _LEAST_NAME}, width - 2)
    return [cut(f"  {line}", width) for line in grid(headers, body, sides, widths)]


def _percent(fraction: float | None) -> str:
    return "unknown" if fraction is None else percent(fraction)


def _too_slow(evidence: Evidence, verdict: Verdict) -> str:
    """Why checks were left out: it is slower, or a member of the suite loses more than it may."""
    most = 1 + (evidence.problem.may_lose or 0.0)
    lost = [one.name for one in verdict.members if one.time_ratio is not None and one.time_ratio > most]
    if not lost or (verdict.time_ratio or 0.0) > 1:
        return "it is slower"
    return f"{' and '.join(map(clean, lost))} {'loses' if len(lost) == 1 else 'lose'} more than a member may"


def _shape(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def _closeness(check: Check) -> float:
    return (check.error or 0.0) / (check.tolerance or 1.0)


def _nearest(check: Check) -> str:
    """How near the worst check came to its tolerance, or how far it is beyond."""
    name, share = f"{check.family} ({check.mode_words})", _closeness(check)
    if share > 1:
        return f"furthest beyond its tolerance: {name}, {share:,.1f} times"
    return f"nearest to its tolerance: {name}, {percent(share)} of it"


def _amount(change_: Change, value: float) -> str:
    if change_.unit == "B":
        return decimal(value, "B", 2)
    if change_.unit == "cycles":
        return decimal(value, "cycles", 2)
    return seconds(value) if change_.unit == "s" else count(value)


def _relative(change_: Change) -> str:
    return f" ({change(change_.after / change_.before)})" if change_.before else ""
