"""FIDELITY.md with its plot, and FIDELITY_ROWS.md: two pages from rows that have been simulated."""

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import fidelity_statistics as statistics
import numpy as np
from fidelity_statistics import KINDS, ONE_DEVIATION, OTHER, TWO_DEVIATIONS, Others, Point, grouped, pair_error, summary
from tabulate import tabulate

from harness import chips
from harness.chips.row import Calibrated
from harness.judge.simulate.uncertainty import DEVIATIONS_OF_95_PERCENT, relative_uncertainty

_INTRO = """# How near the simulator comes to real TPUs

Device times published with the tokamax package for v5e, v5p, v6e and v7x, against what the simulator makes of the
schedules that the TPU compiler emits for the same operations, without a TPU. Every row is compiled through tokamax's
own entry points with the published operands, layouts and configuration, XLA's copies around the kernel included, and
what is compared is the plain simulated time: nothing is added for how the times were taken. What XLA has the runtime
fetch before a program starts (cross-program prefetch) is taken as fetched, because the published times do not hold
it; a judged program fetches its own. [FIDELITY_ROWS.md](FIDELITY_ROWS.md) has each row, the rows that constants were
fitted to, what earlier simulators predicted, and what is compiled otherwise than measured.

Compiled with {compiler}; which compiler the published times were taken with is not known.

    uv pip install -e '.[bench]' && python benchmarks/fidelity.py --write     # all rows: many hours, can be stopped
    python benchmarks/fidelity.py --each 5 --write                            # the five cheapest of each kind
    python benchmarks/fidelity.py --check                                     # twenty rows anew, about five minutes
    python benchmarks/fidelity.py --pages                                     # these pages again from their figures

with Python 3.12 or newer. The figures of every row are in `data/fidelity_rows.tsv`.

![ratio of simulated to measured time](fidelity.png)
"""

_SEALED = """## Rows that were sealed

148 device times of the same package were kept from this simulator. Its predictions of them were written down and sealed
before anybody compared them (simulator of 2026-11-22). The error was 3.1 % in the median, 11.8 % at the 90th percentile
and 50 % at worst.

| operation | median | 90th percentile |
|---|---|---|
| attention forward | 2.6 % (v6e 1.3 %, v7x 3.2 %, v5p 5.1 %) | 8.0 % (v6e 2.2 %, v7x 5.3 %, v5p 11.0 %) |
| attention backward | 3.0 % | 10.1 % |
| ragged dot | 3.9 % (v6e 5.2 %) | 10.3 % (v6e 16.1 %) |
| normalization | 2.9 % | 12.4 % |
| gated linear unit | 1.9 % | 7.8 % |
| cross-entropy, v5p | 0.7 % | 7 % |
| cross-entropy, v7x | 0.5 % | 3 % |
| cross-entropy, v6e | 12.3 % | 23.5 % |

61 % of them lay within one plus/minus as it was then and 85 % within two, where 68 and 95 % are expected: the
plus/minus of a time is 1.2 times as wide since. Other kernels that this simulator had not seen: on v6e large flash
attention was off by 1.5 %, splash attention by 2.4 % (forward and backward together 4.4 %), XLA's matmuls by 0.4 to
1.3 %, flash and splash attention with blocks of 128 by +19.8 and +17.9 %, int8 matmuls by -11 %. Fifteen variants of
one large kernel on v7x were off by 1.3 % in the median and 2.6 % at worst, and all 27 pairs of them that differ by 2 %
were ordered rightly. Two published rows of one program (a triangle multiplication with and without residuals) differ by
26 %: so much noise has the data itself."""

_PROTOCOL = """## Which rows are for what

The first hexadecimal digit of a problem's SHA-256 decides (`fidelity_rows.py`): 0, 2, 4, 6, 8 and, since 2026-11-25, 1
for fitting; a, c, e and, since then, 3 for validation; the rest is not looked at. Twins, which differ in a reduction,
in residuals or in how group sizes are written, are for what the strictest of them is. Rows that were read before that
keep their place here, but those with a stricter twin are fitted to no more. Of the flash-attention forward rows the 66
that were published here before are for fitting, of its other rows those of digit 1. Predictions of validation rows are
written to `data/fidelity_predictions.tsv` and committed before their times are read: the code refuses to read the time
of a row without one. Errors of validation rows are those of the predictions, whatever the simulator says today. Where a
constant or rule has changed since they were read, they are no validation of the new simulator: it is given new
rows.{ran}

{without}"""

_FLOOR = """## How well the published times repeat

Five samples of a row repeat to {spread} in the median. That is not how well a time can be known: problems that were
published twice for v7x, months and compilers apart, differ by 4.0 % in the median and 6.5 % at the 90th percentile
(backward passes: 3.4 % and 14 %). Below that nobody can be right on v7x. Of other chips nothing is known twice."""

_DIFFERENCES = """## What is compiled otherwise than measured

- The compiler: today's, not the one of the measurement. Today's keeps the transposed V of some attention rows on v6e in
  VMEM, for instance, which saves two passes over HBM, up to a tenth of the time of short sequences.
- Copies, gathers, scatters, reductions and reshapes that today's compiler would give to the SparseCore are kept on the
  TensorCore, because the simulator has no latency for the SparseCore.
- The tables of ragged dot's tiles are constants here, computed beforehand; on the device XLA computes them first.
- Products with transposed weights on v5e and v7x have tile_k and tile_n exchanged, because tokamax read the
  configuration the other way round when they were published: see `fidelity_compile.py`.
- Chunked cross-entropy with residuals is left out: today's compiler makes two loops of it, one for the loss and one for
  the residuals, and the published times are those without residuals.
- Gated linear units of bfloat16 are left out since 2026-11-24: libtpu 0.0.50.1 makes a pass over HBM of its own of the
  product's conversion to float32, 0.0.42.1 does not, so that it moves 14 to 19 % fewer bytes; of all other gated linear
  units and normalizations the two move the same but for 3 %. At the published bandwidth the bytes of the older program
  would take 12 % longer than the published times of the three rows of v5p, those of today's 37 %. Seven rows had been
  read when that was found, and were off by -14 to +41 %.
"""

_MISSING = """## What is not explained

Structure that the errors point to and no switch here has; FIDELITY_ROWS.md has what was found out about each.

- v6e: cross-entropy is too fast, XLA's own and the kernel's backward pass; products of 128 groups of 2048 x 768 by 8 to
  15 %, on v7x too. Flash and splash attention with blocks of 128 are 18 to 20 % too slow.
- v5p: products are up to 6 % too slow, and those whose first group holds all rows 8 to 9 % too fast; ragged dot v2
  takes half of the published time.
- v7x: backward attention of head_dim 64, where 42 % are XLA's passes over arrays of 64 lanes, is up to 25 % too slow.
- `matmul_slowdown` has no known cause, and `matmul_queue` none for v6e alone."""

_UNEXPLAINED = """## What is not explained

- That a cross-program prefetch is no part of the published times is inferred: with it, gated linear units on v6e are
  up to 21 % too slow, without it within 2 %, but for two of ten that become 7 % too fast. Each run was profiled alone,
  so that it must be the runtime that fetches before it starts the program.
- Grouped products on v5p are up to 6 % too slow, but two rows, whose first group of eight holds everything, are 8 to
  9 % too fast.
- Grouped products on v6e are some 4 % too fast, and up to 14 %. With the constants before these, most of their steps
  took 0.2 to 0.7 us longer than simulated, whatever their length; the gradients' steps, most of which have three or
  four buffers instead of two, did not. On v7x it was the same until one transfer alone was limited to 1024 bytes a
  cycle: a group's weights are fetched in one piece. On v6e no such limit suits all rows (0.65 to 0.8 of the bandwidth
  would be needed), and 10 % less bandwidth for all reads does as well, so that is put in. A higher cost of every wait
  is ruled out: attention would be 8 % too slow on v7x.
- Products of 128 groups with 2048 x 768: four rows on v7x and v6e are 8 to 15 % too fast.
- Backward attention of 512 rows and head_dim 256 on v7x: 12 % too fast. Sixty percent of it are XLA's copies. With
  head_dim 64 and 2048 rows, and with 192 for V, it is as much too slow.
- That a prep of the left operand waits for the matmul before it is ruled out: backward attention would be 60 % and
  products 30 % too slow.
- What lacks on v6e goes with the fetches of a group's weights, 0.1 to 0.4 us a megabyte, and more where a block of
  columns is cut out of wider weights: with the same tiles and 512 columns a row is 1 % too fast, with 2048 14 %.
- Cross-entropy on v6e: the kernel's forward pass was 9 % too slow until a matmul could wait in front of its unit
  (`matmul_queue`): a matmul that is late by a few cycles kept the pushes behind it waiting, and these the other unit.
  Its backward pass is 3 to 12 % too fast, XLA's own 5 to 8 % with rows of either type; on v5p and v7x the same programs
  are within 2 %. Five percent less bandwidth would halve that, and normalization and gated linear units would be
  further off. XLA's own with float32 rows was half as slow again as published (+48 to +53 %, and 4 in 10 cycles waits
  for units) until a transposed push of float32, which has half as many rows as one of bfloat16, took half as long: 4
  cycles, by the compiler's own spacing.
- Gated linear units and triangle multiplications on v6e push their weights so too: with 4 cycles they come out 2 to 3 %
  too fast, where they were within 2 %. The constants of v6e were fitted with 8; fitted again they mend that, and
  spoil others (CALIBRATION.md).
- That a matmul waits in front of its unit on v6e and not on v7x, whose units are alike: there backward attention and
  grouped products get worse with it ([CALIBRATION.md](CALIBRATION.md)).
- Ragged dot v2 on v5p takes half of the published time, here on one core of two.
- That a stream of matmuls is slower than its rows by 1/32 (`matmul_slowdown`) on v5e and v7x, and by 3/64 on v6e, is a
  fit without a known cause; v5p has none. Without it attention on v7x would lose its bias of 2 %, but grouped products
  on v6e and backward attention would be 1 to 2 % worse.
"""

_VALIDATION = """## Validation rows

No constant was fitted to them; they were predicted before their times were read. A row that comes out otherwise today
than predicted, by more than 0.1 %, validated an earlier simulator: FIDELITY_ROWS.md has it.

"""
_NOT_SHOWN = """What these rows cannot show:

- Plain matmuls by XLA of 1024 rows and more, and int8 matmuls: only the sealed rows hold any. Of fp8 there are two rows
  for fitting on v7x and two for validation.
- How near a kernel comes to the peak. Plain matmuls are known to reach about 92 % of it on a real v5e; simulated, XLA's
  own of 8192 takes 92.7 %, our champion there 95.6 %, our attention 93.7 %. No row says how near one can
  come, so figures above 93 % may be some percent too good, and differences among them are worth more than their level.
- How much of its bandwidth a v5e reaches: no row there is bound by it, so transfers run at all of the published
  bandwidth, where v6e's reads and writes were found to reach 90 and 82 %, and v7x's writes 67 %. A kernel bound by
  memory comes out too fast by about as much: RMSNorm at 99.7 % of the bandwidth.
- Normalization: all validation rows but one of v6e had been read by earlier simulators;
  [FIDELITY_ROWS.md](FIDELITY_ROWS.md) has what they come to today."""


def page(found: list[Point], compiler: str) -> str:
    """The page that people read, as Markdown: what was sealed, what was validated, what is uncertain, the constants."""
    validation = [point for point in found if point.purpose == "validation"]
    parts = [
        _INTRO.format(compiler=compiler),
        _SEALED,
        _VALIDATION + _table(validation),
        _aims(found),
        _far(validation),
        _uncertainty(found),
        _constants(),
        _MISSING,
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def rows_page(found: list[Point], others: Others) -> str:
    """The page of the rows themselves, as Markdown: their protocol, fitted and earlier ones, pairs, each row."""
    fit = [point for point in found if point.purpose == "fit"]
    parts = [
        _ROWS_INTRO,
        _protocol(found, others),
        _FLOOR.format(spread=f"{100 * float(np.median([point.spread for point in found])):.1f} %"),
        _DIFFERENCES,
        "## Rows that constants were fitted to\n\n" + _table(fit),
        _earlier([point for point in found if point.purpose == "earlier"]),
        "## Two programs for one problem\n\n" + _pairs(found),
        _UNEXPLAINED,
        _rows(found),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


_ROWS_INTRO = """# The rows behind FIDELITY.md

[FIDELITY.md](FIDELITY.md) says how near simulated times come to published ones. This page, made by the same command,
has the rows: which are for what, what they were compiled like, and the error of each."""

# What a constant does is said by Machine; here by what it was found.
_FOUND_BY = {
    "hbm_read_share": "rows bound by HBM on v5p and v6e, which come out too fast at all of the bandwidth",
    "hbm_write_share": "the same, and gradients of grouped products on v7x",
    "dma_latency_seconds": "attention on 512 rows, which waits for its transfers in every step; v5e: ragged dot",
    "dma_write_latency_seconds": "grouped products that wait for each of their results",
    "transfer_seconds": "rotary embedding on v7x: 4163 transfers in 53 us",
    "wait_seconds": "the same: 49 waits in 53 us",
    "transfer_bytes_per_cycle": "grouped products on v7x, which wait for one large block when the group changes",
    "matmul_slowdown": "streams of matmuls in attention and grouped products; no cause is known",
    "matmul_queue": "a structure: attention on v6e, and cross-entropy there, which no constant was fitted to",
}


def _constants() -> str:
    simulated = [name for name in chips.names() if chips.row(name).calibrated is not None]
    lines = []
    for field in dataclasses.fields(Calibrated):
        values = [getattr(chips.row(name).calibrated, field.name) for name in simulated]
        is_time = field.name.endswith("_seconds")
        shown = [f"{1e9 * value:g} ns" if is_time else f"{value:g}" for value in values]
        lines.append([f"`{field.name}`", *shown, _FOUND_BY[field.name]])
    return f"""## Constants that were fitted

All others are published or read off the compiler (docs/SIMULATOR.md). Fitted by hand, one at a time, each to the rows
that show it. [CALIBRATION.md](CALIBRATION.md) fits them all at once: how far each can be moved, which operation holds
it, and whether a joint fit predicts an operation that it has not seen.

{_markdown(lines, ("constant", *simulated, "found by"))}"""


_HEAD = ("operation", "chip", "rows", "median error", "90th percentile", "worst", "bias", "within 68, 95 %")


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _table(found: list[Point]) -> str:
    lines = []
    for kind, of_kind in grouped(found, lambda point: point.kind).items():
        for chip, here in [*grouped(of_kind, lambda point: point.chip).items(), ("all", of_kind)]:
            lines.append([kind, chip, *_summed_up(here)])
    lines.append(["all", "all", *_summed_up(found)])
    return _markdown(lines, _HEAD)


def _summed_up(here: list[Point]) -> list[str]:
    one = summary(here)
    within = ", ".join(_percent(share, 0) for share in _within(here))
    return [
        str(one.rows),
        *(_percent(error) for error in (one.median, one.most, one.worst)),
        f"{100 * one.bias:+.1f} %",
        within,
    ]


def _within(here: list[Point]) -> tuple[float, float]:
    """The shares of these rows within what is claimed for 68 and for 95 % of them."""
    wide = DEVIATIONS_OF_95_PERCENT
    return statistics.covered(here, _claimed), statistics.covered(here, lambda point: wide * _claimed(point))


def _earlier(earlier: list[Point]) -> str:
    """What earlier simulators predicted, and what comes out now: no validation, for the times were known by then."""
    if not earlier:
        return ""
    now = statistics.as_of_today(earlier)
    return f"""## Rows that earlier simulators were validated with

As they were predicted then:

{_table(earlier)}

The same rows as they are simulated today. No constant was fitted to them, but they had been read when today's were.

{_table(now)}"""


def _far(validation: list[Point]) -> str:
    long = [point for point in validation if point.measured_seconds > 100e-6]
    far = [point for point in long if abs(point.error) > 0.15]
    return (
        f"Of {len(long)} validation rows above 100 us {len(far)} are off by more than 15 %.\n\n"
        f"{_unvalidated(validation)}\n\n{_NOT_SHOWN}"
    )


# Aims of validation rows: errors, rows within a claimed 68 and 95 %, and pairs that are ordered rightly.
_MEDIAN, _MOST, _WORST_OF_LONG, _ORDERED = 0.02, 0.06, 0.15, 0.9
_COVERAGES = (0.65, 0.71), (0.92, 0.98)
# The error of an operation that is left out of a fit, over its error in the fit.
_LEFT_OUT = 1.5
# Pairs whose published times differ by less than this tell nothing.
_APART = 0.03
_CALIBRATION = Path(__file__).parent / "data" / "calibration.json"


def _aims(found: list[Point]) -> str:
    """What was aimed at, and what the validation rows say."""
    validation = [point for point in found if point.purpose == "validation"]
    one = summary(validation)
    long = [abs(point.error) for point in validation if point.measured_seconds > 100e-6]
    of_chip = {chip: summary(here).median for chip, here in grouped(validation, lambda point: point.chip).items()}
    others = [error for chip, error in of_chip.items() if chip != "v6e"]
    lines = [
        _aim("median error", _MEDIAN, one.median),
        _aim("90th percentile", _MOST, one.most),
        _aim("worst above 100 us", _WORST_OF_LONG, max(long, default=0.0)),
        _aim("median error of v6e, no worse than another chip's", max(others, default=0.0), of_chip.get("v6e", 0.0)),
    ]
    lines += _coverages(found)
    apart = [
        (a, b)
        for a, b in statistics.rivals(statistics.as_of_today(found))
        if abs(np.log(a.measured_seconds / b.measured_seconds)) > _APART
    ]
    ordered = float(
        np.mean(
            [(a.measured_seconds < b.measured_seconds) == (a.simulated_seconds < b.simulated_seconds) for a, b in apart]
        )
    )
    lines.append(
        [
            f"two programs of one problem ordered rightly ({len(apart)} pairs that differ by 3 %)",
            _percent(_ORDERED, 0),
            _percent(ordered, 0),
            _reached(ordered >= _ORDERED),
        ]
    )
    for chip, fitted in sorted(json.loads(_CALIBRATION.read_text(encoding="utf-8")).items()):
        left = [operation for operation in fitted["operations"].values() if "left out" in operation]
        if left:
            ratio = sum(each["left out"] for each in left) / sum(each["fitted"] for each in left)
            lines.append(
                [
                    f"{chip}: error of a left-out operation over its fitted one",
                    f"{_LEFT_OUT}",
                    f"{ratio:.2f}",
                    _reached(ratio <= _LEFT_OUT),
                ]
            )
    return "## Aims\n\n" + _markdown(lines, ("of validation rows, but where it says left out", "aim", "is", ""))


def _coverages(found: list[Point]) -> list[list[str]]:
    """What is claimed for 68 and 95 % of the rows, each operation left out in turn: all, by chip, and short ones."""
    scored = statistics.left_out(statistics.unfitted(found))
    groups = {"all": scored}
    for chip in sorted({point.chip for point, *_ in scored}):
        groups[chip] = [one for one in scored if one[0].chip == chip]
    short = f"operations under {1e6 * statistics.SHORT_SECONDS:.0f} us"
    groups[short] = [one for one in scored if one[0].operation_seconds < statistics.SHORT_SECONDS]
    lines = []
    for name, rows in groups.items():
        shares = [float(np.mean([one[place] for one in rows])) for place in (1, 2)]
        wanted = "; ".join(f"{_percent(low, 0)} to {_percent(high, 0)}" for low, high in _COVERAGES)
        # As they are printed, in whole percent.
        ends = zip(_COVERAGES, shares, strict=True)
        is_reached = all(low <= round(share, 2) <= high for (low, high), share in ends)
        covers = f"left-out operations within 68 and 95 %: {name} ({len(rows)} rows)"
        lines.append([covers, wanted, "; ".join(_percent(share, 0) for share in shares), _reached(is_reached)])
    return lines


def _aim(name: str, most: float, value: float) -> list[str]:
    return [name, _percent(most), _percent(value), _reached(value <= most)]


def _reached(is_reached: bool) -> str:
    return "reached" if is_reached else "not reached"


# With fewer validation rows an operation or dtype of a chip is unvalidated.
_ENOUGH = 5


def _unvalidated(validation: list[Point]) -> str:
    """What has too few validation rows for a claim: operations and dtypes, by chip."""
    parts = []
    for chip in (name for name in chips.names() if chips.row(name).calibrated is not None):
        here = [point for point in validation if point.chip == chip]
        kinds = Counter(point.kind for point in here)
        # What a loss hands back is a scalar and stands first.
        operands = (re.search(r"(\w+)\[\d", point.problem) for point in here)
        dtypes = Counter(operand[1] for operand in operands if operand)
        few = [kind for kind in (*KINDS.values(), OTHER) if kinds[kind] < _ENOUGH]
        few += [dtype for dtype in ("f32", "bf16", "f8_e4m3fn", "i8") if dtypes[dtype] < _ENOUGH]
        parts.append(f"{chip}: {', '.join(few)}" if few else f"{chip}: none")
    return (
        f"Unvalidated, because fewer than {_ENOUGH} validation rows have them (an operation; the type of a first "
        "operand):\n\n" + "\n".join(f"- {part}" for part in parts)
    )


def _protocol(found: list[Point], others: Others) -> str:
    usable = others.rows
    ran = Counter("fit" if point.purpose == "fit" else "validation" for point in found)
    text = (
        f"\n\nOf {usable['fit']} rows for fitting {ran['fit']} were run, of {usable['validation']} for validation "
        f"{ran['validation']}, the cheapest to compile of each kind; {usable['untouched']} are left alone."
    )
    lines = [list(map(str, line)) for line in others.without]
    table = "Rows without a latency:\n\n" + _markdown(lines, ("operation", "chip", "why", "rows")) if lines else ""
    return _PROTOCOL.format(ran=text, without=table)


def _claimed(point: Point) -> float:
    return relative_uncertainty(point.chip, point.operation_seconds)


def _uncertainty(found: list[Point]) -> str:
    rows = statistics.unfitted(found)
    likely = statistics.spread(rows)
    scored = statistics.scores(rows)
    once, mostly = (statistics.expected(scored, fraction) for fraction in (ONE_DEVIATION, TWO_DEVIATIONS))
    # Of each row by what the others let one expect of it.
    within = [[score <= limit for score in scored] for limit in (once, mostly)]

    def shares(chip: str = "", purpose: str = "") -> list[str]:
        places = [
            place for place, point in enumerate(rows) if chip in ("", point.chip) and purpose in ("", point.purpose)
        ]
        return [_percent(float(np.mean([here[place] for place in places])), 0) if places else "" for here in within]

    lines = []
    for chip, here in grouped(rows, lambda point: point.chip).items():
        earned = likely.by_chip[chip], once * likely.by_chip[chip], relative_uncertainty(chip)
        lines.append([chip, str(len(here)), *map(_percent, earned), *shares(chip=chip)])
    validation = [point for point in found if point.purpose == "validation"]
    head = ("chip", "rows", "scale", "earned", "used", "within 68 %", "within 95 %")
    return f"""## How far a simulated time may be off

The judge compares two times with the error within which one more row lies with 68 %
(`harness/judge/simulate/uncertainty.py`); the plus/minus beside a time is 1.2 times that, as the sealed rows ask for.
It is a fraction of the time, by chip, and for each HLO operation called {1e6 * once * likely.operation_seconds:.2f}
us (its first fetch and its last store), as squares. It is earned by the rows that no constant was fitted to, as they
are simulated today; for v5e, of which there are three, by all. Rows for fitting alone would claim less than new rows
show. Both numbers are the most likely ones for the errors, whose tails are longer than a normal distribution's (that
of an operation not below 0.25 us, so that short programs are covered: CALIBRATION.md), times
{once:.2f}, so that of n rows, each left out in turn, the k-th best lies within it, k = 0.68 (n + 1) rounded up. 95 %
lie within {mostly / once:.1f} times as much, not within twice. That shares of the time spent waiting for transfers,
or for the units, tell more about the error of a row that is left out, was tried: they do not.

{_markdown(lines, head)}

The last two columns leave each row out in turn. So do these figures: of the {len(validation)} validation rows
{" and ".join(shares(purpose="validation"))} lie within the 68 % and 95 % intervals. int8, fp8 and plain matmuls have
too few rows here for a claim: they are unvalidated."""


def _pairs(found: list[Point]) -> str:
    pairs = statistics.rivals(statistics.as_of_today(found))
    lines = [
        [
            a.chip,
            a.problem[:70],
            f"{_operation(b)} / {_operation(a)}",
            f"{b.measured_seconds / a.measured_seconds:.3f}",
            f"{b.simulated_seconds / a.simulated_seconds:.3f}",
            f"{100 * np.expm1(-pair_error(a, b)):+.1f} %",
        ]
        for a, b in pairs
    ]
    within = [abs(pair_error(a, b)) <= max(_claimed(a), _claimed(b)) for a, b in pairs]
    ordered = [
        (a.measured_seconds < b.measured_seconds) == (a.simulated_seconds < b.simulated_seconds) for a, b in pairs
    ]
    head = ("chip", "problem", "which", "measured ratio", "simulated ratio", "error")
    return f"""Two programs for one problem share errors, so that their ratio should be off by no more than either time.
Published rows hold such pairs: one problem computed by two operations, of all purposes here. Of {len(pairs)} the
ratio of {sum(within)} is off by no more than the larger plus/minus, and in {sum(ordered)} the faster one is told
rightly. A champion and a candidate mostly differ by less than these.

{_markdown(lines, head)}"""


def _operation(point: Point) -> str:
    return point.operation.removeprefix("pallas_").removeprefix("mosaic_").removeprefix("tpu_")


def _rows(found: list[Point]) -> str:
    lines = [
        [
            point.row.rpartition("-")[2],
            point.chip,
            _operation(point),
            point.problem[:70],
            point.purpose,
            f"{1e3 * point.measured_seconds:.3f} ms",
            f"{1e3 * point.simulated_seconds:.3f} ms",
            f"{100 * point.error:+.1f} %",
        ]
        for point in sorted(found, key=lambda p: (p.kind == OTHER, p.kind, p.chip, p.purpose, p.measured_seconds))
    ]
    head = ("row", "chip", "operation", "problem", "for", "measured", "simulated", "error")
    return "## Each row\n\n" + _markdown(lines, head)


def _markdown(lines: list[list[str]], head: tuple[str, ...]) -> str:
    return str(tabulate(lines, head, tablefmt="github", disable_numparse=True))


def write(directory: Path, pages: dict[str, str], found: list[Point]) -> None:
    """Writes the pages, by their names, and fidelity.png into `directory`."""
    import matplotlib as mpl
    from matplotlib import pyplot

    for name, text in pages.items():
        (directory / name).write_text(text, encoding="utf-8")
    mpl.use("Agg")
    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    axes.axhspan(0.95, 1.05, color="0.92")
    axes.axhline(1, color="0.5", linewidth=0.8)
    for (chip, here), colour in zip(grouped(found, lambda p: p.chip).items(), ("C0", "C1", "C2", "C3"), strict=False):
        for purpose, marker in (("fit", "o"), ("validation", "^"), ("earlier", "x")):
            some = [point for point in here if point.purpose == purpose]
            axes.plot(
                [1e3 * point.measured_seconds for point in some],
                [1 + point.error for point in some],
                marker,
                color=colour,
                markersize=4,
                label=f"{chip}, {purpose}",
                alpha=0.8,
            )
    axes.set(xscale="log", xlabel="measured, ms", ylabel="simulated / measured")
    axes.legend(frameon=False, fontsize="small", ncols=2)
    figure.savefig(directory / "fidelity.png", dpi=110)
    pyplot.close(figure)
