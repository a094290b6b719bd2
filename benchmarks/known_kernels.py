"""Programs that nothing here was written for: which the judge lets in, which have a latency, and why the others do not.

    .venv/bin/python benchmarks/known_kernels.py [--chips v5e,v6e] [--only WORD,WORD] [--cache DIR] [--on-tensorcore]
        [--also PYTHON] [--install] [--compile-minutes 30] [--page KNOWN_KERNELS.md]

JAX's shipped Pallas operations for the TPU, tokamax's, those of packages in use, and plain XLA programs, compiled by
the real TPU compiler; nothing is measured, and no published time goes in. It shows that `simulate` reads schedules it
was not written for, that what comes out is physically possible, and whether the judge would take the kernel. A case
whose package is missing is left out, and said so; `--install` installs those that are rows of PACKAGES beside the
dumps. Dumps are kept in benchmarks/.cache or `--cache`; what is there is not compiled again, nor what took longer once
than it may now, and simulated again only by other code: a run that was stopped goes on where it was. What the JAX of
this environment does not trace is tried by `--also`, the interpreter of another one with the same project in it, since
packages are written for one JAX, and so is a package that asks for a newer Python.

The compiler's defaults hand a part of some programs to the SparseCore of v6e and v7x, which has no latency here. Such
a program is compiled once more so that it stays on the TensorCore: another program, and its row says so.
`--on-tensorcore` compiles all of them so.
"""

import argparse
import functools
import hashlib
import os
import pickle
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from fidelity_compile import ON_TENSORCORE, environment
from known_cases import cases, explained, module_of
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
# The last line of a traceback.
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b")
# What code says that was written for another JAX.
_ANOTHER_JAX = re.compile(r"module 'jax\S*' has no attribute|cannot import name .* from 'jax")


@dataclass(frozen=True, slots=True)
class Package:
    """A package whose kernels are rows: what is installed for it, and what it imports and its kernels do not need.

    Names with blanks between them. `python` is the oldest that it is made for, if this project takes an older one.
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
    "pallas-forge": Package("pallas-forge==0.1.2"),
    "recurrentgemma": Package(
        "recurrentgemma==1.0.1 einops jaxtyping wadler-lindig typeguard==2.13.3", "flax torch orbax sentencepiece"
    ),
    "flywheel-tpu": Package("flywheel-tpu==0.3.0", python=(3, 12)),
    "deltanet-tpu": Package("deltanet-tpu==0.3.0", python=(3, 12)),
    "gdn2-pallas": Package("gdn2-pallas==0.1.1"),
    "deciax": Package("deciax==0.1.2", "huggingface_hub tokenizers safetensors transformers", python=(3, 12)),
    "sglang-jax": Package("sglang-jax==0.0.2", python=(3, 12)),
    "maxtext": Package("maxtext==0.2.5", "flax qwix omegaconf tokamax jaxtyping aqt jinja2", python=(3, 12)),
}
# The list stays as it is: a case that has no latency is not replaced by one that has.
JAX = (
    "flash full",
    "flash causal",
    "flash segments",
    "flash backward",
    "splash full",
    "splash causal",
    "splash local",
    "splash one key head",
    "splash backward",
    "splash backward, two kernels",
    "paged attention",
    "paged attention int8",
    "paged attention, sequences in the grid",
    "ragged paged decode",
    "ragged paged mixed",
    "megablox gmm",
    "megablox gmm transposed",
    "megablox tgmm",
    "megablox backward",
    "matmul",
    "threefry",
    "philox",
)
TOKAMAX = (
    "flash full",
    "flash causal",
    "flash backward",
    "splash full",
    "splash causal",
    "splash backward",
    "ragged dot",
    "ragged dot int8",
    "ragged dot backward",
    "ragged dot v2",
    "ragged dot v2 backward",
    "cross-entropy",
    "cross-entropy backward",
    "rope",
    "router top k",
    "hyper-connections before",
    "hyper-connections behind",
    "batched ragged paged decode",
    "batched ragged paged mixed",
    "normalization",
    "gated linear unit",
    "triangle multiplication",
)
XLA = (
    "matmul",
    "matmul int8",
    "transformer block",
    "train step",
    "adam",
    "convolution",
    "convolution backward",
    "sort",
    "top k",
    "scatter",
    "embedding",
    "while loop",
    "while loop until converged",
    "recurrent network",
    "softmax",
    "cumulative sum",
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
        """Without what a file's name should not hold."""
        name = f"{self.origin}-{self.name.replace(', ', '-').replace(' ', '-')}-{self.chip.name}"
        name += "-tensorcore" * self.on_tensorcore
        return name + "-also" * (self.python != sys.executable)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case: the simulation or why there is none, why the judge refuses it (`refused`), and remarks."""

    result: Simulation | str
    refused: str | None
    remarks: tuple[str, ...] = ()


def known(
    chips: list[str], only: str, *, on_tensorcore: bool = False, compile_seconds: float = 1800.0
) -> Iterator[Known]:
    """The cases on each chip whose name contains one of the words of `only`, which commas part."""
    for name in chips:
        listed = {"jax": JAX, "tokamax": TOKAMAX, "xla": XLA}
        for origin in PACKAGES:
            listed[origin] = tuple(cases(origin))
        for origin, names in listed.items():
            for case in names:
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


def pythons(origin: str, also: str | None) -> list[str]:
    """The interpreters that take a package of PACKAGES, this one first."""
    given = [python for python in (sys.executable, also) if python is not None]
    return [python for python in given if origin not in PACKAGES or _version_of(python) >= PACKAGES[origin].python]


@functools.cache
def _version_of(python: str) -> tuple[int, ...]:
    asked = "import sys; print(*sys.version_info[:2])"
    said = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, said.split()))


def _environment(case: Known, directory: Path, cache: Path) -> dict[str, str]:
    """The environment of the child that compiles a case into `directory`, with the compiler of its own JAX."""
    variables = environment(directory, flags=ON_TENSORCORE if case.on_tensorcore else "")
    # JAX sets it to the library of this environment.
    if case.python != sys.executable:
        variables.pop("TPU_LIBRARY_PATH", None)
    folders = (HERE.parent, HERE, _installed(case.origin, cache, case.python))
    return variables | {"PYTHONPATH": os.pathsep.join(map(str, folders))}


def _installed(origin: str, cache: Path, python: str) -> Path:
    """Where a package of PACKAGES is installed for this command alone; each interpreter has its own compiled files."""
    return cache / ("packages" if python == sys.executable else "packages-also") / origin


def install(origin: str, cache: Path, python: str) -> None:
    """Installs a package of PACKAGES beside the dumps, without what it depends on, unless it is there."""
    folder = _installed(origin, cache, python)
    if not folder.is_dir():
        asked = ["--no-deps", "--target", str(folder), *PACKAGES[origin].requirements.split()]
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *asked], check=True)


def refused(case: Known, cache: Path) -> str | None:
    """Why the judge's static rules refuse the case, "" where they let it in, None where that is not known."""
    path = cache / case.directory_name / "refused.txt"
    return path.read_text(encoding="utf-8") if path.is_file() else None


def page(rows: dict[tuple[str, str], dict[str, tuple[Outcome, list[str]]]], arguments: str) -> str:
    """The table for people: a kernel a row, a chip a column, and the reasons below it, each with its line.

    `arguments` are those of the command that makes it.
    """
    chips = list(dict.fromkeys(chip_name for outcomes in rows.values() for chip_name in outcomes))
    table, reasons = [], []
    entering, timed, kept = Counter[str](), Counter[str](), Counter[str]()
    for (origin, name), outcomes in rows.items():
        cells = []
        for chip_name in chips:
            outcome, line = outcomes[chip_name]
            time, unknown = line[3], line[-1]
            entering[chip_name] += outcome.refused == ""
            (kept if outcome.remarks else timed)[chip_name] += is_covered(outcome.result)
            mark = "*" * (time != "none" and bool(unknown)) + "†" * (time != "none" and bool(outcome.remarks))
            enters = "?" if outcome.refused is None else "no" if outcome.refused else "yes"
            cells += [enters, time + mark, _steps(outcome.result)]
            texts = [text for text in (outcome.refused, *outcome.remarks, unknown, *_offences(outcome.result)) if text]
            read = explained(origin, name) if texts and origin in PACKAGES else ""
            reasons += [(origin, name, chip_name, text) for text in (*texts, read) if text]
        table.append([origin, name, *cells])
    headers = ["package", "kernel", *(f"{name}: {what}" for name in chips for what in ("enters", "simulated", "steps"))]
    totals = [
        f"{name}: {entering[name]} of {len(rows)} enter unchanged, {timed[name]} have a latency with nothing unknown, "
        f"and {kept[name]} more if compiled as their remark says"
        for name in chips
    ]
    merged: dict[tuple[str, str, str], list[str]] = {}
    for origin, name, chip_name, text in reasons:
        merged.setdefault((origin, name, text.replace("|", "/").replace("\n", " ")[:400]), []).append(chip_name)
    why_not = [[origin, name, ", ".join(dict.fromkeys(on)), text] for (origin, name, text), on in merged.items()]
    return "\n".join(
        (
            "# Known kernels",
            "",
            f"Made by `python benchmarks/known_kernels.py {arguments}`. A kernel *enters* if the judge's static rules "
            "take it; its results are checked in a contest, not here. Times are simulated; `*`: something was not "
            "understood or is assumed, `†`: compiled otherwise than it is shipped, `none`: there is no latency. "
            "`steps` are those of its grids, which show where a package takes other blocks on another chip. "
            "A row of its own says whose fault a reason is, found by reading the package.",
            "",
            *(f"- {sentence}" for sentence in totals),
            "",
            tabulate(table, headers=headers, tablefmt="github", disable_numparse=True),
            "",
            "## Reasons and remarks",
            "",
            tabulate(why_not, ["package", "kernel", "chips", "reason"], tablefmt="github", disable_numparse=True),
            "",
        )
    )


def _offences(result: Simulation | str) -> list[str]:
    """What the executed schedule does that no right program does, one of each kind, and how often."""
    offences = () if isinstance(result, str) else result.offences
    kinds = {offence.kind: offence for offence in reversed(offences)}
    return [f"{offence.kind}: {offence.what} in {offence.op} ({offence.count} times)" for offence in kinds.values()]


def _stated(arguments: list[str]) -> str:
    """The arguments as anybody gives them: without the places of one machine."""
    words = shlex.join(arguments)
    return re.sub(r"(--also) \S+", r"\1 PYTHON", re.sub(r" ?--cache \S+", "", words)).strip()


def _steps(result: Simulation | str) -> str:
    return "" if isinstance(result, str) or result.executed_steps is None else str(result.executed_steps)


def outcome(case: Known, cache: Path, also: str | None) -> Outcome:
    """What comes of the case, compiled otherwise where it has to be.

    What this JAX does not trace is compiled by the interpreter `also`, if there is one, and what has a part on the
    SparseCore once more without it.
    """
    result = simulated(case, cache)
    remarks: tuple[str, ...] = ()
    if isinstance(result, str) and also not in (None, case.python) and _ANOTHER_JAX.search(result):
        assert also is not None
        other, version = replace(case, python=also), also_version(also)
        by_other = simulated(other, cache)
        if isinstance(by_other, str):
            result = f"{result}; by JAX {version}: {by_other}"
        else:
            remarks += (f"compiled by JAX {version}; by this one {result}",)
            case, result = other, by_other
    if not isinstance(result, str) and not case.on_tensorcore and any(SPARSE_CORE in text for text in result.unknown):
        kept = replace(case, on_tensorcore=True)
        if not isinstance(on_tensorcore := simulated(kept, cache), str) and on_tensorcore.seconds is not None:
            remarks += (f"compiled to stay on the TensorCore; as shipped: {result.unknown[0]}",)
            case, result = kept, on_tensorcore
    return Outcome(result, refused(case, cache), remarks)


@functools.cache
def also_version(python: str) -> str:
    """The version of JAX that another interpreter has."""
    asked = "import importlib.metadata as m; print(m.version('jax'))"
    return subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()


def simulated(case: Known, cache: Path) -> Simulation | str:
    """What the simulator says of the case, or why there is nothing to simulate."""
    try:
        directory = dumped(case, cache)
        kept = directory / f"simulated-{_simulator()}-{_assumed(case)}.pickle"
        if kept.is_file():
            result: Simulation = pickle.loads(kept.read_bytes())
            return result
        operands = {path.stem: np.load(path) for path in directory.glob("*.npy")}
        dump = replace(read(directory, case.chip), assumption=_assumed(case))
        result = run_module(dump, case.chip, deadline_seconds=600, operands=operands)
        kept.write_bytes(pickle.dumps(result))
        return result
    except subprocess.CalledProcessError as error:
        return f"not compiled: {_raised(error.stderr, _installed(case.origin, cache, case.python))}"
    except subprocess.TimeoutExpired:
        return f"not compiled: tracing and compiling took longer than {case.compile_seconds / 60:g} minutes"
    except RatchetError as error:
        return f"not read: {error}"


@functools.cache
def _simulator() -> str:
    """Names the code that reads dumps and executes them: what was simulated by other code is simulated again."""
    digest = hashlib.sha256()
    for room in ("advice/dump_directory.py", "chips", "dumps", "hlo", "judge/simulate", "records"):
        place = HERE.parent / "harness" / room
        for path in sorted(place.rglob("*.py")) if place.is_dir() else (place,):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _assumed(case: Known) -> Assumption | None:
    """What its list says of branches that hang on a scalar out of a vector."""
    if case.origin not in PACKAGES:
        return None
    assumed: dict[str, Assumption] = getattr(import_module(module_of(case.origin)), "ASSUMED", {})
    return assumed.get(case.name)


def _raised(stderr: str, installed: Path) -> str:
    """What a compilation that failed ended with, and the last line of the package that it came from."""
    text = stderr.strip()
    errors = [line for line in text.splitlines() if _ERROR.match(line)] or [text[-90:]]
    frames = re.findall(rf'File "{re.escape(str(installed))}/([^"]+)", line (\d+)', text)
    place = f"{frames[-1][0]} line {frames[-1][1]}: " if frames else ""
    return f"{place}{errors[-1][:200]}"


def row(case: Known, result: Simulation | str) -> list[str]:
    """One line of the table."""
    head = [case.chip.name, case.origin, case.name]
    if isinstance(result, str):
        return [*head, "none", "", "", "", result]
    if result.seconds is None or result.plus_minus_seconds is None or result.cycles is None:
        return [*head, "none", "", "", "", result.unknown[0]]
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
    """Whether there is a latency, and nothing that was not understood."""
    return not isinstance(result, str) and result.seconds is not None and not result.unknown


def main() -> int:
    """Prints the table; exit code 1 unless every case has a latency with nothing unknown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chips", default="v5e,v6e")
    parser.add_argument("--only", default="", help="cases whose origin and name contain one of these words")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where dumps are kept")
    parser.add_argument("--also", help="the interpreter of another environment, for what this JAX does not trace")
    parser.add_argument("--install", action="store_true", help="install packages that are rows and not here")
    parser.add_argument("--compile-minutes", type=float, default=30.0, help="leave out what takes longer to compile")
    parser.add_argument("--page", type=Path, help="write the table for people, with reasons, to this file")
    parser.add_argument("--on-tensorcore", action="store_true", help="keep all work off the SparseCore")
    given = parser.parse_args()
    chosen = list(
        known(
            given.chips.split(","),
            given.only,
            on_tensorcore=given.on_tensorcore,
            compile_seconds=60 * given.compile_minutes,
        )
    )
    if find_spec("tokamax") is None:
        print("tokamax is not installed (Python 3.12 and `pip install -e '.[bench]'`): left out", file=sys.stderr)
        chosen = [case for case in chosen if case.origin != "tokamax"]
    for origin in sorted(PACKAGES.keys() & {case.origin for case in chosen}):
        taking = pythons(origin, given.also)
        for python in taking if given.install else ():
            install(origin, given.cache, python)
        if taking and _installed(origin, given.cache, taking[0]).is_dir():
            chosen = [replace(case, python=taking[0]) if case.origin == origin else case for case in chosen]
        else:
            needed = ".".join(map(str, PACKAGES[origin].python))
            missing = "is not installed (--install)" if taking else f"needs Python {needed} (--also)"
            print(f"{origin} {missing}: left out", file=sys.stderr)
            chosen = [case for case in chosen if case.origin != origin]
    table = []
    rows: dict[tuple[str, str], dict[str, tuple[Outcome, list[str]]]] = {}
    covered: dict[str, list[bool]] = {}
    for number, case in enumerate(chosen, 1):
        came = outcome(case, given.cache, given.also)
        table.append(row(case, came.result))
        covered.setdefault(case.chip.name, []).append(is_covered(came.result) and not came.remarks)
        rows.setdefault((case.origin, case.name), {})[case.chip.name] = came, table[-1]
        said = " | ".join((*table[-1], *came.remarks))
        print(f"{number}/{len(chosen)} {said}", file=sys.stderr, flush=True)
    if given.page is not None:
        given.page.write_text(page(rows, _stated(sys.argv[1:])), encoding="utf-8")
    headers = ["chip", "origin", "case", "simulated", "+/-", "MXU busy", "HBM", "why not, or what is not understood"]
    print(tabulate(table, headers=headers, disable_numparse=True))
    where = ", compiled to stay on the TensorCore" if given.on_tensorcore else ""
    for name, found in covered.items():
        print(f"{name}: {sum(found)} of {len(found)} cases have a latency with nothing unknown (all simulated{where})")
    return 0 if all(all(found) for found in covered.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
