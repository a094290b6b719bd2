"""How the published workflows spell commands, made words that are understood here."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.workbench.profiles.places import RUNS

# Names of two words are as good as ours.
NAMES = {"memory peak": "memory", "compute breakdown": "breakdown", "comm overlap": "overlap"}


def places(words: Sequence[str]) -> list[str]:
    """`--run-dir DIR` and `--runs A,B` are captures that stand by themselves here; both together, runs in DIR.

    Raises UsageError `usage` where one of them has no value.
    """
    rest, directory = _taken(list(words), "--run-dir")
    rest, runs = _taken(rest, "--runs")
    if runs is None:
        return rest if directory is None else [directory, *rest]
    named = runs.split(",")
    return [*named, *rest] if directory is None else [*(str(Path(directory) / RUNS / name) for name in named), *rest]


def script(words: Sequence[str]) -> list[str]:
    """`flags --flags-file FILE` of an audit is the file that stands by itself here."""
    rest, file = _taken(list(words), "--flags-file")
    if file is None:
        return list(words)
    return [file, *(rest[1:] if rest[:1] == ["flags"] else rest)]


def instead(words: Sequence[str], subcommands: Sequence[str]) -> str | None:
    """The command here for `words`, which begin with none of our verbs: a subcommand of `xprof`. None: not known."""
    longer = " ".join(words[:2])
    if longer in NAMES:
        ours = [NAMES[longer], *places(words[2:])]
    elif words[0] in subcommands:
        ours = [words[0], *places(words[1:])]
    else:
        return None
    return f"./ratchet.sh xprof {shlex.join(ours)}"


def _taken(words: list[str], option: str) -> tuple[list[str], str | None]:
    """The words without `option VALUE` or `option=VALUE`, and the value."""
    for at, word in enumerate(words):
        name, is_one_word, value = word.partition("=")
        if name == option:
            end = at + 1 if is_one_word else at + 2
            if not is_one_word and end > len(words):
                raise UsageError("usage", f"expected a value behind {option}")
            return [*words[:at], *words[end:]], value if is_one_word else words[at + 1]
    return words, None
