"""FALSE_ACCEPTS.md and its plot, from the tallies that false_accepts.py makes."""

import csv
from collections.abc import Sequence
from pathlib import Path

import false_accepts_noise as noise
import false_accepts_replays as replays
import matplotlib as mpl
import numpy as np
from false_accepts_replays import POLICY, Results, Tally
from markdown_pages import fill, markdown_table
from matplotlib import pyplot

from harness.judge.verdict import sign_test

HERE = Path(__file__).parent

_INTRO = """# How often a change without a gain is accepted

A measured attempt is accepted if the whole interval of the paired time ratio lies at or below {limit:.2f}. Here the
judge's own code decides on noise: the loop that asks for more samples, the control, the interval
(`harness/judge/evaluate/timing/paired_benchmark.py`, `harness/judge/verdict/compare_measured.py`,
`harness/judge/verdict/sign_test.py`). Only the times are invented, or replayed from records. This command repeats
everything:

    .venv/bin/pip install -e '.[bench]' && .venv/bin/python benchmarks/false_accepts.py --write

| goal | reached |
|------|---------|
| at most {goal_false:.1%} of {attempts:,} attempts that change nothing are accepted, on any machine | {false:.3%} |
| at least {goal_power:.0%} of true gains of {gain:.0%} are accepted at {spread:.1%} spread | {power:.1%} |

![rate of accepts by true gain; pairs needed by attempts since the last accept](false_accepts.png)

## The rule

Each round times the champion, a second copy of the champion (the control) and the candidate once, in random order, on
the same fresh inputs. If two programs take the same time, each is the faster one in a round with probability 1/2,
whatever the noise. So the sign test's interval, whose ends are two of the sorted ratios, is exact without any other
assumption. The judge looks at the samples after {looks} rounds, until

- the control fires, because the champion differs from itself by more than a tenth of the minimum effect: inconclusive;
- the interval lies at or below {limit:.2f}: accept; or above {limit:.2f}: reject;
- the rounds or the {budget:.0f} s are used up: inconclusive.

Every look and every attempt is a chance to be lucky, and the total chance is at most the sum of these chances. All
attempts between two accepts share an error rate of {rate:.1%}: the k-th attempt since the last accept (repeats under
`--again` count) gets rate / (k (k + 1)), in equal parts for the {count} looks. That is {first:.4%} for each look of the
first attempt (which has no interval before round 14) and {thousandth:.1e} for each look of the thousandth (round 33).
These shares add up to the rate.
"""

_NULLS = """## Attempts that change nothing

On each machine {attempts:,} attempts are made, each with the rule's largest error rate: that of the first attempt since
an accept. The last two columns show how often two common rules accept on the same noise: `<` accepts if one time of the
candidate is less than one time of the champion; `medians of 3` accepts if the candidate's median of three times is at
least 1 % less than the champion's.
"""

_LEDGER = """If the attempts are made in one ledger, on the machines in turn, {accepted} of {attempts:,} are accepted.

A change that gains exactly the minimum effect is at the border: either answer is right, and no smaller
gain is as likely to be accepted. Of {attempts:,} such attempts, {edge_rate:.3%} ({edge}) are accepted; the rule allows
{allowed:.3%}."""

_SLOTS = """## A slower slot, and loads that differ

Here, too, the candidate changes nothing. On some of these machines one of the three slots of a round is slower than the
others, whatever runs in it. On the rest, each program is a little slower or faster, by chance, for as long as its
process lives (its speed depends on where its buffers lie); the table has the standard deviation of this effect. The
control is loaded separately from the champion, so it often detects such a machine. But no number of rounds in one
process shows how much the candidate gains by chance because of where it was loaded: if loads differ by {worst}, more
attempts than the goal allows are accepted. A few repeats under `--again`, each of which loads the programs anew, show
whether loads differ on a machine.
"""

_POWER = """## True gains of {gain:.0%}

At the published spread, by the number of attempts since the last accept:
"""

_RECORDED = """## This machine

The whole ratchet made {count} attempts that change nothing with `--on cpu --again` (one more comment in kernel.py each
time; `benchmarks/false_accepts_loop.py`), on two cores with other work on them: {outcomes}.
The {rounds:,} rounds are in `benchmarks/data/cpu_pairs.tsv`; a call of the champion took {low:.2f} to {high:.2f} ms
(5th to 95th percentile). The tables above replay the rounds (`this CPU, recorded`) in blocks of {block}, with the three
times of each round in a new random order.
"""


def write(results: Results) -> None:
    """Writes FALSE_ACCEPTS.md and false_accepts.png beside this file."""
    (HERE / "FALSE_ACCEPTS.md").write_text(fill(_page(results).rstrip("\n")) + "\n", encoding="utf-8")
    _plot(results)


def _page(results: Results) -> str:
    attempts = results.nulls[0].attempts
    lucky = [load.name.rsplit("by ", 1)[1] for load in results.loads if load.rate > replays.GOAL_FALSE]
    parts = [
        _INTRO.format(
            limit=1 - POLICY.minimum_effect,
            goal_false=replays.GOAL_FALSE,
            attempts=attempts,
            false=results.false_rate,
            goal_power=replays.GOAL_POWER,
            gain=replays.GOAL_GAIN,
            spread=noise.PUBLISHED_SPREAD,
            power=min(power.rate for _, power in results.powers),
            looks=", ".join(map(str, POLICY.looks)),
            budget=POLICY.paired_seconds,
            rate=POLICY.false_accept_rate,
            count=len(POLICY.looks),
            first=sign_test.look_error(POLICY, 1),
            thousandth=sign_test.look_error(POLICY, 1000),
        ),
        _NULLS.format(attempts=attempts) + "\n" + _nulls(results),
        _LEDGER.format(
            accepted=results.in_one_ledger,
            attempts=attempts,
            edge=results.edge.accepted,
            edge_rate=results.edge.rate,
            allowed=sign_test.attempt_error(POLICY, 1),
        ),
        _SLOTS.format(worst=" or ".join(lucky) or "more than that") + "\n" + _plain((*results.slots, *results.loads)),
        _POWER.format(gain=replays.GOAL_GAIN) + "\n" + _powers(results),
        "First attempts since an accept, on every machine:\n\n" + _plain(results.other_powers),
        _recorded(),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _nulls(results: Results) -> str:
    head = (
        "machine",
        "accepted",
        "at most",
        "rejected",
        "undecided",
        "control",
        "median rounds",
        "`<`",
        "medians of 3",
    )
    lines = [
        [
            null.name,
            f"{null.rate:.3%}",
            f"{null.upper:.3%}",
            f"{null.rejected / null.attempts:.1%}",
            f"{null.undecided / null.attempts:.1%}",
            f"{null.too_noisy / null.attempts:.2%}",
            f"{null.pairs:.0f}",
            f"{single:.0%}",
            f"{threes:.1%}",
        ]
        for null, (single, threes) in zip(results.nulls, results.naives, strict=True)
    ]
    note = (
        "`at most` is the upper end of the 95 % interval of the rate (Clopper-Pearson); `control`: the control fired."
    )
    return f"{markdown_table(lines, head)}\n\n{note}"


def _plain(tallies: Sequence[Tally]) -> str:
    head = ("machine", "attempts", "accepted", "rejected", "undecided", "control fired", "median rounds")
    lines = [[tally.name, f"{tally.attempts:,}", *_shares(tally)] for tally in tallies]
    return markdown_table(lines, head)


def _powers(results: Results) -> str:
    head = (
        "attempt since the last accept",
        "attempts",
        "accepted",
        "rejected",
        "undecided",
        "control fired",
        "median rounds",
    )
    lines = [[str(since), f"{power.attempts:,}", *_shares(power)] for since, power in results.powers]
    return markdown_table(lines, head)


def _shares(tally: Tally) -> list[str]:
    counts = (tally.accepted, tally.rejected, tally.undecided, tally.too_noisy)
    return [*(f"{count / tally.attempts:.1%}" for count in counts), f"{tally.pairs:.0f}"]


def _recorded() -> str:
    with noise.DATA.open() as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    outcome_of = {line["attempt"]: line["outcome"] for line in lines}
    outcomes = [f"{list(outcome_of.values()).count(word)} {word}" for word in sorted(set(outcome_of.values()))]
    milliseconds = [1e3 * float(line["champion_seconds"]) for line in lines]
    low, high = np.percentile(milliseconds, [5, 95])
    return _RECORDED.format(
        count=len(outcome_of), outcomes=", ".join(outcomes), rounds=len(lines), low=low, high=high, block=noise.BLOCK
    )


def _plot(results: Results) -> None:
    mpl.use("Agg")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for spread, curve in zip(replays.SPREADS, results.curves, strict=True):
        left.plot([100 * gain for gain in replays.GAINS], [100 * rate for rate in curve], label=f"{spread:.1%} spread")
    left.axvline(100 * POLICY.minimum_effect, color="0.7", linewidth=0.8)
    left.set(xlabel="true gain, % less time", ylabel="accepted, %", title="first attempt since an accept")
    left.legend(frameon=False)
    attempts = np.unique(np.round(np.logspace(0, 4, 60)).astype(int))
    right.plot(attempts, [_fewest(int(since)) for since in attempts], drawstyle="steps-mid")
    right.set(xscale="log", ylim=(0, None), xlabel="attempts since the last accept", ylabel="rounds")
    right.set(title="fewest rounds an accept needs")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "false_accepts.png", dpi=110)
    pyplot.close(figure)


def _fewest(attempts_since_accept: int) -> int:
    """The fewest rounds whose interval lies below 1, if all rounds favour the candidate."""
    error = sign_test.look_error(POLICY, attempts_since_accept)
    return next(n for n in range(1, 1000) if sign_test.paired_ratio((1.0,) * n, (0.5,) * n, error)[2] < 1)
