"""The checklist of a program: compilations and their causes, transfers and precision, compared with targets."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.hardware import DEFAULT_CHIP, Chip, chip_of_device
from harness.hardware import chip as chip_named
from harness.records import Table
from harness.records.doctor import Compilation, Dots, Phase, ProgramRun
from harness.records.table import Cell, Origin
from harness.units import decimal, quantity
from harness.workbench.doctor import findings
from harness.workbench.doctor.findings import DoctorFinding
from harness.workbench.hlo.interconnect import host_bytes_per_second, host_rates
from harness.workbench.hlo.matrix_fill import fill_fraction
from harness.workbench.tables import columns, table

_SECTION_8 = "protocol, section 8"
# Targets of section 8.
COMPILATION_TARGET, INPUT_TARGET, TC_TARGET, HBM_TARGET = 0.05, 0.10, 0.80, 0.70
# The cost of smaller transfers is mostly fixed: at 13 GB/s (PCIe) 64 KiB take 5 us, about the fixed cost of a transfer.
_TRANSFER_BYTES = 64 << 10
# The default of jax_persistent_cache_min_compile_time_secs: programs that compile faster are not stored.
_CACHED_SECONDS = 1.0
_WIDE, _NARROW = ("f32", "f64"), ("bf16", "f16")
# From this number on, products of one size are worth batching. We chose it so that a model of a dozen layers does not
# reach it.
_MANY_PRODUCTS = 16
_PRECISE = ("highest", "float32", "high", "bfloat16_3x", "tensorfloat32", "f32_f32_f32", "bf16_bf16_f32_x6")
_OUTSIDE = "an operation outside any jit"
# Fewer operations outside jit in a call are not a fault: they make inputs or read results.
_OPERATIONS_ALONE = 5
_NAMED = 4
# Shorter waits are noise of the clock and the profiler. On a CPU the scheduler adds noise, because XLA shares the cores
# with other processes (time slices took 10 ms on a busy machine).
_NOTABLE_SECONDS, _NOTABLE_ON_A_CPU = 1e-3, 50e-3
# Smaller products take under a microsecond on any TPU. A product with less than a tenth of all FLOPs is not worth
# changing.
_NOTABLE_FLOPS, _NOTABLE_SHARE = 1e7, 0.10
# With three quarters of the cells in use, a product takes a third longer.
_FULL = 0.75
_UNDER, _OVER, _TOO_SHORT = "under the target", "over the target", "too short to tell"

# Rules whose findings have the severity `missing`; findings of all other rules are `harmful`.
_MISSING = ("no-cache", "no-platform")
_REMEDIES = {
    "jit-in-loop": "Apply jax.jit once, outside loops and functions that are called often",
    "transfers": "Put arrays on the device once (jax.device_put) and keep them there; fetch the next batch while the "
    "current one is computed",
    "wide-operands": "Use bfloat16 operands with preferred_element_type=float32 where the result is still good enough: "
    "one pass of the MXU, half the bandwidth",
    "narrow-loss": "Cast logits to float32 before the softmax and the loss; products and activations may stay narrow",
    "channels-first": "Keep images as [batch, height, width, channels] (NHWC): then channels fill the 128 lanes; "
    "otherwise XLA transposes",
    "small-products": "Combine the products: jax.vmap, an einsum with a batch dimension, or weights side by side",
    "no-cache": "Set JAX_COMPILATION_CACHE_DIR (not in runs whose dumps are read), or compile ahead of time",
    "debugging": "Turn the setting off where time matters",
    "no-platform": "Set JAX_PLATFORMS=tpu (or cuda)",
    "outside-jit": "Put the whole function under jax.jit, loops of operations into jax.lax.fori_loop or scan",
    "compilation": "Set JAX_COMPILATION_CACHE_DIR, compile ahead of time (jax.jit(f).lower(...).compile()), use "
    "fewer shapes",
    "input": "Prepare the next batch while the step runs (a thread, grain, tf.data) and put it on the device before "
    "the next step (jax.device_put)",
}

_MEASURES = columns("measure;count;seconds=time;num_bytes=bytes;fraction=share;target;reading")
_COMPILATIONS = columns("name=compiled;count;seconds=time;phase;place=called at;arguments;cause")


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """Fractions of the MXU, of HBM and of idle time, from a capture; None if no capture shows the figure."""

    tc: float | None = None
    hbm: float | None = None
    idle: float | None = None


def checklist(run: ProgramRun, subject: str, seen: InUse = InUse()) -> tuple[Table, Table, Table]:
    """Three tables about a run: findings, measures, compilations. `seen` has the figures that only a capture shows."""
    origin: Origin = "measured cpu" if run.platform == "cpu" else "measured"
    table_of_findings, _ = findings.table(
        (*(finding for rule in RULES for finding in rule(run, subject)), *_slow_input(run, subject, seen)),
        title=f"checklist of {subject} on {run.devices} x {run.device_kind}",
        origin=origin,
        notes=run.unread,
        why_empty="no rule finds anything here",
    )
    return table_of_findings, _measures(run, subject, origin, seen), _compilation_table(run, subject, origin)


def _measures(run: ProgramRun, subject: str, origin: Origin, seen: InUse) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for phase, seconds in run.seconds.items():
        rows.append((phase, None, seconds, None, seconds / run.total_seconds, None, None))
    compiling = sum(c.seconds for c in run.compilations) + run.lowering_seconds
    share = compiling / run.total_seconds
    needed = _calls_needed(run, compiling)
    reading = _OVER if needed is None else f"under the target after {quantity(needed, 'call')}"
    reading = _UNDER if share < COMPILATION_TARGET else reading
    target = f"under {COMPILATION_TARGET:.0%}"
    rows.append(("compilation", len(run.compilations), compiling, None, share, target, reading))
    again = [c.seconds for c in run.compilations if c.phase == "second call"]
    if "second call" in run.seconds:
        reading = "compiles again" if again else "none"
        rows.append(("compilation in the second call", len(again), sum(again), None, None, "none", reading))
    for transfer in run.transfers:
        link = _link(run, transfer.direction)
        unread = f"sizes that JAX does not report: {transfer.unsized}" if transfer.unsized else None
        size = transfer.num_bytes if transfer.unsized < transfer.count else None
        took = size / link if size is not None and link else None
        rows.append((f"{transfer.direction}, {transfer.phase}", transfer.count, took, size, None, None, unread))
    where = "unknown on a CPU" if run.platform == "cpu" else "unknown: give a capture (--capture)"
    for name, fraction, least in (("MXU", seen.tc, TC_TARGET), ("HBM", seen.hbm, HBM_TARGET)):
        reading = where if fraction is None else "reached" if fraction >= least else "below the target"
        over = f"over {least:.0%}" + (" when memory-bound" if name == "HBM" else "")
        rows.append((f"{name} in use", None, None, None, fraction, over, reading))
    waited, waiting, reading = _input_wait(run, seen)
    rows.append(("input", None, waited, None, waiting, f"under {INPUT_TARGET:.0%}", reading))
    notes = [
        "Times are wall-clock times of the host until the device is done; targets are those of the protocol, section "
        "8. During this run JAX dumps every module, so first calls take a little longer than in other runs."
    ]
    if reading == _TOO_SHORT:
        notes.append(
            f"Waits for the input under {1e3 * _notable_seconds(run):.0f} ms a call are too short to tell from noise; "
            "they do not count as a finding."
        )
    if run.platform == "cpu":
        notes.append("On a CPU, reading results back is not a transfer, so it is not counted.")
    else:
        predicted = "is unknown, because the bandwidth of this chip's link to the host is unknown"
        if (chip := _chip(run)) is not None:
            host = f"the link to the host, {host_rates(chip)}"
            predicted = f"is predicted: its bytes divided by the bandwidth of {host}"
        notes.append(f"The time of a transfer {predicted}. ratchet.sh xprof steps shows how long devices wait for it.")
    return table("measures", f"measures of {subject}", origin, _MEASURES, rows, notes)


def _chip(run: ProgramRun) -> Chip | None:
    """The chip of the run, which has the link to the host; None for a CPU and for an unknown chip."""
    return None if run.platform == "cpu" else chip_of_device(run.device_kind)


def _link(run: ProgramRun, direction: str) -> float | None:
    """Bytes per second of the link between device and host in one direction; None if there is none or not known."""
    chip = _chip(run)
    return host_bytes_per_second(chip, to_host=direction.startswith("device")) if chip else None


def _input_wait(run: ProgramRun, seen: InUse) -> tuple[float | None, float | None, str]:
    """Seconds that the devices wait for the host, their share of the time, and the comparison with the target in words.

    With a capture, the seconds are None and the share is the devices' idle share of a step. Without a capture, both
    figures come from the second call.
    """
    call = run.seconds.get("second call")
    if seen.idle is not None:
        return None, seen.idle, _UNDER if seen.idle < INPUT_TARGET else _OVER
    if run.own_seconds is None or not call:
        return None, None, "unknown: give a function that is called twice, or a capture (--capture)"
    share = min(1.0, run.own_seconds / call)
    if share < INPUT_TARGET:
        return run.own_seconds, share, _UNDER
    return run.own_seconds, share, _TOO_SHORT if run.own_seconds < _notable_seconds(run) else _OVER


def _notable_seconds(run: ProgramRun) -> float:
    return _NOTABLE_ON_A_CPU if run.platform == "cpu" else _NOTABLE_SECONDS


def _calls_needed(run: ProgramRun, compiling: float) -> int | None:
    """The number of calls after which compilation is below its target.

    None if the second call compiles too, or if there is no second call.
    """
    second = run.seconds.get("second call")
    if second is None or any(c.phase == "second call" for c in run.compilations):
        return None
    return max(1, round(compiling * (1 / COMPILATION_TARGET - 1) / second))


def _compilation_table(run: ProgramRun, subject: str, origin: Origin) -> Table:
    groups: dict[tuple[str, Phase, str, str, str], list[float]] = defaultdict(list)
    for c in run.compilations:
        groups[c.name, c.phase, c.place, ", ".join(c.arguments), c.cause].append(c.seconds)
    rows = [
        (name, len(seconds), sum(seconds), phase, place or None, arguments or None, cause)
        for (name, phase, place, arguments, cause), seconds in groups.items()
    ]
    why = "nothing was compiled: the program uses no operation of JAX, or all modules came from the cache"
    return table("compilations", f"compilations of {subject}", origin, _COMPILATIONS, rows, (), why)


def _finding(rule: str, subject: str, place: str, observation: str, remedy: str = "") -> DoctorFinding:
    """A finding of `rule`; `remedy` is needed if the rule has no fixed remedy."""
    return DoctorFinding(
        severity="missing" if rule in _MISSING else "harmful",
        rule=rule,
        subject=subject,
        place=place,
        observation=observation,
        remedy=remedy or _REMEDIES[rule],
        source=_SECTION_8,
    )


def _recompilations(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Functions that were compiled again because an argument's shape, type or static value changed."""
    groups: dict[tuple[str, str], list[Compilation]] = defaultdict(list)
    for c in run.compilations:
        if c.arguments:
            groups[c.name, ", ".join(c.arguments)].append(c)
    for (name, arguments), again in groups.items():
        observation = (
            f"compiled {quantity(len(again), 'more time')} ({sum(c.seconds for c in again):.2g} s) because {arguments} "
            f"changed: {again[-1].cause}"
        )
        yield _finding("recompiled", name, again[0].place, observation, _remedy(again[-1].cause))


def _remedy(cause: str) -> str:
    if "[" not in cause:
        return "Pass the argument as an array, not as static; if it has few values, compile for each ahead of time"
    before, _, after = cause.split("; ")[0].partition(", was ")
    if before.rpartition(" ")[2].partition("[")[0] != after.partition("[")[0]:
        return "Convert the argument to one type before the call"
    return "Pass few different shapes: pad to a few sizes, with a mask"


def _repeated_jits(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Functions that are compiled again because jax.jit is applied anew each time, in a loop or in a function."""
    counts = Counter((c.name, c.place) for c in run.compilations if c.is_redefinition)
    for (name, place), count in counts.items():
        observation = f"compiled {quantity(count, 'more time')} because jax.jit is applied to a new function each time"
        yield _finding("jit-in-loop", name, place, observation)


def _repeated_transfers(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Large transfers of the second call, which every later call repeats.

    JAX reports sizes in the first call, and often no sizes when a compiled function is called again.
    """
    first = {transfer.direction: transfer for transfer in run.transfers if transfer.phase == "first call"}
    for transfer in run.transfers:
        if transfer.phase != "second call":
            continue
        before = first.get(transfer.direction)
        at_first = before.num_bytes if before is not None and transfer.unsized else 0
        num_bytes = max(transfer.num_bytes, at_first)
        if num_bytes >= _TRANSFER_BYTES:
            observation = f"{quantity(transfer.count, 'transfer')} in the second call, {transfer.num_bytes:,} bytes"
            if transfer.unsized:
                observation += f", not counting {transfer.unsized} of unknown size; the first call transferred "
                observation += f"{at_first:,} bytes in all"
            if link := _link(run, transfer.direction):
                observation += f"; {num_bytes / link:.2g} s at {decimal(link, 'B/s')} (predicted)"
            yield _finding("transfers", f"{transfer.direction} transfers", subject, observation)


def _wide_products(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Matrix products of wide operands, with the types of both operands, for the forward and the backward pass."""
    groups: dict[tuple[str, str, str, str, str], int] = defaultdict(int)
    for dots in run.dots:
        if dots.left in _WIDE or dots.right in _WIDE:
            groups[dots.left, dots.right, dots.module, dots.part, _operands(dots)] += dots.count
    of = {"forward": " in the forward pass", "backward": " in the backward pass"}
    for (left, right, module, part, operands), count in groups.items():
        observation = f"{quantity(count, 'matrix product')} of {left} and {right}{of.get(part, '')}{operands}"
        yield _finding("wide-operands", module, subject, observation)


def _operands(dots: Dots) -> str:
    """The two operands in words: `: activations f32, weights f32 (stored as bf16)`.

    If neither operand is a weight: ` (gradients)` in the backward pass, otherwise "".
    """
    other = "gradients" if dots.part == "backward" else "activations"
    if not dots.weights:
        return " (gradients)" if dots.part == "backward" else ""
    weight_type, other_type = (dots.left, dots.right) if dots.weights == "left" else (dots.right, dots.left)
    stored = "" if dots.weights_stored == weight_type else f" (stored as {dots.weights_stored})"
    return f": {other} {other_type}, weights {weight_type}{stored}"


def _narrow_loss(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Logarithms and exponentials in 16-bit types, as in a softmax or a loss."""
    for module in run.modules:
        for dtype, count in module.transcendentals.items():
            if dtype in _NARROW:
                counted = quantity(count, "logarithm or exponential", "logarithms or exponentials")
                observation = (
                    f"{counted} in {dtype}: a softmax or a loss in this type is accurate to three digits at most"
                )
                yield _finding("narrow-loss", module.module, subject, observation)


def _channels_first(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Convolutions with a layout in which the channels are not last."""
    for module in run.modules:
        first = {order: count for order, count in module.convolutions.items() if not order.endswith("f")}
        if count := sum(first.values()):
            observation = f"{quantity(count, 'convolution')} with the channels not last ([{', '.join(first)}])"
            yield _finding("channels-first", module.module, subject, observation)


def _many_small(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Many products of the same size that take less than a microsecond each."""
    for dots in run.dots:
        each = dots.flops / dots.count / max(1, dots.batch) if dots.count else 0.0
        if dots.batch == 1 and dots.count >= _MANY_PRODUCTS and 0 < each < _NOTABLE_FLOPS:
            observation = (
                f"{dots.count} products of one size in one program, {each:.2g} FLOPs each: starting such a product "
                "takes longer than computing it"
            )
            yield _finding("small-products", f"{dots.module} {dots.count} x {_sizes(dots)}", subject, observation)


def _sizes(dots: Dots) -> str:
    return f"[{dots.rows},{dots.summed}] x [{dots.summed},{dots.columns}]"


def _high_precision(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Products that take several passes of the MXU, because a setting or the operation asks for higher precision."""
    asked = run.configuration.get("jax_default_matmul_precision", "None")
    count = sum(dots.count for dots in run.dots if "HIGH" in dots.precision)
    if asked.lower() in _PRECISE:
        setting = f"jax_default_matmul_precision={asked}"
        observation = "a float32 matrix product takes three or six passes in bfloat16"
        yield _finding("precision", setting, subject, observation, "Leave it at its default")
    elif count:
        observation = f"matrix products that ask for more than one pass: {count}"
        remedy = "Leave precision at its default where the result is still good enough"
        yield _finding("precision", "precision=", subject, observation, remedy)


def _missing_cache(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """A finding if a compilation is slow enough for the persistent cache, and no cache is set up."""
    slow = [c.seconds for c in run.compilations if c.seconds >= _CACHED_SECONDS]
    folder = run.configuration.get("jax_compilation_cache_dir", "None")
    is_on = run.configuration.get("jax_enable_compilation_cache") == "True" and folder not in ("None", "")
    if slow and not is_on:
        observation = f"slow compilations ({len(slow)}) took {sum(slow):.2g} s, and are repeated in each new process"
        yield _finding("no-cache", "jax_compilation_cache_dir", subject, observation)


def _switches(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Findings for debugging settings that slow everything, and for a platform that is not set."""
    for name in ("jax_disable_jit", "jax_debug_nans"):
        if run.configuration.get(name) == "True":
            yield _finding("debugging", name, subject, f"{name} is on")
    if run.configuration.get("jax_platforms", "None") in ("None", ""):
        fallback = "JAX falls back to the CPU if nothing else starts"
        observation = f"jax_platforms is not set, and JAX chose {run.platform}: {fallback}"
        yield _finding("no-platform", "jax_platforms", subject, observation)


def _outside_jit(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Operations outside jit that every call dispatches one by one."""
    # JAX also compiles each operation outside jit to a program, which has the operation's name.
    alone = {c.name.partition("(")[2].rstrip(")") for c in run.compilations if c.cause == _OUTSIDE}
    operations = sorted(
        (dispatched for dispatched in run.dispatched if dispatched.name in alone),
        key=lambda dispatched: (-dispatched.count, dispatched.name),
    )
    count, call = sum(dispatched.count for dispatched in operations), run.seconds.get("second call")
    if count < _OPERATIONS_ALONE or not call:
        return
    names = ", ".join(f"{dispatched.name} {dispatched.count}x" for dispatched in operations[:_NAMED])
    observation = (
        f"the second call dispatches {count} operations one by one, outside any jit; dispatching them takes "
        f"{sum(dispatched.seconds for dispatched in operations):.2g} s of host time, out of {call:.2g} s for the whole "
        "call"
    )
    yield _finding("outside-jit", names, subject, observation)


def _compilation_share(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """A finding if compilation exceeds its target share of the run, or of the second call, which should not compile."""
    phases: tuple[Phase, ...] = ("run", "second call")
    for phase in phases:
        whole = run.seconds.get(phase)
        took = sum(c.seconds for c in run.compilations if c.phase == phase)
        if whole and took >= COMPILATION_TARGET * whole:
            observation = f"compilation takes {took:.2g} s of {whole:.2g} s, over {COMPILATION_TARGET:.0%}"
            yield _finding("compilation", f"{took / whole:.0%} of the {phase}", subject, observation)


def _slow_input(run: ProgramRun, subject: str, seen: InUse) -> Iterator[DoctorFinding]:
    """A finding if the devices wait for the host for over a tenth of the time."""
    waited, share, reading = _input_wait(run, seen)
    if share is None or reading != _OVER:
        return
    where = "of a captured step passes with all devices idle"
    if waited is not None:
        where = f"of the second call ({waited:.2g} s) passes while nothing runs and nothing is dispatched"
    at_work = "meanwhile the host usually prepares input"
    yield _finding("input", f"{share:.0%}", subject, f"{share:.0%} {where}, over {INPUT_TARGET:.0%}: {at_work}")


def _batches_and_layouts(run: ProgramRun, subject: str) -> Iterator[DoctorFinding]:
    """Large products with few rows, or with sizes that leave a part of the matrix unit empty."""
    # For a CPU, the default chip of contests is assumed.
    chip = chip_of_device(run.device_kind) or chip_named(DEFAULT_CHIP)
    whole = sum(dots.flops for dots in run.dots)
    for dots in run.dots:
        if dots.flops < max(_NOTABLE_FLOPS, _NOTABLE_SHARE * whole) or chip.mxu_size is None:
            continue
        product = f"{dots.module} {_sizes(dots)}"
        ridge = chip.ridge("bfloat16")
        if dots.batch == 1 and dots.rows < ridge <= min(dots.summed, dots.columns):
            observation = (
                f"{quantity(dots.rows, 'row')} for {dots.summed} x {dots.columns} weights: under {ridge:.0f} rows "
                f"(the ridge of a {chip.name} in bfloat16) reading the weights takes longer than multiplying"
            )
            # Rounded up to a multiple of 128.
            rows = -(-int(ridge) // 128) * 128
            remedy = f"Raise the batch (rows of a product: batch x sequence of one device) to {rows} or more"
            yield _finding("small-batch", product, subject, observation, remedy)
        fill = fill_fraction(dots.summed, dots.columns, chip.mxu_size)
        if fill < _FULL:
            sizes = (("summed size", dots.summed), ("column count", dots.columns))
            off = [f"{name} {size}" for name, size in sizes if size % chip.mxu_size]
            observation = (
                f"the weights fill {fill:.0%} of the {chip.mxu_size} x {chip.mxu_size} matrix units of a {chip.name}: "
                f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} no multiple of {chip.mxu_size}"
            )
            remedy = (
                f"Make hidden sizes, heads x head size and padded vocabularies multiples of {chip.mxu_size}; arrays "
                "lie in tiles of 8 x 128"
            )
            yield _finding("layout", product, subject, observation, remedy)


RULES: tuple[Callable[[ProgramRun, str], Iterator[DoctorFinding]], ...] = (
    _recompilations,
    _repeated_jits,
    _outside_jit,
    _compilation_share,
    _repeated_transfers,
    _wide_products,
    _narrow_loss,
    _high_precision,
    _many_small,
    _channels_first,
    _batches_and_layouts,
    _missing_cache,
    _switches,
)
