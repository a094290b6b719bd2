"""TABLES.md, from the predictions for candidates and the published times."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby

import numpy as np
from markdown_pages import fill, markdown_table
from tables_statistics import Predicted, Problem, Published, share

# The aims: the published winner within 3 % of the pick on 90 % of the problems, losses within 5 %.
WITHIN = 0.03
AIM = 0.9
LOSS = 0.05
# The number of problems whose times had been read, after a prediction, before their candidates were predicted.
_KNOWN_BEFORE = 31

_INTRO = """# Tuning without a TPU, against published winners

The tokamax package publishes, for problems on v5e, v5p, v6e and v7x, the fastest configuration of a kernel, found by
timing on the device. Here this configuration and others (the *candidates*) are compiled for the same chip without a
TPU and simulated; the fastest in the simulator is our *pick* ({compiler}; the compiler with which the published
winners were found is not known).

    uv pip install -e '.[bench]' && python benchmarks/tables.py --predict     # {problems} problems: about two hours
    python benchmarks/tables.py --write                                       # this page, from the predictions

with Python 3.12 or newer. The simulated times of all candidates are in `data/tables_predictions.tsv`.
"""

_PROTOCOL = """## How problems and candidates are chosen

Problems are validation rows (see [FIDELITY.md](FIDELITY.md)). The chips and operations take turns, and each gives its
row with the least SHA-256: {problems} in all. Attention of more than 2e13 FLOP is left out, because it takes minutes to
simulate. v5e has only three such problems in the files, and backward attention is published for v7x alone.

The candidates for a problem are

- the published configuration;
- from the search space of tokamax's own autotuner, three neighbours of the published configuration (one value changed,
  by one step) and two configurations drawn by hash from the whole space (more if there are fewer neighbours);
- the configuration that tokamax uses untuned: blocks of 128, or of 1024 for splash attention; for grouped products on
  v7x the largest tiles that fit into VMEM.

Left out are tiles that cannot fit into VMEM, blocks of more than 2048 x 1024, which take minutes to compile, and drawn
tiles of grouped products that fill less than a quarter of VMEM.

All times were predicted and committed before the published times of these problems were read, except for {before}
problems, whose times had been read for FIDELITY.md. No constant of the simulator was fitted to any of these times. The
published configuration was known when candidates were chosen: its neighbours are the hardest for it to beat."""

_LIMITS = """## What this does not show

- Whether the published winner is the best configuration of all: a problem has {median} candidates in the median, and
  tokamax's space has 2 to 720 configurations. The page only shows that the simulator seldom prefers the winner's
  neighbours or the few drawn.
- A search that does not know the winner: three of the candidates were chosen because they are its neighbours.
- How long our pick would take on the device if it is not the published one: only winners have published times.
- What today's simulator would pick: the predictions here are older than its last refit, which changed most times by a
  few percent (FIDELITY.md).
"""


def page(problems: list[Problem], published: dict[str, Published], compiler: str) -> str:
    """The page as Markdown."""
    tuned = [problem for problem in problems if not problem.is_rivalry]
    rivals = [problem for problem in problems if problem.is_rivalry]
    parts = [
        _INTRO.format(compiler=compiler, problems=len(tuned)),
        _gaps(tuned),
        _losses(tuned, rivals, published),
        _untuned(tuned),
        _PROTOCOL.format(problems=len(tuned), before=_KNOWN_BEFORE),
        _LIMITS.format(median=int(np.median([len(problem.rows) for problem in tuned]))),
        _misses(tuned, rivals, published),
        _without(problems),
        _each(tuned, published),
        _each_rivalry(rivals, published),
    ]
    return fill("\n\n".join(part.strip("\n") for part in parts if part)) + "\n"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _by_kind(problems: Iterable[Problem]) -> list[tuple[str, str, list[Problem]]]:
    """The problems of each operation and chip, and last all problems."""
    ordered = sorted(problems, key=lambda problem: (problem.kind, problem.chip))
    groups = groupby(ordered, key=lambda problem: (problem.kind, problem.chip))
    return [*((kind, chip, list(here)) for (kind, chip), here in groups), ("all", "all", ordered)]


def _values(problems: Iterable[Problem], of: Callable[[Problem], float | None]) -> list[float]:
    return [value for value in map(of, problems) if value is not None]


def _gaps(tuned: list[Problem]) -> str:
    lines = []
    for kind, chip, here in _by_kind(tuned):
        gaps, margins = _values(here, lambda problem: problem.gap), _values(here, lambda problem: problem.margin)
        if gaps:
            cells = (share(gaps, WITHIN), float(np.quantile(gaps, 0.9)), max(gaps), float(np.median(margins)))
            lines.append([kind, chip, f"{len(gaps)} of {len(here)}", *map(_percent, cells)])
    gaps = _values(tuned, lambda problem: problem.gap)
    reached = "reached" if share(gaps, WITHIN) >= AIM else "not reached"
    same = sum(problem.pick is problem.rows[0] for problem in tuned)
    rivals = _values(tuned, lambda problem: problem.margin)
    close = _percent(share(gaps, WITHIN))
    head = ("operation", "chip", "problems", "within 3 %", "90th percentile", "worst", "next best")
    return f"""## The published winner, in our simulator

On {close} of {len(gaps)} problems, the simulated time of the published configuration is within 3 % of our pick's (aim
{_percent(AIM)}: {reached}); in {len(tuned) - len(gaps)} of {len(tuned)} it has no simulated time. In {same} problems it
is the pick. "Next best" says how much longer the best other candidate takes than the published configuration (median):
the smaller this is, the harder it is to tell the two apart. In {sum(abs(gap) <= WITHIN for gap in rivals)}
problems they differ by at most 3 %.

{markdown_table(lines, head)}"""


def _losses(tuned: list[Problem], rivals: list[Problem], published: dict[str, Published]) -> str:
    lines = []
    for kind, chip, here in _by_kind(rivals):
        losses = _values(here, lambda problem: problem.loss(published))
        if losses:
            right = sum(loss == 0 for loss in losses)
            cells = (share(losses, LOSS), float(np.median(losses)), float(np.quantile(losses, 0.9)), max(losses))
            newer = _values(here, lambda problem: _fixed(problem, published, "v2_ragged_dot"))
            older = _values(here, lambda problem: _fixed(problem, published, "tpu_ragged_dot"))
            always = f"{_percent(share(newer, LOSS))}, {_percent(share(older, LOSS))}"
            lines.append([kind, chip, f"{len(losses)} of {len(here)}", str(right), *map(_percent, cells), always])
    losses = _values(rivals, lambda problem: problem.loss(published))
    reached = "reached" if losses and share(losses, LOSS) == 1 else "not reached"
    winners = [published[problem.rows[0].row] for problem in tuned if problem.rows[0].row in published]
    same = sum(problem.pick is problem.rows[0] for problem in tuned)
    head = ("operation", "chip", "problems", "fastest picked", "within 5 %", "median loss", "90th percentile", "worst")
    text = f"""A problem has one published configuration, so our pick has a published time only if it is that
configuration. This is so in {same} of {len(tuned)} problems, in which nothing is lost. But grouped products are
published for two implementations, each with its own winner (for one problem the older implementation has two), so that
a wrong pick can be measured: the *loss* is how much longer the implementation that is faster in the simulator takes on
the device than the implementation that is faster on the device. Of {len(losses)} such problems
{_percent(share(losses, LOSS))} lose at most 5 % (aim: all, {reached}). The last column has this share if the newer
implementation, or the older one, is always chosen: always choosing the newer one would be better than our picks.
{len(rivals) - len(losses)} more problems are not counted, because one of their published times may not be read:
that implementation has no simulated time, or the row is kept for a later validation (`may_be_read` in
fidelity_rows.py)."""
    return f"""## Where both the pick and the published winner have published times

{text}

{markdown_table(lines, (*head, "within 5 % with always the newer, older"))}

No pick can be more certain than the published times. In the median row, the five samples lie within
{_percent(float(np.median([row.spread for row in winners])))} of each other. But some problems were published
twice for v7x, months apart and with different compilers: these two times differ by 4.0 % in the median and 6.5 % at the
90th percentile (backward passes: 3.4 % and 14 %). For other chips no time was published twice."""


def _fixed(problem: Problem, published: dict[str, Published], word: str) -> float | None:
    """The loss of picking the first candidate whose operation has `word` in its name; None if it is not known."""
    times = {
        candidate.row: published[candidate.row].seconds for candidate in problem.rows if candidate.row in published
    }
    mine = next(
        (times[candidate.row] for candidate in problem.rows if word in candidate.operation and candidate.row in times),
        None,
    )
    return None if mine is None or problem.loss(published) is None else mine / min(times.values()) - 1


def _untuned(tuned: list[Problem]) -> str:
    lines = []
    for kind, chip, here in _by_kind(tuned):
        over = _values(here, lambda problem: problem.over_pick("default"))
        if over:
            cells = (f"{float(np.median(over)) + 1:.2f}", f"{max(over) + 1:.2f}")
            lines.append([kind, chip, f"{len(over)} of {len(here)}", _percent(share(over, WITHIN)), *cells])
    head = ("operation", "chip", "problems", "within 3 %", "median, times the pick", "worst")
    return f"""## What tokamax takes untuned, in our simulator

The table makes the same comparison between our pick and the configuration that tokamax uses if it has no tuned one.

{markdown_table(lines, head)}"""


def _misses(tuned: list[Problem], rivals: list[Problem], published: dict[str, Published]) -> str:
    lines = []
    for problem in sorted(tuned, key=lambda tuned_problem: -(tuned_problem.gap or 0.0)):
        pick, mine = problem.pick, problem.rows[0]
        if pick is not None and pick is not mine and problem.gap is not None:
            changed = _changes(mine, pick)
            lines.append(
                [_id(mine), problem.chip, _name(mine), changed, _percent(problem.gap), _waits(mine), _waits(pick)]
            )
    text = markdown_table(
        lines, ("row", "chip", "operation", "published -> pick", "gap", "published waits", "pick waits")
    )
    wrong = [
        [
            _id(problem.rows[0]),
            problem.chip,
            published[problem.rows[0].row].problem[:60],
            *(_both(candidate, published) for candidate in problem.rows[:2]),
            _percent(problem.loss(published) or 0.0),
        ]
        for problem in sorted(rivals, key=lambda rival: -(rival.loss(published) or 0.0))
        if (problem.loss(published) or 0.0) > 0
    ]
    head = ("row", "chip", "problem", "first: simulated, published, error", "second", "loss")
    return f"""## Problems whose pick is not the published winner

"Waits" are the shares of the simulated time that are spent waiting for transfers and for units.

{text}

Pairs of implementations in which the slower one was picked:

{markdown_table(wrong, head)}

{_WHY}"""


_WHY = """What is known about these misses:

- In the simulator, a pick that is not the published winner is at most 1.7 % faster than the winner. Published times on
  v7x repeat no better, so these misses do not show that the simulator is wrong. Four of the seven picks differ from the
  winner in the layout of K on v7x, or in the number of a product's buffers.
- In two pairs the simulated time of the newer grouped product is half of its published time (v5p, 1536 x 4096; v6e,
  4096 x 14336), so it is wrongly picked. The tiles that were measured were probably other ones: the published
  configuration names no tiles, because the package chooses them when the product is called. The errors of the product's
  other rows on these chips are at most 9 %.
- Seven candidates for v7x, two of them published winners, have no simulated time, because an error of the simulator,
  now corrected, made it report a deadlock ("it has 0 and no transfer is under way"). The predictions stay as they were
  made. Simulated again, a newer grouped product takes 9.784 ms (published: 9.755 ms), and the published winner of
  splash attention takes 2.563 ms.
- The last pair loses 5.9 % on v7x: the simulated time of the older product is 7.5 % too short, that of the newer one is
  right. In most pairs both implementations have about the same error, so that the pick is right."""


def _both(candidate: Predicted, published: dict[str, Published]) -> str:
    if candidate.seconds is None or candidate.row not in published:
        return f"{_name(candidate)}: no latency"
    real = published[candidate.row].seconds
    return (
        f"{_name(candidate)}: {1e3 * candidate.seconds:.3f}, {1e3 * real:.3f} ms, "
        f"{100 * (candidate.seconds / real - 1):+.1f} %"
    )


def _waits(candidate: Predicted) -> str:
    return f"{_percent(candidate.waits_for_transfers)}, {_percent(candidate.waits_for_units)}"


def _changes(before: Predicted, after: Predicted) -> str:
    old, new = json.loads(before.config), json.loads(after.config)
    return ", ".join(f"{name} {old[name]} -> {new[name]}" for name in old if old[name] != new[name])


def _without(problems: list[Problem]) -> str:
    reasons = Counter(
        (candidate.role, candidate.chip, _name(candidate), candidate.reason)
        for problem in problems
        for candidate in problem.rows
        if candidate.seconds is None
    )
    lines = [[*key, str(count)] for key, count in sorted(reasons.items())]
    return "## Candidates without a time\n\n" + markdown_table(
        lines, ("which", "chip", "operation", "why", "candidates")
    )


def _each(tuned: list[Problem], published: dict[str, Published]) -> str:
    lines = []
    for problem in sorted(tuned, key=lambda tuned_problem: (tuned_problem.kind, tuned_problem.chip)):
        mine = problem.rows[0]
        winner = published.get(mine.row)
        timed = sum(candidate.seconds is not None for candidate in problem.rows)
        default = problem.over_pick("default")
        cells = [
            "" if mine.seconds is None else f"{1e3 * mine.seconds:.3f} ms",
            "" if winner is None else f"{1e3 * winner.seconds:.3f} ms",
            "" if winner is None or mine.seconds is None else f"{100 * (mine.seconds / winner.seconds - 1):+.1f} %",
            "" if problem.gap is None else _percent(problem.gap),
            "" if problem.margin is None else f"{100 * problem.margin:+.1f} %",
            "" if default is None else f"{default + 1:.2f}",
        ]
        text = "" if winner is None else winner.problem[:70]
        lines.append([_id(mine), problem.chip, _name(mine), text, f"{timed} of {len(problem.rows)}", *cells])
    head = ("row", "chip", "operation", "problem", "timed", "simulated", "published", "error", "over pick", "next best")
    return (
        "## Each problem\n\nThe columns `simulated` and `published` have the published winner's times; `untuned` has "
        "the untuned time as a multiple of the pick's.\n\n" + markdown_table(lines, (*head, "untuned"))
    )


def _each_rivalry(rivals: list[Problem], published: dict[str, Published]) -> str:
    lines = []
    for problem in sorted(rivals, key=lambda rival: (rival.chip, rival.rows[0].row)):
        winner = published.get(problem.rows[0].row)
        loss = problem.loss(published)
        cells = [_both(candidate, published) for candidate in problem.rows]
        lines.append(
            [
                problem.chip,
                winner.problem[:60] if winner else "",
                "; ".join(cells),
                "" if loss is None else _percent(loss),
            ]
        )
    head = ("chip", "problem", "simulated, published, error", "loss")
    return "## Each problem with several published times\n\n" + markdown_table(lines, head)


def _id(candidate: Predicted) -> str:
    return candidate.row.rpartition("-")[2]


def _name(candidate: Predicted) -> str:
    return candidate.operation.removeprefix("pallas_").removeprefix("mosaic_").removeprefix("tpu_")
