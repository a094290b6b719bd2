"""A new contest, from one of the templates."""

from pathlib import Path

from harness.errors import RatchetError
from harness.loop.settings import rewrite

TEMPLATES = Path(__file__).parents[1] / "templates"


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
