"""Compares our kernels with JAX's flash and splash attention and tokamax's splash attention, in benchmarks/PEERS.md.

    uv pip install -e '.[bench]' && python benchmarks/peers.py --write

in an environment with Python 3.12 or newer. The TPU compiler compiles every contender in many of its configurations,
without a TPU; the simulated time of the whole module in the best configuration counts. This takes hours on two cores.
Results are kept in benchmarks/.cache (or `--cache DIR`), so that a stopped run can be continued. `--library libtpu.so
--library-name NAME` adds a second compiler. `--sensitivity` simulates the best programs with other machine
constants too. `--errors N` adds the worst error of each best configuration on N drawn inputs (some CPU seconds each).
`--page` compiles nothing and makes the page from the kept results. `--again` tries only our champions and the
configurations that benchmarks/PEERS.md names as the best, which takes an hour or two on two idle cores:

    python benchmarks/peers.py --again --errors 12 --jobs 2 --write
"""

import argparse
import dataclasses
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import peers_errors
import peers_page
import peers_problems
import peers_reread
import peers_sensitivity
from peers_plan import Look, Plan, ranking
from peers_problems import CHIPS, OURS, PEERS, PROBLEMS, ROOT
from peers_tasks import Compiler, Outcome, Task, cached_outcome, outcome
from peers_titles import title

PAGE = ROOT / "benchmarks" / "PEERS.md"
CACHE = Path(__file__).parent / ".cache" / "peers"


def run(plan: Plan, cache: Path, jobs: int, limit_seconds: float) -> None:
    """Runs all tasks of the plan, `jobs` at a time, with a line on stderr for each."""

    def look(task: Task) -> Outcome | None:
        return cached_outcome(task, cache)

    with ProcessPoolExecutor(jobs) as pool:
        try:
            for tasks in plan.stages(look):
                left = [task for task in tasks if look(task) is None]
                futures = {pool.submit(outcome, task, cache, limit_seconds): task for task in left}
                for count, future in enumerate(as_completed(futures), 1):
                    task_outcome, task = future.result(), futures[future]
                    words = f"{1e3 * task_outcome.seconds:.4f} ms" if task_outcome.seconds else task_outcome.refusal
                    print(f"{count}/{len(left)} {task.place}: {words}", file=sys.stderr, flush=True)
        except BaseException:
            # Otherwise the pool would first finish the stage.
            pool.shutdown(cancel_futures=True)
            raise


def _ratios(plan: Plan, look: Look, options: argparse.Namespace) -> peers_page.Ratios:
    pairs = peers_sensitivity.pairs(plan, look)
    if options.sensitivity:
        with ProcessPoolExecutor(options.jobs) as pool:
            work = [
                pool.submit(peers_sensitivity.simulate, task, options.cache) for pair in pairs.values() for task in pair
            ]
            for future in as_completed(work):
                future.result()
    return {place: peers_sensitivity.ratios(*pair, options.cache) for place, pair in pairs.items()}


def _best(plan: Plan, look: Look) -> list[Task]:
    """The task of the fastest configuration of each contender at each problem, where one has a time."""
    return [
        ranked[0]
        for chip in plan.chips
        for problem in plan.problems
        for contender in plan.contenders
        if (ranked := ranking(plan.tasks(chip, problem, contender, look), look))
    ]


def run_errors(best: list[Task], cache: Path, jobs: int, inputs: int) -> None:
    """Determines the errors of these tasks, `jobs` at a time, each program once, with a line on stderr for each.

    Results are kept; a task that could not be run is tried again.
    """

    def is_done(task: Task) -> bool:
        task_error = peers_errors.cached_error(task, inputs, cache)
        return task_error is not None and not task_error.unknown

    left = list({peers_errors.place(task): task for task in best if not is_done(task)}.values())
    with ProcessPoolExecutor(jobs) as pool:
        try:
            futures = {pool.submit(peers_errors.error, task, inputs, cache): task for task in left}
            for count, future in enumerate(as_completed(futures), 1):
                words = peers_errors.text(future.result(), "")
                print(f"{count}/{len(left)} {futures[future].place}: error {words}", file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def main() -> int:
    """Runs what is missing and prints the page; with --write also writes benchmarks/PEERS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE, help="where dumps and results are kept")
    parser.add_argument("--chips", default=",".join(CHIPS), help="the chips to compile for, in this order")
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--contenders", default=",".join((OURS, *PEERS)))
    parser.add_argument(
        "--keep", type=int, default=4, help="number of best configurations that go on to the other problems"
    )
    parser.add_argument("--library", type=Path, help="the libtpu.so of another release, for a second compiler")
    parser.add_argument("--library-name", default="another libtpu", help="its name, for the page and the cache")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds after which a compilation counts as refused"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--sensitivity",
        action="store_true",
        help="simulate the two programs of each aim with other machine constants too",
    )
    parser.add_argument(
        "--errors", type=int, default=0, metavar="N", help="find the worst error of each best configuration on N inputs"
    )
    parser.add_argument("--page", action="store_true", help="compile nothing: make the page from the cache")
    parser.add_argument(
        "--again", action="store_true", help="try only the configurations that the page names as the best"
    )
    parser.add_argument("--write", action="store_true", help="write benchmarks/PEERS.md")
    options = parser.parse_args()
    contenders = tuple(options.contenders.split(","))
    if "tokamax" in contenders and not find_spec("tokamax"):
        parser.error(
            "tokamax is not installed (Python 3.12 and '.[bench]'); --contenders ours,flash,splash leaves it out"
        )
    plan = Plan(
        chips=tuple(options.chips.split(",")),
        problems=tuple(name for name in PROBLEMS if name in options.problems.split(",")),
        contenders=contenders,
        compiler=Compiler(name=f"libtpu {version('libtpu')}, jax {version('jax')}"),
        other=Compiler(name=options.library_name, library=options.library) if options.library else None,
        keep=options.keep,
    )

    def look(task: Task) -> Outcome | None:
        return cached_outcome(task, options.cache)

    if options.again:
        fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
        plan = peers_reread.Again(**fields, best=peers_reread.best(PAGE.read_text(encoding="utf-8")))
    if not options.page:
        run(plan, options.cache, options.jobs, options.limit)
    kernels = {peers_problems.our_kernel(PROBLEMS[problem], chip) for chip in plan.chips for problem in plan.problems}
    titles = {path: title(ROOT / path) for path in sorted(kernels) if (ROOT / path).exists()}

    def look_at_error(task: Task) -> peers_errors.Error | None:
        return peers_errors.newest(task, options.errors, options.cache)

    if options.errors:
        run_errors(_best(plan, look), options.cache, options.jobs, options.errors)
    text = peers_page.page(plan, look, _ratios(plan, look, options), look_at_error, titles)
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
