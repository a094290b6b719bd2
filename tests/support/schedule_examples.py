"""Saved schedules of the real compiler, unpacked for tests, and ways to tamper with them."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

SCHEDULES = Path(__file__).parents[1] / "fixtures" / "schedules"
NEWEST = "libtpu-0.0.50.1"

# Cases that have no latency without the contents of an operand, or no latency at all.
NEEDS_MORE = ("v5e-counted-1024", "v5e-planned-1024", "v5e-converged-1024")

# Every saved schedule of the attention kernel: (compiler, case).
ATTENTION = tuple(
    sorted(
        (folder.parent.name, folder.name) for folder in SCHEDULES.glob("*/*") if re.search(r"\d+x\d+-\d+$", folder.name)
    )
)


def unpack(
    compiler: str,
    case: str,
    target: Path,
    change: Callable[[str], str] | None = None,
    *,
    where: str = r"-final_bundles",
) -> Path:
    """Writes a saved dump into `target`; `change` is applied to the kernel's own schedule, or to what `where` finds."""
    target.mkdir(parents=True, exist_ok=True)
    for path in (SCHEDULES / compiler / case).iterdir():
        text = gzip.decompress(path.read_bytes()).decode()
        if change is not None and re.search(where, path.name) and ("TLP" in where or "TLP" not in path.name):
            changed = change(text)
            assert changed != text, "the change must find what it changes"
            text = changed
        (target / path.name.removesuffix(".gz")).write_text(text, encoding="utf-8")
    return target


def shape(case: str) -> tuple[str, int, int, int]:
    """Chip, query block, key block and sequence length of a case such as `v5e-1024x512-2048`."""
    chip, blocks, length = case.split("-")[:3]
    query, key = blocks.split("x")
    return chip, int(query), int(key), int(length)
