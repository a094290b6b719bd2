"""Shows which edits make `ci` fail: neutral ones must not, planted regressions of 2 to 4 % and wrong results must.

    .venv/bin/python benchmarks/gate.py [--write] [--small]

A repository is made with a contest for every edit; one commit makes all edits, and one `ci --base` judges them. The
regressions do needless work, whose amount is chosen so that the kernel takes 2 to 4 % more simulated time. Then some of
the contests are judged again in another clone, with another home, folder, locale and number of CPUs: the findings must
be the same to the last digit. Times are simulated, so the result does not depend on the machine; it takes about 20
minutes. `--write` writes GATE.md beside this file; `--small` takes three edits of each sort.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from gate_edits import WASTES, Waste, neutral
from tabulate import tabulate

from harness import contest as contests
from harness.candidate import Candidate
from harness.judge.evaluate.evaluation import environment
from harness.loop import scaffold
from harness.loop.bench import Bench
from harness.records.gate import Gate

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("GATE.md")
# A regression is planted with at least this much more simulated time, and no more than that.
_LEAST, _MOST = 1.02, 1.04
# Longer kernels take long to compile.
_MOST_STEPS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A template, its sizes, how many neutral edits it gets, where it can waste time, and what makes it wrong."""

    template: str
    sizes: tuple[tuple[str, str], ...]
    neutral: int
    wastes: tuple[Waste, ...]
    wrong: tuple[tuple[str, str], ...]


KERNELS = (
    Kernel(
        template="attention",
        sizes=(("SEQUENCE", "2048"),),
        neutral=17,
        wastes=(
            Waste(after="    acc_ref[...] = acc_ref[...] * rescale + values\n", ref="acc_ref[:8, :]"),
            Waste(after="    m_ref[...] = jnp.broadcast_to(new_max, m_ref.shape)\n", ref="m_ref[8:16, :]"),
        ),
        wrong=(
            # The sums stay relative to the old maximum.
            ("acc_ref[...] = acc_ref[...] * rescale + values", "acc_ref[...] = acc_ref[...] + values"),
            # The last block of keys is never seen.
            ("grid=(sequence // BQ, kv_sequence // BKV)", "grid=(sequence // BQ, kv_sequence // BKV - 1)"),
        ),
    ),
    Kernel(
        template="matmul",
        sizes=(("M", "1024"), ("N", "1024"), ("K", "1024")),
        neutral=17,
        wastes=(
            Waste(after="        c_ref[...] = acc_ref[...].astype(c_ref.dtype)\n", ref="acc_ref[:8, :128]"),
            Waste(after="preferred_element_type=jnp.float32)\n", ref="acc_ref[8:16, 128:256]"),
        ),
        wrong=(
            ("pl.BlockSpec((BK, BN), lambda i, j, p: (p, j))", "pl.BlockSpec((BK, BN), lambda i, j, p: (j, p))"),
            ("        acc_ref[...] = jnp.zeros_like(acc_ref)\n", "        pass\n"),
        ),
    ),
    Kernel(
        template="rmsnorm",
        sizes=(("ROWS", "1024"), ("COLUMNS", "1024")),
        neutral=16,
        wastes=(Waste(after="w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)\n", ref="y_ref[:8, :128]"),),
        wrong=(("jnp.mean(h * h, axis=1, keepdims=True) + EPS", "jnp.mean(h * h, axis=1, keepdims=True)"),),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of one contest, and the correct outcomes of `ci`."""

    contest: str
    kernel: Kernel
    what: str
    source: str
    planted_ratio: float | None
    expected: tuple[str, ...]


def edits(folder: Path, share: int | None) -> Iterator[Edit]:
    """The edits of the contests in `folder`: `share` edits of each sort for each kernel, or all if it is None."""
    for kernel in KERNELS:
        base = folder / "base" / kernel.template
        scaffold.scaffold(base, kernel.template, kernel.sizes)
        source = (base / "kernel.py").read_text(encoding="utf-8")
        drafts: list[tuple[str, str, float | None, tuple[str, ...]]] = []
        drafts += [(what, text, None, ("same",)) for what, text in neutral(source, kernel.neutral, seed=1)][:share]
        for waste, unit in [(waste, unit) for waste in kernel.wastes for unit in WASTES][:share]:
            text, planted_ratio = planted(base, source, waste, unit)
            drafts.append((f"{unit} after `{waste.after.strip()}`", text, planted_ratio, ("slower",)))
        for old, new in kernel.wrong[:share]:
            assert source.count(old) == 1, f"{kernel.template}: expected {old!r} once"
            drafts.append((f"`{new.strip()}`", source.replace(old, new), None, ("wrong",)))
        for place, (what, text, ratio, expected) in enumerate(drafts):
            yield Edit(
                contest=f"kernels/{kernel.template}-{place:02}",
                kernel=kernel,
                what=what,
                source=text,
                planted_ratio=ratio,
                expected=expected,
            )


def planted(base: Path, source: str, waste: Waste, unit: str) -> tuple[str, float]:
    """The kernel with enough wasted work to take 2 to 4 % more simulated time, and the ratio of the times."""
    bench = Bench(contest=contests.load(base), on="simulated", checked=False)

    def time(text: str) -> float:
        evidence = bench.judge(Candidate(text=text.encode()), "dose")
        seconds = evidence.latency.seconds if evidence.latency else None
        assert seconds is not None, evidence.failure
        return seconds

    first = time(source)
    for period in (1, 2, 4, 8):
        dose, low, high = 16, 0, 0
        while high - low != 1 and dose < _MOST_STEPS:
            text = waste.put(source, unit, dose, period)
            ratio = time(text) / first
            if _LEAST <= ratio <= _MOST:
                return text, ratio
            low, high = (dose, high) if ratio < _LEAST else (low, dose)
            dose = (low + high) // 2 if high else 2 * dose
    raise RuntimeError(f"found no dose of {unit} after {waste.after!r} that costs 2 to 4 %: {dose} gives {ratio}")


def commit(top: Path, message: str, *options: str) -> None:
    for words in (("add", "--all"), ("commit", "--quiet", "--message", message, *options)):
        subprocess.run(["git", "-C", top, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)


def repository(top: Path, planned_edits: Sequence[Edit]) -> None:
    """The repository of two commits: all contests, and one edit in each."""
    subprocess.run(["git", "init", "--quiet", top], check=True)
    for edit in planned_edits:
        scaffold.scaffold(top / edit.contest, edit.kernel.template, edit.kernel.sizes)
    commit(top, "base")
    for edit in planned_edits:
        (top / edit.contest / "kernel.py").write_text(edit.source, encoding="utf-8")
    commit(top, "edits")


def judged(top: Path, *before: str, **changed: str) -> Gate:
    """The report of `ci` on the last commit."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "harness", "ci", "-C", top, "--base", "HEAD~1", "--json", "--quiet"],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | changed,
        stdout=subprocess.PIPE,
    )
    return msgspec.json.decode(done.stdout, type=Gate)


def differing(first: Gate, top: Path, count: int) -> tuple[int, list[str]]:
    """The number of contests that were judged again elsewhere, and those with other findings there."""
    elsewhere = top.parent / "somewhere else"
    subprocess.run(["git", "clone", "--quiet", top, elsewhere], check=True)
    chosen = {contest.contest: contest for contest in first.contests[:: max(1, len(first.contests) // count)]}
    for contest in first.contests:
        if contest.contest not in chosen:
            subprocess.run(["git", "-C", elsewhere, "checkout", "--quiet", "HEAD~1", "--", contest.contest], check=True)
    commit(elsewhere, "fewer", "--amend")
    home = top.parent / "another home"
    home.mkdir()
    again = judged(elsewhere, "taskset", "-c", "0", HOME=str(home), TMPDIR=str(home), LANG="C", TZ="Asia/Tokyo")
    texts = {rejudged.contest: _figures(rejudged) for rejudged in again.contests}
    return len(again.contests), [name for name, contest in chosen.items() if texts.get(name) != _figures(contest)]


def _figures(contest: object) -> object:
    """The findings on a contest, without commit ids and without the sizes of errors on newly drawn inputs."""
    figures = json.loads(msgspec.json.encode(contest))
    if figures["outcome"] == "wrong":
        figures["reason"] = ""
    if figures["comparison"]:
        del figures["comparison"]["before"], figures["comparison"]["after"]
        for program in figures["comparison"]["programs"]:
            program["after_failure"] = program["after_failure"].partition(":")[0]
    return figures


def page(planned_edits: Sequence[Edit], gate: Gate, again: int, differ: Sequence[str]) -> str:
    by_contest = {listed_contest.contest: listed_contest for listed_contest in gate.contests}
    rows: list[list[str]] = []
    totals: dict[str, tuple[int, int]] = {}
    for edit in planned_edits:
        contest = by_contest.get(edit.contest)
        outcome = contest.outcome if contest else "not judged"
        ratio = contest.comparison.programs[0].time_ratio if contest and contest.comparison else None
        right, every = totals.get(edit.expected[0], (0, 0))
        totals[edit.expected[0]] = (right + (outcome in edit.expected), every + 1)
        rows.append([edit.contest.removeprefix("kernels/"), edit.what, edit.expected[0], outcome, _change(ratio)])
    named = {
        "same": "neutral edits that raise no alarm",
        "slower": "planted regressions of 2 to 4 % that are found",
        "wrong": "planted wrong results that are found",
    }
    table = [[named[name], f"{right} of {every}"] for name, (right, every) in totals.items()]
    same = f"{again - len(differ)} of {again}"
    table.append(["judged again elsewhere, the same to the last digit", same])
    heads = ["contest", "edit", "is", "outcome", "simulated time"]
    here = environment()
    return "\n".join(
        [
            "# The edits that `ci` reports, and those that it does not",
            "",
            f"Made by `benchmarks/gate.py` with jax {here.jax}, libtpu {here.libtpu}; times are simulated for v5e.",
            "One `ci` run at the default threshold (1 %) judged edits to the attention, matmul and RMSNorm templates.",
            '"Elsewhere" is another clone with another home, locale and time zone, on one CPU of the same machine.',
            'In the second table, "is" has the true effect of an edit, and "outcome" the effect that `ci` reports.',
            "",
            tabulate(table, ["what", "count"], "pipe"),
            "",
            tabulate(rows, heads, "pipe", colalign=("left", "left", "left", "left", "right")),
            "",
        ]
    )


def _change(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.2f}%"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write GATE.md")
    parser.add_argument("--small", action="store_true", help="three edits of each sort of each kernel")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        top = Path(scratch) / "repository"
        planned_edits = list(edits(Path(scratch), 3 if options.small else None))
        print(f"{len(planned_edits)} edits made; judging them", flush=True)
        repository(top, planned_edits)
        gate = judged(top)
        text = page(planned_edits, gate, *differing(gate, top, 8))
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
