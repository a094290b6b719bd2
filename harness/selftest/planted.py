"""The planted kernels in candidates/: the fault of each, the check that must catch it, and its source.

A candidate is a kernel.py with a docstring that describes the candidate, or a patch below such a description. The
description of a patch has a line `Base: NAME [CONSTANT=VALUE ...]`. The base is a file of bases/, or else the template
of that name, with these constants. This command makes a patch:

git diff --no-index --unified=2 bases/attention.py mine.py
"""

import ast
import difflib
import os
import re
import tempfile
from pathlib import Path

from git import Git, GitCommandError

from harness.candidate import rewrite
from harness.errors import RatchetError, UsageError
from harness.loop import scaffold, settings
from harness.records.selftest import Planted, Refusal

CANDIDATES = Path(__file__).parent / "candidates"
# Contests whose good kernels are tried if there is little time: one of each family of operators.
_QUICK = ("plain", "backward", "paged", "matmul", "grouped", "rmsnorm", "swiglu")
_FIELD = re.compile(r"^(Row|Caught by|Contest|Attempts|Base): (.+)$", re.M)


def source(planted: Planted) -> bytes:
    """The bytes of the candidate's kernel.py. Raises RatchetError `bad-candidate` if a patch does not apply."""
    path = _path(planted.name)
    return path.read_bytes() if path.suffix == ".py" else _patch(path)


def kernels() -> tuple[Planted, ...]:
    """All planted kernels, bad ones first. Raises RatchetError `bad-candidate` if a text lacks a required line."""
    return tuple(_read(path) for group in ("bad", "good") for path in sorted(_files(CANDIDATES / group)))


def select(every: tuple[Planted, ...], names: tuple[str, ...]) -> tuple[Planted, ...]:
    """The candidates with these names, each once, in the order of `names`. Raises UsageError `unknown-candidate`."""
    by_name = {planted.name: planted for planted in every}
    for name in names:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, 5, 0.5) or list(by_name)[:3]
            raise UsageError(
                "unknown-candidate",
                f"expected --only with the name of one of {len(by_name)} planted candidates, such as "
                f"{', '.join(near)}, got {name!r}; without --only all of them are tried and named",
            )
    return tuple(by_name[name] for name in dict.fromkeys(names))


def one_of_each(every: tuple[Planted, ...]) -> tuple[Planted, ...]:
    """One candidate of each class, in order: preferably of the contest `plain`, then one with the fewest attempts.

    Good candidates are only those of contests in `_QUICK`.
    """
    chosen: dict[str, Planted] = {}
    for planted in sorted(every, key=lambda planted: (planted.contest != "plain", planted.attempts)):
        if not planted.is_good or planted.contest in _QUICK:
            chosen.setdefault(planted.kind, planted)
    return tuple(planted for planted in every if chosen.get(planted.kind) is planted)


def _files(folder: Path) -> list[Path]:
    return [*folder.glob("*.py"), *folder.glob("*.patch")]


def _path(name: str) -> Path:
    groups = (CANDIDATES / "bad", CANDIDATES / "good")
    return next(path for group in groups for path in _files(group) if path.stem == name)


def _text(path: Path) -> str:
    """The docstring of a kernel.py, or the text above a patch."""
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(path.read_bytes())) or ""
    return path.read_text(encoding="utf-8").partition("\n--- ")[0].strip()


def _patch(path: Path) -> bytes:
    """The base with the patch applied, under a docstring that states the fault."""
    text = _text(path)
    name, *constants = dict(_FIELD.findall(text)).get("Base", "").split() or [""]
    base = CANDIDATES / "bases" / f"{name}.py"
    if not base.is_file() and name not in scaffold.templates():
        raise RatchetError(
            "bad-candidate", f"{path}: expected `Base:` with the name of a file of bases/ or a template, got {text!r}"
        )
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder, "kernel.py")
        kernel.write_bytes(base.read_bytes() if base.is_file() else scaffold.text(name, "kernel.py"))
        if "\n--- " in path.read_text(encoding="utf-8"):
            git = Git(folder)
            # In a folder within another repository, git would pass over files that do not belong to that repository.
            git.update_environment(
                GIT_CEILING_DIRECTORIES=os.path.dirname(folder), GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1"
            )
            try:
                git.apply(str(path.absolute()))
            except GitCommandError as error:
                raise RatchetError("bad-candidate", f"{path} does not fit {base}: {error.stderr}") from error
        source = kernel.read_bytes()
    for constant, value in map(settings.parse, constants):
        source = rewrite(source, constant, value, str(base))
    return f'"""{text}\n"""\n'.encode() + source.partition(b'"""\n')[2]


def _read(path: Path) -> Planted:
    text = _text(path)
    fields = dict(_FIELD.findall(text))
    what = " ".join(text.partition("\n\n")[0].split())
    caught = [place.split(maxsplit=1) for place in fields.get("Caught by", "").split("; ")]
    is_bad = path.parent.name == "bad"
    if not what or (is_bad and ("Row" not in fields or any(len(place) != 2 for place in caught))):
        raise RatchetError(
            "bad-candidate", f"{path}: expected one sentence, `Row: N` and `Caught by: STAGE KIND; ...`, got {text!r}"
        )
    return Planted(
        name=path.stem,
        what=what,
        row=fields.get("Row", "-"),
        expected=tuple(Refusal(stage=stage, kind=kind) for stage, kind in caught) if is_bad else (),
        contest=fields.get("Contest", "plain"),
        attempts=int(fields.get("Attempts", "1")),
    )
