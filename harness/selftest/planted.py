"""The planted kernels as they lie in candidates/: files that say what is wrong with them and what must see it."""

import ast
import difflib
import re
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.records.selftest import Planted, Refusal

CANDIDATES = Path(__file__).parent / "candidates"
_FIELD = re.compile(r"^(Row|Caught by|Contest|Attempts): (.+)$", re.M)


def source(planted: Planted) -> bytes:
    """The bytes of its kernel.py."""
    return _path(planted.name).read_bytes()


def kernels() -> tuple[Planted, ...]:
    """All kernel files, bad ones first. Raises RatchetError `bad-candidate` where a docstring lacks something."""
    return tuple(_read(path) for group in ("bad", "good") for path in sorted((CANDIDATES / group).glob("*.py")))


def named(every: tuple[Planted, ...], names: tuple[str, ...]) -> tuple[Planted, ...]:
    """Those of `every` with these names, in their order. Raises UsageError `unknown-candidate`."""
    known = {planted.name: planted for planted in every}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 5, 0.5) or list(known)[:3]
            raise UsageError(
                "unknown-candidate",
                f"expected --only with the name of one of {len(known)} planted candidates, such as {', '.join(near)}, "
                f"got {name!r}; without --only each of them is tried and named",
            )
    return tuple(known[name] for name in names)


def _path(name: str) -> Path:
    return next(path for group in ("bad", "good") if (path := CANDIDATES / group / f"{name}.py").is_file())


def _read(path: Path) -> Planted:
    text = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    fields = dict(_FIELD.findall(text))
    what = " ".join(text.partition("\n\n")[0].split())
    caught = [place.split(maxsplit=1) for place in fields.get("Caught by", "").split("; ")]
    is_bad = path.parent.name == "bad"
    if not what or (is_bad and ("Row" not in fields or any(len(place) != 2 for place in caught))):
        raise RatchetError(
            "bad-candidate",
            f"{path}: expected a docstring with one sentence, `Row: N` and `Caught by: STAGE KIND; ...`, got {text!r}",
        )
    return Planted(
        name=path.stem,
        what=what,
        row=fields.get("Row", "-"),
        expected=tuple(Refusal(stage=stage, kind=kind) for stage, kind in caught) if is_bad else (),
        contest=fields.get("Contest", "plain"),
        attempts=int(fields.get("Attempts", "1")),
    )
