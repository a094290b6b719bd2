"""The preconditions of an attempt: a committed judge, a branch, an identity, times that may decide the title."""

from git import Repo

from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.ledger import git
from harness.ledger.git import index, write
from harness.records import Attempt, Source


def refuse_unfit(repository: Repo, contest: Contest) -> None:
    """Raises RatchetError if an attempt could not be judged or recorded.

    Reasons: no branch, no identity, no key to sign with although commits are signed, a dirty judge.
    """
    git.require_committable(repository)
    write.require_signing(repository)
    refuse_dirty_judge(contest)


def refuse_dirty_judge(contest: Contest) -> None:
    """Raises RatchetError `dirty-judge` if a file that a verdict depends on differs from HEAD."""
    dirty = dirty_judge_files(contest)
    if dirty:
        raise RatchetError(
            "dirty-judge",
            f"the judge differs from HEAD: {', '.join(dirty)}. A verdict must come from a committed judge: "
            "commit these files or put them back (git checkout -- FILE), then run again",
        )


def refuse_cpu_title(champion: Attempt | None, source: Source) -> None:
    """Raises RatchetError `cpu-champion` if a CPU's time would take the title from a time of another source."""
    if champion is not None and source == "measured cpu" != champion.key.source:
        raise RatchetError(
            "cpu-champion",
            f"the time of the champion (attempt {champion.number}) is {champion.key.source}, and a time on a CPU says "
            f"nothing about a {champion.key.chip}: leave out --on cpu. `judge --on cpu` times kernel.py on the CPU and "
            "records nothing; --rebaseline makes kernel.py the champion as it stands",
        )


def dirty_judge_files(contest: Contest) -> tuple[str, ...]:
    """Judge files that differ from HEAD of their repository, as paths in it."""
    prepare = contest.directory / "prepare.py"
    dirty = list(index.changed_paths(git.open_repository(contest.directory), (prepare,)))
    # An installed package lies in no repository; its bytes are still hashed into every record.
    home = git.find_repository(PACKAGE)
    if home is not None:
        dirty += index.changed_paths(home, [path for path in contest.judge_files() if path != prepare])
    return tuple(dict.fromkeys(dirty))
