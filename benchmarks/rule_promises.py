"""Compares, for each rule of `diagnose`, the promised gain with that of the recorded attempts that followed it.

    python benchmarks/rule_promises.py           writes benchmarks/RULES.md
    python benchmarks/rule_promises.py --check   says whether the page is up to date; writes nothing

Today's rules are applied to the recorded evidence of the champion that an attempt was compared with. If the rule stops
the search, every attempt follows it. If the rule advises another block, an attempt follows it if this block changes in
the advised direction. Any other rule is followed by the attempts that benchmarks/data/rules_followed.tsv lists: this
list was made by hand from the attempts' hypotheses and recorded block shapes. The gain of an attempt comes from the
recorded ratio of its time to the champion's, both simulated by the judge of that day. Nothing is compiled.
"""

import argparse
import statistics
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.advice import diagnose
from harness.advice import report as reporting
from harness.advice.rules import RULES, Rule, RuleCase, hint
from harness.hardware import chip
from harness.ledger import Ledger, history
from harness.records import Attempt, Edit, Evidence, Row
from harness.units import percent

PROJECT = Path(__file__).parent.parent
PAGE = Path(__file__).parent / "RULES.md"
FOLLOWED = Path(__file__).parent / "data" / "rules_followed.tsv"
# A gain may exceed its bound by this much: the judge's minimum effect, below which a difference does not count.
SLACK = 0.01
_STOPS = "ceiling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One rule's promise about one champion, and the gain of the attempt that followed it, as fractions of the time.

    `promised` is None if the rule calls the gain unknown. `cost` is the share of the time that the observed cause
    takes. `is_block`: the rule advised another block.
    """

    contest: str
    attempt: int
    rule: str
    promised: float | None
    cost: float | None
    got: float
    is_block: bool = False

    @property
    def is_broken(self) -> bool:
        """True if the gain is larger than the promised bound."""
        return self.promised is not None and self.got > self.promised + SLACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """All pairs, and, in `silent`, listed attempts whose rule does not apply to their champion now."""

    pairs: tuple[Pair, ...]
    silent: tuple[tuple[str, int, str, float], ...]
    attempts: int


def contests() -> tuple[Path, ...]:
    """The folders with a ledger: the root contest and the examples."""
    names = ("attempts.jsonl", "experiments")
    return (PROJECT, *sorted({path.parent for name in names for path in PROJECT.glob(f"examples/*/{name}")}))


def listed(path: Path = FOLLOWED) -> dict[tuple[str, int], tuple[str, ...]]:
    """The rules that an attempt followed by changing code, by contest and number of the attempt."""
    followed: dict[tuple[str, int], tuple[str, ...]] = {}
    for line in path.read_text().splitlines()[1:]:
        contest, number, rule = line.split("\t")
        followed[contest, int(number)] = (*followed.get((contest, int(number)), ()), rule)
    return followed


def promises(folders: Sequence[Path]) -> Promises:
    """The rules' promises about the champion of every attempt whose time was compared with the champion's."""
    pairs: list[Pair] = []
    silent: list[tuple[str, int, str, float]] = []
    attempts = 0
    named = listed()
    for folder in folders:
        contest = folder.relative_to(PROJECT).as_posix()
        for attempt, champion, rows in _experiments(folder):
            attempts += 1
            got = 1 - (attempt.verdict.time_ratio or 0.0)
            cases = _rule_cases(champion, rows)
            by_code = named.get((contest, attempt.number), ())
            for rule, finding, promised in cases:
                if (rule.name in by_code and not finding.edits) or _follows(finding, champion, attempt.evidence):
                    cost = finding.cost or None
                    pair = Pair(
                        contest=contest,
                        attempt=attempt.number,
                        rule=rule.name,
                        promised=promised,
                        cost=cost,
                        got=got,
                        is_block=bool(finding.edits),
                    )
                    pairs.append(pair)
            spoken = {rule.name for rule, finding, _ in cases if not finding.edits}
            silent += [(contest, attempt.number, rule, got) for rule in by_code if rule not in spoken]
    return Promises(pairs=tuple(pairs), silent=tuple(silent), attempts=attempts)


def _experiments(folder: Path) -> Iterator[tuple[Attempt, Evidence, tuple[Row, ...]]]:
    """Each experiment with a time, its champion's evidence, and the rows before it. Suites are left out, because a
    suite has several times.
    """
    ledger = Ledger.open(folder)
    rows, _ = history.rows(ledger.place)
    for row in rows:
        if row.kind != "experiment" or row.time_ratio is None:
            continue
        attempt = history.attempt(ledger.place, row.number)
        if attempt.champion is None:
            continue
        champion = history.attempt(ledger.place, attempt.champion.attempt).evidence
        if not champion.members and champion.failure is None:
            yield attempt, champion, tuple(other for other in rows if other.number < row.number)


def _rule_cases(champion: Evidence, rows: tuple[Row, ...]) -> list[tuple[Rule, RuleCase, float | None]]:
    report = reporting.report(champion, chip(champion.chip))
    if report.seconds is None or report.impossible:
        return []
    seen = diagnose.observe(champion, report, report.seconds, rows)
    return [(rule, finding, hint(rule, finding, seen).gain) for rule, finding in diagnose.findings(seen)]


def _follows(finding: RuleCase, before: Evidence, after: Evidence) -> bool:
    if finding.knob == _STOPS:
        return True
    return any(_moved(edit, before, after) for edit in finding.edits)


def _moved(edit: Edit, before: Evidence, after: Evidence) -> bool:
    """True if the edit's block changed its size in the direction of the edit."""
    sizes = [_size(edit, evidence) for evidence in (before, after)]
    if None in sizes:
        return False
    old, new = sizes
    assert old is not None
    assert new is not None
    return new > old if edit.new > edit.size else new < old


def _size(edit: Edit, evidence: Evidence) -> int | None:
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    windows = [window for call in calls for window in call.windows if window.name == edit.window]
    return next((window.block_shape[edit.axis] for window in windows if len(window.block_shape) >= -edit.axis), None)


def page(results: Promises) -> str:
    """The text of benchmarks/RULES.md."""
    names = [rule.name for rule in RULES]
    lines = [
        "# The gains that the rules of `diagnose` promised, and the gains of attempts",
        "",
        "Written by `python benchmarks/rule_promises.py` from this repository's ledgers; see the program's docstring.",
        f"{results.attempts} attempts with a time were compared with a champion. Today's rules are applied to these",
        f"champions, which gives {len(results.pairs)} pairs of a promise and a result. All times are simulated.",
        "",
        "- *at most*: the bounds that the rule gave on the gain, as shares of the time. *unknown*: the rule gives no",
        "  bound, for example for a larger block, which saves steps, rescalings and re-reads at once.",
        "- *cost*: the share of the time that the observed cause took; hints without a bound are ranked by their cost.",
        "- *got*: the share of the time that attempts saved, median (range).",
        "- *beyond*: the attempts whose gain exceeds the bound by more than 1 % of the time. Such a bound is wrong.",
        "- *part*: the gain divided by the bound (by the cost if there is no bound), in the median.",
        "- A rule has two lines if it advised some attempts to change a block and others to change code.",
        "",
        "| rule | followed by | at most | cost | got | beyond | part |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        rule_pairs = [pair for pair in results.pairs if pair.rule == name]
        code, blocks = ([pair for pair in rule_pairs if pair.is_block is is_block] for is_block in (False, True))
        if code:
            lines.append(_line(name, code))
        if blocks:
            lines.append(_line(f"{name}: another block", blocks))
    lines += [
        "",
        textwrap.fill(
            "No attempt followed these rules, so their promises are untested: "
            + ", ".join(name for name in names if not any(pair.rule == name for pair in results.pairs))
            + ".",
            120,
            break_on_hyphens=False,
        ),
        "",
        "## Every pair",
        "",
        "| contest | attempt | rule | at most | cost | got |",
        "|---|---|---|---|---|---|",
    ]
    for pair in results.pairs:
        got = f"{percent(pair.got)}{' **beyond**' if pair.is_broken else ''}"
        cells = (_name(pair.contest), pair.attempt, pair.rule, _share(pair.promised), _share(pair.cost, "-"), got)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "## Attempts that made a rule's change of code, although the rule does not advise it for their champion",
        "",
        "Some of these champions have old records, which lack the breakdown of the run that the rule reads. For the",
        "others the rule finds nothing today, or advises another block.",
        "",
        "| contest | attempt | rule | got |",
        "|---|---|---|---|",
    ]
    for contest, number, rule, share in results.silent:
        lines.append(f"| {_name(contest)} | {number} | {rule} | {percent(share)} |")
    return "\n".join(lines) + "\n"


def _line(name: str, pairs: Sequence[Pair]) -> str:
    bounded = [pair for pair in pairs if pair.promised is not None]
    costs = [pair.cost for pair in pairs if pair.cost is not None]
    parts = [pair.got / whole for pair in pairs if (whole := pair.cost if pair.promised is None else pair.promised)]
    at_most = _range([pair.promised or 0.0 for pair in bounded]) if bounded else "unknown"
    broken = f"{sum(pair.is_broken for pair in bounded)} of {len(bounded)}" if bounded else "-"
    part = f"{statistics.median(parts):.2f}" if parts else "-"
    got = [pair.got for pair in pairs]
    return (
        f"| {name} | {len(pairs)} | {at_most} | {_range(costs) if costs else '-'} | "
        f"{percent(statistics.median(got))} ({_range(got)}) | {broken} | {part} |"
    )


def _range(shares: Sequence[float]) -> str:
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"


def _share(share: float | None, otherwise: str = "unknown") -> str:
    return otherwise if share is None else percent(share)


def _name(contest: str) -> str:
    return "root" if contest == "." else contest.removeprefix("examples/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the page, write nothing")
    options = parser.parse_args()
    text = page(promises(contests()))
    if options.check:
        is_same = PAGE.read_text() == text
        print(f"{PAGE.name} is {'up to date' if is_same else 'out of date: run python benchmarks/rule_promises.py'}")
        return 0 if is_same else 1
    PAGE.write_text(text)
    print(text.partition("## Every pair")[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
