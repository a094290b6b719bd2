"""A contest folder: its prepare.py loaded, its judge's files named and hashed, and a new one scaffolded."""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

import harness
from harness.errors import RatchetError
from harness.hardware import Chip, chip
from harness.loop.settings import rewrite
from harness.problems import Problem, defined
from harness.problems.conformance import MISTAKES

PACKAGE = Path(harness.__file__).parent
TEMPLATES = PACKAGE / "templates"
# What can change a verdict; rendering, the ledger and the command line cannot.
JUDGE_PARTS = ("problems", "measure", "simulate", "judge", "dumps", "records", "hardware.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A folder with a prepare.py and a kernel.py: the problem, and the chip it is judged for."""

    directory: Path
    problem: Problem
    chip: Chip

    @property
    def kernel_path(self) -> Path:
        """The one file that an experiment changes."""
        return self.directory / "kernel.py"

    @property
    def problem_digest(self) -> str:
        """A hash of what is computed, as the judge states it."""
        return hashlib.sha256(msgspec.json.encode(self.problem.statement())).hexdigest()[:16]

    def judge_files(self) -> Iterator[Path]:
        """Every file that can change a verdict: prepare.py, then the parts of the harness that judge."""
        yield self.directory / "prepare.py"
        for part in JUDGE_PARTS:
            path = PACKAGE / part
            yield from sorted(path.rglob("*.py")) if path.is_dir() else (path,)

    def judge_digest(self) -> str:
        """A hash over the bytes of all judge files."""
        digest = hashlib.sha256()
        for path in self.judge_files():
            name = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name
            digest.update(json.dumps([name, hashlib.sha256(path.read_bytes()).hexdigest()]).encode())
        return digest.hexdigest()[:16]


def load(directory: Path, chip_name: str | None = None) -> Contest:
    """The contest in `directory`, for its own chip or for the one called `chip_name`.

    Raises RatchetError `no-contest` (no prepare.py or no kernel.py there) or `bad-prepare`
    (it does not load, or lacks CHIP or problem()), UsageError `unknown-chip`.
    """
    directory = directory.resolve()
    for name in ("prepare.py", "kernel.py"):
        if not (directory / name).is_file():
            raise RatchetError(
                "no-contest",
                f"expected a contest (prepare.py and kernel.py), found no {name} in {directory}; "
                "name its folder with -C DIR, or make one with: ratchet.sh new DIR --like attention",
            )
    path = directory / "prepare.py"
    problem, own_chip = _prepared(path)
    return Contest(directory=directory, problem=problem, chip=chip(chip_name or own_chip))


def _prepared(path: Path) -> tuple[Problem, str]:
    """The problem and the chip that this prepare.py names. Raises RatchetError `bad-prepare`."""

    def bad(said: str) -> RatchetError:
        return RatchetError("bad-prepare", f"{path}: {said}")

    source, before = path.read_bytes(), tuple(sys.modules)
    try:
        module = defined.run(source, str(path))
        problem, own_chip = module.problem(), module.CHIP
    except MISTAKES as error:
        raise bad(
            f"expected it to define CHIP and problem(); loading it failed with {type(error).__name__}: {error}"
        ) from error
    foreign = defined.foreign_imports(before)
    if foreign:
        # What stays loaded would be no new import the next time, and pass.
        for name in (module.__name__, *foreign):
            del sys.modules[name]
        raise bad(
            f"it imports {', '.join(foreign.values())}, which the judge's hash does not cover and no record would "
            "hold; put what it needs into prepare.py"
        )
    if not isinstance(own_chip, str):
        raise bad(f"expected CHIP to be a name such as 'v5e', got {own_chip!r}")
    missing = defined.missing_methods(problem)
    if missing:
        raise bad(
            f"expected problem() to return a Problem (docs/OPERATORS.md), got a {type(problem).__name__} without "
            f"{', '.join(missing)}"
        )
    try:
        return defined.taken(module, source, str(path), problem), own_chip
    except ValueError as error:
        raise bad(str(error)) from error


def templates() -> tuple[str, ...]:
    """The contests that `new --like` can copy."""
    return tuple(sorted(path.name for path in TEMPLATES.iterdir() if (path / "prepare.py").is_file()))


def scaffold(directory: Path, like: str, settings: tuple[tuple[str, str], ...]) -> tuple[Path, ...]:
    """Writes a new contest into `directory` and returns its files; `settings` rewrite constants of its prepare.py.

    Raises RatchetError `exists` if one of the files is there already, `unknown-template`
    if there is nothing called `like`; writes nothing then.
    """
    if like not in templates():
        raise RatchetError("unknown-template", f"expected --like {' or '.join(templates())}, got {like!r}")
    source = TEMPLATES / like
    contents = {
        "prepare.py": (source / "prepare.py").read_bytes(),
        "kernel.py": (source / "kernel.py").read_bytes(),
        ".gitignore": b"profile_data/\n__pycache__/\n",
    }
    for name, value in settings:
        contents["prepare.py"] = rewrite(contents["prepare.py"], name, value, "prepare.py")
        contents["kernel.py"] = _rewritten(contents["kernel.py"], name, value)
    for name in contents:
        if (directory / name).exists():
            raise RatchetError(
                "exists", f"{directory / name} is there already; nothing was written. Choose a new folder"
            )
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    return tuple(directory / name for name in contents)


def _rewritten(kernel: bytes, name: str, value: str) -> bytes:
    """kernel.py with the constant that it shares with prepare.py set to the same value; as it was if it has none."""
    try:
        return rewrite(kernel, name, value, "kernel.py")
    except RatchetError:
        return kernel
