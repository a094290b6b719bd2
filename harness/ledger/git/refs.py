"""The refs of the repository by their names, and those on the remotes."""

from dataclasses import dataclass

from git import Repo

from harness.ledger.git.command import attempted, run


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRef:
    """A ref on a remote; `commit` is None if the remote lacks it, `complaint` says why the remote did not answer."""

    remote: str
    commit: str | None
    complaint: str = ""


def refs(repository: Repo) -> dict[str, str]:
    """Every ref of the repository, by name, with the id of the object it points at."""
    lines = run(repository, "for-each-ref", "--format=%(objectname) %(refname)").decode("utf-8", "surrogateescape")
    return {name: target for target, _, name in (line.partition(" ") for line in lines.splitlines())}


def ref_on_remotes(repository: Repo, ref: str, timeout_seconds: float = 10.0) -> tuple[RemoteRef, ...]:
    """The commit of `ref` on each remote. Asks the remotes over the network, never for a password."""
    names = run(repository, "remote").decode("utf-8", "surrogateescape").split("\n")
    answers = []
    for name in filter(None, names):
        status, output, complaint = attempted(
            repository,
            "ls-remote",
            name,
            ref,
            environment={"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never"},
            timeout_seconds=timeout_seconds,
        )
        commit = output.decode().split()[0] if status == 0 and output.strip() else None
        answers.append(RemoteRef(remote=name, commit=commit, complaint=complaint if status != 0 else ""))
    return tuple(answers)
