"""Counts the settings that a search needs, in grids in which every setting was timed.

    .venv/bin/python benchmarks/search_cost.py --measure     # hours: compile and simulate ten grids of 200 settings
    .venv/bin/python benchmarks/search_cost.py               # minutes: search in them, and print the table

Each problem is one that `table` or `tune` searches, with the settings that it would allow; if there are more than 200,
200 are drawn by a fixed seed. `--measure` continues where it stopped. The searches are those of the product
(harness.loop.search), with different seeds; every setting that they ask for counts, even if it does not compile.
"""

import argparse
import dataclasses
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cached_property
from math import inf
from pathlib import Path

from fidelity_compile import environment
from tabulate import tabulate

from harness import contest as contests
from harness.contest import Contest
from harness.loop import existing, find_function, scaffold, search_space
from harness.loop.search import Method, Settings, Study
from harness.loop.search_space import Grid
from harness.loop.tuning_table.kernels import KERNELS
from harness.operators import Suite
from harness.operators.timing import timing_inputs
from harness.records import Statement

HERE = Path(__file__).parent
TIMES = HERE / "data" / "search_cost.tsv"
# Settings of a grid.
SETTINGS = 200
# Evaluations after which the search is to be within NEAR of the best.
AIM, NEAR = 40, 0.02
_MOST = 100
_SEEDS = 11
_MEMORY = Path("/dev/shm")
# If the compiler aborts a child, another child does the rest.
_ABORTED = "the compiler aborted"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One of the tables' kernels (`jax:splash`) or a template's own (`matmul`), at a shape, on a chip."""

    kernel: str
    chip: str
    shape: Mapping[str, object]
    grid: Grid = ()
    conditions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The problem in words, the beginning of its lines in TIMES."""
        return f"{self.kernel} on {self.chip}, " + " ".join(f"{name} {value}" for name, value in self.shape.items())


_SOME = tuple(str(128 * count) for count in (1, 2, 4, 6, 8))
_MORE = tuple(str(128 * count) for count in (1, 2, 3, 4, 6, 8, 12, 24))
_PRODUCT = (("BM", _SOME), ("BN", _SOME), ("BK", _MORE))
# Larger blocks of scores fit no VMEM, and take minutes to refuse.
_SCORES = "BLOCK_Q * BLOCK_K <= 1048576", "BLOCK_Q * BLOCK_KV_COMPUTE <= 524288"
PROBLEMS = (
    Problem(kernel="jax:flash", chip="v5e", shape={"sequence": 3072}, conditions=(_SCORES[0],)),
    Problem(kernel="jax:splash", chip="v5e", shape={"sequence": 3072, "causal": True}, conditions=(_SCORES[1],)),
    Problem(kernel="jax:megablox", chip="v5e", shape={"m": 1536, "k": 2048, "n": 3072, "groups": 4}),
    Problem(kernel="matmul", chip="v6e", shape={"m": 3072, "n": 3072, "k": 3072}, grid=_PRODUCT),
    Problem(
        kernel="swiglu",
        chip="v5e",
        shape={"tokens": 3072, "model": 3072, "hidden": 3072},
        grid=(("BT", _SOME), ("BH", _SOME), ("BK", _MORE)),
    ),
    Problem(
        kernel="quantized-matmul-int8",
        chip="v6e",
        shape={"m": 512, "n": 6144, "k": 3072},
        grid=(("BM", ("32", "64", "128", "256", "512")), ("BN", _SOME), ("BK", _MORE)),
    ),
    Problem(
        kernel="quantized-matmul-int8",
        chip="v5e",
        shape={"m": 1024, "n": 3072, "k": 3072},
        grid=(("BM", ("64", "128", "256", "512", "1024")), ("BN", _SOME), ("BK", _MORE)),
    ),
    Problem(
        kernel="swiglu",
        chip="v6e",
        shape={"tokens": 3072, "model": 6144, "hidden": 1536},
        grid=(("BT", _SOME), ("BH", ("128", "256", "384", "512", "768")), ("BK", _MORE)),
    ),
    Problem(kernel="matmul", chip="v5p", shape={"m": 3072, "n": 6144, "k": 3072}, grid=_PRODUCT),
    Problem(kernel="quantized-matmul", chip="v7x", shape={"m": 3072, "n": 3072, "k": 3072}, grid=_PRODUCT),
)


class Bench:
    """A problem, made ready in `folder`."""

    def __init__(self, problem: Problem, folder: Path) -> None:
        self.problem = problem
        self._kernel = KERNELS.get(problem.kernel)
        constants = tuple((name.upper(), repr(value)) for name, value in problem.shape.items())
        like = self._kernel.like if self._kernel else problem.kernel
        scaffold.scaffold(folder, like, (*constants, ("CHIP", repr(problem.chip))))
        self.contest: Contest = contests.load(folder)

    @cached_property
    def statement(self) -> Statement:
        """The statement of the contest's problem."""
        return self.contest.problem.statement()

    @cached_property
    def grid(self) -> Grid:
        """The values of each constant."""
        return self._kernel.space(dict(self.statement.parameters)) if self._kernel else self.problem.grid

    @cached_property
    def settings(self) -> tuple[Settings, ...]:
        """At most SETTINGS allowed settings of the grid, in a drawn order."""
        conditions = (*(self._kernel.conditions if self._kernel else ()), *self.problem.conditions)
        allowed = search_space.allowed(self.grid, conditions) or search_space.every(self.grid)
        drawn_settings = sorted(allowed)
        random.Random(self.problem.name).shuffle(drawn_settings)
        return tuple(drawn_settings[:SETTINGS])

    @property
    def kernel(self) -> str:
        """The text of the kernel.py whose constants are set."""
        if self._kernel is None:
            return self.contest.candidate().source
        target = find_function.target(self._kernel.function)
        return next(existing.variants(target, self.statement, ())).candidate.source

    def job(self, settings: list[Settings]) -> str:
        """The input of search_cost_grid.py, as JSON."""
        assert not isinstance(self.contest.problem, Suite)
        stated = timing_inputs(self.contest.problem)
        tables = next(iter(stated.values()), {})
        return json.dumps(
            {
                "kernel": self.kernel,
                "inputs": [(array.name, array.shape, array.dtype) for array in self.statement.inputs],
                "tables": [(name, values.dtype.name, values.tolist()) for name, values in tables.items()],
                "settings": settings,
            }
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One line of TIMES: simulated seconds, or None and the reason."""

    problem: str
    settings: str
    seconds: float | None
    why: str


def lines_of(problem: Problem) -> list[Timed]:
    """The measured times of the problem, one for each setting."""
    if not TIMES.exists():
        return []
    lines = [line.split("\t") for line in TIMES.read_text(encoding="utf-8").splitlines()[1:]]
    return [
        Timed(problem=name, settings=settings, seconds=float(seconds) if seconds else None, why=why)
        for name, settings, seconds, why in lines
        if name == problem.name
    ]


def measure(problem: Problem) -> None:
    """Times the missing settings of the problem's grid, one after the other, and adds each to TIMES."""
    timed_settings = {timed.settings for timed in lines_of(problem)}
    with tempfile.TemporaryDirectory(prefix="ratchet-") as scratch:
        bench = Bench(problem, Path(scratch) / "contest")
        left = [settings for settings in bench.settings if search_space.words(settings) not in timed_settings]
        dumps = Path(scratch) / "dumps"
        while left:
            dumps.mkdir(exist_ok=True)
            child = subprocess.Popen(
                [sys.executable, str(HERE / "search_cost_grid.py"), problem.chip],
                env=environment(dumps) | {"PYTHONPATH": ":".join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert child.stdin is not None
            assert child.stdout is not None
            with child, child.stdin as stdin:
                stdin.write(bench.job(left))
                stdin.close()
                for line in child.stdout:
                    answer = json.loads(line)
                    _keep(problem, left.pop(0), answer["seconds"], answer["why"])
            if left and child.returncode >= 0:
                raise SystemExit(f"{problem.name}: search_cost_grid.py ended with {child.returncode}")
            if left:
                _keep(problem, left.pop(0), None, _ABORTED)


def _keep(problem: Problem, settings: Settings, seconds: float | None, why: str) -> None:
    words = search_space.words(settings)
    print(f"{problem.name}: {words}", why if seconds is None else f"{1e6 * seconds:.1f} us", file=sys.stderr)
    with open(TIMES, "a", encoding="utf-8") as stream:
        if not stream.tell():
            stream.write("problem\tsettings\tsimulated_seconds\twhy_none\n")
        stream.write(f"{problem.name}\t{words}\t{'' if seconds is None else repr(seconds)}\t{' '.join(why.split())}\n")


def out_of_vmem(lines: list[Timed]) -> tuple[int, int]:
    """The number of settings that ran out of VMEM, and of those no larger in any constant than one that fits."""
    sizes = {line: [int(word.partition("=")[2]) for word in line.settings.split()] for line in lines}
    short = [line for line in lines if "VmemOom" in line.why]
    fits = [sizes[line] for line in lines if line.seconds is not None]
    below = [line for line in short if any(all(map(int.__le__, sizes[line], other)) for other in fits)]
    return len(short), len(below)


def best_after(bench: Bench, times: Mapping[str, float], method: Method, seed: int, scratch: Path) -> list[float]:
    """The best time so far after each evaluation of a search.

    The search makes at least AIM evaluations; then it ends once it is within NEAR of the best, or after _MOST.
    """
    near = min(times.values()) * (1 + NEAR)
    study = Study(
        bench.grid,
        method=method,
        trials=len(times),
        deadline=inf,
        seed=seed,
        path=scratch / f"{seed}.journal",
        name=str(seed),
        allowed=frozenset(bench.settings),
    )
    best = inf
    best_times: list[float] = []
    while (len(best_times) < AIM or (len(best_times) < _MOST and best > near)) and (
        settings := study.ask()
    ) is not None:
        seconds = times[search_space.words(settings)]
        study.tell(settings, seconds if seconds < inf else None)
        best = min(best, seconds)
        best_times.append(best)
    return best_times


def needed(best: list[float], least: float) -> float:
    """The number of evaluations until the best is within NEAR of the least; inf if that is not so after _MOST."""
    return next((count for count, seconds in enumerate(best, 1) if seconds <= least * (1 + NEAR)), inf)


def row(problem: Problem, scratch: Path) -> tuple[list[object], dict[Method, float]]:
    """One line of the table, and the evaluations that both methods needed in the median."""
    bench = Bench(problem, scratch / "contest")
    allowed = {search_space.words(settings) for settings in bench.settings}
    lines = [line for line in lines_of(problem) if line.settings in allowed]
    times = {line.settings: inf if line.seconds is None else line.seconds for line in lines}
    missing = len(bench.settings) - len(times)
    if missing:
        raise SystemExit(f"{problem.name}: {missing} settings are not timed: --measure")
    least = min(times.values())
    searched: dict[Method, list[list[float]]] = {
        method: [best_after(bench, times, method, seed, scratch / method) for seed in range(_SEEDS)]
        for method in ("tpe", "random")
    }
    counts = {method: statistics.median(needed(best, least) for best in runs) for method, runs in searched.items()}
    behind = statistics.median(best[min(AIM, len(best)) - 1] / least - 1 for best in searched["tpe"])
    reached = sum(needed(best, least) <= AIM for best in searched["tpe"])
    near = sum(seconds <= least * (1 + NEAR) for seconds in times.values())
    with_time = sum(seconds < inf for seconds in times.values())
    return [
        problem.name,
        len(times),
        with_time,
        near,
        f"{1e6 * least:.1f} us",
        *(f"{count:g}" for count in counts.values()),
        f"{100 * behind:.2f} %",
        f"{reached} of {_SEEDS}",
    ], counts


def main() -> None:
    """Times the grids (--measure), or searches in them and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="time the settings that are not in data/search_cost.tsv")
    parser.add_argument("--only", default="", help="problems whose name contains this")
    options = parser.parse_args()
    problems = [problem for problem in PROBLEMS if options.only in problem.name]
    if options.measure:
        for problem in problems:
            measure(problem)
        return
    # The journal is written after each step, which would take most of the time on a disk.
    with tempfile.TemporaryDirectory(prefix="ratchet-", dir=_MEMORY if _MEMORY.is_dir() else None) as scratch:
        rows = [row(problem, Path(scratch) / str(number)) for number, problem in enumerate(problems)]
    heads = [
        "problem",
        "settings",
        "with a time",
        f"within {NEAR:.0%} of the best",
        "best, simulated",
        "tpe: evaluations",
        "random: evaluations",
        f"tpe: behind after {AIM}",
        f"tpe: within after {AIM}",
    ]
    print(f"Evaluations until a search is within {NEAR:.0%} of the best of its grid, median of {_SEEDS} seeds")
    print(tabulate([line for line, _ in rows], headers=heads, disable_numparse=True))
    short, below = map(sum, zip(*(out_of_vmem(lines_of(problem)) for problem in problems), strict=True))
    print(f"{short} settings run out of VMEM, {below} of them no larger in any constant than one that does not")
    methods: tuple[Method, ...] = ("tpe", "random")
    for method in methods:
        over = statistics.median(counts[method] for _, counts in rows)
        print(f"{method}: {over:g} evaluations, median of {len(rows)} problems")


if __name__ == "__main__":
    main()
