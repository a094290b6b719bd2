"""Judges kernels of other packages, unchanged, in contests of their operations, and says why some are refused.

    .venv/bin/python benchmarks/known_judged.py [--only WORD,WORD] [--cache DIR] [--also PYTHON ...] [--install]
        [--again] [--minutes 10] [--page KNOWN_KERNELS_JUDGED.md]

The rows are those of known_kernels.py. If a row's operation is that of an operator, or is stated in known_problems,
known_contests.py makes a contest of it: the template or the statement at a small shape, and a kernel.py of a few lines
around the package's function. The contest is judged with all checks, as by `judge`; nothing is recorded. Contests and
the judge's documents are kept in `--cache`; a contest is judged anew if it or the judge has changed, or with `--again`.
A kernel that the JAX of this environment does not trace, or whose package needs a newer Python, is judged with each
interpreter that `--also` names, that of another environment with this project in it.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import known_kernels
from known_contests import CHIP, CONTESTS, Contest
from known_readings import READ, UNTRIED
from markdown_pages import fill, markdown_table

from harness import units
from harness.candidate import rewrite
from harness.judge.key import checks_modules, timing_modules
from harness.loop import scaffold

HERE = Path(__file__).parent
_MADE_BY = (
    "Made by `python benchmarks/known_judged.py {arguments}`. A kernel of [KNOWN_KERNELS.md](KNOWN_KERNELS.md) is "
    "judged if an operator or a formula (`benchmarks/known_problems`) states its operation. For each, a contest at a "
    "small shape (`benchmarks/known_contests.py`) has a kernel.py that only calls the unchanged kernel. It is judged "
    "with all checks, for v6e unless the column `operation` names another chip. *right*: accepted. *refused rightly*: "
    "the package has a fault, in the file and line that are named. *refused wrongly*: the kernel is right, or nothing "
    "shows that it is wrong. *not tried*: the last column says why. Times are simulated, at these small shapes. With "
    "`--keep` and words after `--only`, only the rows with these words are judged anew; the other rows are from an "
    "earlier judge."
)
_NOT_TRIED = ("not stated", "not tried")
_LONGEST = 300
_JUDGED_NOW: set[Path] = set()


def environment_of(origin: str, cache: Path, python: str) -> Path:
    """The interpreter of an environment that has the package and everything in the environment of `python`.

    The judge admits only imports of packages that are installed next to JAX, so this environment is a copy, made of
    links.
    """
    packages = known_kernels.installed(origin, cache, python)
    folder = packages.parent.with_name(packages.parent.name.replace("packages", "environment"))
    if not folder.is_dir():
        prefix = _printed(python, "import sys; print(sys.prefix)")
        shutil.copytree(prefix, folder, symlinks=True, copy_function=_link)
    interpreter = folder / "bin" / "python"
    home = Path(_printed(str(interpreter), "import sysconfig; print(sysconfig.get_path('purelib'))"))
    note = home / f"known-{origin}.txt"
    if not note.is_file():
        shutil.copytree(packages, home, symlinks=True, copy_function=_link, dirs_exist_ok=True)
        note.write_text("", encoding="utf-8")
    return interpreter


def _link(source: str, target: str) -> None:
    """Links a file, or copies it if links are impossible; an existing file stays."""
    if not os.path.exists(target):
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)


def _printed(python: str, program: str) -> str:
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def make(contest: Contest, folder: Path, stubs: tuple[str, ...]) -> None:
    """Writes the contest into `folder`, which becomes a repository; its former contents are deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    settings = {"CHIP": contest.chip, **contest.settings}
    if contest.statement is None:
        scaffold.scaffold(
            folder, contest.like, tuple((name, repr(value)) for name, value in settings.items()), own_kernel=False
        )
    else:
        folder.mkdir(parents=True)
        source = contest.statement.read_bytes()
        for setting, value in settings.items():
            source = rewrite(source, setting, repr(value), contest.statement.name)
        (folder / "prepare.py").write_bytes(source)
    (folder / "kernel.py").write_text(contest.kernel, encoding="utf-8")
    constants = f"STUBS = {stubs}\n" * bool(stubs) + f"ASSUME = {contest.assume!r}\n" * bool(contest.assume)
    prepare = folder / "prepare.py"
    text = prepare.read_text(encoding="utf-8")
    prepare.write_text(text.replace("\n\n\ndef problem", f"\n{constants}\n\ndef problem", 1), encoding="utf-8")
    who = ("-c", "user.name=known_judged", "-c", "user.email=known_judged@localhost")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "Add the contest")):
        subprocess.run(["git", "-C", str(folder), *words], check=True)


def judge(folder: Path, python: Path, seconds: float) -> dict[str, Any]:
    """The judge's document, or a document with the reason why there is none as `error`."""
    command = [str(python), "-m", "harness", "judge", "-C", str(folder), "--on", "simulated", "--json", "--quiet"]
    variables = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    try:
        run = subprocess.run(
            command, cwd=HERE.parent, env=variables, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"judging took longer than {seconds / 60:g} minutes"}
    try:
        document: dict[str, Any] = json.loads(run.stdout)
    except ValueError:
        return {"error": run.stderr.strip().splitlines()[-1]}
    return document


def judged(origin: str, contest: Contest, options: argparse.Namespace, pythons: list[str]) -> dict[str, Any]:
    """The judge's document on a contest, by the first interpreter whose JAX traces it, or by the last one."""
    for python in pythons:
        document = _judged_by(origin, contest, options, python)
        failure = document["verdict"]["failure"] if "verdict" in document else None
        if failure is None or not known_kernels.ANOTHER_JAX.search(failure["message"]):
            break
    return document


def _judged_by(origin: str, contest: Contest, options: argparse.Namespace, python: str) -> dict[str, Any]:
    """The judge's document on a contest, kept or made now. Rows with the same contest share one."""
    stubs = tuple(known_kernels.PACKAGES[origin].stubs.split())
    key = hashlib.sha256(repr((contest, stubs)).encode()).hexdigest()
    name = f"{origin}-{contest.function}-{key[:8]}-jax-{known_kernels.jax_version(python)}"
    folder: Path = options.cache / "contests" / name
    make(contest, folder, stubs)
    kept = folder.with_name(f"{name}-{judge_digest(folder / 'prepare.py', contest.chip)[:8]}.json")
    if kept.is_file() and (not options.again or folder in _JUDGED_NOW):
        document: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return document
    document = judge(folder, environment_of(origin, options.cache, python), 60 * options.minutes)
    kept.write_text(json.dumps(document), encoding="utf-8")
    _JUDGED_NOW.add(folder)
    return document


def judge_digest(prepare: Path, chip: str) -> str:
    """A hash of what the judge's document on a contest depends on: prepare.py, the code that checks and times, the
    chip.
    """
    names = sorted({*timing_modules("simulated"), *checks_modules(prepare), f"harness.chips.{chip}"})
    specs = [find_spec(name) for name in names]
    sources = [prepare, *(Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def outcome(origin: str, case: str, document: dict[str, Any]) -> tuple[str, str, str]:
    """The judgement in words, the simulated time, and the reason: the judge's, and that from reading the package.

    "" if there is no time or no reason.
    """
    if "error" in document:
        return "not judged", "", _cell(str(document["error"]))
    verdict, latency = document["verdict"], document["evidence"]["latency"]
    time = units.seconds(latency["seconds"]) if latency and latency["seconds"] is not None else ""
    if verdict["outcome"] == "accept":
        return "right", time, ""
    failure = verdict["failure"]
    refusal = f"{failure['kind']}: {failure['message']}" if failure else "; ".join(verdict["reasons"])
    read = READ.get((origin, case))
    if read is None or not any(kind in refusal for kind in read.kind.split(", ")):
        return f"{verdict['outcome']}, not looked into", time, _cell(refusal)
    return f"refused {'rightly' if read.is_fault else 'wrongly'}", time, f"{_cell(refusal).rstrip('.')}. {read.why}"


def _cell(text: str) -> str:
    """The text in a form that a Markdown table can hold, cut to its limit."""
    return " ".join(text.replace("|", "/").split())[:_LONGEST].strip()


def chosen(only: str) -> Iterator[tuple[str, str]]:
    """The rows of packages whose package and name contain one of the words of `only`, separated by commas."""
    for origin, case in known_kernels.kernels():
        if origin in known_kernels.PACKAGES and any(word in f"{origin} {case}" for word in only.split(",")):
            yield origin, case


def kept_rows(page: Path) -> Iterator[list[str]]:
    """The rows of a page that was made before."""
    listed = set(known_kernels.kernels())
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if tuple(cells[:2]) in listed:
            yield cells


def in_order(rows: list[list[str]]) -> list[list[str]]:
    """The last of the rows of each kernel, in the order of the kernels."""
    by_kernel = {(row[0], row[1]): row for row in rows}
    return [by_kernel[kernel] for kernel in known_kernels.kernels() if kernel in by_kernel]


def summary(rows: list[list[str]]) -> str:
    """A sentence that counts the rows by how they were judged."""
    counts = Counter(row[3].partition(",")[0] for row in rows)
    judged_rows = len(rows) - sum(counts[word] for word in _NOT_TRIED)
    total = ", ".join(f"{count} {word}" for word, count in counts.most_common() if word not in _NOT_TRIED)
    return f"Of {len(rows)} kernels {judged_rows} were tried: {total}."


def render(rows: list[list[str]], arguments: str) -> str:
    """The page."""
    headers = ["package", "kernel", "operation", "judged", "simulated", "why"]
    table = markdown_table(rows, headers)
    return (
        fill(f"# Known kernels, judged\n\n{_MADE_BY.format(arguments=arguments)}\n\n{summary(rows)}\n\n{table}") + "\n"
    )


def main() -> int:
    """Judges the chosen rows one after the other; exit code 1 if a refusal is wrong or has not been examined."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose package and name contain one of these words")
    parser.add_argument("--cache", type=Path, default=known_kernels.CACHE, help="where packages and contests are kept")
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        help="interpreter of another environment, for kernels that need another JAX or Python",
    )
    parser.add_argument("--install", action="store_true", help="install packages of rows that are missing here")
    parser.add_argument("--again", action="store_true", help="also judge kernels whose judgement is kept")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop judging a kernel after this many minutes")
    parser.add_argument("--page", type=Path, help="write the table for people to this file")
    parser.add_argument(
        "--keep", action="store_true", help="keep the page's other rows, as an earlier judge judged them"
    )
    options = parser.parse_args()
    rows: list[list[str]] = []
    for origin, case in chosen(options.only):
        contest = CONTESTS.get(origin, {}).get(case)
        if contest is None:
            untried = UNTRIED.get((origin, case), "")
            rows.append([origin, case, "", "not tried" if untried else "not stated", "", untried])
            continue
        taking = known_kernels.pythons(origin, options.also)
        for python in taking if options.install else ():
            known_kernels.install(origin, options.cache, python)
        taking = [each for each in taking if known_kernels.installed(origin, options.cache, each).is_dir()]
        if not taking:
            print(
                f"{origin} {case}: left out, not installed (--install) or in need of a newer Python (--also)",
                file=sys.stderr,
            )
            continue
        like = contest.like if contest.chip == CHIP else f"{contest.like}, {contest.chip}"
        rows.append([origin, case, like, *outcome(origin, case, judged(origin, contest, options, taking))])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    text = render(in_order([*(kept_rows(options.page) if options.keep else ()), *rows]), _stated(options))
    print(text)
    if options.page is not None:
        options.page.write_text(text, encoding="utf-8")
    return 0 if all(row[3] in ("right", "refused rightly", *_NOT_TRIED) for row in rows) else 1


def _stated(options: argparse.Namespace) -> str:
    """The arguments of the command, without the places of one machine."""
    words = [f"--only {options.only}"] if options.only else []
    words += ["--install"] if options.install else []
    words += ["--keep"] if options.keep else []
    words += [f"--also PYTHON_WITH_JAX_{known_kernels.jax_version(python)}" for python in options.also]
    place = options.page.name if options.page and options.page.is_absolute() else options.page
    return " ".join((*words, f"--page {place}"))


if __name__ == "__main__":
    sys.exit(main())
