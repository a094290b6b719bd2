"""What has to hold before an attempt (a committed judge, a branch, an identity), and the key of what it will find."""

from git import Repo

from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.judge.sandbox.environment import environment
from harness.ledger import git
from harness.records import Key, Source


def refuse_unfit(repository: Repo, contest: Contest) -> None:
    """Raises RatchetError where an attempt could not be judged or recorded: no branch, no identity, dirty judge."""
    git.require_committable(repository)
    dirty = dirty_judge_files(contest)
    if dirty:
        raise RatchetError(
            "dirty-judge",
            f"the judge differs from HEAD: {', '.join(dirty)}. A verdict must come from a committed judge: "
            "commit these files or put them back (git checkout -- FILE), then run again",
        )


def dirty_judge_files(contest: Contest) -> tuple[str, ...]:
    """Judge files that differ from HEAD of the repository they lie in, as they are named there."""
    prepare = contest.directory / "prepare.py"
    dirty = list(git.changed_paths(git.open_repository(contest.directory), (prepare,)))
    # An installed package lies in no repository: its bytes are still hashed into every record.
    home = git.find_repository(PACKAGE)
    if home is not None:
        own = [path for path in contest.judge_files() if path != prepare]
        places = {path if path.parent == PACKAGE else path.parent for path in own}
        dirty += [path for path in git.changed_paths(home, sorted(places)) if path.endswith(".py")]
    return tuple(dict.fromkeys(dirty))


def key(contest: Contest, source: Source) -> Key:
    """The comparability key of evidence taken now."""
    here = environment()
    return Key(
        judge=contest.judge_digest(),
        problem=contest.problem_digest,
        chip=contest.chip.name,
        source=source,
        jax=here.jax,
        jaxlib=here.jaxlib,
        libtpu=here.libtpu or "",
        machine="" if source == "simulated" else here.machine,
    )


def key_difference(old: Key, new: Key) -> str:
    """What differs between two keys, in words."""
    names = [name for name in Key.__dataclass_fields__ if getattr(old, name) != getattr(new, name)]
    shown = [f"{name} {getattr(old, name) or 'none'} -> {getattr(new, name) or 'none'}" for name in names]
    return f"another comparability key ({', '.join(shown)})" if shown else "the same comparability key"
