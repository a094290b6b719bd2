"""Lists the saved HLO modules of tests/fixtures/modules, and those whose kernels this jaxlib can read."""

from importlib.metadata import version
from pathlib import Path

MODULES = Path(__file__).parents[1] / "fixtures" / "modules"


def modules(program: str) -> list[Path]:
    """The saved compilations of one program, one per compiler version."""
    paths = sorted(MODULES.glob(f"{program}-v5e-*.hlo.pb"))
    assert len(paths) == 2
    return paths


def readable(path: Path) -> bool:
    """True if a kernel compiled by that jax is no newer than this jaxlib."""
    saved = path.name.split("-jax")[1].split("-")[0]
    return _numbers(saved) <= _numbers(version("jaxlib"))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
