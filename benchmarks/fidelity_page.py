"""FIDELITY.md with its plot, and FIDELITY_ROWS.md: two pages on the rows that have been simulated."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import fidelity_statistics as statistics
import numpy as np
from fidelity_statistics import KINDS, ONE_DEVIATION, OTHER, TWO_DEVIATIONS, Others, Point, grouped, pair_error, summary
from markdown_pages import fill, markdown_table

from harness import chips
from harness.chips.row import Calibrated, ChipRow
from harness.judge.simulate.uncertainty import DEVIATIONS_OF_95_PERCENT, plus_minus_seconds, relative_uncertainty

_INTRO = """# How near the simulator comes to real TPUs

The tokamax package publishes device times. This page compares them with simulated times of the same operations,
compiled through tokamax's entry points with the published operands, layouts and configuration. Both include the copies
that XLA puts around a kernel, but not the fetches before a program starts. [FIDELITY_ROWS.md](FIDELITY_ROWS.md) has
each row and the protocol. Compiled with {compiler}; the compiler of the published times is unknown. To write this page
(Python >= 3.12; `--write` simulates anew):

    uv pip install -e '.[bench]' && python benchmarks/fidelity.py --pages

![ratio of simulated to measured time](fidelity.png)
"""

_PROTOCOL = """## The purpose of each row

A *row* is one published time and its simulated counterpart. The purpose of a row is decided by chance, by the first
hexadecimal digit of its problem's SHA-256 (`fidelity_rows.py`):

- 0, 2, 4, 6, 8 and (since 2026-11-25) 1: for fitting constants;
- a, c, e and (since 2026-11-25) 3: for validation;
- others: unused; their times are not read.

Rows that differ only in a reduction, in residuals or in how group sizes are written are twins. If twins have different
purposes, all of them are unused if one of them is; otherwise all are for validation. Of the flash-attention forward
rows, only two kinds are for fitting: rows of digit 1, and 66 rows that an earlier version of this page had.

The times of validation rows are read only after the predictions have been committed (`data/fidelity_predictions.tsv`;
the code refuses to read the time of a row without a prediction), and their errors are those of the predictions. If a
constant or rule of the simulator changes later, these rows no longer validate it, and new rows are predicted.{ran}

{without}"""

_FLOOR = """## How well the published times repeat

In the median row, the five samples lie within {spread} of each other. But published times are less certain than that:
some problems were published twice for v7x, months apart and with different compilers, and the two times differ by 4.0 %
in the median and 6.5 % at the 90th percentile (backward passes: 3.4 % and 14 %). On v7x no prediction can be expected
to come closer. For other chips no time was published twice."""

_DIFFERENCES = """## How the compiled programs differ from the measured ones

- The compiler is today's, not the one of the measurement. For example, today's compiler keeps the transposed V of some
  attention rows on v6e in VMEM. This saves two passes over HBM: up to a tenth of the time if the sequence is short.
- Copies, gathers, scatters, reductions and reshapes that today's compiler would give to the SparseCore are kept on the
  TensorCore, because the simulator has no latency for the SparseCore.
- The tables of ragged dot's tiles are constants here; on the device XLA computes them before the kernel runs.
- For products with transposed weights on v5e and v7x, tile_k and tile_n of the published configuration are exchanged,
  because tokamax did so when the times were published (`fidelity_compile.py`).
- Chunked cross-entropy with residuals is left out, because the published times are those of the program without
  residuals.
- Gated linear units of bfloat16 have been left out since 2026-11-24, because their measured program is unknown. To
  convert the product to float32, libtpu 0.0.50.1 makes a separate pass over HBM and 0.0.42.1 does not. But even the
  bytes of the older program would take 12 % longer than the published times of three rows on v5p, at the full bandwidth
  of the chip's specification. Seven rows had been read when this was found, and were off by -14 to +41 %.
"""

_UNEXPLAINED = """## What is not explained

- The published times are assumed to leave out cross-program prefetches, by which the runtime fetches operands before a
  program starts. With the prefetch, gated linear units on v6e were up to 21 % too slow; without it, eight of the ten
  rows read by then were within 2 %, and two 7 % too fast.
- Grouped products on v5p are up to 6 % too slow in the simulation. Two are 8 to 9 % too fast: in these, the first of
  eight groups holds all rows.
- Grouped products of bfloat16 on v6e are 3 % too fast in the median, and 19 % at most. A similar error on v7x vanished
  when the simulator limited each transfer to 1024 bytes a cycle, because one transfer fetches a group's weights. On v6e
  no such limit suits all rows. Reducing the bandwidth of all reads by 10 % gives errors as small, so the simulator does
  this. A higher cost of every wait is ruled out: attention would be 8 % too slow on v7x.
- Products of 128 groups of 2048 x 768: the seven rows on v6e and v7x are 2 to 15 % too fast.
- Backward attention of 512 rows and head_dim 256 on v7x is 12 % too fast; XLA's copies are 60 % of its time. With
  head_dim 64 and 2048 rows, or with a head_dim of 192 for V, it is 14 % too slow.
- In the simulator, a `vmatprep` of the left operand does not wait for the previous matmul. If it did, backward
  attention would be 60 % too slow, and products 30 %.
- On v6e, the time by which grouped products are too fast grows with the fetched weights of a group: 0.1 to 0.4 us a
  megabyte, and more if a block of columns is cut out of wider weights. With the same tiles, a row with 512 columns is
  1 % too fast, and a row with 2048 columns is 14 % too fast.
- Cross-entropy on v6e: the backward pass of tokamax's kernel is 1 to 14 % too fast, and XLA's own cross-entropy 5 to
  8 % too fast, whether its rows are bfloat16 or float32. (On v5p and v7x the kernel's backward pass is within 2 %, and
  XLA's own at most 7 and 3 % too fast.) With 5 % less bandwidth these errors would be half as large, but normalization
  and gated linear units would be further off.
- Products whose weights are float8 (v5p, v6e, v7x) or float4 (v7x), of 64 groups of 20 rows, are 20 % too fast on v5p
  and v6e, and 11 % on v7x. The missing time is 0.36 us (v5p), 0.2 us (v6e) and 0.08 us (v7x) for each megabyte of
  weights. Today's compilers do not explain it: libtpu 0.0.42.1 and 0.0.50.1 give the same times within 0.4 %.
- Triangle multiplications on v7x: without residuals, published times are 14 to 36 % longer than with residuals,
  although residuals are additional writes. The simulated times are equal. At 2048 rows the simulation is within 4 %
  with residuals, and 16 % too fast without. On v5p, the published times at 384 rows are equal too, and all three rows
  are within 2 %.
- Ragged dot v2 of 256 groups of 7168 x 512 on v7x is 9 and 10 % too fast. Waits for transfers are at most 6 % of its
  time, waits for units more than half.
- Gated linear units and triangle multiplications on v6e are 2 to 3 % too fast since a transposed push of float32
  weights takes 4 cycles instead of 8. Constants fitted anew remove this error and make others larger
  ([CALIBRATION_HISTORY.md](CALIBRATION_HISTORY.md)).
- In the simulator, a matmul on v6e can wait in front of its unit (`matmul_queue`), but not on v7x, although the units
  are alike: there, a queue makes backward attention and grouped products worse
  ([CALIBRATION_HISTORY.md](CALIBRATION_HISTORY.md)).
- Ragged dot v2 of 128 groups with residuals on v5p, simulated on one of the two cores, takes half of the published
  time.
- On v5e and v7x a stream of matmuls takes 1/32 longer than its rows need, on v6e 3/64 (`matmul_slowdown`); v5p has no
  slowdown. The values are fitted and their cause is unknown. Without them, attention on v7x would lose its bias of 2 %,
  but the errors of grouped products on v6e and of backward attention would be 1 to 2 % larger.
"""

_VALIDATION = """## Validation rows

A row is one published time. Nothing was fitted to these rows, and their times were predicted before the published times
were read. Last column: shares of errors within the judge's bounds (below).

"""
_TRIED = """## What was tried and did not help

- v6e: a queue of several matmuls, or of weight pushes, in front of a unit; a cost for each set of weights, or for each
  run of bytes; a slower single read; short transfers that arrive sooner. v7x: a queue of one matmul.
- v6e fitted again on 2026-11-26: better for operations left out of the fit, worse for most rows that no fit used.
- All constants fitted at once: of the operations left out of the fit, only {joint} are predicted better.
- An uncertainty that depends on where a program's time goes: see [CALIBRATION_HISTORY.md](CALIBRATION_HISTORY.md)."""


def page(points: list[Point], compiler: str) -> str:
    """FIDELITY.md as Markdown: errors by operation and chip, uncertainties, constants, open questions."""
    validation = [point for point in points if point.purpose == "validation"]
    parts = [
        _INTRO.format(compiler=compiler),
        _VALIDATION + _table(validation, is_short=True),
        _aims(points),
        _sealed(validation),
        _uncertainty(points),
        _constants(),
        _TRIED.format(joint=_joint()),
        _unexplained(points),
        _not_shown(points),
    ]
    return fill("\n\n".join(part.strip("\n") for part in parts)) + "\n"


def rows_page(points: list[Point], others: Others) -> str:
    """FIDELITY_ROWS.md as Markdown: the protocol, errors of fitted and of earlier rows, pairs, each row."""
    fit = [point for point in points if point.purpose == "fit"]
    parts = [
        _ROWS_INTRO,
        _protocol(points, others),
        _FLOOR.format(spread=f"{100 * float(np.median([point.spread for point in points])):.1f} %"),
        _DIFFERENCES,
        "## Rows that constants were fitted to\n\n" + _table(fit) + "\n\n" + _found_by(),
        _earlier([point for point in points if point.purpose == "earlier"]),
        "## Two programs for one problem\n\n" + _pairs(points),
        _UNEXPLAINED,
        _rows(points),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


_ROWS_INTRO = """# The rows behind FIDELITY.md

[FIDELITY.md](FIDELITY.md) compares simulated times with published ones. This page, made by the same command, has the
rows: the purpose of each, how the rows were compiled, and the error of each."""

# The rows that determined each constant; Machine describes the constant's effect.
_FOUND_BY = {
    "hbm_read_share": "rows bound by HBM on v5p and v6e, which would be too fast at the full bandwidth",
    "hbm_write_share": "the same rows, and gradients of grouped products on v7x",
    "dma_latency_seconds": "attention on 512 rows, which waits for its transfers in every step; v5e: ragged dot",
    "dma_write_latency_seconds": "grouped products that wait for each of their results",
    "transfer_seconds": "rotary embedding on v7x: 4163 transfers in 53 us",
    "wait_seconds": "the same row: 49 waits in 53 us",
    "transfer_bytes_per_cycle": "grouped products on v7x, which wait for one large block when the group changes",
    "matmul_slowdown": "streams of matmuls in attention and grouped products; no cause is known",
    "matmul_queue": "a switch: attention on v6e, and cross-entropy there, to which no constant was fitted",
}


def _simulated() -> list[str]:
    """The chips for which constants were fitted."""
    return [name for name in chips.names() if chips.row(name).calibrated is not None]


def _found_by() -> str:
    lines = [[f"`{field.name}`", _FOUND_BY[field.name]] for field in dataclasses.fields(Calibrated)]
    return "Constants were fitted by hand, one at a time, each to the rows that show it:\n\n" + markdown_table(
        lines, ("constant", "found by")
    )


def _constants() -> str:
    lines = [
        [f"`{field.name}`", *(_constant(chips.row(name), field.name) for name in _simulated())]
        for field in dataclasses.fields(Calibrated)
    ]
    return f"""## Constants that were fitted

The table has each constant's value in use, and the 95 % interval that the published times allow if only that constant
is moved (`Intervals` in harness/chips). A simulated gain must exist at both ends. [CALIBRATION.md](CALIBRATION.md) says
which operation determines each constant. [SIMULATOR.md](../docs/SIMULATOR.md) says where all other constants come from.

{markdown_table(lines, ("constant", *_simulated()))}"""


def _constant(chip: ChipRow, name: str) -> str:
    """The value of a chip's constant and the interval in which it can be moved; times are in nanoseconds."""
    scale, unit = (1e9, " ns") if name.endswith("_seconds") else (1.0, "")
    low, high = (f"{scale * end:.4g}" for end in getattr(chip.intervals, name))
    return f"{scale * getattr(chip.calibrated, name):.4g}{unit}, {low}-{high}"


_HEAD = ("operation", "chip", "rows", "median error", "90th percentile", "worst", "bias", "within 68, 95 %")


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _table(points: list[Point], *, is_short: bool = False) -> str:
    """The table of errors. The short one has no bias, and no summary row of an operation that only one chip has."""
    lines = []
    for kind, of_kind in grouped(points, lambda point: point.kind).items():
        of_chips = grouped(of_kind, lambda point: point.chip)
        summary_row = [] if is_short and len(of_chips) == 1 else [("all", of_kind)]
        lines += [[kind, chip, *_summed_up(here)] for chip, here in [*of_chips.items(), *summary_row]]
    lines.append(["all", "all", *_summed_up(points)])
    if not is_short:
        return markdown_table(lines, _HEAD)
    bias = _HEAD.index("bias")
    return markdown_table([line[:bias] + line[bias + 1 :] for line in lines], _HEAD[:bias] + _HEAD[bias + 1 :])


def _summed_up(here: list[Point]) -> list[str]:
    error_summary = summary(here)
    within = ", ".join(_percent(share, 0) for share in _within(here))
    return [
        str(error_summary.rows),
        *(_percent(error) for error in (error_summary.median, error_summary.most, error_summary.worst)),
        f"{100 * error_summary.bias:+.1f} %",
        within,
    ]


def _within(here: list[Point]) -> tuple[float, float]:
    """The shares of these rows that lie within the bounds claimed for 68 and for 95 %."""
    wide = DEVIATIONS_OF_95_PERCENT
    return statistics.covered(here, _claimed), statistics.covered(here, lambda point: wide * _claimed(point))


def _earlier(earlier: list[Point]) -> str:
    """The section on rows that validated earlier simulators: errors of their predictions and today's; "" if none."""
    if not earlier:
        return ""
    now = statistics.as_of_today(earlier)
    return f"""## Rows that earlier simulators were validated with

The errors of their predictions:

{_table(earlier)}

The next table has the errors of the same rows as they are simulated today. No constant was fitted to them, but they
had been read before today's constants were fitted.

{_table(now)}"""


def _sealed(validation: list[Point]) -> str:
    """A sentence on the errors of an earlier simulator on the 148 sealed rows."""
    whole, *_ = statistics.sealed()
    return (
        f"For {whole.rows} other times, which an earlier simulator predicted before the comparison, the "
        f"error was {_in_words(whole)} ({_in_short(_sealed_alone(validation))}). {whole.within_one} % of the errors "
        f"were within that simulator's plus/minus, {whole.within_two} % within twice as much."
    )


def _in_words(errors: statistics.StatedErrors) -> str:
    return f"{errors.median} % in the median, {errors.most} % at the 90th percentile and {errors.worst} % at worst"


def _in_short(errors: Iterable[statistics.StatedErrors]) -> str:
    """The median and the 90th percentile of each operation's errors, and its number of rows if it has too few.

    The text begins with the names of the two numbers.
    """
    parts = []
    for each in errors:
        where = "" if each.chip == "all" else f" on {each.chip}"
        few = f" in {each.rows} rows" if each.rows and int(each.rows) < _ENOUGH else ""
        parts.append(f"{each.operation}{where} {each.median} and {each.most} %{few}")
    return f"median and 90th percentile: {', '.join(parts)}"


def _sealed_alone(validation: list[Point]) -> list[statistics.StatedErrors]:
    """The sealed errors to state: of operations with too few validation rows, and the largest 90th percentile."""
    _, *errors = statistics.sealed()
    rows = Counter(point.kind for point in validation)
    largest = max(float(each.most) for each in errors)
    return [each for each in errors if rows[each.operation] < _ENOUGH or float(each.most) == largest]


def readme(points: list[Point]) -> str:
    """README.md's text on the errors, on one line."""
    validation = [point for point in points if point.purpose == "validation"]

    def errors(operation: str, here: list[Point]) -> statistics.StatedErrors:
        error_summary = summary(here)
        median, most, worst = (
            f"{100 * error:.1f}" for error in (error_summary.median, error_summary.most, error_summary.worst)
        )
        return statistics.StatedErrors(
            operation=operation, chip="all", rows=str(error_summary.rows), median=median, most=most, worst=worst
        )

    by_kind = {kind: errors(kind, here) for kind, here in grouped(validation, lambda point: point.kind).items()}
    named = [each for each in by_kind.values() if each.operation != OTHER]
    sealed, *_ = statistics.sealed()
    return (
        f"For {len(validation)} published times that today's simulator predicted before they were read, the error was "
        f"{_in_words(errors('all', validation))} ({_in_short(named)}). For {sealed.rows} predictions of an "
        f"earlier simulator, the error was {_in_words(sealed)} ({_in_short(_sealed_alone(validation))})."
    )


# Aims of validation rows: errors, and the share of pairs in the right order.
_MEDIAN, _MOST, _WORST_OF_LONG, _ORDERED = 0.02, 0.06, 0.15, 0.9
# Aims of the shares of rows within the 68 and 95 % bounds.
_COVERAGES = (0.65, 0.71), (0.92, 0.98)
# The largest error of operations left out of a fit, over their error in the fit, that is aimed at.
_LEFT_OUT = 1.5
# Only pairs whose published times differ by more than this show an order.
_APART = 0.03
_CALIBRATION = Path(__file__).parent / "data" / "calibration.json"


def _aims(points: list[Point]) -> str:
    """The aims, and the figures that the validation rows reach."""
    validation = [point for point in points if point.purpose == "validation"]
    error_summary = summary(validation)
    long = [abs(point.error) for point in validation if point.measured_seconds > 100e-6]
    of_chip = {chip: summary(here).median for chip, here in grouped(validation, lambda point: point.chip).items()}
    others = [error for chip, error in of_chip.items() if chip != "v6e"]
    pairs = statistics.rivals(statistics.as_of_today(points))
    apart = [(a, b) for a, b in pairs if abs(np.log(a.measured_seconds / b.measured_seconds)) > _APART]
    ordered = sum(map(_is_ordered, apart)) / len(apart)
    near = sum(map(_is_near, pairs))
    aims = [
        ("median error", _MEDIAN, error_summary.median),
        ("90th percentile", _MOST, error_summary.most),
        (f"worst of the {len(long)} rows above 100 us", _WORST_OF_LONG, max(long, default=0.0)),
        ("median on v6e", max(others, default=0.0), of_chip.get("v6e", 0.0)),
    ]
    figures = (
        f"{name} {_percent(value)} (aim: at most {_percent(most)}, {_reached(value <= most)})"
        for name, most, value in aims
    )
    return (
        f"Today's figures: {'; '.join(figures)}. "
        "The simulator should name the faster of two programs for one problem in at "
        f"least {_percent(_ORDERED, 0)} of pairs ({_reached(ordered >= _ORDERED)}: {_percent(ordered, 0)} of "
        f"{len(apart)} pairs that differ by over {_percent(_APART, 0)}). In {near} of {len(pairs)} pairs the "
        "ratio is off by at most the larger of both uncertainties."
    )


def _reached(is_reached: bool) -> str:
    return "reached" if is_reached else "not reached"


# An operation or dtype of a chip with fewer validation rows is unvalidated.
_ENOUGH = 5
# Chips with rows that HBM bounds.
_MEMORY_BOUND = ("v5p", "v6e", "v7x")


def _unvalidated(validation: list[Point]) -> str:
    """The operations, and types of the first operand, with too few validation rows for a claim, by chip, as text."""
    dtypes = ("f32", "bf16", "f8_e4m3fn", "i8")
    few = {}
    for chip in _simulated():
        here = [point for point in validation if point.chip == chip]
        kinds = Counter(point.kind for point in here)
        # The result of a loss is a scalar and stands first.
        operands = (re.search(r"(\w+)\[\d", point.problem) for point in here)
        of_dtype = Counter(operand[1] for operand in operands if operand)
        few[chip] = [kind for kind in (*KINDS.values(), OTHER) if kinds[kind] < _ENOUGH]
        few[chip] += [dtype for dtype in dtypes if of_dtype[dtype] < _ENOUGH]
    everywhere = [name for name in (*KINDS.values(), OTHER, *dtypes) if all(name in names for names in few.values())]
    parts = {"all chips": everywhere}
    for chip, names in few.items():
        is_all = len(names) == len(KINDS) + 1 + len(dtypes)
        parts[chip] = ["everything"] if is_all else [name for name in names if name not in everywhere]
    return "; ".join(f"{chip}: {', '.join(names)}" for chip, names in parts.items() if names)


def _protocol(points: list[Point], others: Others) -> str:
    usable = others.rows
    ran = Counter("fit" if point.purpose == "fit" else "validation" for point in points)
    text = (
        f"\n\nOf {usable['fit']} rows for fitting, {ran['fit']} are on this page, and of {usable['validation']} for "
        f"validation, {ran['validation']}: the rows of each operation and chip\n"
        f"that are cheapest to compile, without those that have no latency (below). "
        f"{usable['untouched']} other rows are not used."
    )
    lines = [list(map(str, line)) for line in others.without]
    table = "Rows without a latency:\n\n" + markdown_table(lines, ("operation", "chip", "why", "rows")) if lines else ""
    return _PROTOCOL.format(ran=text, without=table)


def _claimed(point: Point) -> float:
    return relative_uncertainty(point.chip, point.operation_seconds)


def _uncertainty(points: list[Point]) -> str:
    rows = statistics.unfitted(points)
    likely = statistics.spread(rows)
    scored = statistics.scores(rows)
    once, mostly = (statistics.expected(scored, fraction) for fraction in (ONE_DEVIATION, TWO_DEVIATIONS))
    # Each row, and if its error is within the 68 and 95 % bounds that the other rows give.
    within = [(point, score <= once, score <= mostly) for point, score in zip(rows, scored, strict=True)]
    left_out = statistics.left_out(rows)
    over_fitted = _over_fitted()

    def line(name: str, is_here: Callable[[Point], bool], earned: Iterable[float] = ()) -> list[str]:
        of_row, of_operation = ([each for each in scores if is_here(each[0])] for scores in (within, left_out))
        ratio = f"{over_fitted[name]:.2f}" if name in over_fitted else ""
        scales = [_percent(value) for value in earned] or ["", ""]
        return [name, str(len(of_row)), *scales, _shares(of_row), _shares(of_operation), ratio]

    lines: list[list[str]] = []
    groups: dict[str, Callable[[Point], bool]] = {}
    for chip in sorted({point.chip for point in rows}):
        groups[chip] = partial(_is_of_chip, chip)
        lines.append(line(chip, groups[chip], (once * likely.by_chip[chip], relative_uncertainty(chip))))
    groups |= {
        "all": lambda point: True,
        "short operations": lambda point: point.operation_seconds < statistics.SHORT_SECONDS,
    }
    lines += [line(name, groups[name]) for name in ("all", "short operations")]
    low, high = (" to ".join(_percent(end, 0) for end in ends) for ends in _COVERAGES)
    outside = [
        name for name, is_here in groups.items() if not _is_covered([each for each in left_out if is_here(each[0])])
    ]
    far = [name for name, ratio in over_fitted.items() if ratio > _LEFT_OUT]
    head = ("", "rows", "earned", "used", "within 68, 95 %", "left out", "over fitted")
    return f"""## How far a simulated time may be off

{markdown_table(lines, head)}

To compare two times, the judge uses an uncertainty (`uncertainty.py`) that a new row's error does not exceed with 68 %
probability: a share of the time (column "used") and {1e6 * once * likely.operation_seconds:.2f} us for each HLO
operation, added in quadrature. The plus/minus of a single time is {plus_minus_seconds(1, 1, is_understood=True):g}
times as large, because only 61 % of the 148 earlier predictions were within the uncertainty. "Short operations" take
less than {1e6 * statistics.SHORT_SECONDS:.0f} us on average. The columns:

- "earned": the share that follows from today's errors of rows to which nothing was fitted (of all rows, if there are
fewer than {statistics.FEW}), each left out in turn. 95 % of the errors lie within {mostly / once:.1f} times this share.
- "left out": the shares of {len(left_out)} errors within bounds that were derived from other operations (aim: {low},
{high}; {_but_for(outside)}).
- "over fitted": error of left-out operations divided by that of fitted ones (aim: at most {_LEFT_OUT};
{_but_for(far)})."""


def _is_of_chip(chip: str, point: Point) -> bool:
    return point.chip == chip


Scored = tuple[Point, bool, bool]


def _covered_shares(scored: Sequence[Scored]) -> list[float]:
    return [float(np.mean([each[place] for each in scored])) for place in (1, 2)]


def _shares(scored: Sequence[Scored]) -> str:
    """The shares of the rows within the 68 and 95 % bounds, as text; "" without rows."""
    return ", ".join(_percent(share, 0) for share in _covered_shares(scored)) if scored else ""


def _is_covered(scored: Sequence[Scored]) -> bool:
    """True if the covered shares, in whole percent as printed, reach the aims; also True without rows."""
    if not scored:
        return True
    ends = zip(_COVERAGES, _covered_shares(scored), strict=True)
    return all(low <= round(share, 2) <= high for (low, high), share in ends)


def _but_for(missed: list[str]) -> str:
    return f"reached except for {', '.join(missed)}" if missed else "reached"


def _left_out() -> dict[str, list[dict[str, float]]]:
    """By chip, the errors of each operation that was once left out of the fit; chips without any are not listed."""
    calibration: dict[str, Any] = json.loads(_CALIBRATION.read_text(encoding="utf-8"))
    left = {
        chip: [operation for operation in fitted["operations"].values() if "left out" in operation]
        for chip, fitted in sorted(calibration.items())
    }
    return {chip: operations for chip, operations in left.items() if operations}


def _over_fitted() -> dict[str, float]:
    """By chip: the sum of the errors of operations that are left out of the fit, over the sum of their errors in it."""
    return {
        chip: sum(each["left out"] for each in left) / sum(each["fitted"] for each in left)
        for chip, left in _left_out().items()
    }


def _joint() -> str:
    """For each chip, how many of the operations that are left out of the joint fit it brings nearer, as text."""
    return ", ".join(
        f"{sum(each['left out'] < each['today'] for each in left)} of {len(left)} on {chip}"
        for chip, left in _left_out().items()
    )


# Groups of rows with similar errors, by chips: name of the group, and patterns of operation and problem.
_OFF_ALIKE = {
    "v5p": (
        ("ragged dot of more than eight groups", "_tpu_ragged_dot$", r" bf16\[\d{3},"),
        ("ragged dot of eight groups, all rows in the first", "_tpu_ragged_dot$", r"^bf16\[4096,4096\] bf16\[8,"),
        ("ragged dot v2 of 128 groups with residuals", "v2_ragged_dot$", r" bf16\[128,.*residuals"),
    ),
    "v6e": (
        ("XLA's own cross-entropy", "^chunked_xla", ""),
        ("backward pass of tokamax's cross-entropy", "cross_entropy_loss_vjp$", ""),
    ),
    "v7x": (
        ("backward attention of head_dim 64", "attention_vjp$", r",64\]"),
        ("ragged dot v2 of 256 groups of 7168 x 512", "v2_ragged_dot$", r" bf16\[256,7168,512\]"),
    ),
    "v6e, v7x": (
        ("ragged dot and ragged dot v2 of 128 groups of 2048 x 768", "ragged_dot$", r" bf16\[128,2048,768\]"),
        # `shapes()` leaves out quantized operands, so these problems are empty.
        ("ragged dot of float8 or float4 weights", "_tpu_ragged_dot$", "^$"),
    ),
}


def off_alike(points: list[Point], chip_names: str, operation: str, problem: str) -> list[float]:
    """Today's errors of the rows of these chips whose operation and problem match the patterns."""
    return [
        point.error
        for point in statistics.as_of_today(points)
        if point.chip in chip_names.split(", ")
        and re.search(operation, point.operation)
        and re.search(problem, point.problem)
    ]


def _unexplained(points: list[Point]) -> str:
    lines = []
    for chip_names, kinds in _OFF_ALIKE.items():
        parts = []
        for name, *patterns in kinds:
            errors = off_alike(points, chip_names, *patterns)
            parts.append(f"{name} ({len(errors)}: {100 * min(errors):+.1f} to {100 * max(errors):+.1f} %)")
        lines.append(f"- {chip_names}: {'; '.join(parts)}.")
    listed = "\n".join(lines)
    return f"""## What is not explained

The number of rows and the range of their errors today, by kind; FIDELITY_ROWS.md says what is known about them.

{listed}
- No cause is known for `matmul_slowdown`, nor a reason why only v6e has a `matmul_queue`."""


def _not_shown(points: list[Point]) -> str:
    validation = [point for point in points if point.purpose == "validation"]
    unbound = [name for name in _simulated() if name not in _MEMORY_BOUND]
    shares = ", ".join(f"{name} {_shares_of_bandwidth(name)}" for name in _simulated() if name not in unbound)
    purposes = Counter(point.purpose for point in points if point.kind == "normalization")
    return f"""## What these rows cannot show

- XLA's own matmuls of 1024 rows and more, and int8 matmuls: only the 148 other times above include any. Normalization:
  {purposes["earlier"]} of {purposes["earlier"] + purposes["validation"]} predicted rows validated earlier simulators.
- How near a kernel comes to the peak: a simulated share above 93 % may be too high by a few percent.
- How much of its bandwidth {" and ".join(unbound)} reaches: no row there is bound by it. Elsewhere, reads and writes
  reach these shares: {shares}.
- Validated by fewer than {_ENOUGH} rows (operations, and types of the first operand):
  {_unvalidated(validation)}."""


def _shares_of_bandwidth(chip: str) -> str:
    calibrated = chips.row(chip).calibrated or Calibrated()
    return f"{_percent(calibrated.hbm_read_share, 0)} and {_percent(calibrated.hbm_write_share, 0)}"


def _pairs(points: list[Point]) -> str:
    pairs = statistics.rivals(statistics.as_of_today(points))
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
    near, ordered = (sum(map(is_so, pairs)) for is_so in (_is_near, _is_ordered))
    head = ("chip", "problem", "which", "measured ratio", "simulated ratio", "error")
    return f"""Two programs for one problem share errors, so their ratio should be off by no more than either time. The
published rows contain such pairs: one problem computed by two operations. The table has all pairs, whatever the purpose
of a row. In {near} of {len(pairs)} pairs the ratio is off by no more than the larger of the two times' uncertainties,
and in {ordered} the simulator names the faster program correctly. A champion and a candidate usually differ by less
than the programs of a pair.

{markdown_table(lines, head)}"""


def _is_near(pair: tuple[Point, Point]) -> bool:
    """True if the ratio of the two times is off by no more than the larger of their uncertainties."""
    return abs(pair_error(*pair)) <= max(map(_claimed, pair))


def _is_ordered(pair: tuple[Point, Point]) -> bool:
    """True if the simulator names the faster program correctly."""
    a, b = pair
    return (a.measured_seconds < b.measured_seconds) == (a.simulated_seconds < b.simulated_seconds)


def _operation(point: Point) -> str:
    return point.operation.removeprefix("pallas_").removeprefix("mosaic_").removeprefix("tpu_")


def _rows(points: list[Point]) -> str:
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
        for point in sorted(points, key=lambda p: (p.kind == OTHER, p.kind, p.chip, p.purpose, p.measured_seconds))
    ]
    head = ("row", "chip", "operation", "problem", "for", "measured", "simulated", "error")
    return "## Each row\n\n" + markdown_table(lines, head)


def write(directory: Path, pages: dict[str, str], points: list[Point]) -> None:
    """Writes the pages, by their names, and fidelity.png into `directory`."""
    import matplotlib as mpl
    from matplotlib import pyplot

    for name, text in pages.items():
        (directory / name).write_text(text, encoding="utf-8")
    mpl.use("Agg")
    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    axes.axhspan(0.95, 1.05, color="0.92")
    axes.axhline(1, color="0.5", linewidth=0.8)
    for (chip, here), colour in zip(grouped(points, lambda p: p.chip).items(), ("C0", "C1", "C2", "C3"), strict=False):
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
