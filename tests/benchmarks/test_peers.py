"""The comparison with other kernels: its configurations, its choices and its page from planted times; one real row."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import peers_compile as compiling
import peers_errors as errors
import peers_page as pages
import peers_plan as plans
import peers_problems as problems
import peers_reread as rereading
import peers_sensitivity as sensitivity
import peers_tasks as tasks
import peers_titles as titles
import pytest
from jax.experimental.pallas import tpu as pltpu
from ledger_fixtures import four_attempts, new_repository, run_revoke

from harness.judge.simulate.uncertainty import relative_uncertainty
from harness.ledger import Ledger

# They guard a page of figures, which no verdict depends on.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

OWN = tasks.Compiler(name="libtpu own")
OTHER = tasks.Compiler(name="libtpu other", library=Path("libtpu.so"))
PEERS = problems.PEERS


def plan(**changes: Any) -> plans.Plan:
    """Everything on one chip, both compilers."""
    words: dict[str, Any] = {
        "chips": ("v5e",),
        "problems": tuple(problems.PROBLEMS),
        "contenders": ("ours", *PEERS),
        "compiler": OWN,
        "other": OTHER,
        "keep": 4,
    }
    return plans.Plan(**(words | changes))


def timed(seconds: float) -> tasks.Outcome:
    """An outcome with this time."""
    return tasks.Outcome(
        seconds=seconds, plus_minus_seconds=seconds / 10, around_seconds=1e-6, spills=1234, vmem_bytes=12 << 20
    )


def planted(**seconds: float) -> plans.Look:
    """A look at planted times: each contender's n-th configuration takes 1 + n % more than its first."""

    def look(task: tasks.Task) -> tasks.Outcome | None:
        if task.contender not in seconds:
            return None
        listed = problems.configurations(task.contender, task.problem, task.chip)
        place = listed.index(task.configuration) if task.configuration in listed else len(listed)
        return timed(seconds[task.contender] * task.problem.heads * (1 + place / 100))

    return look


@pytest.mark.parametrize("chip", problems.CHIPS)
@pytest.mark.parametrize("contender", ["ours", *PEERS])
def test_every_peer_gets_at_least_24_configurations_of_its_own(contender: str, chip: str) -> None:
    for problem in problems.PROBLEMS.values():
        listed = problems.configurations(contender, problem, chip)
        assert len(set(listed)) == len(listed) >= (1 if contender == "ours" else 24)
        assert len({tuple(name for name, _ in each) for each in listed}) == 1, "each names the same settings"


@pytest.mark.parametrize("contender", PEERS)
@pytest.mark.parametrize("problem", list(problems.PROBLEMS))
def test_blocks_divide_the_sequence_and_their_parts_divide_them(contender: str, problem: str) -> None:
    look = planted(flash=1e-3, splash=1e-3, tokamax=1e-3)
    for chip in problems.CHIPS:
        for task in plan(chips=(chip,)).tasks(chip, problem, contender, look):
            blocks = [int(value) for name, value in task.configuration if name.startswith("block_")]
            assert [task.problem.sequence % block for block in blocks] == [0] * 3, task
            assert blocks[1] % blocks[2] == 0, task


def test_the_best_that_does_not_fit_a_shorter_sequence_gives_way_to_the_next() -> None:
    look = planted(flash=1e-3)
    long = next(
        task for task in plan().tasks("v5e", "full", "flash", look) if "8192" in dict(task.configuration).values()
    )

    def favoured(task: tasks.Task) -> tasks.Outcome | None:
        return timed(1e-6) if task == long else look(task)

    full, grouped = (plan().tasks("v5e", name, "flash", favoured) for name in ("full", "grouped"))
    assert plans.ranking(full, favoured)[0] == long
    more = problems.additional("flash", problems.PROBLEMS["grouped"], "v5e")
    assert len(grouped) == 4 + len(more)
    assert long.configuration not in [task.configuration for task in grouped]


def test_the_published_winners_are_among_them() -> None:
    won = problems.winners()
    assert len(won) > 5
    for chip in problems.CHIPS:
        assert set(won) <= set(problems.configurations("tokamax", problems.PROBLEMS["full"], chip))


def test_a_published_time_is_of_the_same_problem() -> None:
    full, causal = problems.PROBLEMS["full16"], problems.PROBLEMS["causal16"]
    published = problems.published(full, "v5p")
    assert published is not None
    assert published["median_ms"] == "5.368"
    assert problems.published(full, "v6e") is None, "v6e has it with the causal mask only"
    configuration = problems.published_configuration(causal, "v6e")
    assert configuration is not None
    assert dict(configuration)["layouts"] == "211"
    assert problems.published(problems.PROBLEMS["grouped"], "v7x") is None, "published with a batch of 32, causal"


def test_useful_work_leaves_the_masked_half_out() -> None:
    full, causal = problems.PROBLEMS["full"].matmul_flops, problems.PROBLEMS["causal"].matmul_flops
    assert full == 4 * 16384**2 * 128
    assert causal / full == pytest.approx(0.5, abs=1e-4)


def test_the_best_go_on_to_the_next_problem() -> None:
    look = planted(flash=1e-3, splash=1e-3, tokamax=1e-3, ours=1e-3)
    everything = plan()
    for contender in PEERS:
        all_ = everything.tasks("v5e", "full", contender, look)
        best = [task.configuration for task in all_[:4]]
        more = problems.additional(contender, problems.PROBLEMS["causal"], "v5e")
        causal = [task.configuration for task in everything.tasks("v5e", "causal", contender, look)]
        assert causal[:4] == best
        assert set(causal) == {*best, *more}
        sixteen = [task.configuration for task in everything.tasks("v5e", "full16", contender, look)]
        assert sixteen[0] == best[0]
        assert [task.configuration for task in plans.elsewhere(OTHER, all_, look)] == best[:2]


def test_what_has_no_time_is_not_chosen() -> None:
    look = planted(flash=1e-3)
    everything = plan()
    fastest, *rest = everything.tasks("v5e", "full", "flash", look)

    def refusing(task: tasks.Task) -> tasks.Outcome | None:
        return tasks.Outcome(refusal="too large") if task == fastest else look(task)

    assert plans.ranking([fastest, *rest], refusing) == rest
    assert fastest.configuration not in [
        task.configuration for task in everything.tasks("v5e", "causal", "flash", refusing)[:4]
    ]


def test_another_file_of_ours_gets_all_of_its_configurations() -> None:
    look = planted(ours=1e-3)
    listed = problems.configurations("ours", problems.PROBLEMS["causal"], "v5e")
    assert len(plan().tasks("v5e", "causal", "ours", look)) == len(listed)
    assert len(plan().tasks("v5e", "full16", "ours", look)) == 1


def test_a_stage_sees_what_the_ones_before_it_found() -> None:
    look = planted(flash=1e-3, splash=1e-3, tokamax=1e-3, ours=1e-3)
    stages = list(plan().stages(look))
    assert [{task.problem.name for task in stage} for stage in stages] == [{name} for name in problems.PROBLEMS] * 2
    assert [{task.compiler.name for task in stage} for stage in stages] == [{OWN.name}] * 5 + [{OTHER.name}] * 5
    nothing = list(plan().stages(lambda task: None))
    assert len(nothing[1]) < len(stages[1])


def test_the_page_tells_times_ratios_and_verdicts() -> None:
    text = pages.page(plan(), planted(flash=0.8e-3, splash=0.9e-3, tokamax=0.75e-3, ours=0.6e-3), {})
    error = 0.8 * relative_uncertainty("v5e")
    aim = next(line for line in text.splitlines() if line.startswith("| v5e") and "causal, 1 head" in line)
    cells = [cell.strip() for cell in aim.split("|")]
    assert cells[3:9] == [
        f"{problems.AIMS['v5e', 'causal']:.2f}",
        "600.000 us",
        "750.000 us",
        "tokamax splash attention",
        f"0.800 +/- {error:.3f}",
        "reached",
    ]
    row = next(line for line in text.splitlines() if line.startswith("| JAX flash attention"))
    assert [cell.strip() for cell in row.split("|")][3:10] == [
        "800.000 us",
        "80.000 us",
        "not run",
        "87.2%",
        "1,234",
        "1.0 us",
        "12.00 MiB",
    ]
    assert "so far" not in text
    assert "v6e" in text, "an aim for a chip that was not asked for stands there as not run"


def test_the_page_has_the_kept_peers_of_other_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "# a remark",
        "contest\tpeer\tseconds\tratio\tnote",
        "examples/swiglu\tXLA\t1e-3\t0.930\tboth simulated",
        "examples/matmul\tXLA\t2e-3\t1.020\tboth simulated",
        "examples/attention-causal\tJAX splash attention\t1e-3\t0.8\tattention has tables of its own",
        "examples/rmsnorm\tXLA\t1e-3\t\tnot compared",
    ]
    (tmp_path / "peers.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr(titles, "KEPT", tmp_path / "peers.tsv")
    # The ratio is today's, not that of the day on which the peer was timed.
    champions = {"swiglu": 0.94e-3, "matmul": 2.04e-3}
    monkeypatch.setattr(pages, "champion_seconds", lambda folder: champions.get(folder.name))
    text = pages.page(plan(), planted(flash=0.8e-3, ours=0.6e-3), {}).split("## Other operators")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")][2:8] for line in text.splitlines() if line.startswith("| [")]
    assert rows == [
        ["940.000 us", "1.000 ms", "XLA", "0.940", "0.95", "reached"],
        ["2.040 ms", "2.000 ms", "XLA", "1.020", "1.00", "not reached"],
    ]


@pytest.mark.parametrize(
    ("mine", "expected"),
    [
        (0.7, "reached"),
        (0.879, "reached, within the uncertainty"),
        (0.881, "not reached, within the uncertainty"),
        (0.95, "not reached"),
        (None, "not run"),
    ],
)
def test_a_verdict_says_whether_the_uncertainty_leaves_it_open(mine: float | None, expected: str) -> None:
    assert pages.verdict(mine, 1.0, 0.88, "v5e") == expected


def test_a_page_of_an_empty_cache_has_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "peers.tsv"
    kept.write_text("contest\tpeer\tseconds\tratio\tnote\n")
    monkeypatch.setattr(titles, "KEPT", kept)
    text = pages.page(plan(), lambda task: None, {})
    assert " us |" not in text
    assert " ms |" not in text
    assert text.count("not run") > 20


def test_a_page_of_a_partial_cache_says_so() -> None:
    look = planted(flash=0.8e-3, ours=0.6e-3)
    first = plan().tasks("v5e", "full", "flash", look)[:10]

    def partly(task: tasks.Task) -> tasks.Outcome | None:
        return None if task.contender == "flash" and task not in first else look(task)

    text = pages.page(plan(), partly, {})
    assert "JAX flash attention, so far" in text
    assert f"10 of {len(plan().tasks('v5e', 'full', 'flash', look))}" in text
    assert "reached, so far" in text


@pytest.mark.parametrize(
    ("message", "counted"),
    [
        ("Scoped allocation with size {}.00M and limit 16.00M exceeded scoped vmem limit by 1.00M", "raised limit"),
        ("Ran out of memory in memory space vmem. Used {}.95M of 64.00M vmem.", "needs more VMEM than the chip has"),
    ],
)
def test_refusals_are_counted_with_their_words(message: str, counted: str) -> None:
    look = planted(flash=0.8e-3)
    first = plan().tasks("v5e", "full", "flash", look)[:3]

    def refusing(task: tasks.Task) -> tasks.Outcome | None:
        return tasks.Outcome(refusal=message.format(70 + first.index(task))) if task in first else look(task)

    text = pages.page(plan(), refusing, {})
    assert ", 3 refused" in text
    assert "- 3 times: needs more VMEM" in text
    assert counted in text


@pytest.mark.parametrize("tasks_run", [0, 1])
def test_there_is_no_best_peer_of_a_compiler_that_one_of_them_was_not_run_with(tasks_run: int) -> None:
    look = planted(flash=0.8e-3, splash=0.9e-3, ours=0.6e-3)
    assert ours_there(pages.page(plan(), look, {})) != "not run"
    tasks_there = plans.elsewhere(OTHER, plan().tasks("v5e", "full", "flash", look), look)
    assert len(tasks_there) == 2

    def without(task: tasks.Task) -> tasks.Outcome | None:
        return None if task in tasks_there[tasks_run:] else look(task)

    assert ours_there(pages.page(plan(), without, {})) == "not run"


def test_a_peer_that_another_compiler_refuses_is_not_waited_for() -> None:
    look = planted(flash=0.8e-3, splash=0.9e-3, ours=0.6e-3)

    def refusing(task: tasks.Task) -> tasks.Outcome | None:
        return tasks.Outcome(refusal="no") if (task.contender, task.compiler) == ("flash", OTHER) else look(task)

    assert ours_there(pages.page(plan(), refusing, {})) == ours_there(
        pages.page(plan(), planted(splash=0.9e-3, ours=0.6e-3), {})
    )


def ours_there(page: str) -> str:
    """Our ratio to the best peer with the other compiler: the last cell of the first table of a problem."""
    row = next(line for line in page[page.index("### v5e, full") :].splitlines() if line.startswith("| ours "))
    return row.split("|")[-2].strip()


def test_a_second_compiler_has_columns_only_if_there_is_one() -> None:
    look = planted(flash=0.8e-3, ours=0.6e-3)
    assert f"time, {OTHER.name}" in pages.page(plan(), look, {})
    assert "to best peer there" not in pages.page(plan(other=None), look, {})


def test_notes_are_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes.md"
    monkeypatch.setattr(pages, "NOTES", notes)
    assert "What follows" not in pages.page(plan(), lambda task: None, {})
    notes.write_text("## What follows\n", encoding="utf-8")
    assert pages.page(plan(), lambda task: None, {}).endswith("## What follows\n")


def test_a_refusal_is_the_sentence_that_says_most() -> None:
    text = (
        "JaxRuntimeError: RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:\nRan out of memory in "
        "memory space vmem. Scoped allocation with size 17.00M and limit 16.00M exceeded scoped vmem limit by 1.00M. "
        "It should not.\n"
    )
    assert tasks.sentence(text).startswith("Scoped allocation with size 17.00M")
    assert tasks.sentence("ValueError: block_q must divide\nmore") == "ValueError: block_q must divide"


def test_words_of_a_configuration() -> None:
    settings = (("block_q", "2048"), ("block_kv", "4096"), ("block_kv_compute", "512"), ("layouts", "121"))
    assert pages.words(settings) == "2048/4096/512, layouts 121"
    assert pages.words((("BQ", "2048"), ("TK", "512"))) == "BQ 2048, TK 512"


def test_places_differ_where_results_may() -> None:
    task = plan().tasks("v5e", "full", "flash", lambda task: None)[0]
    others = [
        dataclasses.replace(task, chip="v6e"),
        dataclasses.replace(task, compiler=OTHER),
        dataclasses.replace(task, problem=problems.PROBLEMS["causal"]),
        dataclasses.replace(task, configuration=(("block_q", "1"),)),
    ]
    assert len({each.place for each in (task, *others)}) == 5


def flash(problem: problems.Problem, blocks: dict[str, str]) -> tasks.Task:
    """JAX's flash attention in these blocks on v5e."""
    return tasks.Task(
        compiler=OWN,
        chip="v5e",
        problem=problem,
        contender="flash",
        configuration=tuple((blocks | {"scale": "outside"}).items()),
    )


@pytest.mark.slow
def test_a_short_row_is_compiled_simulated_and_kept(tmp_path: Path) -> None:
    blocks = {"block_q": "128", "block_k_major": "256", "block_k": "128"}
    short = problems.Problem(name="short", title="full, 2 heads, sequence 512", heads=2, kv_heads=1, sequence=512)
    task = flash(short, blocks)
    outcome = tasks.outcome(task, tmp_path, 300.0)
    assert outcome.refusal == ""
    assert outcome.seconds is not None
    assert outcome.around_seconds is not None
    assert outcome.vmem_bytes is not None
    assert 1e-6 < outcome.seconds < 1e-3
    assert 0 < outcome.around_seconds < outcome.seconds, "keys and values are repeated, queries scaled"
    assert outcome.vmem_bytes > 0
    shutil.rmtree(tmp_path / "dumps")
    assert tasks.outcome(task, tmp_path, 300.0) == outcome, "nothing is compiled again"
    assert "divide" in tasks.outcome(flash(short, blocks | {"block_k": "96"}), tmp_path, 300.0).refusal


@pytest.mark.slow
def test_a_kernel_that_needs_more_vmem_than_the_compilers_limit_gets_more(tmp_path: Path) -> None:
    """Its float32 scores alone take the 16 MiB that the compiler gives by itself."""
    short = problems.Problem(name="short", title="full, 1 head, sequence 2048", sequence=2048)
    task = flash(short, {"block_q": "2048", "block_k_major": "2048", "block_k": "2048"})
    outcome = tasks.outcome(task, tmp_path, 300.0)
    assert outcome.refusal == ""
    assert outcome.vmem_bytes is not None
    assert outcome.vmem_bytes > 16 << 20


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("contender", "settings"),
    [
        ("flash", {"block_q": "128", "block_k_major": "256", "block_k": "128", "scale": "outside"}),
        ("flash", {"block_q": "128", "block_k_major": "256", "block_k": "128", "scale": "inside"}),
        ("splash", {"block_q": "128", "block_kv": "256", "block_kv_compute": "128", "layouts": "121"}),
        ("tokamax", {"block_q": "128", "block_kv": "256", "block_kv_compute": "128", "layouts": "211"}),
    ],
)
def test_contenders_compute_the_problem(contender: str, settings: dict[str, str], causal: bool) -> None:
    if contender == "tokamax":
        pytest.importorskip("tokamax")
    short = problems.Problem(name="short", title="", heads=4, kv_heads=2, sequence=256, causal=causal)
    options = settings | dict(word.split("=") for word in short.words)
    if contender == "tokamax":
        options["exp_sched"] = "0"
    if contender == "tokamax" and causal:
        options |= {"block_q": "256", "block_kv_compute": "256", "diagonal": "2"}
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(short.heads, 256, problems.HEAD_DIM), *[(short.kv_heads, 256, problems.HEAD_DIM)] * 2]
    q, k, v = (jax.random.normal(key, shape, jnp.bfloat16) for key, shape in zip(keys, shapes, strict=True))
    with pltpu.force_tpu_interpret_mode():
        result = np.asarray(compiling.CONTENDERS[contender](options)(q, k, v), np.float64)
    wide = [np.asarray(each, np.float64) for each in (q, k, v)]
    wide[1:] = [np.repeat(each, 2, axis=0) for each in wide[1:]]
    scores = wide[0] @ wide[1].transpose(0, 2, 1) / np.sqrt(problems.HEAD_DIM)
    scores = np.where(np.tri(256, dtype=bool) | (not causal), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = weights / weights.sum(axis=2, keepdims=True) @ wide[2]
    assert np.abs(result - expected).max() < 0.03, "bfloat16 weights and results of order one"


def test_the_page_tells_how_far_a_ratio_depends_on_the_machine() -> None:
    look = planted(flash=0.8e-3, splash=0.9e-3, tokamax=0.75e-3, ours=0.6e-3)
    moved = {"push_cycles, push_transposed_cycles x0.8": 0.7, "xlu_cycles x1.2": 0.9, sensitivity.RULE: 0.5}
    text = pages.page(plan(), look, {("v5e", "full"): moved})
    table = text.split("## With other machine constants")[1].split("## ")[0]
    row = next(line for line in table.splitlines() if line.startswith("| v5e"))
    assert [cell.strip() for cell in row.split("|")][3:7] == [
        "0.800",
        "0.500",
        "0.700 (push_cycles, push_transposed_cycles x0.8)",
        "0.900 (xlu_cycles x1.2)",
    ]
    assert "not run (`--sensitivity`)" in pages.page(plan(), look, {})


# --- errors and titles ---------------------------------------------------------------------------


def error_of(**worst: float) -> errors.Errors:
    """The known errors of these contenders; the others have none."""

    def look(task: tasks.Task) -> errors.Error | None:
        if task.contender not in worst:
            return None
        return errors.Error(worst=worst[task.contender], family="drawn-all", seed=3, inputs=4)

    return look


def row_of(page: str, name: str, section: str = "### v5e, full, 1 head") -> dict[str, str]:
    """The cells of a contender's first row in a section, by column."""
    lines = page[page.index(section) :].splitlines()
    head, row = (
        next(line for line in lines if line.startswith("|")),
        next(line for line in lines if line.startswith(f"| {name} ")),
    )
    cut = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, row)]
    return dict(zip(*cut, strict=True))


ALL = planted(flash=0.8e-3, splash=0.9e-3, tokamax=0.75e-3, ours=0.6e-3)


def test_errors_stand_beside_the_times() -> None:
    unknown = errors.Error(unknown="NotImplementedError: no such thing")
    measured = error_of(flash=0.5, ours=0.25)
    text = pages.page(plan(), ALL, {}, lambda task: unknown if task.contender == "splash" else measured(task))
    names = ("ours", "JAX flash attention", "JAX splash attention", "tokamax splash attention")
    shown = [row_of(text, name)["error"] for name in names]
    assert shown == ["0.25", "0.50", "unknown: NotImplementedError: no such thing", "not run"]


@pytest.mark.parametrize("worst", [1.01, float("inf")])
def test_a_kernel_of_ours_above_its_tolerance_has_no_figures(worst: float) -> None:
    text = pages.page(plan(), ALL, {("v5e", "full"): {"a": 1.0}}, error_of(ours=worst, flash=7.0))
    row = row_of(text, "ours")
    assert row["best configuration"].startswith("fails: error ")
    assert (row["time"], row["useful"]) == ("not run", "")
    assert row_of(text, "JAX flash attention")["time"] == "800.000 us", "a peer's error is its own affair"
    aim = next(line for line in text.splitlines() if line.startswith("| v5e") and "full, 1 head" in line)
    assert "fails: error" in aim
    assert "600.000 us" not in text


def test_a_kernel_of_ours_without_its_title_has_no_figures() -> None:
    path = problems.our_kernel(problems.PROBLEMS["full"], "v5e")
    revoked = titles.Title(holds=False, words="revoked: attempt 4 fails (wrong-result)")
    text = pages.page(plan(), ALL, {}, titles={path: revoked})
    assert row_of(text, "ours")["best configuration"] == revoked.words
    assert row_of(text, "ours")["time"] == "not run"
    titled = pages.page(plan(), ALL, {}, titles={path: titles.Title(holds=True, words=revoked.words)})
    assert row_of(titled, "ours")["time"] == "600.000 us", "its successor was run"


def test_what_the_page_names_as_the_best_is_tried_again() -> None:
    look = planted(ours=0.9, flash=1.2, splash=1.0, tokamax=1.1)
    best = {contender: plans.ranking(plan().tasks("v5e", "full", contender, look), look)[0] for contender in PEERS}
    named = rereading.best(pages.page(plan(), look, {}))
    assert all(named["v5e", "full", contender] == best[contender].configuration for contender in PEERS)
    fields = {field.name: getattr(plan(other=None), field.name) for field in dataclasses.fields(plans.Plan)}
    again = rereading.Again(**fields, best=named)
    assert [task.configuration for task in again.tasks("v5e", "full", "ours", look)] == [()]
    assert again.tasks("v5e", "full", "splash", look) == [best["splash"]]
    assert again.tasks("v7x", "full", "splash", look) == []
    assert "simulated anew" in pages.page(again, look, {})


def test_the_page_here_names_a_best_of_every_peer() -> None:
    named = rereading.best((ROOT / "benchmarks" / "PEERS.md").read_text(encoding="utf-8"))
    assert {place[0] for place in named} == set(problems.CHIPS)
    assert {place[2] for place in named} == set(PEERS)
    assert all("block_q" in dict(configuration) for configuration in named.values())


@pytest.mark.parametrize("contender", PEERS)
def test_words_of_a_configuration_are_read_again(contender: str) -> None:
    for configuration in problems.configurations(contender, problems.PROBLEMS["full"], "v5e"):
        assert rereading.configuration(contender, pages.words(configuration)) == configuration


def test_programs_of_one_head_and_of_sixteen_are_run_once() -> None:
    task = plan().tasks("v5e", "full", "flash", lambda task: None)[0]
    sixteen = dataclasses.replace(task, problem=problems.PROBLEMS["full16"])
    assert errors.place(task) == errors.place(sixteen)
    assert errors.place(task) != errors.place(dataclasses.replace(task, chip="v6e"))
    small = errors.reduced(problems.PROBLEMS["grouped"], task.configuration)
    assert (small.heads, small.kv_heads, small.sequence) == (4, 1, 4096)


def test_titles_come_from_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger.open(new_repository(tmp_path / "user"))
    four_attempts(ledger)
    assert titles.title(ledger.place.kernel_path) == titles.Title(holds=True)
    run_revoke(ledger, 2)
    title = titles.title(ledger.place.kernel_path)
    assert title.holds
    assert title.words.startswith("revoked: attempt 4 fails (wrong-result: ")
    run_revoke(ledger, None, 1)
    assert not titles.title(ledger.place.kernel_path).holds


@pytest.mark.slow
def test_a_right_contender_is_within_the_tolerance_and_one_that_cannot_run_says_why(tmp_path: Path) -> None:
    blocks = {"block_q": "2048", "block_k_major": "2048", "block_k": "1024"}
    error = errors.error(flash(problems.PROBLEMS["full"], blocks), 2, tmp_path)
    assert error.worst is not None
    assert 0 < error.worst < 1, error
    assert errors.cached_error(flash(problems.PROBLEMS["full"], blocks), 2, tmp_path) == error
    assert errors.newest(flash(problems.PROBLEMS["full"], blocks), 0, tmp_path) == error
    wrong = errors.error(flash(problems.PROBLEMS["full"], blocks | {"block_k": "1000"}), 2, tmp_path)
    assert wrong.worst is None
    assert wrong.unknown
