"""A new contest, from one of the templates."""

from pathlib import Path

from harness.errors import RatchetError
from harness.loop.settings import names, rewrite

# Beside the operators that they compute.
OPERATORS = Path(__file__).parents[1] / "operators"


def templates() -> tuple[str, ...]:
    """The contests that `new --like` can copy."""
    return tuple(sorted(path.parent.name for path in OPERATORS.glob("*/templates/*/prepare.py")))


def template(like: str) -> Path:
    """The folder of the template called `like`."""
    return next(OPERATORS.glob(f"*/templates/{like}"))


# What a contest's folder holds and git need not: schedules, captures, evidence kept for the next question.
IGNORED = b"profile_data/\n__pycache__/\n"


def scaffold(
    directory: Path, like: str, settings: tuple[tuple[str, str], ...], *, own_kernel: bool = True
) -> tuple[Path, ...]:
    """Writes a new contest into `directory` and returns its files; `settings` rewrite its constants.

    They are those of prepare.py, of kernel.py, or of both under one name. Not `own_kernel`: kernel.py is to be
    replaced, and constants that prepare.py lacks are left to whoever does that.

    Raises RatchetError `exists` if one of the files is there already, `unknown-template`
    if there is nothing called `like`, `unknown-constant`; writes nothing then.
    """
    if like not in templates():
        raise RatchetError("unknown-template", f"expected --like {' or '.join(templates())}, got {like!r}")
    source = template(like)
    contents = {
        "prepare.py": (source / "prepare.py").read_bytes(),
        "kernel.py": (source / "kernel.py").read_bytes(),
        ".gitignore": IGNORED,
    }
    for name, value in settings:
        files = [file for file in ("prepare.py", "kernel.py")[: 1 + own_kernel] if name in names(contents[file])]
        if own_kernel and not files:
            # It has the constants that people ask for first, and says which they are.
            files = ["prepare.py"]
        for file in files:
            contents[file] = rewrite(contents[file], name, value, file)
    for name in contents:
        if (directory / name).exists():
            raise RatchetError(
                "exists", f"{directory / name} is there already; nothing was written. Choose a new folder"
            )
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    return tuple(directory / name for name in contents)
