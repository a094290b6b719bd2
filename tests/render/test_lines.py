"""kernel.py line by line: figures sum to the total, whatever they belong to; bad requests are told what to do."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from breakdown_examples import CYCLES, breakdown
from command_line import Shell
from evidence_examples import KEY, V5E, attempt, evidence, failed, simulation
from loop_fixtures import committed_contest, ratchet
from narrowing import present
from rich.cells import cell_len
from schedule_examples import NEWEST, unpack

from harness.advice import report as reporting
from harness.advice.cycle_shares import cycle_shares
from harness.candidate import Candidate
from harness.dumps import timing_tables
from harness.dumps.llo import read_module
from harness.errors import UsageError
from harness.hardware import chip
from harness.judge.key import key_digest
from harness.judge.simulate.module import run_module
from harness.ledger.codec import encode_attempt
from harness.records import CycleBreakdown, Part, TimedRun, Verdict
from harness.render.lines import listing
from harness.render.sections import screen
from harness.verbs.lines import with_input

pytestmark = pytest.mark.long

KERNEL = "import jax\n\ndot(q, k)\n\n\tweights = exp(s)\x1b[2J\n" + "# a comment\n" * 8 + "o[...] = out\nunused()\n"
RUN = simulation(CYCLES / 1.5e9, cycles=CYCLES)


def listed(
    cycles: CycleBreakdown | None = None, kernel: str = KERNEL, width: int = 120, colour: bool = False
) -> list[str]:
    blocks = listing(RUN, cycles or breakdown(), Candidate(text=kernel.encode()).lines, "kernel.py")
    return screen(blocks, width, colour=colour).splitlines()


def test_the_timing_inputs_and_the_calls_are_named_with_their_shares() -> None:
    other = replace(RUN.ops[0], name="other.1", seconds=5e-6)
    inputs = [
        TimedRun(name=name, seconds=time, plus_minus_seconds=None, relative_uncertainty=0.02, hbm_bytes=0, mxu_flops=0)
        for name, time in (("mixed", 20e-6), ("decode", 10e-6))
    ]
    two = replace(RUN, ops=(replace(RUN.ops[0], name="first.1", seconds=15e-6), other), runs=tuple(inputs))
    blocks = listing(two, breakdown(), Candidate(text=KERNEL.encode()).lines, "kernel.py")
    title, *rest = screen(blocks, 120).splitlines()
    assert title.startswith("kernel.py with timing input mixed: 30.000 kcycles")
    assert rest[0] == "  timing inputs: mixed 20.000 us · decode 10.000 us; their mean, 15.000 us, is the latency"
    assert rest[1] == "  operations with mixed: first.1 15.000 us (75.0%) · other.1 5.000 us (25.0%)"
    # If there is one of each, no words are needed.
    assert "timing input" not in "".join(listed())
    assert "operations with" not in "".join(listed())
    assert "operations:" not in "".join(listed())


def test_the_lines_of_another_timing_input_are_those_of_its_run(tmp_path: Path) -> None:
    dumps = unpack(NEWEST, "v5e-1024x512-2048", tmp_path / "profile_data" / "0001" / "dumps")
    timing_tables.write(dumps, tuple(timing_tables.timing_tables(name, {}) for name in ("mixed", "decode")))
    run = run_module(read_module(dumps), chip("v5e"))
    judged = replace(evidence(1e-3), simulation=run, dump_directory="profile_data/0001/dumps")
    alone = with_input(tmp_path, judged, "attempt 1", "decode")
    assert [each.name for each in alone.runs] == ["decode"]
    assert present(alone.breakdown).lines
    with pytest.raises(UsageError, match="expected one of mixed, decode"):
        with_input(tmp_path, judged, "attempt 1", "prefill")


def cycles_of(line: str) -> int:
    match = re.match(r" *(?:\d+ )? *([\d,]+) +\d+\.\d%", line)
    assert match, line
    return int(match[1].replace(",", ""))


def test_each_line_has_its_cycles_its_share_their_split_units_and_spills() -> None:
    lines = listed()
    assert lines[0] == "kernel.py: 30.000 kcycles at 1.50 GHz, 20.000 us [simulated v5e]"
    assert lines[3] == "    3      15,000  50.0%    80%    20%      -          -  MXU VALU XLU       dot(q, k)"
    assert lines[4] == "    4"
    spilling = "    5       7,500  25.0%    80%      -    20%   1.00 MiB  EUP"
    assert lines[5] == f"{spilling}                    weights = exp(s)[2J"
    assert lines[6] == "  ..."
    assert lines[7] == f"   14         900   3.0%   100%      -      -          -  {'':17}  o[...] = out"


def test_lines_and_what_belongs_to_none_sum_to_the_run() -> None:
    lines = listed(width=200)
    # A blank line and the note on lines follow.
    *parts, total = lines[-7:-2]
    assert [part.split("  ")[-1].strip() for part in (*parts, total)] == [
        "lines of kernel.py",
        "jax.py:7",
        "no line: waits for transfers",
        "no line: launch, other HLO ops, what the compiler adds",
        "sum",
    ]
    assert [cycles_of(part) for part in parts] == [23_400, 3_000, 900, 2_700]
    assert sum(map(cycles_of, parts)) == cycles_of(total) == CYCLES
    assert sum(cycles_of(lines[place]) for place in (3, 5, 7)) == cycles_of(parts[0])


def test_lines_end_with_the_note_that_the_compiler_may_name_one_line_for_several() -> None:
    assert "may assign several of one kind, such as two reductions, to one line" in listed(width=200)[-1]


def test_a_kernel_that_no_line_is_known_of_says_why() -> None:
    nothing = replace(breakdown(), lines=breakdown().lines[-1:], parts=(Part(kind="issuing", name="", cycles=3_600.0),))
    assert listed(nothing)[-1].endswith("it was made without source annotations.")
    assert "assigns operations" not in "".join(listed(nothing))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked_or_steers_the_terminal(width: int) -> None:
    lines = listed(width=width)
    assert all(cell_len(line) <= width for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_colour_is_a_second_signal_only() -> None:
    plain, coloured = "\n".join(listed()), "\n".join(listed(colour=True))
    assert "\x1b[31m    3 " in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_shares_are_of_all_cycles_and_of_all_spilled_bytes() -> None:
    shares = present(cycle_shares(replace(RUN, breakdown=breakdown())))
    assert sum(part.fraction for part in shares.parts) == pytest.approx(1)
    assert [(part.name, part.fraction) for part in shares.parts[:3]] == [
        ("issuing", 0.8),
        ("unit stall MXU", 0.1),
        ("operand wait `k`", 0.05),
    ]
    assert shares.bubble_fraction == pytest.approx(0.2)
    assert [(line.name, line.fraction) for line in shares.hottest] == [
        ("kernel.py:3", 0.5),
        ("kernel.py:5", 0.25),
        ("jax.py:7", 0.1),
    ]
    assert (shares.spilled_bytes_per_step, shares.filled_bytes_per_step) == (3 * 2**18, 2**19)
    assert shares.spill_fraction == 0.075
    assert [(line.name, line.fraction) for line in shares.spill_lines] == [("kernel.py:5", 0.8), ("no line", 0.2)]
    unknown = cycle_shares(replace(RUN, breakdown=replace(breakdown(), steps=None)))
    assert present(unknown).spilled_bytes_per_step is None


def test_a_run_that_was_not_taken_apart_has_no_shares() -> None:
    assert cycle_shares(RUN) is None
    assert cycle_shares(None) is None


# --- the command -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest with three recorded attempts: an old record, one with its cycle breakdown, one that failed."""
    folder = committed_contest(tmp_path_factory.mktemp("lines") / "contest")
    (folder / "experiments").mkdir()
    passed = evidence(simulation=replace(RUN, breakdown=breakdown()))
    accept = Verdict(outcome="accept", reasons=("faster",))
    for number, judged in ((1, evidence()), (2, passed), (3, failed())):
        made = attempt(judged, accept, number=number)
        row = reporting.row(made, reporting.report(judged, V5E), key_digest(KEY))
        (folder / "experiments" / f"{number:04d}-x.json").write_bytes(encode_attempt(made, row))
    return folder


def test_a_recorded_attempt_shows_its_lines(contest: Path, shell: Shell) -> None:
    shown = shell.printed("lines", "2", "-C", contest)
    assert shown.startswith("kernel.py of attempt 2: 30.000 kcycles at 1.50 GHz, 20.000 us [simulated v5e]\n")
    assert "    3      15,000  50.0% " in shown
    assert "\x1b" not in shown
    figures = shell.document("lines", "2", "-C", contest)
    assert (figures["source"], figures["chip"], figures["cycles"]) == ("simulated", "v5e", CYCLES)
    lines = figures["breakdown"]["lines"]
    assert sum(line[f"{kind}_cycles"] for line in lines for kind in ("issue", "stall", "wait")) == CYCLES


def test_an_old_record_says_how_to_get_its_lines(contest: Path, shell: Shell) -> None:
    printed = shell.run("lines", "1", "--json", "-C", contest, code=4)
    error = json.loads(printed.out)["error"]
    assert error["kind"] == "no-breakdown"
    assert "checkout 1" in error["message"]
    assert "[no-breakdown]" in printed.err


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (("lines", "999"), "unknown-attempt", 4),
        (("lines", "3"), "no-simulation", 4),
        (("lines", "1", "--chip", "v6e"), "usage", 2),
        (("lines", "one"), "usage", 2),
        (("timeline", "999"), "unknown-attempt", 4),
        (("timeline", "2"), "no-dump", 4),
        (("timeline", "3"), "no-simulation", 4),
        (("timeline", "2", "--chip", "v5e"), "usage", 2),
        (("timeline", "experiments"), "usage", 2),
        (("timeline", "experiments", "--chip", "v5e"), "no-dump", 4),
        (("timeline", "experiments", "--chip", "v9"), "unknown-chip", 2),
        (("timeline", "2", "--steps", "-1"), "usage", 2),
    ],
)
def test_bad_requests(contest: Path, words: tuple[str, ...], kind: str, code: int, shell: Shell) -> None:
    assert f"[{kind}]" in shell.complaint(*words, "-C", contest, code=code)
    assert not (contest / "profile_data").exists(), "nothing may be left of what was refused"


@pytest.mark.slow
def test_the_kernel_as_it_stands_is_judged_once(contest: Path) -> None:
    figures = json.loads(ratchet(contest, "lines", "--json", expect=0).stdout)
    lines = {line["line"]: line for line in figures["breakdown"]["lines"] if line["file"] == "kernel.py"}
    texts = (contest / "kernel.py").read_text().splitlines()
    hottest = max(lines, key=lambda number: lines[number]["issue_cycles"])
    assert re.search(r"dot|exp|max|sum", texts[hottest - 1]), "the work of attention is in its matmuls and softmax"
    parts = sum(part["cycles"] for part in figures["breakdown"]["parts"])
    split = sum(line[f"{kind}_cycles"] for line in figures["breakdown"]["lines"] for kind in ("issue", "stall", "wait"))
    assert parts == pytest.approx(figures["cycles"])
    assert split == pytest.approx(figures["cycles"])
    kept = contest / "profile_data" / "judge" / "found.json"
    before = kept.stat().st_mtime_ns
    shown = ratchet(contest, "lines", expect=0)
    assert shown.stdout.startswith("kernel.py as it stands: ")
    assert kept.stat().st_mtime_ns == before, "what was found is used again"
    done = ratchet(contest, "timeline", "--steps", "1", expect=0)
    assert kept.stat().st_mtime_ns == before
    assert "[simulated v5e]" in done.stdout
    trace = gzip.decompress((contest / "profile_data" / "kernel.py-simulated-v5e.trace.json.gz").read_bytes())
    moved = {event["name"] for event in json.loads(trace)["traceEvents"] if event.get("cat") == "transfer"}
    # jax 0.12 calls parameters as the kernel calls its references; the older one by their place, which is translated.
    assert {re.sub(r"_ref\.\d+$", "", name) for name in moved} == {"q", "k", "v", "o"}
    (contest / "kernel.py").write_text("raise ValueError\n")
    failed_run = ratchet(contest, "lines", expect=4)
    assert "[no-simulation]" in failed_run.stderr
    assert "ValueError" in failed_run.stderr
