"""docs/KEYS.md: whose keys move when a file of the harness changes, found by changing each file in turn."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from rooms import source_files

import harness
from harness import contest as contests
from harness.judge import key as keys
from harness.operators import OPERATORS
from harness.records import Key
from harness.sandbox.environment import environment

PACKAGE = Path(harness.__file__).parent
ROOT = PACKAGE.parent
PAGE = ROOT / "docs" / "KEYS.md"
# Contests of several operators, one on v6e and one of a suite.
CONTESTS = {
    "attention": ROOT,
    "attention on v6e": ROOT / "examples/attention-v6e",
    "attention suite": ROOT / "examples/attention-suite",
    "attention backward": ROOT / "examples/attention-backward",
    "paged attention": ROOT / "examples/paged-attention",
    "matmul": ROOT / "examples/matmul",
    "grouped matmul": ROOT / "examples/grouped-matmul",
    "grouped matmul transposed": ROOT / "examples/grouped-matmul-transposed",
    "quantized matmul": ROOT / "examples/quantized-matmul",
    "RMSNorm": ROOT / "examples/rmsnorm",
    "SwiGLU": ROOT / "examples/swiglu",
}
_STATEMENT = contests.load(ROOT).problem.statement()
# Results that do not change with a file of the harness, and are needed hundreds of times or more.
_ENVIRONMENT = environment()
_graph = cache(keys._graph)
_code_digest = cache(keys._code_digest)
_entries_of_checks = cache(keys._entries_of_checks)
Moved = tuple[frozenset[str], frozenset[str]]


def loaded() -> dict[str, contests.Contest]:
    """The contests of the page, by name."""
    return {name: contests.load(folder) for name, folder in CONTESTS.items()}


def keys_of(loaded_contests: dict[str, contests.Contest]) -> dict[str, Key]:
    """The keys of simulated evidence about each contest, taken now."""
    return {
        name: _key(contest.directory / "prepare.py", contest.chip.name) for name, contest in loaded_contests.items()
    }


def _key(prepare: Path, chip: str) -> Key:
    """The key of a contest whose statement does not matter: only the operator's file of the harness makes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "environment", lambda: _ENVIRONMENT)
        patch.setattr(keys, "_code_digest", _code_digest)
        patch.setattr(keys, "_entries_of_checks", _entries_of_checks)
        return keys.key(prepare, _STATEMENT, {}, chip, "simulated")


def moved_by(file: Path, loaded_contests: dict[str, contests.Contest], before: dict[str, Key]) -> Moved:
    """The contests whose timing key, and those whose checks key, changes with one more line of code in `file`."""
    facts, changed = keys._facts, file.stem if file.parent == PACKAGE / "chips" else ""
    graph = dict(_graph())
    relative = file.relative_to(PACKAGE).as_posix()
    name = next((name for name, module in graph.items() if module.file == relative), None)
    if name is None:
        return frozenset(), frozenset()
    graph[name] = msgspec.structs.replace(graph[name], code="changed")
    with pytest.MonkeyPatch.context() as patch:
        # The graph that reading the changed file would give.
        patch.setattr(keys, "_graph", lambda: graph)
        patch.setattr(keys, "_judge_modules", lambda graph: ())
        patch.setattr(keys, "_facts", lambda name: "changed" if name == changed else facts(name))
        after = keys_of(loaded_contests)
    timing = {name for name in loaded_contests if after[name].timed != before[name].timed}
    checks = {name for name in loaded_contests if after[name].checks != before[name].checks}
    return frozenset(timing), frozenset(checks)


def words(moved: frozenset[str], everything: frozenset[str]) -> str:
    """`all`, `none`, or the contests in their order."""
    if moved in (everything, frozenset()):
        return "all" if moved else "none"
    return ", ".join(name for name in CONTESTS if name in moved)


def lines() -> Iterator[str]:
    """The page, line by line."""
    loaded_contests = loaded()
    before = keys_of(loaded_contests)
    everything = frozenset(loaded_contests)
    rows: dict[tuple[str, str], list[str]] = {}
    for file in source_files():
        timing, checks = moved_by(file, loaded_contests, before)
        if timing or checks:
            pair = words(timing, everything), words(checks, everything)
            rows.setdefault(pair, []).append(f"`{file.relative_to(PACKAGE)}`")
    yield from HEAD.splitlines()
    yield ""
    yield "| timing keys that move | checks keys that move | files of `harness/` |"
    yield "|---|---|---|"
    for pair, names in sorted(rows.items(), key=lambda row: (row[0] != ("all", "all"), row[0])):
        yield f"| {pair[0]} | {pair[1]} | {' '.join(names)} |"
    yield ""
    others = ", ".join(f"`{name}`" for name in dict.fromkeys(OPERATORS.values()))
    yield (
        f"A change of any other file moves no key of these contests. The operators are {others}. Some operators use "
        "another operator: paged attention uses attention, and grouped and quantized products use matmul."
    )


HEAD = """\
# Whose keys a change moves

Each attempt has two keys, which are hashes. The *timing key* covers everything that determines the time of a kernel:
the code that compiles and simulates it, its chip's data, the timed problem, and the versions of jax and libtpu. Times
are compared only if their timing keys are equal. The *checks key* covers everything that determines the result of the
checks: their code, the contest's operator, `prepare.py` and chip. A change *moves* a key if it changes the hash.

- If the timing key moves, accepted attempts are compiled and simulated again, so that all times in the table are
  comparable. This happens after the next attempt, or with `./ratchet.sh rescale`.
- If the checks key moves, the next attempt first checks the champion again, and records the result as a
  [note](LOOP.md#notes).
- A change of only comments, docstrings, formatting or type-checking imports moves no key. Neither key covers the code
  of verdicts (except `schedule_checks.py`), reports, the command line and the ledger, because this code affects neither
  the time nor the correctness of a kernel.
- A change of one operator moves only the keys of contests that use it. A change of one chip moves only the keys of
  contests on that chip. A change of `workbench=` in a chip's row moves no key, because only the workbench reads it.

`tests/support/keys_page.py` writes the table: it changes each file, one at a time, and compares the keys. The contests
in the table are the contest in the root folder and ten contests in `examples/`."""


def main() -> int:
    """Writes the page."""
    PAGE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
