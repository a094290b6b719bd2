"""How near the simulator comes to published device times: compile, simulate, compare, and write benchmarks/FIDELITY.md.

    uv pip install -e '.[bench]' && python benchmarks/fidelity.py --sensitivity --write

in an environment with Python 3.12 or newer. 66 attention kernels, about 10 s each to compile and 1 s
to simulate on an idle core; what is done is kept in benchmarks/.cache (or `--cache DIR`), so that it
can be stopped and goes on. `--sensitivity` moves each constant by 20 % both ways, and one rule, on four rows.
`--library libtpu.so` compiles some rows with another libtpu too: the spread between compilers.
`--dumps DIR` takes dumps made elsewhere (one folder NN per row) and needs no tokamax.
"""

import argparse
import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
from fidelity_compile import environment
from fidelity_statistics import CHIPS, Result, Row, compare, rows

from harness.dumps.boundary import boundary
from harness.dumps.llo import read_module
from harness.hardware import chip as chip_named
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.machine_variants import VARIANTS
from harness.judge.simulate.module import run_module
from harness.records import Simulation

HERE = Path(__file__).parent
CACHE = HERE / ".cache"
# The longest schedules take this long on one slow core.
_DEADLINE_SECONDS = 600.0
# What takes many runs or compilations is done with every sixth row of the first third: all chips, all widths.
SAMPLE = slice(2, 22, 6)
# And the spread between compilers also with so many rows, those that are furthest off: would another explain them?
FURTHEST = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where dumps come from and results go: `dumps` made elsewhere, or compiled with `library` (None: the own one)."""

    cache: Path
    dumps: Path | None = None
    library: Path | None = None

    @property
    def label(self) -> str:
        """A name for the cache's folders that differs where the compiler does."""
        return hashlib.sha256(f"{self.dumps} {self.library}".encode()).hexdigest()[:8] if self.is_foreign else "own"

    @property
    def is_foreign(self) -> bool:
        """Whether something else than the installed compiler made, or makes, the dumps."""
        return self.dumps is not None or self.library is not None


def dump_of(number: int, row: Row, source: Source) -> Path:
    """The folder with the dump of a row; compiles it first where it is not there."""
    directory = (source.dumps or source.cache / "dumps" / source.label) / f"{number:02d}"
    if not any(directory.glob("*TLP*final_bundles.txt")):
        if source.dumps is not None:
            raise SystemExit(f"row {number} has no dump: expected *final_bundles.txt in {directory}")
        directory.mkdir(parents=True, exist_ok=True)
        words = [f"{key}={value}" for key, value in row.items()]
        command = [sys.executable, str(HERE / "fidelity_compile.py"), CHIPS[row["chip_dir"]], *words]
        subprocess.run(command, env=environment(directory, source.library), check=True)
    return directory


def simulated(number: int, source: Source, variants: tuple[str, ...]) -> dict[str, Result]:
    """The row under each variant ("" is the machine as it is), from the cache where the simulator has not changed."""
    row = rows()[number]
    path = source.cache / "results" / f"{number:02d}-{source.label}-{fingerprint()}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    wanted = [name for name in variants if name not in known]
    if wanted:
        chip = chip_named(CHIPS[row["chip_dir"]])
        dump = read_module(dump_of(number, row, source))
        module = boundary(dump.hlo)
        assert module is not None, f"row {number}: its HLO module has no entry"
        for name in wanted:
            machine = VARIANTS[name](machine_of(chip)) if name else machine_of(chip)
            simulation = run_module(dump, chip, machine=machine, deadline_seconds=_DEADLINE_SECONDS)
            known[name] = {
                "seconds": simulation.seconds,
                "result_copy_seconds": _seconds_of(simulation, module.result_copies),
                "argument_copy_seconds": _seconds_of(simulation, module.argument_copies),
                "boundary_pass_seconds": module.total_bytes / chip.hbm_bytes_per_second,
                "steps": simulation.executed_steps,
                "unknown": simulation.unknown,
            }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return {name: Result(**known[name]) for name in variants}


def _seconds_of(simulation: Simulation, names: tuple[str, ...]) -> float:
    return sum(op.seconds for op in simulation.ops if op.name in names)


def fingerprint() -> str:
    """A hash of the simulator's source: results of another one are not taken."""
    digest = hashlib.sha256()
    for folder in ("simulate", "dumps"):
        for path in sorted((HERE.parent / "harness" / folder).glob("*.py")):
            # What the simulator says of its own errors changes none of its times.
            if path.name != "uncertainty.py":
                digest.update(path.read_bytes())
    digest.update((HERE.parent / "harness" / "hardware.py").read_bytes())
    return digest.hexdigest()[:12]


def _simulate_job(job: tuple[int, Source, tuple[str, ...]]) -> dict[str, Result]:
    return simulated(*job)


def simulate_all(
    numbers: Iterable[int], source: Source, variants: tuple[str, ...], jobs: int
) -> list[dict[str, Result]]:
    """The rows `numbers`, `jobs` at a time, with progress on stderr. Exits where one has no latency."""
    chosen = list(numbers)
    results = []
    with ProcessPoolExecutor(jobs) as pool:
        work = pool.map(_simulate_job, [(n, source, variants) for n in chosen])
        for number, result in zip(chosen, work, strict=True):
            results.append(result)
            print(f"\r{source.label}: row {number} ({len(results)} of {len(chosen)})", end="", file=sys.stderr)
            sys.stderr.flush()
    print(file=sys.stderr)
    missing = [
        f"row {number}, {name or 'the machine as it is'}: {result.unknown[0]}"
        for number, each in zip(chosen, results, strict=True)
        for name, result in each.items()
        if result.seconds is None
    ]
    if missing:
        raise SystemExit("\n".join(["no latency:", *missing]))
    return results


def main() -> int:
    """Runs it all and prints the page; with --write also puts it and its plot into docs/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE, help="where dumps and results are kept")
    parser.add_argument("--dumps", type=Path, help="dumps made elsewhere, one folder NN per row")
    parser.add_argument("--compiler", default="", help="what made the dumps, for the page")
    parser.add_argument("--library", type=Path, help="the libtpu.so of another release, to compile some rows with")
    parser.add_argument("--library-name", default="another libtpu", help="what it is, for the page")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sensitivity", action="store_true", help="move constants by 20 %%, on four rows")
    parser.add_argument("--write", action="store_true", help="write benchmarks/FIDELITY.md and benchmarks/fidelity.png")
    options = parser.parse_args()
    own = Source(cache=options.cache, dumps=options.dumps)
    published = rows()
    numbers = list(range(len(published)))
    results = [found[""] for found in simulate_all(numbers, own, ("",), options.jobs)]
    sample = numbers[SAMPLE]
    moved: list[dict[str, Result]] = []
    if options.sensitivity:
        moved = simulate_all(sample, own, ("", *VARIANTS), options.jobs)
    table = compare(published, results)
    recompiled = sorted({*sample, *np.argsort(np.abs(table.errors()))[-FURTHEST:].tolist()})
    other: list[Result] = []
    if options.library:
        foreign = Source(cache=options.cache, library=options.library)
        other = [found[""] for found in simulate_all(recompiled, foreign, ("",), options.jobs)]
    import fidelity_page

    study = fidelity_page.Study(
        published=published,
        results=results,
        table=table,
        sample=sample,
        moved=moved,
        recompiled=recompiled,
        other=other,
        compiler=_compiler(options),
        other_compiler=options.library_name,
    )
    text = fidelity_page.page(study)
    print(text)
    if options.write:
        fidelity_page.write(HERE, text, study.table)
    return 0


def _compiler(options: argparse.Namespace) -> str:
    if options.compiler or options.dumps:
        return str(options.compiler or "compiler of unknown version")
    return f"libtpu {version('libtpu')}, tokamax {version('tokamax')}"


if __name__ == "__main__":
    sys.exit(main())
