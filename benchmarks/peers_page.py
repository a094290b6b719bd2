"""benchmarks/PEERS.md, made from the results of peers.py."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import peers_problems
from markdown_pages import fill, markdown_table
from peers_entries import NAMES, NOT_RUN, Entries, Entry, entry, with_error, without_failed_figures
from peers_errors import Errors
from peers_errors import text as error_text
from peers_plan import Look, Plan
from peers_problems import AIMS, OPERATOR_AIMS, OURS, PEERS, PROBLEMS, Configuration
from peers_sensitivity import RULE
from peers_titles import Title, champion_seconds, kept

from harness import units
from harness.hardware import chip as chip_named
from harness.judge.simulate.uncertainty import relative_uncertainty
from harness.judge.verdict.roofline import utilisation

ROOT = Path(__file__).parents[1]
NOTES = Path(__file__).parent / "data" / "peers_notes.md"
# The title of the column of errors, and its explanation.
ERROR = "error"
FOUND = """The column `error` has the largest error of a contender's outputs over inputs drawn from the judge's space
(attention sinks, scores that rise along the keys, common directions, mixtures of scales), in units of the judge's
tolerance: above 1 the judge refuses the kernel. `--errors N` determines it: the best configuration is interpreted on N
inputs on the CPU, with the chip's roundings, at a length of 4096 or 8192 with one head or one group. If a kernel of
ours fails, its figures are left out."""


# Our time over the best peer's, by chip and problem, and by the varied constant.
Ratios = Mapping[tuple[str, str], Mapping[str, float]]


def page(
    plan: Plan,
    look: Look,
    ratios: Ratios,
    errors: Errors = lambda task: None,
    titles: Mapping[str, Title] | None = None,
) -> str:
    """The page as Markdown; results that the cache lacks are shown as not run.

    `titles`: the champion's title by the path of our kernel. A kernel of ours that is no champion, or whose error is
    above its tolerance, has no figures: its row says why.
    """
    entries = {
        (chip, problem): [
            without_failed_figures(
                with_error(plan, chip, problem, entry(plan, chip, problem, contender, look), errors), chip, titles
            )
            for contender in plan.contenders
        ]
        for chip in plan.chips
        for problem in plan.problems
    }
    parts = [_intro(plan), _aims(plan, entries), _sensitivity(entries, ratios)]
    for chip in plan.chips:
        parts.append(f"## {chip}")
        parts += [_table(plan, chip, problem, entries[chip, problem]) for problem in plan.problems]
    parts += [operators(), _published(plan, entries, look), _counts(plan, entries), _doubts(plan)]
    if NOTES.exists():
        parts.append(NOTES.read_text(encoding="utf-8").strip())
    return fill("\n\n".join(parts)) + "\n"


def _intro(plan: Plan) -> str:
    other = f" and with {plan.other.name}" if plan.other else ""
    return f"""# Our kernels compared with others

This page compares kernels for attention forward in bfloat16 with head_dim 128 and softmax scale 1/sqrt(128): our
champions, JAX's `flash_attention`, JAX's splash attention and tokamax's splash attention, each at the best of its own
configurations. All are compiled by the real TPU compiler without a TPU ({plan.compiler.name}{other})
and executed by this project's simulator.
**All times are simulated**, except in columns titled `published`. [FIDELITY.md](FIDELITY.md) says how near the
simulator comes to real chips. One command writes this page, with Python 3.12 or newer:

    uv pip install -e '.[bench]' && python benchmarks/peers.py --write

The command takes hours on two cores. If it is stopped and started again, it continues where it stopped. A second
compiler needs the `libtpu.so` of another release: `--library PATH --library-name 'libtpu 0.0.42.1'`. `--sensitivity`
repeats the best programs with other machine constants.

All contenders get operands [heads, sequence, head_dim] in default layouts, and return the result in its default layout.
The time is that of the whole module, with every copy and fusion around the kernel. It includes work that a contender's
interface requires: splash attention and tokamax expect scaled queries, so the multiplication runs before the kernel;
JAX's flash attention does not support shared key/value heads, so these are repeated before the kernel. For flash
attention, the softmax scale was tried both in the kernel and before it. Each contender sets its own VMEM limit. A
configuration that the compiler refuses for lack of VMEM is compiled once more with a limit of three quarters of the
chip's VMEM.

{plan.search}

{FOUND}"""


def _best_peer(entries: list[Entry], *, other: bool = False) -> Entry | None:
    """The fastest peer. With the other compiler, None until every peer is tried: the last might be the fastest."""
    peers = [each for each in entries if each.contender in PEERS]
    if other and not all(each.is_complete_there for each in peers):
        return None
    timed = [
        (seconds, each.contender, each)
        for each in peers
        if (seconds := each.other_seconds if other else each.seconds) is not None
    ]
    return min(timed)[2] if timed else None


def _of(entries: list[Entry], contender: str) -> Entry | None:
    return next((each for each in entries if each.contender == contender), None)


def _ratio(mine: float | None, theirs: float | None, chip: str) -> str:
    """The ratio of two times, with one standard deviation."""
    if mine is None or theirs is None:
        return NOT_RUN
    return f"{mine / theirs:.3f} +/- {mine / theirs * relative_uncertainty(chip):.3f}"


def verdict(mine: float | None, theirs: float | None, aim: float, chip: str) -> str:
    """`reached` if the ratio is at most `aim`, else `not reached`; also says if the uncertainty leaves that open."""
    if mine is None or theirs is None:
        return NOT_RUN
    ratio = mine / theirs
    answer = "reached" if ratio <= aim else "not reached"
    return f"{answer}, within the uncertainty" if abs(ratio - aim) <= ratio * relative_uncertainty(chip) else answer


def _aims(plan: Plan, entries: Entries) -> str:
    lines = []
    for (chip, problem), aim in AIMS.items():
        here = entries.get((chip, problem), [])
        ours, peer, elsewhere_ = _of(here, OURS), _best_peer(here), _best_peer(here, other=True)
        mine, theirs = (each.seconds if each else None for each in (ours, peer))
        complete = bool(here) and all(each.is_complete for each in here)
        lines.append(
            [
                chip,
                PROBLEMS[problem].title,
                f"{aim:.2f}",
                _seconds(mine),
                _seconds(theirs),
                NAMES[peer.contender] if peer else "",
                _ratio(mine, theirs, chip),
                (ours.fails if ours and ours.fails else verdict(mine, theirs, aim, chip))
                + ("" if complete or mine is None or theirs is None else ", so far"),
                _ratio(ours.other_seconds if ours else None, elsewhere_.other_seconds if elsewhere_ else None, chip),
            ]
        )
    head = ["chip", "problem", "aim", "ours", "best peer", "which", "ours / best peer", "verdict"]
    if plan.other:
        head.append(f"ratio, {plan.other.name}")
    return f"""## Against the aims

An aim is the largest acceptable ratio of our time to the best peer's. Aims were set before the first attempt. Times and
ratios are simulated. The uncertainty of a ratio is one standard deviation. A verdict is "within the uncertainty" if the
ratio is no further from the aim than this uncertainty. A single time is less certain than a ratio, because programs for
one problem share errors (FIDELITY.md).

{table(lines, head)}"""


def operators() -> str:
    """The section on today's champions of operators other than attention forward, next to the kept peers."""
    lines = []
    for contest, row in kept().items():
        seconds = float(row["seconds"])
        mine = champion_seconds(ROOT / contest) if contest in OPERATOR_AIMS and row["ratio"] else None
        if mine is not None:
            aim, ratio = OPERATOR_AIMS[contest], mine / seconds
            aim_cells = ["", ""] if aim is None else [f"{aim:.2f}", "reached" if ratio <= aim else "not reached"]
            times = [units.seconds(mine), units.seconds(seconds)]
            folder = f"[{contest.removeprefix('examples/')}](../{contest})"
            lines.append([folder, *times, row["peer"], f"{ratio:.3f}", *aim_cells, row["note"]])
    head = ["contest", "ours", "best peer", "which", "ours / best peer", "aim", "verdict", "how"]
    return f"""## Other operators

The table compares the champions of the other contests with the kernels that others ship for the same operands at the
same shape. Both times are simulated, for the whole module. Ours is the champion's newest time (`rescale`). A peer was
tried with one to some dozens of configurations (last column). `python benchmarks/peers_operators.py --write` makes this
table, in the environment in which the contests were judged.

{table(lines, head)}"""


def _sensitivity(entries: Entries, ratios: Ratios) -> str:
    """The section on how far the ratios of the aims depend on the simulator's assumptions."""
    lines = []
    for (chip, problem), ratio_by_variant in ratios.items():
        ours, peer = _of(entries[chip, problem], OURS), _best_peer(entries[chip, problem])
        moved = sorted((ratio, name) for name, ratio in ratio_by_variant.items() if name != RULE)
        if not moved or not ours or not peer or not ours.seconds or not peer.seconds:
            continue
        (low, lowest), (high, highest) = moved[0], moved[-1]
        lines.append(
            [
                chip,
                PROBLEMS[problem].title,
                f"{ours.seconds / peer.seconds:.3f}",
                f"{ratio_by_variant[RULE]:.3f}" if RULE in ratio_by_variant else NOT_RUN,
                f"{low:.3f} ({lowest})",
                f"{high:.3f} ({highest})",
            ]
        )
    if not lines:
        return "How the ratios move with the machine's constants: not run (`--sensitivity`)."
    head = ["chip", "problem", "ratio", "preps wait", "lowest", "highest"]
    return f"""## With other machine constants

The table has the lowest and the highest ratio of the same two programs over the variations of the chip's constants
under which the judge requires a gain (SIMULATOR.md). The column "preps wait" has the ratio under another rule of the
simulator: a weight prep waits for the previous push, contrary to the compiler's schedule.

{table(lines, head)}"""


def _seconds(value: float | None) -> str:
    return NOT_RUN if value is None else units.seconds(value)


def words(configuration: Configuration | None) -> str:
    """The configuration as `2048/4096/512, layouts 121, exp_sched 1`; constants of ours by name; "" for None."""
    if configuration is None:
        return ""
    blocks = "/".join(value for name, value in configuration if name.startswith("block_"))
    rest = [f"{name} {value}" for name, value in configuration if not name.startswith("block_")]
    return ", ".join([*([blocks] if blocks else []), *rest])


def _table(plan: Plan, chip: str, problem: str, entries: list[Entry]) -> str:
    peer, other = _best_peer(entries), _best_peer(entries, other=True)
    lines = [
        _line(chip, problem, each, peer.seconds if peer else None, other.other_seconds if other else None)
        for each in entries
    ]
    head = ["contender", "best configuration", "time", "+/-", ERROR, "useful", "spills", "around", "VMEM"]
    head += ["to best peer"]
    if plan.other:
        head += [f"time, {plan.other.name}", "to best peer there"]
    text = table(lines, head)
    return f"### {chip}, {PROBLEMS[problem].title}\n\n{text}"


def _line(chip: str, problem: str, each: Entry, peer: float | None, other: float | None) -> list[str]:
    outcome = each.outcome
    name = NAMES[each.contender] + ("" if each.is_complete or not each.tried else ", so far")
    if outcome is None or outcome.seconds is None:
        return [name, _why_none(each), NOT_RUN, "", error_text(each.error, ""), *([""] * 7)]
    assert outcome.plus_minus_seconds is not None
    useful = utilisation(PROBLEMS[problem].matmul_flops, outcome.seconds, chip_named(chip).peak_bf16_flops_per_second)
    moved = ""
    if each.other_configuration not in (None, each.configuration):
        moved = f" ({words(each.other_configuration)})"
    return [
        name,
        words(each.configuration) + (f" ({outcome.unknown} not understood)" if outcome.unknown else ""),
        units.seconds(outcome.seconds),
        units.seconds(outcome.plus_minus_seconds),
        error_text(each.error, NOT_RUN),
        units.percent(useful),
        "unknown" if outcome.spills is None else units.count(outcome.spills),
        "unknown" if outcome.around_seconds is None else units.seconds(outcome.around_seconds, 1),
        "unknown" if outcome.vmem_bytes is None else units.kibibytes(outcome.vmem_bytes),
        _ratio(outcome.seconds, peer, chip),
        _seconds(each.other_seconds) + moved,
        _ratio(each.other_seconds, other, chip),
    ]


def _why_none(each: Entry) -> str:
    if each.fails:
        return each.fails
    if each.refusals:
        return f"none of {each.tried}: {each.refusals[0]}"
    return "there is no such kernel yet" if each.contender == OURS and not each.planned else ""


def _published(plan: Plan, entries: Entries, look: Look) -> str:
    """The section on configurations with a published device time, and their simulated times."""
    lines = []
    for chip, problem in entries:
        row = peers_problems.published(PROBLEMS[problem], chip)
        if row is None or "tokamax" not in plan.contenders:
            continue
        configuration = peers_problems.published_configuration(PROBLEMS[problem], chip)
        tasks = plan.tasks(chip, problem, "tokamax", look)
        outcome = next((look(task) for task in tasks if task.configuration == configuration), None)
        published = float(row["median_ms"]) * 1e-3
        here = _of(entries[chip, problem], "tokamax")
        lines.append(
            [
                chip,
                PROBLEMS[problem].title,
                words(configuration),
                units.seconds(published),
                _seconds(outcome.seconds if outcome else None),
                words(here.configuration) if here else "",
                _seconds(here.outcome.seconds if here and here.outcome else None),
            ]
        )
    if not lines:
        return "## Next to published times\n\nNo device time is published for any of these problems and chips."
    head = ["chip", "problem", "published configuration", "published", "simulated", "best here", "simulated"]
    return f"""## Next to published times

The tokamax package publishes device times of its kernel on the same problem, without the scaling of the queries
(benchmarks/data/measured_attention.tsv). The published times include XLA's copies of operands into another layout; the
programs simulated here need none. "Best here" is the fastest configuration in the simulator; if it is not the published
one, only a device can tell which of the two is faster.

{table(lines, head)}"""


def _counts(plan: Plan, entries: Entries) -> str:
    lines = []
    for chip in plan.chips:
        for place, contender in enumerate(plan.contenders):
            cells = [_count(entries[chip, problem][place]) for problem in plan.problems]
            lines.append([chip, NAMES[contender], *cells])
    reasons = Counter(_kind(text) for each in entries.values() for row_entry in each for text in row_entry.refusals)
    listed = "\n".join(f"- {text}: {count}" for text, count in reasons.most_common(12))
    return f"""## How many configurations

The table has the number of configurations that were tried, and the number of those that were refused: by the contender,
by the compiler, for taking too long, or because the simulation gives no latency.

{table(lines, ["chip", "contender", *plan.problems])}

{"Reasons, and the number of configurations:" if reasons else "None was refused."}

{listed}""".rstrip()


def _count(each: Entry) -> str:
    if not each.tried:
        return NOT_RUN
    count_text = str(each.tried) if each.is_complete else f"{each.tried} of {each.planned}"
    return f"{count_text}, {len(each.refusals)} refused" if each.refusals else count_text


def _kind(refusal: str) -> str:
    """The kind of a refusal, so that refusals of one kind count together; other refusals as they are, shortened."""
    if "scoped vmem limit" in refusal:
        return "needs more VMEM than the raised limit, three quarters of the chip's"
    if "Ran out of memory in memory space vmem" in refusal:
        return "needs more VMEM than the chip has"
    return refusal.replace("|", "/").replace("`", "'")[:160]


def _doubts(plan: Plan) -> str:
    uncertainties = ", ".join(f"{100 * relative_uncertainty(chip):.1f} % on {chip}" for chip in plan.chips)
    return f"""## What not to trust

- No time here was taken on a device. The uncertainty of a ratio is one standard deviation: {uncertainties}. It was
  derived from published times of tokamax's operations, in other shapes and blocks. Few of them are pairs of two
  programs for one problem, as on this page, and none of these pairs is attention. For v5e only times of grouped
  products are published.
- The best of many simulated configurations is likely to have an error in its favour. All contenders are chosen in this
  way: the peers from 24 configurations or more, ours by the loop, on one chip. If a row of ours names constants, they
  differ from the champion's.
- The column `useful` has the FLOPs of the two matmuls for the query/key pairs that are not masked, as a share of the
  peak of the hardware that one program occupies: the chip, or on v7x one of its two cores.
- The grouped problem is not causal. The column `around` has the time that the module spends outside its Pallas
  kernels, its top-level program included. Spills are executed vector register stores. VMEM is the scoped memory of the
  largest kernel.
- The peers' configurations come from the list in benchmarks/peers_problems.py, which contains the winners that tokamax
  publishes for head_dim 128. Neither an autotuner nor the peers' authors chose them, so better ones may exist."""


def table(lines: list[list[str]], head: list[str]) -> str:
    """A Markdown table of the columns that have a head; a second compiler's columns come last and may have none."""
    cells = [[cell.replace("|", "/") for cell in line[: len(head)]] for line in lines]
    return markdown_table(cells, head)
