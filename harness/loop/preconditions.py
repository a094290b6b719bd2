"""The preconditions of an attempt: a committed judge, a branch, an identity, times that can decide."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from git import Repo

from harness.candidate import Candidate, Settings
from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.ledger import Ledger, git
from harness.ledger.git import index, write
from harness.loop.ledger_advice import set_constants
from harness.records import Attempt, Source

# The message names all files; for more than this many, the command says FILE instead.
_MOST_NAMED = 4


def refuse_early(directory: Path, settings: Settings) -> None:
    """Raises those errors of an attempt that can be found quickly, before the evaluation, which takes seconds.

    They are `busy`, `dirty-judge` for prepare.py, the errors of `git.require_committable`, and those of unknown
    constants.
    """
    ledger = Ledger.open(directory)
    if ledger.is_unfinished():
        # The attempt will first recover an interrupted attempt, which may change kernel.py.
        return
    with ledger.lock("a check"):
        git.require_committable(ledger.place.repository)
    _refuse_dirty(directory, ())
    set_constants(Candidate.in_folder(directory), settings, directory)


def refuse_unfit(repository: Repo, contest: Contest) -> None:
    """Raises RatchetError if an attempt could not be judged or recorded.

    Reasons: no branch, no identity, no key to sign with although commits are signed, a dirty judge.
    """
    git.require_committable(repository)
    write.require_signing(repository)
    refuse_dirty_judge(contest)


def refuse_dirty_judge(contest: Contest) -> None:
    """Raises RatchetError `dirty-judge` if a file that a verdict depends on differs from HEAD."""
    _refuse_dirty(contest.directory, contest.judge_files())


def _refuse_dirty(directory: Path, judge_files: Sequence[Path]) -> None:
    by_repository = _dirty_by_repository(directory, judge_files)
    dirty = tuple(dict.fromkeys(path for _, paths in by_repository for path in paths))
    if dirty:
        raise RatchetError(
            "dirty-judge",
            f"the judge differs from HEAD: {', '.join(dirty)}. A verdict must come from a committed judge: "
            f"commit these files or put them back ({_putting_back(by_repository)}), then run again",
        )


def _putting_back(by_repository: Sequence[tuple[Path, tuple[str, ...]]]) -> str:
    """The commands that put these files back; `git -C` works from any folder."""
    return " and ".join(
        f"git -C {shlex.quote(str(root))} checkout HEAD -- {shlex.join(paths) if len(paths) <= _MOST_NAMED else 'FILE'}"
        for root, paths in by_repository
    )


def refuse_cpu_title(champion: Attempt | None, source: Source) -> None:
    """Raises RatchetError `cpu-champion` if a CPU's time would take the title from a time of another source."""
    if champion is not None and source == "measured cpu" != champion.key.source:
        raise RatchetError(
            "cpu-champion",
            f"the time of the champion (attempt {champion.number}) is {champion.key.source}, and a time on a CPU says "
            f"nothing about a {champion.key.chip}: leave out --on cpu. `judge --on cpu` times kernel.py on the CPU and "
            "records nothing; --rebaseline makes kernel.py the champion if it passes",
        )


def judge_put_back(contest: Contest) -> str:
    """The commands that put back the judge files that differ from HEAD; "" if none differs."""
    return _putting_back(_dirty_by_repository(contest.directory, contest.judge_files()))


def dirty_judge_files(contest: Contest) -> tuple[str, ...]:
    """Judge files that differ from HEAD of their repository, as paths in it."""
    by_repository = _dirty_by_repository(contest.directory, contest.judge_files())
    return tuple(dict.fromkeys(path for _, paths in by_repository for path in paths))


def _dirty_by_repository(directory: Path, judge_files: Sequence[Path]) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    """The top folder of each repository with judge files that differ, and their paths in it; the contest's comes first.

    The harness may lie in another repository.
    """
    prepare = directory / "prepare.py"
    by_root: dict[Path, list[str]] = {}
    asked = [(git.open_repository(directory), [prepare])]
    # A harness installed as a package lies in no repository; its bytes are still hashed into every record.
    home = git.find_repository(PACKAGE)
    if home is not None and judge_files:
        asked.append((home, [path for path in judge_files if path != prepare]))
    for repository, paths in asked:
        by_root.setdefault(git.root(repository), []).extend(index.changed_paths(repository, paths))
    return tuple((root, tuple(dict.fromkeys(paths))) for root, paths in by_root.items() if paths)
