"""Completions of a word in a shell: attempts' numbers, constants, members of a suite; none if an error occurs."""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from harness import files
from harness.errors import RatchetError

# The number of newest attempts that are offered.
_ATTEMPTS = 200
# Words, or words with a description each.
Offer: TypeAlias = Mapping[str, str] | Sequence[str]


def _of_contest(offer: Callable[[Path], Offer]) -> Callable[..., Offer]:
    """A completer that offers what `offer` returns for the contest's folder, and nothing if an error occurs."""

    def complete(parsed_args: Namespace, **_: object) -> Offer:
        try:
            folder = parsed_args.directory or Path.cwd()
            files.refuse_links(folder)
            return offer(folder)
        except (RatchetError, OSError, ValueError, RecursionError, MemoryError):
            return ()

    return complete


@_of_contest
def attempts(folder: Path) -> Offer:
    """The newest attempts of the contest, each with its outcome and hypothesis."""
    from harness.ledger import history
    from harness.ledger.paths import place_of
    from harness.render.layout import clean

    rows, _skipped = history.rows(place_of(folder), _ATTEMPTS)
    return {str(row.number): clean(f"{row.outcome}: {row.hypothesis}") for row in rows}


def attempts_and_files(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
    """The newest attempts of the contest, and the files that begin with `prefix`."""
    from argcomplete.completers import FilesCompleter

    return [*attempts(parsed_args), *FilesCompleter()(prefix)]


@_of_contest
def constants(folder: Path) -> Offer:
    """The constants of the contest's kernel.py, each with its value."""
    from harness.candidate import constants as constants_in
    from harness.render.layout import clean

    return {f"{name}=": clean(value) for name, value in constants_in(_source(folder / "kernel.py"))}


@_of_contest
def members(folder: Path) -> Offer:
    """The members of the contest's suite, if prepare.py can be read without running it; else ()."""
    from harness.operators.suite import Suite
    from harness.prepare import data
    from harness.render.layout import clean

    source = _source(folder / "prepare.py")
    stated = data.read(source) if source else None
    suite = stated[0] if stated else None
    return [clean(member.name) for member in suite.members] if isinstance(suite, Suite) else ()


def _source(path: Path) -> bytes:
    # A pipe or a device has no end.
    return path.read_bytes() if path.is_file() else b""
