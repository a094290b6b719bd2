"""The checklist of a program: what it compiles and why, what it transfers, how precise it is, and the targets."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from harness.records import Column, Table
from harness.records.doctor import Compilation, Phase, ProgramRun, Severity
from harness.records.table import Cell, Origin
from harness.workbench.doctor import findings
from harness.workbench.doctor.findings import Finding
from harness.workbench.tables import table

_SECTION_8 = "protocol, section 8"
# Section 8.
COMPILATION_TARGET, INPUT_TARGET, TC_TARGET, HBM_TARGET = 0.05, 0.10, 0.80, 0.70
# A smaller transfer is all latency: 64 KiB take 5 us over a PCIe link of 13 GB/s, about what a transfer costs anyhow.
_TRANSFER_BYTES = 64 << 10
# jax_persistent_cache_min_compile_time_secs by default: what compiles faster is not stored.
_CACHED_SECONDS = 1.0
_WIDE = ("f32", "f64")
_PRECISE = ("highest", "float32", "high", "bfloat16_3x", "tensorfloat32", "f32_f32_f32", "bf16_bf16_f32_x6")
_OUTSIDE = "an operation outside any jit"

_MEASURES = (
    Column(name="measure", title="measure"),
    Column(name="count", title="count", unit="count"),
    Column(name="seconds", title="time", unit="s"),
    Column(name="num_bytes", title="bytes", unit="B"),
    Column(name="fraction", title="share", unit="fraction"),
    Column(name="target", title="target"),
    Column(name="reading", title="reading"),
)
_COMPILATIONS = (
    Column(name="name", title="compiled"),
    Column(name="count", title="count", unit="count"),
    Column(name="seconds", title="time", unit="s"),
    Column(name="phase", title="phase"),
    Column(name="place", title="called at"),
    Column(name="arguments", title="arguments"),
    Column(name="cause", title="cause"),
)


def checklist(
    run: ProgramRun, subject: str, tc_fraction: float | None, hbm_fraction: float | None
) -> tuple[Table, Table, Table]:
    """Findings, measures and compilations of a run; the fractions are those of a capture, None where there is none."""
    origin: Origin = "measured cpu" if run.platform == "cpu" else "measured"
    found, _ = findings.table(
        (finding for rule in RULES for finding in rule(run, subject)),
        title=f"checklist of {subject} on {run.devices} x {run.device_kind}",
        origin=origin,
        notes=run.unread,
        why_empty="no rule finds anything here",
    )
    return found, _measures(run, subject, origin, tc_fraction, hbm_fraction), _compiled(run, subject, origin)


def _measures(
    run: ProgramRun, subject: str, origin: Origin, tc_fraction: float | None, hbm_fraction: float | None
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for phase, seconds in run.seconds.items():
        rows.append((phase, None, seconds, None, seconds / run.total_seconds, None, None))
    compiling = sum(c.seconds for c in run.compilations) + run.lowering_seconds
    share = compiling / run.total_seconds
    needed = _calls_needed(run, compiling)
    rows.append(
        (
            "compilation", len(run.compilations), compiling, None, share, f"under {COMPILATION_TARGET:.0%}",
            "under the target" if share < COMPILATION_TARGET
            else "over the target" if needed is None else f"under the target after {needed:,} calls",
        )
    )  # fmt: skip
    again = [c for c in run.compilations if c.phase == "second call"]
    if "second call" in run.seconds:
        rows.append(
            (
                "compilation in the second call", len(again), sum(c.seconds for c in again), None, None, "none",
                "compiles again" if again else "none",
            )
        )  # fmt: skip
    for one in run.transfers:
        reading = f"of {one.unsized} JAX does not say the size" if one.unsized else None
        size = one.num_bytes if one.unsized < one.count else None
        rows.append((f"{one.direction}, {one.phase}", one.count, None, size, None, None, reading))
    where = "unknown on a CPU" if run.platform == "cpu" else "unknown: give a capture (--capture)"
    for name, fraction, target in (("MXU", tc_fraction, TC_TARGET), ("HBM", hbm_fraction, HBM_TARGET)):
        reading = where if fraction is None else "reached" if fraction >= target else "below the target"
        over = f"over {target:.0%}" + (" when memory-bound" if name == "HBM" else "")
        rows.append((f"{name} in use", None, None, None, fraction, over, reading))
    rows.append(
        (
            "input", None, None, None, None, f"under {INPUT_TARGET:.0%}",
            "unknown on a CPU" if run.platform == "cpu" else "unknown: ratchet.sh xprof steps, of a capture",
        )
    )  # fmt: skip
    notes = [
        "Times are host wall clock, the device waited for; targets are those of the protocol, section 8. While it "
        "is watched JAX writes out every module: first calls take a little longer than alone."
    ]
    if run.platform == "cpu":
        notes.append("On a CPU reading results back is no transfer, and counts as none.")
    else:
        notes.append("Of transfers the count and the bytes are known, their time is not: ratchet.sh xprof steps.")
    return table("measures", f"measures of {subject}", origin, _MEASURES, rows, notes)


def _calls_needed(run: ProgramRun, compiling: float) -> int | None:
    """After how many calls compilation is below its target; None where each call compiles, or there is one run."""
    second = run.seconds.get("second call")
    if second is None or any(c.phase == "second call" for c in run.compilations):
        return None
    return max(1, round(compiling * (1 / COMPILATION_TARGET - 1) / second))


def _compiled(run: ProgramRun, subject: str, origin: Origin) -> Table:
    groups: dict[tuple[str, Phase, str, str, str], list[float]] = defaultdict(list)
    for c in run.compilations:
        groups[c.name, c.phase, c.place, ", ".join(c.arguments), c.cause].append(c.seconds)
    rows = [
        (name, len(seconds), sum(seconds), phase, place or None, arguments or None, cause)
        for (name, phase, place, arguments, cause), seconds in groups.items()
    ]
    why = "it compiled nothing: it uses no operation of JAX, or all came from the cache"
    return table("compilations", f"compilations of {subject}", origin, _COMPILATIONS, rows, (), why)


def _finding(severity: Severity, rule: str, subject: str, place: str, observation: str, remedy: str) -> Finding:
    return Finding(
        severity=severity, rule=rule, subject=subject, place=place, observation=observation, remedy=remedy,
        source=_SECTION_8,
    )  # fmt: skip


def _recompiled(run: ProgramRun, subject: str) -> Iterator[Finding]:
    """A function compiled again since an argument's shape, type or static value changed."""
    groups: dict[tuple[str, str], list[Compilation]] = defaultdict(list)
    for c in run.compilations:
        if c.arguments:
            groups[c.name, ", ".join(c.arguments)].append(c)
    for (name, arguments), again in groups.items():
        yield _finding(
            "harmful", "recompiled", name, again[0].place,
            f"compiled {len(again)} more times, {sum(c.seconds for c in again):.2g} s, since {arguments} changed: "
            f"{again[-1].cause}",
            _remedy(again[-1].cause),
        )  # fmt: skip


def _remedy(cause: str) -> str:
    if "[" not in cause:
        return (
            "Pass it as an array, not as a static argument; where there are few values, compile for each ahead of time"
        )
    before, _, after = cause.split("; ")[0].partition(", was ")
    if before.rpartition(" ")[2].partition("[")[0] != after.partition("[")[0]:
        return "Convert to one type before the call"
    return "Give it one shape: pad to a few sizes, with a mask"


def _made_anew(run: ProgramRun, subject: str) -> Iterator[Finding]:
    """jit inside a loop or a function: each time a new function."""
    counts = Counter((c.name, c.place) for c in run.compilations if c.is_redefinition)
    for (name, place), count in counts.items():
        yield _finding(
            "harmful", "jit-in-loop", name, place,
            f"compiled {count} more times since the function is made anew for each call",
            "Apply jax.jit once, outside loops and functions that are called often",
        )  # fmt: skip


def _transferred(run: ProgramRun, subject: str) -> Iterator[Finding]:
    """What goes over at each call, though it did so before.

    JAX says the sizes in a first call, and often none where a compiled function is called again.
    """
    first = {one.direction: one for one in run.transfers if one.phase == "first call"}
    for one in run.transfers:
        if one.phase != "second call":
            continue
        before = first.get(one.direction)
        at_first = before.num_bytes if before is not None and one.unsized else 0
        if max(one.num_bytes, at_first) >= _TRANSFER_BYTES:
            told = f"; JAX does not say the size of {one.unsized}, in the first call it was {at_first:,} bytes in all"
            yield _finding(
                "harmful", "transfers", f"{one.direction} transfers", subject,
                f"{one.count} in the second call, {one.num_bytes:,} bytes{told if one.unsized else ''}",
                "Put arrays on the device once (jax.device_put) and keep them there; fetch the next batch while this "
                "one is computed",
            )  # fmt: skip


def _wide(run: ProgramRun, subject: str) -> Iterator[Finding]:
    """Matrix products of wide operands."""
    groups: dict[tuple[str, str, str], int] = defaultdict(int)
    for dots in run.dots:
        if dots.left in _WIDE or dots.right in _WIDE:
            groups[dots.left, dots.right, dots.module] += dots.count
    for (left, right, module), count in groups.items():
        yield _finding(
            "harmful", "wide-operands", module, subject, f"{count} matrix products of {left} and {right}",
            "bfloat16 operands with preferred_element_type=float32 take the MXU once and half the bandwidth, where "
            "the result is still good enough",
        )  # fmt: skip


def _precise(run: ProgramRun, subject: str) -> Iterator[Finding]:
    """Products of several passes: asked for as a setting, or at the operation."""
    asked = run.configuration.get("jax_default_matmul_precision", "None")
    if asked.lower() in _PRECISE:
        yield _finding(
            "harmful", "precision", f"jax_default_matmul_precision={asked}", subject,
            "matrix products of float32 are made of three or six passes of bfloat16", "Leave it at its default",
        )  # fmt: skip
        return
    count = sum(dots.count for dots in run.dots if "HIGH" in dots.precision)
    if count:
        yield _finding(
            "harmful", "precision", "precision=", subject, f"{count} matrix products ask for more than one pass",
            "Leave precision at its default where the result is still good enough",
        )  # fmt: skip


def _uncached(run: ProgramRun, subject: str) -> Iterator[Finding]:
    """No persistent cache, and a compilation that it would keep."""
    slow = [c for c in run.compilations if c.seconds >= _CACHED_SECONDS]
    folder = run.configuration.get("jax_compilation_cache_dir", "None")
    is_on = run.configuration.get("jax_enable_compilation_cache") == "True" and folder not in ("None", "")
    if slow and not is_on:
        yield _finding(
            "missing", "no-cache", "jax_compilation_cache_dir", subject,
            f"{len(slow)} compilations took {sum(c.seconds for c in slow):.2g} s, and will again in the next process",
            "Set JAX_COMPILATION_CACHE_DIR (not where dumps are read), or compile ahead of time",
        )  # fmt: skip


def _switches(run: ProgramRun, subject: str) -> Iterator[Finding]:
    """Settings for debugging that slow everything; the platform not set."""
    for name in ("jax_disable_jit", "jax_debug_nans"):
        if run.configuration.get(name) == "True":
            yield _finding("harmful", "debugging", name, subject, f"{name} is on", "Turn it off where time matters")
    if run.configuration.get("jax_platforms", "None") in ("None", ""):
        yield _finding(
            "missing", "no-platform", "jax_platforms", subject,
            f"jax_platforms is not set, JAX took {run.platform}: it falls back to the CPU where nothing else starts",
            "Set JAX_PLATFORMS=tpu (or cuda)",
        )  # fmt: skip


RULES: tuple[Callable[[ProgramRun, str], Iterator[Finding]], ...] = (
    _recompiled, _made_anew, _transferred, _wide, _precise, _uncached, _switches,
)  # fmt: skip
