"""Compiles programs that this project was not written for; says which the judge admits and which have a latency.

    .venv/bin/python benchmarks/known_kernels.py [--chips v5e,v6e] [--only WORD,WORD] [--cache DIR] [--on-tensorcore]
        [--also PYTHON ...] [--install] [--compile-minutes 30] [--page KNOWN_KERNELS.md [--keep]]

The programs are the Pallas operations for the TPU that JAX and tokamax ship, those of packages in use, and plain XLA
programs, compiled by the real TPU compiler; nothing is measured, and no published time is used. The results show if
`simulate` reads the programs' schedules, if the times are physically possible, and if the judge would admit the kernel.
A case whose package is missing is left out, with a message; `--install` installs packages of PACKAGES beside the dumps.
Dumps are kept in benchmarks/.cache or `--cache`. A case is not compiled again if it has a dump, or if it once took
longer than the limit, and it is simulated again only if the code has changed: a stopped run continues where it stopped.
Packages are written for one JAX: a case that the JAX of this environment does not trace, or whose package needs a newer
Python, is tried with each interpreter that `--also` names, that of another environment with this project in it.
`--keep` makes the chosen rows of the page anew and leaves the page's other rows as they are.

By default the compiler hands parts of some programs to the SparseCore of v6e and v7x, which has no latency here. Such a
program is compiled once more so that it stays on the TensorCore. That is another program, and its row says so.
`--on-tensorcore` compiles all programs in this way.
"""

import argparse
import functools
import hashlib
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import known_kernels_page
import numpy as np
from fidelity_compile import ON_TENSORCORE, environment
from known_cases import assumed, cases, explained
from known_kernels_page import BY_ANOTHER_JAX, COMPILED_OTHERWISE, NO_LATENCY, NOT_UNDERSTOOD, Cell, Cells, Kernel
from tabulate import tabulate

from harness import units
from harness.advice.dump_directory import read
from harness.dumps.timing_tables import Assumption
from harness.errors import RatchetError
from harness.hardware import Chip, chip
from harness.judge.simulate.channel import SPARSE_CORE
from harness.judge.simulate.module import impossibilities, run_module
from harness.records import Simulation

HERE = Path(__file__).parent
CACHE = HERE / ".cache" / "known"
# The code that reads dumps and executes them.
_SIMULATOR = ("advice/dump_directory.py", "chips", "dumps", "hlo", "judge/simulate", "records")
# The last line of a traceback.
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b")
# Errors of code that was written for another JAX.
ANOTHER_JAX = re.compile(r"module 'jax\S*' has no attribute|cannot import name .* from 'jax")


@dataclass(frozen=True, slots=True)
class Package:
    """A package whose kernels are rows: its requirements, and imports that its kernels do not need (`stubs`).

    Both are names separated by blanks. `python` is the oldest version that the package supports, if this project
    supports an older one.
    """

    requirements: str
    stubs: str = ""
    python: tuple[int, int] = (3, 11)


PACKAGES = {
    "tpu-inference": Package("tpu-inference==0.32.0 sympy mpmath", "vllm torch torchax"),
    "ejkernel": Package(
        "ejkernel==0.0.80.3 beartype jaxtyping wadler-lindig chex toolz einops pydantic==2.14.4 pydantic-core==2.50.5 "
        "typing-inspection annotated-types"
    ),
    "jaxite": Package("jaxite==0.0.3"),
    "pallas-forge": Package("pallas-forge==0.1.2", "yaml"),
    "recurrentgemma": Package(
        "recurrentgemma==1.0.1 einops jaxtyping wadler-lindig typeguard==2.13.3", "flax torch orbax sentencepiece"
    ),
    "flywheel-tpu": Package("flywheel-tpu==0.3.0", python=(3, 12)),
    "deltanet-tpu": Package("deltanet-tpu==0.3.0", python=(3, 12)),
    "gdn2-pallas": Package("gdn2-pallas==0.1.1"),
    "deciax": Package("deciax==0.1.2", "huggingface_hub tokenizers safetensors transformers", python=(3, 12)),
    "sglang-jax": Package("sglang-jax==0.0.2", python=(3, 12)),
    "maxtext": Package(
        "maxtext==0.2.5", "flax qwix omegaconf tokamax jaxtyping aqt jinja2 yaml pathwaysutils", python=(3, 12)
    ),
}


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split("; "))


# These lists are fixed: a case without a latency is not replaced by one that has a latency.
JAX = _names(
    "flash full; flash causal; flash segments; flash backward; splash full; splash causal; splash local; "
    "splash one key head; splash backward; splash backward, two kernels; paged attention; paged attention int8; "
    "paged attention, sequences in the grid; ragged paged decode; ragged paged mixed; megablox gmm; "
    "megablox gmm transposed; megablox tgmm; megablox backward; matmul; threefry; philox"
)
TOKAMAX = _names(
    "flash full; flash causal; flash backward; splash full; splash causal; splash backward; ragged dot; "
    "ragged dot int8; ragged dot backward; ragged dot v2; ragged dot v2 backward; cross-entropy; "
    "cross-entropy backward; rope; router top k; hyper-connections before; hyper-connections behind; "
    "batched ragged paged decode; batched ragged paged mixed; normalization; gated linear unit; "
    "triangle multiplication"
)
XLA = _names(
    "matmul; matmul int8; transformer block; train step; adam; convolution; convolution backward; sort; top k; "
    "scatter; embedding; while loop; while loop until converged; recurrent network; softmax; cumulative sum"
)


@dataclass(frozen=True, slots=True)
class Known:
    """One program on one chip."""

    origin: str
    name: str
    chip: Chip
    on_tensorcore: bool = False
    python: str = sys.executable
    compile_seconds: float = 1800.0

    @property
    def directory_name(self) -> str:
        """The case's name without the characters that a file's name should not hold."""
        name = f"{self.origin}-{self.name.replace(', ', '-').replace(' ', '-')}-{self.chip.name}"
        name += "-tensorcore" * self.on_tensorcore
        return name if self.python == sys.executable else f"{name}-jax-{jax_version(self.python)}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a case: the simulation or why there is none, the judge's reasons to refuse it, and remarks.

    `by_another_jax` says why this environment's JAX did not compile the case, `otherwise` how its compilation differs
    from the shipped one; "" if that does not apply.
    """

    result: Simulation | str
    refused: str | None
    by_another_jax: str = ""
    otherwise: str = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remarks that are not empty."""
        return tuple(text for text in (self.by_another_jax, self.otherwise) if text)


def kernels() -> Iterator[Kernel]:
    """All cases in their order, each with its origin."""
    listed = {"jax": JAX, "tokamax": TOKAMAX, "xla": XLA} | {origin: tuple(cases(origin)) for origin in PACKAGES}
    return ((origin, case) for origin, names in listed.items() for case in names)


def chosen_cases(
    chips: list[str], only: str, *, on_tensorcore: bool = False, compile_seconds: float = 1800.0
) -> Iterator[Known]:
    """The cases on each chip whose name contains one of the words of `only`, separated by commas."""
    for name in chips:
        for origin, case in kernels():
            if any(word in f"{origin} {case}" for word in only.split(",")):
                yield Known(origin, case, chip(name), on_tensorcore=on_tensorcore, compile_seconds=compile_seconds)


def dumped(case: Known, cache: Path) -> Path:
    """The directory with the case's schedules, compiled now unless they are kept.

    Raises CalledProcessError, TimeoutExpired.
    """
    directory = cache / case.directory_name
    if any(directory.glob("*-TLP-*final_bundles.txt")):
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    longer = directory / "took_longer.txt"
    command = [
        case.python,
        str(HERE / "known_kernels_compile.py"),
        case.origin,
        case.name,
        case.chip.name,
        str(directory),
        *(PACKAGES[case.origin].stubs.split() if case.origin in PACKAGES else ()),
    ]
    if longer.is_file() and float(longer.read_text(encoding="utf-8")) >= case.compile_seconds:
        raise subprocess.TimeoutExpired(command, case.compile_seconds)
    # Files of a compilation that did not end would be read together with the new schedules.
    for path in directory.iterdir():
        path.unlink()
    try:
        subprocess.run(
            command,
            env=_environment(case, directory, cache),
            check=True,
            capture_output=True,
            text=True,
            timeout=case.compile_seconds,
        )
    except subprocess.TimeoutExpired:
        longer.write_text(str(case.compile_seconds), encoding="utf-8")
        raise
    return directory


def pythons(origin: str, also: list[str]) -> list[str]:
    """The interpreters that are new enough for a package of PACKAGES, the running one first."""
    interpreters = [sys.executable, *also]
    return [
        python for python in interpreters if origin not in PACKAGES or _version_of(python) >= PACKAGES[origin].python
    ]


@functools.cache
def _version_of(python: str) -> tuple[int, ...]:
    asked = "import sys; print(*sys.version_info[:2])"
    version_words = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, version_words.split()))


def _environment(case: Known, directory: Path, cache: Path) -> dict[str, str]:
    """The environment of the child that compiles a case into `directory`, with the compiler of its own JAX."""
    variables = environment(directory, flags=ON_TENSORCORE if case.on_tensorcore else "")
    # JAX sets it to the library of this environment.
    if case.python != sys.executable:
        variables.pop("TPU_LIBRARY_PATH", None)
    folders = (HERE.parent, HERE, installed(case.origin, cache, case.python))
    return variables | {"PYTHONPATH": os.pathsep.join(map(str, folders))}


def installed(origin: str, cache: Path, python: str) -> Path:
    """The folder where a package is installed for this command alone, one folder for each version of Python."""
    return cache / f"packages-{'.'.join(map(str, _version_of(python)))}" / origin


def install(origin: str, cache: Path, python: str) -> None:
    """Installs the requirements of a package beside the dumps, without dependencies, unless they are there."""
    folder = installed(origin, cache, python)
    if not folder.is_dir():
        asked = ["--no-deps", "--target", str(folder), *PACKAGES[origin].requirements.split()]
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *asked], check=True)


def refused(case: Known, cache: Path) -> str | None:
    """The reason why the judge's static rules refuse the case, "" if they admit it, None if that is not known."""
    path = cache / case.directory_name / "refused.txt"
    return path.read_text(encoding="utf-8") if path.is_file() else None


def cell(case: Known, came: Outcome) -> Cell:
    """The page's cell for a case: its time with marks, the reasons that programs gave, and the reason noted by hand."""
    line = row(case, came.result)
    time, unknown = line[3], line[-1]
    marks = (NOT_UNDERSTOOD, unknown), (COMPILED_OTHERWISE, came.otherwise), (BY_ANOTHER_JAX, came.by_another_jax)
    if time != NO_LATENCY:
        time += "".join(mark for mark, text in marks if text)
    enters = "?" if came.refused is None else "no" if came.refused else "yes"
    texts = [text for text in (came.refused, *came.remarks, unknown, *_offences(came.result)) if text]
    read = explained(case.origin, case.name, case.chip.name) if texts and case.origin in PACKAGES else ""
    reasons = tuple(known_kernels_page.reason(text) for text in (*texts, read) if text)
    return Cell(enters, time, _steps(came.result), reasons)


def _offences(result: Simulation | str) -> list[str]:
    """Offences of the executed schedule, which no correct program commits: one of each kind, with their number."""
    offences = () if isinstance(result, str) else result.offences
    kinds = {offence.kind: offence for offence in reversed(offences)}
    return [f"{offence.kind}: {offence.what} in {offence.op} ({offence.count} times)" for offence in kinds.values()]


def _stated(options: argparse.Namespace, cells: Cells) -> str:
    """The arguments of the command that makes the whole page, without paths of one machine."""
    chips = dict.fromkeys(chip_name for on_chips in cells.values() for chip_name in on_chips)
    only = ",".join(dict.fromkeys(origin for origin, _ in cells)) if options.keep else options.only
    words = [f"--chips {','.join(chips)}", *([f"--only {only}"] if only else [])]
    words += ["--install"] if options.install else []
    words += [
        f"--also PYTHON_WITH_JAX_{jax_version(python)}_AND_LIBTPU_{_version_in(python, 'libtpu')}"
        for python in options.also
    ]
    words += ["--on-tensorcore"] if options.on_tensorcore else []
    place = options.page.name if options.page.is_absolute() else options.page
    return " ".join((*words, f"--compile-minutes {options.compile_minutes:g}", f"--page {place}"))


def _steps(result: Simulation | str) -> str:
    return "" if isinstance(result, str) or result.executed_steps is None else str(result.executed_steps)


def outcome(case: Known, cache: Path, also: list[str]) -> Outcome:
    """The outcome of the case, compiled in another way if necessary.

    A case that this JAX does not trace is compiled by the first of the interpreters `also` that traces it. A case with
    a part on the SparseCore is compiled once more without that part.
    """
    result = simulated(case, cache)
    by_another_jax = otherwise = ""
    for python in pythons(case.origin, also):
        if python == case.python or not isinstance(result, str) or not ANOTHER_JAX.search(result):
            continue
        other, version = replace(case, python=python), jax_version(python)
        by_other = simulated(other, cache)
        if isinstance(by_other, str):
            result = f"{result}; by JAX {version}: {by_other}"
        else:
            by_another_jax = f"compiled by JAX {version}; by this one {result}"
            case, result = other, by_other
    if not isinstance(result, str) and not case.on_tensorcore and any(SPARSE_CORE in text for text in result.unknown):
        kept = replace(case, on_tensorcore=True)
        if not isinstance(on_tensorcore := simulated(kept, cache), str) and on_tensorcore.seconds is not None:
            otherwise = f"compiled to stay on the TensorCore; as shipped: {result.unknown[0]}"
            case, result = kept, on_tensorcore
    return Outcome(result, refused(case, cache), by_another_jax, otherwise)


def jax_version(python: str) -> str:
    """The version of JAX that an interpreter has."""
    return _version_in(python, "jax")


@functools.cache
def _version_in(python: str, distribution: str) -> str:
    asked = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    return subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()


def simulated(case: Known, cache: Path) -> Simulation | str:
    """The simulation of the case, or the reason why there is none."""
    try:
        directory = dumped(case, cache)
        kept = directory / f"simulated-{code_digest(*_SIMULATOR)}-{_assumed(case)}.pickle"
        if kept.is_file():
            result: Simulation = pickle.loads(kept.read_bytes())
            return result
        operands = {path.stem: np.load(path) for path in directory.glob("*.npy")}
        dump = replace(read(directory, case.chip), assumption=_assumed(case))
        result = run_module(dump, case.chip, deadline_seconds=600, operands=operands)
        kept.write_bytes(pickle.dumps(result))
        return result
    except subprocess.CalledProcessError as error:
        return f"not compiled: {_raised(error.stderr, installed(case.origin, cache, case.python))}"
    except subprocess.TimeoutExpired:
        return f"not compiled: tracing and compiling took longer than {case.compile_seconds / 60:g} minutes"
    except RatchetError as error:
        return f"not read: {error}"


@functools.cache
def code_digest(*rooms: str) -> str:
    """A hash of the code in these rooms and files of the harness; results of other code are made again."""
    digest = hashlib.sha256()
    for room in rooms:
        place = HERE.parent / "harness" / room
        for path in sorted(place.rglob("*.py")) if place.is_dir() else (place,):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _assumed(case: Known) -> Assumption | None:
    """The assumption about the case's branches that depend on a scalar out of a vector; None if it has none."""
    return assumed(case.origin, case.name) if case.origin in PACKAGES else None


def _raised(stderr: str, installed: Path) -> str:
    """The last error of a failed compilation, and the last line of the package that it came from."""
    text = stderr.strip()
    errors = [line for line in text.splitlines() if _ERROR.match(line)] or [text[-90:]]
    frames = re.findall(rf'File "{re.escape(str(installed))}/([^"]+)", line (\d+)', text)
    place = f"{frames[-1][0]} line {frames[-1][1]}: " if frames else ""
    return f"{place}{errors[-1][:200]}"


def row(case: Known, result: Simulation | str) -> list[str]:
    """One row of the printed table."""
    head = [case.chip.name, case.origin, case.name]
    if isinstance(result, str):
        return [*head, NO_LATENCY, "", "", "", result]
    if result.seconds is None or result.plus_minus_seconds is None or result.cycles is None:
        return [*head, NO_LATENCY, "", "", "", result.unknown[0]]
    busy = next((unit.busy_cycles for unit in result.units if unit.name == "MXU"), None)
    moved = result.hbm_read_bytes + result.hbm_written_bytes
    wrong = "; ".join((*impossibilities(result, case.chip), *result.unknown[:1]))
    return [
        *head,
        units.seconds(result.seconds),
        units.seconds(result.plus_minus_seconds),
        "unknown" if busy is None else units.percent(busy / result.cycles),
        units.percent(moved / result.seconds / case.chip.hbm_bytes_per_second),
        f"{len(result.unknown)} not understood: {wrong}" if wrong else "",
    ]


def is_covered(result: Simulation | str) -> bool:
    """True if there is a latency and everything was understood."""
    return not isinstance(result, str) and result.seconds is not None and not result.unknown


def main() -> int:
    """Prints the table; exit code 1 unless every case has a latency with nothing unknown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chips", default="v5e,v6e")
    parser.add_argument(
        "--only", default="", help="only cases whose origin and name contain one of these words, separated by commas"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="where dumps are kept")
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        help="interpreter of another environment, for kernels that need another JAX or Python",
    )
    parser.add_argument("--install", action="store_true", help="install packages of rows that are missing here")
    parser.add_argument(
        "--compile-minutes", type=float, default=30.0, help="give up a case that takes longer to compile"
    )
    parser.add_argument("--page", type=Path, help="write the table for people, with reasons, to this file")
    parser.add_argument("--keep", action="store_true", help="keep the page's rows of cases that are not chosen")
    parser.add_argument("--on-tensorcore", action="store_true", help="keep all work off the SparseCore")
    options = parser.parse_args()
    chosen = list(
        chosen_cases(
            options.chips.split(","),
            options.only,
            on_tensorcore=options.on_tensorcore,
            compile_seconds=60 * options.compile_minutes,
        )
    )
    if find_spec("tokamax") is None:
        print("tokamax is not installed (Python 3.12 and `pip install -e '.[bench]'`): left out", file=sys.stderr)
        chosen = [case for case in chosen if case.origin != "tokamax"]
    for origin in sorted(PACKAGES.keys() & {case.origin for case in chosen}):
        taking = pythons(origin, options.also)
        for python in taking if options.install else ():
            install(origin, options.cache, python)
        if taking and installed(origin, options.cache, taking[0]).is_dir():
            chosen = [replace(case, python=taking[0]) if case.origin == origin else case for case in chosen]
        else:
            needed = ".".join(map(str, PACKAGES[origin].python))
            missing = "is not installed (--install)" if taking else f"needs Python {needed} (--also)"
            print(f"{origin} {missing}: left out", file=sys.stderr)
            chosen = [case for case in chosen if case.origin != origin]
    table = []
    cells: Cells = {}
    covered: dict[str, list[bool]] = {}
    for number, case in enumerate(chosen, 1):
        came = outcome(case, options.cache, options.also)
        table.append(row(case, came.result))
        covered.setdefault(case.chip.name, []).append(is_covered(came.result) and not came.otherwise)
        cells.setdefault((case.origin, case.name), {})[case.chip.name] = cell(case, came)
        line = " | ".join((*table[-1], *came.remarks))
        print(f"{number}/{len(chosen)} {line}", file=sys.stderr, flush=True)
    if options.page is not None:
        if options.keep:
            kept = known_kernels_page.read(options.page.read_text(encoding="utf-8"))
            cells = known_kernels_page.merged(kept, cells, kernels())
        options.page.write_text(known_kernels_page.render(cells, _stated(options, cells)), encoding="utf-8")
    headers = ["chip", "origin", "case", "simulated", "+/-", "MXU busy", "HBM", "why not, or what is not understood"]
    print(tabulate(table, headers=headers, disable_numparse=True))
    where = ", compiled to stay on the TensorCore" if options.on_tensorcore else ""
    for name, complete in covered.items():
        share = f"{sum(complete)} of {len(complete)}"
        print(f"{name}: {share} cases have a latency with nothing unknown (all simulated{where})")
    return 0 if all(all(complete) for complete in covered.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
