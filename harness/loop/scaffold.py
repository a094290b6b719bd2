"""A new contest, from one of the templates."""

import difflib
from pathlib import Path

from harness.candidate import names, rewrite
from harness.errors import RatchetError

# The templates of an operator lie in its folder; the template without an operator lies in `templates`.
OPERATORS = Path(__file__).parents[1] / "operators"
# The template whose prepare.py states a problem itself, by a formula.
FORMULA = "formula"
# The beginning and the end of every prepare.py; a template has the part between: its constants and problem().
_HEAD = '''\
"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

'''
_TAIL = """

if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
"""
# The first line of a file that several templates share names them: `#: for NAMES`. Lines for only some of them follow a
# line `#: NAMES` or `#: not NAMES`; after `#: end` the lines are for all again.
_MARK, _FOR = "#: ", "#: for "


def templates() -> tuple[str, ...]:
    """The names of the templates of operators: their prepare.py only sets constants."""
    return tuple(name for name in starts() if name != FORMULA)


def starts() -> tuple[str, ...]:
    """The names that `new --like` takes: the templates of operators, and `formula`."""
    return tuple(sorted(_sources("prepare.py")))


def siblings(like: str) -> tuple[str, ...]:
    """The other templates with the same prepare.py as `like`, in which only constants differ."""
    sources = _sources("prepare.py")
    return tuple(sorted(name for name, path in sources.items() if path == sources[like] and name != like))


def text(like: str, file: str) -> bytes:
    """The prepare.py or kernel.py of a template."""
    source = _of_template(_sources(file)[like].read_text(encoding="utf-8"), like)
    return (f"{_HEAD}{source}{_TAIL}" if file == "prepare.py" else source).encode()


def _sources(file: str) -> dict[str, Path]:
    """The path of each template's prepare.py or kernel.py, by the template's name."""
    source_of: dict[str, Path] = {}
    for path in (*OPERATORS.glob(f"*/templates/*/{file}"), OPERATORS / "templates" / FORMULA / file):
        with path.open(encoding="utf-8") as lines:
            first = lines.readline()
        names = first.removeprefix(_FOR).split() if first.startswith(_FOR) else [path.parent.name]
        source_of |= dict.fromkeys(names, path)
    return source_of


def _of_template(source: str, like: str) -> str:
    """The lines of `source` that are for the template called `like`."""
    kept, is_kept = [], True
    for line in source.splitlines(keepends=True):
        if line.startswith(_MARK):
            first, *names = line.removeprefix(_MARK).split()
            is_kept = first in ("for", "end") or (like not in names if first == "not" else like in (first, *names))
        elif is_kept:
            kept.append(line)
    return "".join(kept)


# Files of a contest's folder that git need not keep: schedules, captures, evidence kept for later commands.
IGNORED = b"profile_data/\n__pycache__/\n"


def scaffold(
    directory: Path, like: str, settings: tuple[tuple[str, str], ...], *, own_kernel: bool = True, ignores: bool = True
) -> tuple[Path, ...]:
    """Writes a new contest into `directory` and returns its files; `settings` rewrite its constants.

    A constant may be in prepare.py or kernel.py; if in both, both are set. Without `own_kernel`, kernel.py will be
    replaced, so only constants of prepare.py are set. Without `ignores`, no .gitignore is written.

    If anything is raised, nothing is written. Raises RatchetError `exists` if one of the files exists,
    `unknown-template` if there is no template `like`, `unknown-constant`.
    """
    if like not in starts():
        near = difflib.get_close_matches(like, starts(), 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise RatchetError(
            "unknown-template",
            f"expected --like TEMPLATE, got {like!r}{hint}; TEMPLATE is one of {', '.join(starts())}",
        )
    contents = {file: text(like, file) for file in ("prepare.py", "kernel.py")}
    for name, value in settings:
        files = [file for file in ("prepare.py", "kernel.py")[: 1 + own_kernel] if name in names(contents[file])]
        if own_kernel and not files:
            # The error then lists the constants of prepare.py, which people want to set first.
            files = ["prepare.py"]
        for file in files:
            contents[file] = rewrite(contents[file], name, value, file)
    if ignores:
        contents[".gitignore"] = IGNORED
    for name in contents:
        if (directory / name).exists():
            raise RatchetError(
                "exists", f"expected a new folder, got {directory}, which has {name} already; nothing was written"
            )
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    return tuple(directory / name for name in contents)
